//! One changed file at a time, and several.

use super::*;

/// As [`change`], where the configuration has this line.
fn with_line(line: &str, path: &str, content: &str) -> (Files, Files) {
    let (mut before, mut after) = change(path, content);
    for files in [&mut before, &mut after] {
        let config = format!("frontend f\n  {line}\n");
        files.insert("haproxy.cfg".into(), config.into_bytes());
    }
    (before, after)
}

/// Each row: a change, the versions, what it needs, the sort of its reason, a piece of its
/// words, and the ops.
#[test]
fn each_sort_of_file_has_its_op_or_its_reason() {
    use Verdict::{FileOnly, Reload, Runtime};
    const OLD: &[&str] = &["3.0.11", "3.1.17"];
    const NEW: &[&str] = &["3.2.26", "3.4.7"];
    const ALL: &[&str] = &["3.0.11", "3.2.26", "3.4.7"];
    let other = format!("{}{KEY}", CERT.replace("AAAA", "BBBB"));
    let big = format!(
        "{}{KEY}",
        CERT.replace("AAAA\n", &"A".repeat(64).add_lines(200))
    );
    let huge = CERT.replace("AAAA\n", &"A".repeat(64).add_lines(2000));
    let long = format!("a {}\n", "x".repeat(13_000));
    type Row<'a> = (
        (Files, Files),
        &'a [&'a str],
        Verdict,
        Why,
        &'a str,
        &'a [&'a str],
    );
    let table: Vec<Row<'_>> = vec![
        // Maps.
        (
            change("maps/host.map", "a one\nb three\n"),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 2 entries",
            &["map_replace maps/host.map"],
        ),
        (
            change("maps/host.map", "a 1\na 2\n # odd\n\n"),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 3 entries",
            &["map_replace maps/host.map"],
        ),
        (
            change("maps/host.map", ""),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 0 entries",
            &["map_replace maps/host.map"],
        ),
        (
            change("maps/host.map", "# new\na  one \r\nb two"),
            ALL,
            FileOnly,
            Why::Meaningless,
            "comments, blanks",
            &[],
        ),
        (
            change("maps/host.map", "a\0b\n"),
            ALL,
            Reload,
            Why::Content,
            "NUL byte, so HAProxy",
            &[],
        ),
        (
            change("maps/host.map", &long),
            ALL,
            Reload,
            Why::Content,
            "line 1 of the map file is longer than",
            &[],
        ),
        (
            change("maps/host.map", format!("{} v\n", "k".repeat(12_250))),
            ALL,
            Reload,
            Why::TooBig,
            "a map entry has 12253 bytes",
            &[],
        ),
        (
            change("maps/host.map", "k v\n".repeat(262_145)),
            ALL,
            Reload,
            Why::TooBig,
            "262145 entries",
            &[],
        ),
        (
            change("maps/blocked.acl", "10.0.0.2\n"),
            ALL,
            Reload,
            Why::NotInInventory,
            "such as an ACL's",
            &[],
        ),
        (
            change("maps/alias.map", "x z\n"),
            ALL,
            Reload,
            Why::NotInInventory,
            "the map /etc/haproxy/maps/alias.map, which may be this file",
            &[],
        ),
        (
            change("maps/big.map", "x z\n"),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 1",
            &["map_replace maps/big.map"],
        ),
        (
            change("maps/new.map", "x z\n"),
            ALL,
            Reload,
            Why::Added,
            "new file",
            &[],
        ),
        // Certificates.
        (
            change("certs/a.pem", &other),
            ALL,
            Runtime,
            Why::Ops,
            "replaced at runtime",
            &["cert_set certs/a.pem"],
        ),
        (
            change("certs/a.pem", &big),
            ALL,
            Reload,
            Why::TooBig,
            "fit into one command",
            &[],
        ),
        (
            change("certs/a.pem", CERT),
            ALL,
            Reload,
            Why::Content,
            "certificate and its private key",
            &[],
        ),
        (
            change("certs/a.pem", format!("{}{KEY}", CERT.trim_end())),
            ALL,
            Reload,
            Why::Content,
            "of the PEM file",
            &[],
        ),
        (
            change(
                "certs/a.pem",
                format!("note\n\n{}\n{KEY}", CERT.replace("AAAA", "AAA1")),
            ),
            ALL,
            FileOnly,
            Why::Meaningless,
            "comments, blanks",
            &[],
        ),
        (
            change("certs/pair.pem", &other),
            ALL,
            Reload,
            Why::Companion,
            "certs/pair.pem.ocsp belongs to it",
            &[],
        ),
        (
            change("certs/pair.pem.ocsp", "y"),
            ALL,
            Reload,
            Why::Companion,
            "it belongs to certs/pair.pem",
            &[],
        ),
        (
            change("certs/a.pem.key", KEY),
            ALL,
            Reload,
            Why::Companion,
            "it belongs to certs/a.pem",
            &[],
        ),
        (
            change("twice.pem", &other),
            ALL,
            Reload,
            Why::SeveralUses,
            "as certificate and as CA file",
            &[],
        ),
        (
            change("certs/new.pem", &other),
            ALL,
            Reload,
            Why::Added,
            "no line at the end of a loaded crt-list names it",
            &[],
        ),
        // CA files.
        (
            change("ca/clients.pem", CERT.replace("AAAA", "CCCC")),
            NEW,
            Runtime,
            Why::Ops,
            "in 1 command(s)",
            &["ca_set ca/clients.pem"],
        ),
        (
            change(
                "ca/clients.pem",
                CERT.replace("AAAA\n", &"A".repeat(64).add_lines(100))
                    .repeat(5),
            ),
            NEW,
            Runtime,
            Why::Ops,
            "in 5 command(s)",
            &["ca_set ca/clients.pem"],
        ),
        (
            change("ca/clients.pem", CERT.replace("AAAA", "CCCC")),
            OLD,
            Reload,
            Why::Version,
            "from 3.2 on, and this is 3.",
            &[],
        ),
        (
            change("ca/clients.pem", format!("# x\n{CERT}")),
            ALL,
            FileOnly,
            Why::Meaningless,
            "comments",
            &[],
        ),
        (
            change("ca/clients.pem", CERT.replace("CERTIFICATE", "X509 CRL")),
            NEW,
            Reload,
            Why::Content,
            "more than certificates",
            &[],
        ),
        (
            change("ca/clients.pem", format!("{CERT}{KEY}")),
            NEW,
            Reload,
            Why::Content,
            "more than certificates",
            &[],
        ),
        (
            change("ca/clients.pem", huge),
            NEW,
            Reload,
            Why::TooBig,
            "fit into one command",
            &[],
        ),
        (
            change("ca/clients.pem", ""),
            NEW,
            Reload,
            Why::Content,
            "no certificate",
            &[],
        ),
        // Used for something else too, by the worker's lists or by the set's own text.
        (
            change("maps/both.map", "a three\n"),
            ALL,
            Reload,
            Why::SeveralUses,
            "as map and as ACL file",
            &[],
        ),
        (
            change("lists/known.acl", "10.0.0.2\n"),
            ALL,
            Reload,
            Why::OnlyAtStart,
            "patterns of an ACL",
            &[],
        ),
        (
            with_line(
                "http-request return file ./maps/host.map",
                "maps/host.map",
                "a three\n",
            ),
            ALL,
            Reload,
            Why::SeveralUses,
            "line 2 of haproxy.cfg uses it, or may use it, for something else than a map",
            &[],
        ),
        // A comment in it is a byte of the page.
        (
            with_line(
                "errorfile 503 maps/host.map",
                "maps/host.map",
                "# new\na one\nb two\n",
            ),
            ALL,
            Reload,
            Why::SeveralUses,
            "something else than a map",
            &[],
        ),
        (
            with_line(
                "use_backend %[path,map(maps/host.map)]",
                "maps/host.map",
                "a three\n",
            ),
            ALL,
            Runtime,
            Why::Ops,
            "all of its 1 entries",
            &["map_replace maps/host.map"],
        ),
        (
            with_line(
                "bind :443 ssl ca-sign-file certs/a.pem",
                "certs/a.pem",
                &other,
            ),
            ALL,
            Reload,
            Why::SeveralUses,
            "something else than a certificate",
            &[],
        ),
        // All else.
        (
            change("ca/gone.crl", "y"),
            ALL,
            Reload,
            Why::Crl,
            "revocation list",
            &[],
        ),
        (
            change("errors/503.http", "y"),
            ALL,
            Reload,
            Why::OnlyAtStart,
            "error pages",
            &[],
        ),
        (
            change("lua/x.lua", "y"),
            ALL,
            Reload,
            Why::Added,
            "new file",
            &[],
        ),
        (
            change("haproxy.cfg", "global \n"),
            ALL,
            Reload,
            Why::Configuration,
            "the configuration changed",
            &[],
        ),
    ];
    for (pair, versions, verdict, why, words, ops) in &table {
        for version in *versions {
            let decision = after(pair, version);
            let reason = &decision.reasons[0];
            assert_eq!(
                (decision.verdict, reason.why),
                (*verdict, *why),
                "{decision:#?}"
            );
            assert!(
                reason.text.contains(words),
                "wanted {words:?} in {:?}",
                reason.text
            );
            assert_eq!(shown(&decision), *ops);
            assert_eq!(decision.files.len(), 1);
            assert_eq!(reason.path.as_ref(), Some(&decision.files[0].path));
        }
    }
}

