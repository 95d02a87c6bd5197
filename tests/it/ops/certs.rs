//! Certificates, CA files and crt-lists.

use super::*;
use crate::support::certs::{self, Material};
use crate::support::haproxy::ask;
use haptic_agent::haproxy::inventory;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Instant;

const SITE: &str = "certs/site.pem";
const MUTUAL: &str = "certs/mutual.pem";
const NEW: &str = "certs/new.pem";
const CA: &str = "ca/clients.pem";
const LIST: &str = "lists/a.list";

fn tls(base: &Path) -> String {
    for dir in ["certs", "ca", "lists"] {
        fs::create_dir_all(base.join(dir)).unwrap();
    }
    fs::write(base.join(SITE), certs::first().pem()).unwrap();
    fs::write(base.join(MUTUAL), certs::first().pem()).unwrap();
    fs::write(base.join("certs/idle.pem"), certs::first().pem()).unwrap();
    fs::write(base.join(CA), &certs::first().cert).unwrap();
    fs::write(
        base.join(LIST),
        format!("{SITE} a.example\n{SITE} b.example\ncerts/idle.pem c.example\n"),
    )
    .unwrap();
    format!(
        "{}frontend tls\n    bind unix@{base}/tls.sock ssl crt-list {LIST}\n    bind unix@{base}/mutual.sock ssl crt {MUTUAL} ca-file {CA} verify optional\n    http-request return status 200\n",
        preamble(base),
        base = base.display(),
    )
}

fn each_tls(test: impl Fn(&mut Bench)) {
    for version in Version::ALL {
        test(&mut Bench::start(version, tls));
    }
}

fn with_path(kind: &str, path: &str) -> Value {
    op(kind, json!({"path": path}))
}

fn row(kind: &str, cert: &str, more: Value) -> Value {
    let mut fields = more;
    fields["path"] = json!(LIST);
    fields["cert"] = json!(cert);
    op(kind, fields)
}

/// The subject that is served to `name`.
fn served(bench: &Bench, name: &str) -> String {
    let socket = bench.path().join("tls.sock");
    let done = Command::new("openssl")
        .args(["s_client", "-servername", name, "-unix"])
        .arg(socket)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let subject = text.lines().find_map(|line| line.strip_prefix("subject="));
    subject.unwrap_or_default().replace(' ', "")
}

/// The answer to a command with a payload, by somebody else.
fn payload(bench: &Bench, command: &str, body: &str) -> String {
    bench
        .ask(&format!("{command} <<\n{body}"))
        .trim()
        .to_owned()
}

/// A key and certificate above 4 KiB together.
fn rsa() -> &'static str {
    static MADE: OnceLock<String> = OnceLock::new();
    MADE.get_or_init(|| {
        let done = Command::new("openssl")
            .args([
                "req",
                "-x509",
                "-newkey",
                "rsa:4096",
                "-nodes",
                "-keyout",
                "-",
                "-subj",
                "/CN=rsa.example",
                "-days",
                "100",
            ])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(done.stdout).unwrap()
    })
}

/// Many certificates.
fn many() -> &'static [Material] {
    static MADE: OnceLock<Vec<Material>> = OnceLock::new();
    MADE.get_or_init(|| {
        (0..45)
            .map(|n| certs::make(&format!("n{n}.example")))
            .collect()
    })
}

fn chain(count: usize) -> String {
    many()[..count].iter().map(|m| m.cert.as_str()).collect()
}

#[test]
fn a_certificate_is_replaced_under_traffic() {
    each_tls(|bench| {
        assert_eq!(served(bench, "a.example"), "CN=first.example");
        bench.write(SITE, certs::second().pem());
        bench.good(&json!([with_path("cert_set", SITE)]));
        assert_eq!(served(bench, "a.example"), "CN=second.example");
        assert!(!bench.ask("show ssl cert").contains('*'));
        let untidy = format!(
            "text\r\n{}\r\n\r\n\n{}",
            certs::first().cert.replace('\n', "\r\n"),
            certs::first().key
        );
        bench.write(SITE, untidy);
        bench.good(&json!([
            with_path("cert_set", SITE),
            with_path("cert_set", SITE)
        ]));
        assert_eq!(served(bench, "a.example"), "CN=first.example");
    });
}

