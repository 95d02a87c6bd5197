//! In words, why a row does not do what it is told, or not yet, and what to do.

use super::super::confirm::SeenRow;
use super::super::coverage::{Heard, RowState};

/// The words for a row in this state; `None` where all is well.
pub(super) fn why(
    name: &str,
    state: RowState,
    heard: Option<&Heard>,
    seen: Option<&SeenRow>,
) -> Option<String> {
    Some(match state {
        RowState::Following | RowState::NotEnrolled => return None,
        RowState::Pending => match seen {
            Some(row) if is_held_down(row) => held_down(name),
            Some(row) => format!("HAProxy shows {} so far", row.status),
            None => return None,
        },
        RowState::Foreign => {
            let request = heard.map_or(name.into(), |row| String::from_utf8_lossy(&row.request));
            format!(
                "it sends {request:?}, and HAProxy has no server {name}: the first word of agent-send has to be backend/server as HAProxy spells them"
            )
        }
        // Not a name of a row at all.
        RowState::ByGroup if seen.is_none() => return None,
        RowState::ByGroup => {
            "its agent check is answered, but does not begin with this name: in agent-send only groups are named, or the first word is misspelt".to_owned()
        }
        RowState::AgentOff => {
            format!("its agent check is switched off: enable agent {name}, at the stats socket")
        }
        RowState::NotAsking => match seen {
            Some(row) => format!(
                "its agent check goes to {} and is not heard here ({})",
                row.agent, row.agent_status
            ),
            None => return None,
        },
        RowState::Diverged => seen.map(|row| diverged(name, row))?,
    })
}

fn is_held_down(row: &SeenRow) -> bool {
    row.status.starts_with("DOWN (agent)")
}

fn held_down(name: &str) -> String {
    format!(
        "HAProxy holds it down as an agent's word: set server {name} agent up, at the stats socket, ends that"
    )
}

fn diverged(name: &str, row: &SeenRow) -> String {
    if is_held_down(row) {
        return held_down(name);
    }
    let (status, weight, base) = (&row.status, row.weight, row.base_weight);
    let shows = format!("HAProxy shows {status} with weight {weight} of {base}");
    match row.agent_words.as_str() {
        "" => format!("{shows}: another writer, or a balancing that takes no shares"),
        words => format!("{shows} and says: {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Label as _;

    fn seen(status: &str, words: &str) -> SeenRow {
        SeenRow {
            state: RowState::Diverged,
            admin: 0,
            weight: 50,
            base_weight: 100,
            status: status.to_owned(),
            agent_status: "L4CON".to_owned(),
            agent_words: words.to_owned(),
            agent: "127.0.0.1:9777".to_owned(),
        }
    }

    #[test]
    fn every_state_that_is_none_of_a_good_row_has_its_words() {
        let row = seen("UP", "");
        for state in RowState::ALL {
            let words = why("web/s1", *state, None, Some(&row));
            let well = ["following", "not_enrolled"].contains(&state.as_str());
            assert_eq!(words.is_none(), well, "{state:?} {words:?}");
        }
        // The name of a group.
        assert_eq!(why("zone", RowState::ByGroup, None, None), None);
    }

    #[test]
    fn what_holds_a_row_is_told_apart() {
        let says = |row: &SeenRow| why("web/s1", RowState::Diverged, None, Some(row)).unwrap();
        let down = says(&seen("DOWN (agent)", ""));
        assert!(down.contains("set server web/s1 agent up"), "{down}");
        // Of that one knows at once that it does not pass by itself.
        let pending = |row: &SeenRow| why("web/s1", RowState::Pending, None, Some(row)).unwrap();
        assert_eq!(pending(&seen("DOWN (agent)", "")), down);
        assert_eq!(pending(&seen("UP", "")), "HAProxy shows UP so far");
        let refused = says(&seen("UP", "weights are refused"));
        assert!(refused.ends_with("weight 50 of 100 and says: weights are refused"));
        assert!(says(&seen("UP", "")).contains("another writer"));
    }
}