trait AddLines {
    fn add_lines(&self, count: usize) -> String;
}

impl AddLines for String {
    fn add_lines(&self, count: usize) -> String {
        format!("{self}\n").repeat(count)
    }
}

#[test]
fn a_removed_file_is_a_reload() {
    for path in site().keys().filter(|path| *path != "haproxy.cfg") {
        let before = site();
        let mut after = before.clone();
        after.remove(path);
        let decision = decided(&set(&after), &applied(&set(&before), "3.4.7"));
        assert_eq!(decision.verdict, Verdict::Reload);
        assert_eq!(decision.reasons[0].why, Why::Removed);
        assert_eq!(decision.files[0].change, Change::Removed);
    }
}

#[test]
fn a_name_that_no_command_can_say_is_a_reload() {
    let mut before = site();
    before.insert("maps/a b.map".into(), b"x y\n".to_vec());
    let mut after = before.clone();
    after.insert("maps/a b.map".into(), b"x z\n".to_vec());
    let mut state = applied(&set(&before), "3.4.7");
    state.runtime_inventory.maps.push("maps/a b.map".into());
    let decision = decided(&set(&after), &state);
    assert_eq!(decision.reasons[0].why, Why::Content);
    assert!(
        decision.reasons[0]
            .text
            .contains("no runtime command can name it")
    );
}