/// However a file is laid out that HAProxy loads: an op serves it, and so does a reload.
#[test]
fn layouts_that_haproxy_loads_are_taken_at_runtime() {
    type Layout = fn(&Material) -> String;
    let layouts: [(&str, Layout); 8] = [
        ("key first", |m| format!("{}{}", m.key, m.cert)),
        ("CRLF", |m| m.pem().replace('\n', "\r\n")),
        ("no last line end", |m| m.pem().trim_end().to_owned()),
        ("blank lines between", |m| {
            format!("\n\n{}\n\n\n{}\n\n", m.cert, m.key)
        }),
        ("text around", |m| {
            format!("subject=x\nissuer=y\n{}notes\n{}# end\n", m.cert, m.key)
        }),
        ("its chain behind the key", |m| {
            format!("{}{}", m.pem(), many()[0].cert)
        }),
        ("its chain twice", |m| {
            format!("{}{}{}{}", m.cert, many()[0].cert, many()[0].cert, m.key)
        }),
        ("CRLF and blank lines", |m| {
            format!("\n{}\n\n{}", m.cert, m.key).replace('\n', "\r\n")
        }),
    ];
    each_tls(|bench| {
        for (n, (what, layout)) in layouts.iter().enumerate() {
            let (of, name) = match n % 2 {
                0 => (certs::second(), "CN=second.example"),
                _ => (certs::first(), "CN=first.example"),
            };
            let what = format!("{}: {what}", bench.haproxy.version());
            bench.write(SITE, layout(of));
            bench.good(&json!([with_path("cert_set", SITE)]));
            assert_eq!(served(bench, "a.example"), name, "{what}");
            bench.before = bench.reload();
            assert_eq!(served(bench, "a.example"), name, "{what}, reloaded");
        }
    });
}

/// Equal certificates are held once, however often and in how many pieces they come.
#[test]
fn a_bundle_with_duplicates_is_taken() {
    each_tls(|bench| {
        let twice = format!("{}\n\r\n{}", chain(30), chain(30)).replace('\n', "\r\n");
        assert!(twice.len() > 2 * 12_288);
        bench.write("ca/new.pem", &twice);
        bench.good(&json!([with_path("ca_new", "ca/new.pem")]));
        let shown = bench.ask("show ssl ca-file");
        assert!(shown.contains("ca/new.pem - 30 certificate(s)"), "{shown}");
    });
}

#[test]
fn a_new_certificate_is_served_by_its_row() {
    each_tls(|bench| {
        bench.write(NEW, certs::second().pem());
        let options =
            json!([{"name": "alpn", "args": ["h2"]}, {"name": "ssl-min-ver", "args": ["TLSv1.2"]}]);
        bench.good(&json!([
            with_path("cert_new", NEW),
            row("crtlist_add", NEW, json!({"options": options, "sni_filters": ["new.example", "*.new.example", "!x.new.example"]})),
        ]));
        assert_eq!(served(bench, "new.example"), "CN=second.example");
        assert_eq!(served(bench, "y.new.example"), "CN=second.example");
        assert_eq!(served(bench, "x.new.example"), "CN=first.example");
        let list = bench.ask(&format!("show ssl crt-list -n {LIST}"));
        assert!(
            list.replace('\0', "")
                .contains("[alpn h2 ssl-min-ver TLSv1.2]"),
            "{list}"
        );
        bench.good(&json!([row("crtlist_del", NEW, json!({}))]));
        assert_eq!(served(bench, "new.example"), "CN=first.example");
        let report = bench.good(&json!([
            row("crtlist_del", NEW, json!({})),
            row("crtlist_add", NEW, json!({}))
        ]));
        assert_eq!(report.results[0].outcome.as_str(), "absent");
        assert_eq!(served(bench, "second.example"), "CN=second.example");
    });
}

#[test]
fn several_rows_go_only_when_the_file_names_none() {
    each_tls(|bench| {
        bench.write(NEW, certs::second().pem());
        bench.good(&json!([
            with_path("cert_new", NEW),
            row("crtlist_add", NEW, json!({"sni_filters": ["x.example"]})),
            row("crtlist_add", NEW, json!({"sni_filters": ["y.example"]})),
        ]));
        bench.write(LIST, format!("{SITE} a.example\n{NEW} y.example\n"));
        let (outcome, words) = bench.bad(&json!([row("crtlist_del", NEW, json!({}))]), 0);
        assert_eq!(outcome, Outcome::Ambiguous, "{words}");
        assert_eq!(served(bench, "x.example"), "CN=second.example");
        bench.write(LIST, format!("{SITE} a.example\n# {NEW}\n"));
        bench.good(&json!([row("crtlist_del", NEW, json!({}))]));
        assert_eq!(served(bench, "x.example"), "CN=first.example");
        assert_eq!(served(bench, "y.example"), "CN=first.example");
    });
}

