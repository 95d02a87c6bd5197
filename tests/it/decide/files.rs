//! Maps, certificates, CA files and crt-lists that change without a reload, or with one.

use super::kit::{BOTH, Site, config, first, preamble, second};
use crate::support::certs;
use crate::support::haproxy::Version;
use haptic_agent::client::FileSetOptions;
use std::collections::BTreeSet;

fn with_map(text: &str) -> [(&'static str, String); 2] {
    [config(""), ("maps/path.map", text.to_owned())]
}

#[test]
fn a_map_is_replaced_whatever_its_lines_look_like() {
    for version in BOTH {
        let mut site = Site::start(version, &with_map("/a one\n"));
        let long = format!("/long {}\n", "x".repeat(12_000));
        let many: String = (0..3000).map(|n| format!("/{n} value {n}\n")).collect();
        for text in [
            "/a two\n/b three four; five \\ \"six\"\n",
            "/a 1\n/a 2\n/a 1\n",
            "",
            " # x\n\t/k\t v  \n/bare\n/cr v\rlost\n/dos v\r\nE_O_F\n\u{feff}/bom x\n#x y\n/last v",
            long.as_str(),
            many.as_str(),
        ] {
            site.write("maps/path.map", text);
            site.runtime();
            site.agrees();
        }
    }
}

#[test]
fn what_is_only_a_comment_needs_no_command() {
    for version in BOTH {
        let mut site = Site::start(version, &with_map("/a one\n"));
        site.write("maps/path.map", "# explained\n/a   one \n");
        let pushed = site.file_only();
        assert!(pushed.decision.reasons[0].text.contains("comments"));
        site.agrees();
    }
}

fn big(count: usize) -> String {
    (0..count)
        .map(|n| format!("/p{n:04} value-{n}\n"))
        .collect()
}

#[test]
fn a_few_entries_of_a_big_map_change_by_themselves() {
    let options = FileSetOptions {
        unordered_maps: BTreeSet::from(["maps/path.map".to_owned()]),
        ..FileSetOptions::default()
    };
    for version in BOTH {
        let before = format!("{}/dup 1\n/dup 2\n", big(2000));
        let mut site = Site::start_with(version, &with_map(&before), options.clone());
        let edited = before
            .replace("/p0007 value-7\n", "/p0007 new\n")
            .replace("/p0009 value-9\n", "")
            .replace("/p0100 value-100\n", "/new two words; and\\more\n");
        site.write("maps/path.map", &edited);
        let kinds: Vec<String> = site
            .runtime()
            .decision
            .ops
            .iter()
            .map(|op| op.kind.clone())
            .collect();
        assert_eq!(kinds, ["map_add", "map_set", "map_del", "map_del"]);
        site.agrees();

        // Not declared so, lines at the end still come one by one, in their order.
        let mut site = Site::start(version, &with_map(&before));
        site.write("maps/path.map", &format!("{before}/dup 3\n/z last; one\n"));
        let pushed = site.runtime();
        assert!(pushed.decision.ops.iter().all(|op| op.kind == "map_add"));
        assert_eq!(pushed.decision.ops.len(), 2);
        site.agrees();
    }
}

/// A name that the configuration spells otherwise can be changed by no command, and must
/// not be left as it was.
#[test]
fn a_map_that_haproxy_calls_otherwise_is_reloaded_and_says_so() {
    for version in BOTH {
        for spelled in ["@BASE@/maps/path.map", "./maps/path.map"] {
            let (path, text) = config("");
            let text = text.replace("maps/path.map", spelled);
            let mut site = Site::start(
                version,
                &[(path, text), ("maps/path.map", "/a one\n".into())],
            );
            site.write("maps/path.map", "/a two\n");
            site.reload("under this name it knows none; write maps/path.map");
            let name = spelled.replace("@BASE@", &site.base.display().to_string());
            assert_eq!(site.map(&name), ["/a two"], "{version}");
        }
    }
}

/// Under each of two names the worker holds the file once more, and a command changes what
/// it holds under one of them.
#[test]
fn a_map_that_haproxy_holds_under_two_names_is_reloaded() {
    for version in BOTH {
        for other in ["./maps/a.map", "maps/../maps/a.map", "@BASE@/maps/a.map"] {
            let config = format!(
                "{}frontend front\n    bind unix@@BASE@/front.sock\n    http-request return status 200 content-type text/plain lf-string %[path,map(maps/a.map)]%[path,map({other})]\n",
                preamble()
            );
            let files = [
                ("haproxy.cfg", config),
                ("maps/a.map", "/a one\n".to_owned()),
            ];
            let mut site = Site::start(version, &files);
            site.write("maps/a.map", "/a two\n");
            site.reload("a runtime command changes what is held under one name");
            let other = other.replace("@BASE@", &site.base.display().to_string());
            for name in ["maps/a.map", &other] {
                assert_eq!(site.map(name), ["/a two"], "{version} {name}");
            }
        }
    }
}

/// Lines like those of a person who has terminated TLS before.
fn tls() -> Vec<(&'static str, String)> {
    let material = certs::first();
    let config = format!(
        "{}frontend one\n    bind unix@@BASE@/one.sock ssl crt certs/one.pem ca-file ca/clients.pem crl-file ca/gone.crl verify optional\n    bind unix@@BASE@/list.sock ssl crt-list site.crtlist\n    errorfile 503 errors/503.http\n    acl blocked src -f lists/blocked.acl\n    http-request deny if blocked\n    http-request return status 200\n",
        preamble().replace(
            "global\n",
            "global\n    lua-load lua/x.lua\n    ssl-default-bind-options ssl-min-ver TLSv1.2\n"
        ),
    );
    vec![
        ("haproxy.cfg", config),
        ("certs/one.pem", first()),
        ("certs/list.pem", first()),
        ("ca/clients.pem", material.cert.clone()),
        ("ca/gone.crl", material.crl.clone()),
        (
            "site.crtlist",
            "certs/list.pem [alpn h2] *.list.example\n".into(),
        ),
        (
            "errors/503.http",
            "HTTP/1.0 503 Service Unavailable\r\n\r\n".into(),
        ),
        ("lists/blocked.acl", "192.0.2.7\n".into()),
        ("lua/x.lua", "core.log(core.info, 'one')\n".into()),
    ]
}

#[test]
fn a_certificate_is_replaced_and_its_comments_are_not_looked_at() {
    for version in BOTH {
        let mut site = Site::start(version, &tls());
        let before = site.serial("certs/one.pem");
        site.write("certs/one.pem", &format!("issued by hand\n\n{}", second()));
        site.runtime();
        assert_ne!(site.serial("certs/one.pem"), before, "{version}");
        site.agrees();
        site.write("certs/one.pem", &second());
        site.file_only();
        site.agrees();
    }
}

#[test]
fn a_ca_file_is_replaced_where_haproxy_can() {
    let two = format!("{}{}", certs::first().cert, certs::second().cert);
    for version in Version::ALL {
        let mut site = Site::start(version, &tls());
        site.write("ca/clients.pem", &two);
        match version {
            Version::V3_0 => site.reload("from 3.2 on, and this is 3.0"),
            Version::V3_2 | Version::V3_4 => site.runtime(),
        };
        site.agrees();
        // A certificate after a CA file is what 3.0 gets wrong.
        site.write("certs/one.pem", &second());
        site.runtime();
        site.agrees();
    }
}

#[test]
fn new_certificates_come_in_at_the_end_of_a_list() {
    for version in BOTH {
        let mut site = Site::start(version, &tls());
        let list = "certs/list.pem [alpn h2] *.list.example\n";
        site.write("certs/new.pem", &second());
        site.write(
            "site.crtlist",
            &format!("{list}# more\ncerts/new.pem [alpn h2,http/1.1 ssl-min-ver TLSv1.2] new.example !no.new.example\n"),
        );
        site.runtime();
        site.agrees();
        let grown = String::from_utf8(site.files["site.crtlist"].clone()).unwrap();
        site.write(
            "site.crtlist",
            &format!("{grown}certs/new.pem other.example\ncerts/one.pem\n"),
        );
        site.runtime();
        site.agrees();
        site.write(
            "site.crtlist",
            &format!("# now with a title\n{grown}certs/new.pem other.example\ncerts/one.pem\n"),
        );
        site.file_only();
        site.agrees();

        site.write("site.crtlist", list);
        site.reload("only new lines at the end");
        site.agrees();
        site.write("certs/newer.pem", &second());
        site.reload("no line at the end of a loaded crt-list names it");
        site.agrees();
    }
}

/// With `crt-base` the names of a list are not those of the set: nothing can be added at
/// runtime, and a changed certificate is reloaded.
#[test]
fn under_crt_base_names_are_not_the_set_s_and_all_is_reloaded() {
    for version in BOTH {
        let config = format!(
            "{}frontend one\n    bind unix@@BASE@/one.sock ssl crt-list site.crtlist\n    http-request return status 200\n",
            preamble().replace("global\n", "global\n    crt-base @BASE@/certs\n"),
        );
        let mut site = Site::start(
            version,
            &[
                ("haproxy.cfg", config),
                ("certs/list.pem", first()),
                ("site.crtlist", "list.pem\n".into()),
            ],
        );
        site.write("certs/list.pem", &second());
        site.reload("which may be this file");
        site.agrees();
        site.write("certs/new.pem", &second());
        site.write("site.crtlist", "list.pem\nnew.pem\n");
        site.reload("crt-base?");
        site.agrees();
    }
}

/// A map entry and a certificate that are longer than a command.
#[test]
fn what_no_command_can_carry_is_reloaded() {
    let long = format!("/{} v\n", "k".repeat(12_250));
    let chain = certs::second().cert.repeat(40);
    for version in BOTH {
        let mut files = tls();
        let (path, text) = &mut files[0];
        assert_eq!(*path, "haproxy.cfg");
        text.push_str("    http-request set-header x %[path,map(maps/path.map)]\n");
        files.push(("maps/path.map", "/a one\n".to_owned()));
        let mut site = Site::start(version, &files);
        site.write("maps/path.map", &long);
        site.reload("a map entry has");
        site.agrees();
        site.write("certs/one.pem", &format!("{}{chain}", second()));
        site.reload("fit into one command");
        site.agrees();
        // Back to something that a command carries.
        site.write("maps/path.map", "/a two\n");
        site.write("certs/one.pem", &first());
        site.runtime();
        site.agrees();
    }
}

#[test]
fn what_haproxy_reads_only_when_it_starts_is_reloaded_and_says_why() {
    let later = certs::second();
    for version in BOTH {
        let mut site = Site::start(version, &tls());
        for (path, text, words) in [
            (
                "errors/503.http",
                "HTTP/1.0 503 Later\r\n\r\n",
                "only when it starts",
            ),
            ("lists/blocked.acl", "192.0.2.8\n", "only when it starts"),
            (
                "lua/x.lua",
                "core.log(core.info, 'two')\n",
                "only when it starts",
            ),
            ("ca/gone.crl", later.crl.as_str(), "revocation list"),
            ("notes.txt", "who did this?\n", "new file"),
            (
                "certs/one.pem.issuer",
                later.cert.as_str(),
                "it belongs to certs/one.pem",
            ),
        ] {
            site.write(path, text);
            site.reload(words);
        }
        // Together with something that could have been done at runtime.
        site.write("certs/list.pem", &second());
        site.write("errors/503.http", "HTTP/1.0 503 Last\r\n\r\n");
        site.reload("only when it starts");
        site.agrees();
        site.files.remove("notes.txt");
        site.reload("it is removed");
        site.replace("haproxy.cfg", "status 200\n", "status 204\n");
        site.reload("the configuration changed");
        site.agrees();
    }
}

/// The certificate and its key in two files: HAProxy reads both when it starts.
#[test]
fn a_key_beside_its_certificate_is_reloaded() {
    for version in BOTH {
        let (one, two) = (certs::first(), certs::second());
        let mut files = tls();
        files.retain(|(path, _)| *path != "certs/one.pem");
        files.push(("certs/one.pem", one.cert.clone()));
        files.push(("certs/one.pem.key", one.key.clone()));
        let mut site = Site::start(version, &files);
        site.write("certs/one.pem", &two.cert);
        site.write("certs/one.pem.key", &two.key);
        site.reload("it belongs to certs/one.pem");
        site.agrees();
    }
}
