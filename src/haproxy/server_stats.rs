//! What `show stat` says about servers and their agent checks.
//!
//! Columns are found by the names in the first line, so one that is added or moved does
//! not matter, and one that is missing is an error. Fields follow RFC 4180: a quoted one
//! may hold commas, quotes and line breaks, as the words of an agent can.

use super::wait::Deadline;
use super::worker::{DumpError, WorkerSocket};

/// All objects of all backends that are servers.
const COMMAND: &str = "show stat -1 4 -1";

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerStat {
    pub(crate) backend: String,
    pub(crate) name: String,
    /// As the statistics page shows it, `DOWN (agent)`, `DRAIN (agent)`, `no check`.
    pub(crate) status: String,
    /// How its last agent check ended: `CHECKED` when the reply did not speak of health,
    /// `L7OK` when it did; with a star before it while one runs.
    pub(crate) agent_status: String,
    /// What the last agent said that HAProxy had to complain about.
    pub(crate) agent_words: String,
}

impl ServerStat {
    /// Whether its last agent check reached an agent that answered.
    pub(crate) fn agent_is_well(&self) -> bool {
        ["CHECKED", "L7OK"]
            .iter()
            .any(|word| self.agent_status.ends_with(word))
    }
}

/// Every server, in HAProxy's order.
pub(crate) fn read(
    worker: &WorkerSocket,
    deadline: Deadline,
) -> Result<Vec<ServerStat>, DumpError> {
    let dump = worker.dump(COMMAND, deadline)?;
    parse(&String::from_utf8_lossy(&dump)).map_err(|words| DumpError::Refused {
        command: COMMAND.to_owned(),
        words,
    })
}

fn parse(dump: &str) -> Result<Vec<ServerStat>, String> {
    let text = dump
        .strip_prefix("# ")
        .ok_or_else(|| "`show stat` printed no line of column names".to_owned())?;
    let mut lines = Records { rest: text };
    let header = lines.next().unwrap_or_default();
    let place = |name: &str| {
        let found = header.iter().position(|column| column == name);
        found.ok_or_else(|| format!("`show stat` has no column {name}"))
    };
    let places = [
        place("pxname")?,
        place("svname")?,
        place("status")?,
        place("agent_status")?,
        place("last_agt")?,
    ];
    let mut rows = Vec::new();
    for record in lines.filter(|record| record.iter().any(|field| !field.is_empty())) {
        let [backend, name, status, agent_status, agent_words] =
            places.map(|place| record.get(place).cloned());
        let row = || {
            Some(ServerStat {
                backend: backend?,
                name: name?,
                status: status?,
                agent_status: agent_status?,
                agent_words: agent_words?,
            })
        };
        let shown: String = record.join(",").chars().take(200).collect();
        rows.push(row().ok_or_else(|| format!("`show stat` printed a short row: {shown:?}"))?);
    }
    Ok(rows)
}

/// The records of a comma-separated text.
struct Records<'t> {
    rest: &'t str,
}

impl Iterator for Records<'_> {
    type Item = Vec<String>;

    fn next(&mut self) -> Option<Vec<String>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut fields = vec![String::new()];
        let mut quoted = false;
        let mut chars = self.rest.char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            let field = fields.last_mut()?;
            match c {
                '"' if quoted && chars.next_if(|(_, next)| *next == '"').is_some() => {
                    field.push('"')
                }
                '"' => quoted = !quoted,
                ',' if !quoted => fields.push(String::new()),
                '\n' if !quoted => {
                    self.rest = self.rest.get(at + 1..).unwrap_or("");
                    return Some(fields);
                }
                c => field.push(c),
            }
        }
        self.rest = "";
        Some(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "# pxname,svname,qcur,status,last_agt,agent_status,-,\n";

    #[test]
    fn columns_by_their_names() {
        let rows = parse(&format!(
            "{HEADER}web,s1,0,UP,,L7OK,,\nweb,s2,0,DOWN (agent),\"said \"\"a, b\"\"\nand more\",* L7OK,,\n\n"
        ))
        .unwrap();
        let row = |name: &str, status: &str, agent: &str, words: &str| ServerStat {
            backend: "web".to_owned(),
            name: name.to_owned(),
            status: status.to_owned(),
            agent_status: agent.to_owned(),
            agent_words: words.to_owned(),
        };
        assert_eq!(
            rows,
            [
                row("s1", "UP", "L7OK", ""),
                row("s2", "DOWN (agent)", "* L7OK", "said \"a, b\"\nand more"),
            ]
        );
        assert!(rows.iter().all(ServerStat::agent_is_well));
        assert!(row("s", "UP", "* CHECKED", "").agent_is_well());
        assert!(!row("s", "UP", "L4CON", "").agent_is_well());
        assert_eq!(parse(HEADER).unwrap(), []);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for bad in [
            "",
            "pxname,svname\n",
            "# pxname,svname,status,agent_status\nweb,s1,UP,L7OK\n",
            "# pxname,svname,status,last_agt,agent_status\nweb,s1,UP,\n",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
