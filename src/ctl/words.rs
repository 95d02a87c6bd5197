//! Sizes, counts, plan ids and other people's texts, fit for a terminal.

/// A plan id as long as it has to be to be told from another: whole, unless it is one of
/// the hexadecimal digests that our own file sets have.
pub(super) fn plan(id: &str) -> String {
    let digest = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    match id {
        "" => "unknown".into(),
        id if digest => id.get(..12).unwrap_or(id).to_owned(),
        id => clean(id),
    }
}

/// Other people's text without anything that steers a terminal; lines stay lines.
pub(super) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\n',
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// What became of a command, where HAProxy's words or the agent's own are one word.
pub(super) fn outcome(output: &str) -> String {
    match output {
        "not_run" => "not sent, because one before it failed".into(),
        "unknown" => "how it ended is not known, its answer was lost".into(),
        other => match other.strip_prefix("not_run: ") {
            Some(why) => format!("not sent: {}", clean(why)),
            None => clean(other),
        },
    }
}

/// Bytes in the unit that makes them short.
pub(super) fn bytes(count: u64) -> String {
    const KIB: u64 = 1024;
    let tenths = |unit: u64| {
        let tenths = u128::from(count) * 10 / u128::from(unit);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    match count {
        0..KIB => format!("{count} B"),
        _ if count < KIB * KIB => format!("{} KiB", tenths(KIB)),
        _ if count < KIB * KIB * KIB => format!("{} MiB", tenths(KIB * KIB)),
        _ => format!("{} GiB", tenths(KIB * KIB * KIB)),
    }
}

/// `1 file`, `2 files`.
pub(super) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Names one after the other, and how many more there are.
pub(super) fn some(names: &[String], most: usize) -> String {
    let shown: Vec<String> = names.iter().take(most).map(|name| clean(name)).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The first of some lines, and how many more there are.
pub(super) fn head(all: &[&str], most: usize) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(most).map(|line| clean(line)).collect();
    match all.len().saturating_sub(most) {
        0 => {}
        more => lines.push(format!(
            "and {} more; -o json has all",
            counted(more, "line")
        )),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_ids_are_short_where_that_is_enough() {
        assert_eq!(plan(&"ab".repeat(32)), "abababababab");
        assert_eq!(plan("release-7"), "release-7");
        assert_eq!(plan(""), "unknown");
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(
            clean("a\x1b[31mb\r\nc\td\u{9b}"),
            "a\u{fffd}[31mb\u{fffd}\nc d\u{fffd}"
        );
    }

    #[test]
    fn sizes_and_counts() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64.0 MiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ];
        for (count, text) in table {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
        assert_eq!(head(&["a", "b"], 2), ["a", "b"]);
        assert_eq!(
            head(&["a", "b", "c"], 1),
            ["a", "and 2 lines more; -o json has all"]
        );
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(some(&names, 2), "a, b and 1 more");
        assert_eq!(some(&names, 3), "a, b, c");
    }
}
