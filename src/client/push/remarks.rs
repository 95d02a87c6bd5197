//! What HAProxy said at a reload that is worth a person's while.
//!
//! It repeats at every start under which user it runs and the like; that is no news, and
//! nothing of the set mends it.

use crate::wire::result::ApplyResult;

/// What HAProxy warned of when it loaded the set all the same, in lines, as far as the agent
/// kept it.
#[must_use]
pub fn warnings(result: &ApplyResult) -> Vec<&str> {
    let reload = result.reload.as_ref().filter(|reload| reload.ok);
    let output = reload.and_then(|reload| reload.output.as_deref());
    let said = about_the_set(output.unwrap_or_default());
    let warns = |line: &&str| line.starts_with("[WARNING]") || line.starts_with("[ALERT]");
    match said.iter().any(warns) {
        true => said,
        false => Vec::new(),
    }
}

/// HAProxy's words at a reload, in lines, without what it says of itself at every start,
/// such as under which user it runs.
#[must_use]
pub fn about_the_set(output: &str) -> Vec<&str> {
    // Lines without a level go on with the one before.
    let mut shown = true;
    let is_shown = |line: &&str| {
        if line.starts_with('[') {
            shown = !(line.starts_with("[WARNING]") && line.contains("main()]"));
        }
        shown
    };
    output.lines().filter(is_shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_haproxy_says_of_itself_is_not_about_the_set() {
        let own = "[WARNING] [/usr/sbin/haproxy.main()] HAProxy was started as root.\n  | more";
        let line = "[WARNING] config : frontend 'a' has no 'bind' directive.\n  | see there";
        assert!(about_the_set(own).is_empty());
        for output in [
            format!("{own}\n{line}"),
            format!("{line}\n{own}"),
            line.to_owned(),
        ] {
            let said = about_the_set(&output);
            assert_eq!(said.join("\n"), line, "{output}");
        }
        assert_eq!(about_the_set("[NOTICE] x"), ["[NOTICE] x"]);
    }
}
