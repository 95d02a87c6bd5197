//! Our reader of crt-lists beside HAProxy's own.

use crate::support::certs;
use crate::support::haproxy::{Haproxy, Version, preamble};
use haptic_agent::format::crt_list;
use std::fs;
use std::path::Path;

/// Lists of which HAProxy may take any or none; `C` stands for a certificate's name.
const LISTS: &[&str] = &[
    "C\n",
    "C",
    "\n\n# x\nC\n",
    "#C\nC\n",
    " C\n",
    "\tC  a.x\t!b.x \n",
    "C\r\n",
    "\r\nC a.x\r\n",
    "C [alpn h2] a.x\n",
    "C[alpn h2]a.x\n",
    "C [ alpn  h2 ssl-min-ver TLSv1.2 ]\n",
    "C [] a.x\n",
    "C a.x [alpn h2] b.x\n",
    "C [alpn h2\n",
    "C alpn h2]\n",
    "C ] [alpn h2]\n",
    "C [alpn h2] [verify none]\n",
    "C [alpn h2] x]\n",
    "[alpn h2] C\n",
    " # C\n",
    "C # c.x\n",
    "C\nC a.x\n# end\n",
    "C\n# open",
    "C\n \t",
    "C\n\r",
    "C\n\rx",
    "C [alpn h2",
    "C\n\n \t \n",
    "C \"a.x\"\n",
    "C\u{b}a.x\u{c}b.x\n",
];

fn config(base: &Path, lists: &[usize]) -> String {
    let binds = lists
        .iter()
        .map(|n| format!("    bind unix@{}/s{n} ssl crt-list l{n}\n", base.display()));
    format!(
        "{}frontend f\n{}    http-request return status 200\n",
        preamble(base),
        binds.collect::<String>()
    )
}

#[test]
fn lists_are_read_as_haproxy_reads_them() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let pem = certs::first().pem();
        fs::write(base.join("C"), &pem).unwrap();
        fs::write(base.join("#"), &pem).unwrap();
        let mut good = Vec::new();
        let mut apart = Vec::new();
        for (n, text) in LISTS.iter().enumerate() {
            fs::write(base.join(format!("l{n}")), text).unwrap();
            let file = base.join("check.cfg");
            fs::write(&file, config(base, &[n])).unwrap();
            let checked = version.check(&file);
            let words = String::from_utf8_lossy(&checked.stderr);
            let ours = crt_list::parse(text.as_bytes());
            if ours.is_ok() != checked.status.success() {
                apart.push(format!("{version} {text:?}: {ours:?} {words}"));
                continue;
            }
            if let Ok(rows) = ours {
                good.push((n, rows));
            }
        }
        assert!(apart.is_empty(), "{apart:#?}");
        let lists: Vec<usize> = good.iter().map(|(n, _)| *n).collect();
        let haproxy = Haproxy::start(version, base, &config(base, &lists));
        for (n, rows) in good {
            let shown = haproxy.ask(&format!("show ssl crt-list -n l{n}")).unwrap();
            let mut seen: Vec<(String, usize, Vec<String>)> = shown
                .replace('\0', "")
                .lines()
                .filter(|row| !row.is_empty() && !row.starts_with("# l"))
                .map(|row| {
                    let (first, rest) = row.split_once(' ').unwrap_or((row, ""));
                    let (name, line) = first.rsplit_once(':').unwrap();
                    let filters = rest.rsplit_once(']').map_or(rest, |(_, filters)| filters);
                    let filters = filters.split_whitespace().map(str::to_owned);
                    (name.to_owned(), line.parse().unwrap(), filters.collect())
                })
                .collect();
            seen.sort_by_key(|row| row.1);
            let text = |bytes: &&[u8]| String::from_utf8_lossy(bytes).into_owned();
            let ours: Vec<_> = rows
                .iter()
                .map(|row| {
                    let filters = row.filters.iter().map(text).collect::<Vec<_>>();
                    (text(&row.cert), row.line, filters)
                })
                .collect();
            assert_eq!(ours, seen, "{version} {:?}\n{shown}", LISTS[n]);
        }
    }
}