#[test]
fn one_file_that_needs_a_reload_reloads_them_all() {
    let before = site();
    let mut after = before.clone();
    after.insert("maps/host.map".into(), b"c d\n".to_vec());
    after.insert("errors/503.http".into(), b"x".to_vec());
    let decision = decided(&set(&after), &applied(&set(&before), "3.4.7"));
    assert_eq!(decision.verdict, Verdict::Reload);
    let needs: Vec<_> = decision
        .files
        .iter()
        .map(|f| (f.path.as_str(), f.needs))
        .collect();
    assert_eq!(
        needs,
        [
            ("errors/503.http", Verdict::Reload),
            ("maps/host.map", Verdict::Runtime)
        ]
    );
    assert_eq!(decision.reasons.len(), 2);
    assert_eq!(
        decision.reasons[0].path.as_ref().unwrap().as_str(),
        "errors/503.http"
    );

    // A companion that changed with its certificate is both files' reason.
    let mut after = before.clone();
    after.insert("certs/pair.pem".into(), format!("{CERT}{KEY}").into_bytes());
    after.insert("certs/pair.pem.ocsp".into(), b"y".to_vec());
    let decision = decided(&set(&after), &applied(&set(&before), "3.4.7"));
    assert!(
        decision
            .reasons
            .iter()
            .all(|reason| reason.why == Why::Companion)
    );
}

#[test]
fn what_a_program_reads_has_stable_words() {
    let decision = after_of(&change("maps/host.map", "a one\nb three\n"));
    let json = serde_json::to_value(&decision).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "verdict": "runtime",
            "ops": [{"kind": "map_replace", "path": "maps/host.map"}],
            "files": [{"path": "maps/host.map", "change": "changed", "kind": "map", "needs": "runtime"}],
            "reasons": [{
                "path": "maps/host.map", "needs": "runtime", "why": "ops",
                "text": "all of its 2 entries can be replaced at runtime",
            }],
            "send_all": false,
        })
    );
}