#[test]
fn a_foreign_transaction_is_aborted_once() {
    each_tls(|bench| {
        let opened = payload(bench, "set ssl cert certs/idle.pem", &certs::second().pem());
        assert!(opened.contains("Transaction created"), "{opened}");
        bench.write(SITE, certs::second().pem());
        bench.good(&json!([with_path("cert_set", SITE)]));
        assert_eq!(served(bench, "a.example"), "CN=second.example");
        assert!(!bench.ask("show ssl cert").contains('*'));
        // One under our own name does no harm.
        payload(
            bench,
            &format!("set ssl cert {SITE}"),
            &certs::second().pem(),
        );
        bench.write(SITE, certs::first().pem());
        bench.good(&json!([with_path("cert_set", SITE)]));
        assert_eq!(served(bench, "a.example"), "CN=first.example");
        if bench.haproxy.version() != Version::V3_0 {
            bench.write("ca/new.pem", &certs::second().cert);
            bench.good(&json!([with_path("ca_new", "ca/new.pem")]));
            payload(bench, "set ssl ca-file ca/new.pem", &certs::first().cert);
            bench.good(&json!([with_path("ca_set", CA)]));
            assert!(!bench.ask("show ssl ca-file").contains('*'));
        }
    });
}

#[test]
fn refusals_of_certificates_leave_nothing_open() {
    each_tls(|bench| {
        let mixed = format!("{}{}", certs::first().cert, certs::second().key);
        bench.write(SITE, &mixed);
        bench.write(NEW, &mixed);
        bench.write("certs/unknown.pem", certs::first().pem());
        let broken = certs::first().pem().replacen("\nMII", "\n!!!", 1);
        bench.write("certs/broken.pem", &broken);
        for (bad, words) in [
            (
                with_path("cert_set", SITE),
                "inconsistencies between private key and certificate",
            ),
            (
                with_path("cert_new", NEW),
                "inconsistencies between private key and certificate",
            ),
            (
                with_path("cert_set", "certs/unknown.pem"),
                "Can't replace a certificate which is not referenced by the configuration!",
            ),
            (
                with_path("cert_new", "certs/broken.pem"),
                "unable to load certificate",
            ),
            (
                with_path("cert_new", "certs/idle.pem"),
                "Certificate 'certs/idle.pem' already exists!",
            ),
            (
                with_path("ca_new", CA),
                "CA file 'ca/clients.pem' already exists!",
            ),
            (
                row(
                    "crtlist_add",
                    SITE,
                    json!({"options": [{"name": "frobnicate"}]}),
                ),
                "parsing [CLI:1]: unknown ssl keyword frobnicate",
            ),
            (row("crtlist_del", SITE, json!({})), "the crt-list"),
            (
                row("crtlist_add", "certs/none.pem", json!({})),
                "HAProxy holds no certificate certs/none.pem",
            ),
            (
                op(
                    "crtlist_del",
                    json!({"path": "lists/none.list", "cert": SITE}),
                ),
                "",
            ),
            (
                op(
                    "crtlist_add",
                    json!({"path": "lists/none.list", "cert": SITE}),
                ),
                "crt-list 'lists/none.list' does not exist!",
            ),
        ] {
            let mut ops: Vec<Value> = (0..100)
                .map(|_| row("crtlist_del", "certs/absent.pem", json!({})))
                .collect();
            ops[71] = bad.clone();
            let (outcome, said) = bench.bad(&json!(ops), 71);
            assert!(
                matches!(outcome, Outcome::Rejected | Outcome::Ambiguous),
                "{bad} {outcome:?}"
            );
            assert!(
                said.contains(words),
                "{}: {bad}: {said}",
                bench.haproxy.version()
            );
            let listing = bench.ask("show ssl cert");
            assert!(
                !listing.contains('*') && !listing.contains(NEW) && !listing.contains("broken"),
                "{bad}: {listing}"
            );
        }
        // The default certificate of a bind cannot leave its list.
        bench.write(LIST, "");
        let (outcome, said) = bench.bad(&json!([row("crtlist_del", SITE, json!({}))]), 0);
        assert_eq!(outcome, Outcome::Rejected);
        assert!(said.contains("used as default certificate"), "{said}");
        assert_eq!(served(bench, "a.example"), "CN=first.example");
    });
}

#[test]
fn an_empty_store_that_was_left_over_is_used() {
    each_tls(|bench| {
        bench.ask(&format!("new ssl cert {NEW}"));
        bench.write(NEW, certs::second().pem());
        bench.good(&json!([
            with_path("cert_new", NEW),
            row("crtlist_add", NEW, json!({}))
        ]));
        assert_eq!(served(bench, "second.example"), "CN=second.example");
    });
}

#[test]
fn what_is_no_certificate_is_not_executable() {
    let mut bench = Bench::start(Version::V3_0, tls);
    let glued = format!("{}{}", certs::first().cert.trim_end(), certs::first().key);
    for content in [
        String::new(),
        certs::first().cert.clone(),
        certs::first().key.clone(),
        glued,
    ] {
        bench.write(NEW, content);
        let refused = bench
            .try_run(&json!([with_path("cert_new", NEW)]))
            .unwrap_err();
        assert_eq!(refused.outcome, Outcome::Invalid);
    }
    let refused = bench
        .try_run(&json!([with_path("ca_set", CA)]))
        .unwrap_err();
    assert_eq!(refused.outcome, Outcome::Unsupported);
}

#[test]
fn long_chains_and_large_bundles_arrive_whole() {
    each_tls(|bench| {
        let size = 9_500;
        let count = (1..45).take_while(|&n| chain(n).len() < size).count();
        bench.write(SITE, format!("{}{}", rsa(), chain(count)));
        bench.good(&json!([with_path("cert_set", SITE)]));
        assert_eq!(served(bench, "a.example"), "CN=rsa.example");
        let shown = bench.ask(&format!("show ssl cert {SITE}"));
        assert_eq!(shown.matches("Chain Subject").count(), count, "{shown}");
        bench.write(SITE, format!("{}{}", rsa(), chain(45)));
        let refused = bench
            .try_run(&json!([with_path("cert_set", SITE)]))
            .unwrap_err();
        assert_eq!(refused.outcome, Outcome::TooBig);
        bench.write("ca/new.pem", chain(45));
        bench.good(&json!([with_path("ca_new", "ca/new.pem")]));
        assert!(
            bench
                .ask("show ssl ca-file")
                .contains("ca/new.pem - 45 certificate(s)")
        );
        if bench.haproxy.version() != Version::V3_0 {
            bench.write(CA, chain(44));
            bench.good(&json!([
                with_path("ca_set", CA),
                with_path("cert_set", "certs/idle.pem")
            ]));
            let shown = bench.ask("show ssl ca-file");
            assert!(
                shown.contains(&format!("{CA} - 44 certificate(s)")),
                "{shown}"
            );
        }
    });
}

#[test]
fn a_certificate_that_stays_old_is_no_success() {
    each_tls(|bench| {
        payload(
            bench,
            &format!("set ssl ca-file {CA}"),
            &certs::second().cert,
        );
        bench.ask(&format!("commit ssl ca-file {CA}"));
        bench.write(MUTUAL, certs::second().pem());
        if bench.haproxy.version() == Version::V3_0 {
            let (outcome, words) = bench.bad(&json!([with_path("cert_set", MUTUAL)]), 0);
            assert_eq!(outcome, Outcome::NotApplied, "{words}");
            assert_eq!(served_mutual(bench), "CN=first.example");
        } else {
            bench.good(&json!([with_path("cert_set", MUTUAL)]));
            assert_eq!(served_mutual(bench), "CN=second.example");
        }
    });
}

fn served_mutual(bench: &Bench) -> String {
    let done = Command::new("openssl")
        .args(["s_client", "-unix"])
        .arg(bench.path().join("mutual.sock"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    let subject = text.lines().find_map(|line| line.strip_prefix("subject="));
    subject.unwrap_or_default().replace(' ', "")
}

#[test]
fn names_behind_a_base_are_found() {
    for version in Version::ALL {
        let mut bench = Bench::start(version, |base| {
            let config = tls(base);
            fs::write(base.join(LIST), "site.pem a.example\nidle.pem c.example\n").unwrap();
            config
                .replace(
                    "defaults\n",
                    &format!("    crt-base {}/certs\ndefaults\n", base.display()),
                )
                .replace(&format!("ssl crt {MUTUAL}"), "ssl crt mutual.pem")
        });
        bench.good(&json!([
            row("crtlist_del", "idle.pem", json!({})),
            row(
                "crtlist_add",
                "idle.pem",
                json!({"sni_filters": ["d.example"]})
            ),
            row("crtlist_del", "idle.pem", json!({})),
        ]));
        let mut file = fs::File::create(bench.path().join(LIST)).unwrap();
        writeln!(file, "site.pem").unwrap();
        let refused = bench.bad(&json!([row("crtlist_add", "e.pem", json!({}))]), 0);
        assert_eq!(refused.0, Outcome::Ambiguous);
    }
}

/// From 16 to 24 KB HAProxy 3.4 overlooks the end of a payload and answers nothing until
/// it closes the session. A certificate of any size is taken, or refused before a byte is
/// sent, and nothing waits.
#[test]
fn no_certificate_waits_for_an_answer_that_never_comes() {
    each_tls(|bench| {
        let mut taken = 0;
        for count in 1..45 {
            let pem = format!("{}{}", rsa(), chain(count));
            bench.write(SITE, &pem);
            let started = Instant::now();
            match bench.try_run(&json!([with_path("cert_set", SITE)])) {
                Ok(report) => {
                    assert!(matches!(report.ended, Ended::Complete { .. }), "{report:?}");
                    taken = taken.max(pem.len());
                }
                Err(refused) => assert_eq!(refused.outcome, Outcome::TooBig),
            }
            assert!(started.elapsed() < Duration::from_secs(3), "{}", pem.len());
        }
        assert!(taken > 14_000, "{taken}");
    });
}

/// Somebody who looks at certificates all the time, until it is dropped.
struct Looker {
    over: Arc<AtomicBool>,
    /// How often it was turned away itself.
    locked: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<()>>,
}

impl Looker {
    fn start(bench: &Bench) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let locked = Arc::new(AtomicUsize::new(0));
        let thread = |_| {
            let (over, socket) = (Arc::clone(&over), bench.haproxy.worker_socket());
            let locked = Arc::clone(&locked);
            std::thread::spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    for what in ["cert", &format!("cert {SITE}"), &format!("ca-file {CA}")] {
                        let answer = ask(&socket, &format!("show ssl {what}"));
                        let turned_away = answer.is_ok_and(|text| text.contains("locked"));
                        locked.fetch_add(usize::from(turned_away), Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(4));
                    }
                }
            })
        };
        let threads = (0..1).map(thread).collect();
        Self {
            over,
            locked,
            threads,
        }
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// On a loaded machine the two seldom meet.
const MOST_ROUNDS: usize = 2000;

/// Others that look at the certificates lock them for a moment: neither a change nor a
/// look of ours fails for it, or is read as "there is none".
#[test]
fn certificates_that_others_look_at_are_asked_again() {
    each_tls(|bench| {
        let looker = Looker::start(bench);
        let met = || looker.locked.load(Ordering::SeqCst) > 0;
        for round in (0..MOST_ROUNDS).take_while(|round| *round < 50 || !met()) {
            let of = [certs::first(), certs::second()][round % 2];
            bench.write(SITE, of.pem());
            bench.write(NEW, of.pem());
            let first = match round {
                0 => vec![
                    with_path("cert_new", NEW),
                    row("crtlist_add", NEW, json!({})),
                ],
                _ => vec![with_path("cert_set", NEW)],
            };
            let ops = [first, vec![with_path("cert_set", SITE)]].concat();
            bench.good(&json!(ops));
            let names = inventory::read(&bench.worker(), inventory::Kind::Certs, soon());
            assert!(names.unwrap().names.len() > 3);
            let shown = bench.worker().dump(&format!("show ssl cert {NEW}"), soon());
            assert!(String::from_utf8_lossy(&shown.unwrap()).contains("Status: Used"));
        }
        // Only then was anything shown.
        assert!(met());
    });
}
