//! A file that HAProxy uses for two things: a command would change one of them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::kit::{BOTH, Site, first, preamble, second};
use haptic_agent::client::decide::Why;

impl Site {
    /// What the frontend answers to this path, with the head in front.
    fn get(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.base.join("front.sock")).unwrap();
        let limit = Some(Duration::from_secs(10));
        stream.set_read_timeout(limit).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

fn config(global: &str, lines: &str) -> String {
    format!(
        "{}frontend front\n    bind unix@@BASE@/front.sock\n{lines}    http-request return status 404\n",
        preamble().replace("global\n", &format!("global\n{global}")),
    )
}

/// A map's file and something else that is made of it: shown under `/other`.
struct Row {
    what: &'static str,
    /// Lines of the global section.
    global: &'static str,
    /// Lines of the frontend.
    lines: &'static str,
    /// More files.
    files: &'static [(&'static str, &'static str)],
    /// What is to be seen after the change.
    after: &'static str,
}

const PAGE: &str = "http-request return status 200 content-type text/plain";

const ROWS: [Row; 5] = [
    Row {
        what: "a page that is returned",
        global: "",
        lines: "    @PAGE@ file maps/a.map if { path /other }\n",
        files: &[],
        after: "/map two",
    },
    Row {
        what: "a page of another spelling with expressions in it",
        global: "",
        lines: "    @PAGE@ lf-file ./maps/a.map if { path /other }\n",
        files: &[],
        after: "/map two",
    },
    Row {
        what: "an ACL under another name",
        global: "",
        lines: "    acl listed path -f @BASE@/maps/a.map\n    @PAGE@ string /map if listed\n",
        files: &[],
        after: " 404 ",
    },
    Row {
        what: "a script that reads it when HAProxy starts",
        global: "    tune.lua.bool-sample-conversion normal\n    lua-load scripts/x.lua\n",
        lines: "    @PAGE@ lf-string %[lua.content] if { path /other }\n",
        files: &[(
            "scripts/x.lua",
            "local f = io.open(\"maps/a.map\")\nlocal text = f:read(\"a\")\nf:close()\ncore.register_fetches(\"content\", function() return text end)\n",
        )],
        after: "/map two",
    },
    Row {
        what: "a page by a variable",
        global: "    setenv PAGES maps\n",
        lines: "    @PAGE@ file \"${PAGES}/a.map\" if { path /other }\n",
        files: &[],
        after: "/map two",
    },
];

const MAP: &str = "    http-request return status 200 content-type text/plain lf-string map:%[path,map(maps/a.map,none)] if { path /map }\n";

/// Without the reload `/other` would go on showing the content from before.
#[test]
fn a_map_that_is_something_else_too_is_reloaded_and_both_are_new() {
    for version in BOTH {
        for row in &ROWS {
            let what = row.what;
            // 3.0 does not know the setting, and needs none.
            let global = match version.branch() {
                "3.0" => row
                    .global
                    .replace("    tune.lua.bool-sample-conversion normal\n", ""),
                _ => row.global.to_owned(),
            };
            let lines = format!("{MAP}{}", row.lines.replace("@PAGE@", PAGE));
            let mut files = vec![
                ("haproxy.cfg", config(&global, &lines)),
                ("maps/a.map", "/map one\n/other\n".to_owned()),
            ];
            let more = row.files.iter();
            files.extend(more.map(|(path, text)| (*path, (*text).to_owned())));
            let mut site = Site::start(version, &files);
            assert!(site.get("/map").ends_with("map:one"), "{version} {what}");
            let before = site.get("/other");
            assert!(before.contains("/map"), "{version} {what}: {before}");
            site.write("maps/a.map", "/map two\n");
            let pushed = site.reload("something else than a map");
            assert_eq!(pushed.decision.reasons[0].why, Why::SeveralUses, "{what}");
            assert!(site.get("/map").ends_with("map:two"), "{version} {what}");
            let other = site.get("/other");
            assert!(other.contains(row.after), "{version} {what}: {other}");
            site.agrees();
        }
    }
}

/// The agent lists the files of ACLs beside the maps.
#[test]
fn a_map_whose_keys_are_an_acl_s_too_is_reloaded_by_the_worker_s_own_list() {
    for version in BOTH {
        let lines = format!(
            "{MAP}    acl listed path -M -f maps/a.map\n    {PAGE} string /map if listed\n"
        );
        let files = [
            ("haproxy.cfg", config("", &lines)),
            ("maps/a.map", "/map one\n/other y\n".to_owned()),
        ];
        let mut site = Site::start(version, &files);
        let inventory = site.state().runtime_inventory;
        assert_eq!(inventory.acl_files, ["maps/a.map"], "{version}");
        assert!(site.get("/other").contains("/map"), "{version}");
        site.write("maps/a.map", "/map two\n");
        site.reload("as map and as ACL file");
        assert!(site.get("/map").ends_with("map:two"), "{version}");
        assert!(site.get("/other").contains(" 404 "), "{version}");
        site.agrees();
    }
}

/// What only looks like another use costs nothing: comments, other files, names that no
/// file is behind, a script that asks for the map.
#[test]
fn a_map_that_is_only_a_map_is_changed_without_a_reload() {
    for version in BOTH {
        let global = match version.branch() {
            "3.0" => "    lua-load scripts/x.lua\n",
            _ => "    tune.lua.bool-sample-conversion normal\n    lua-load scripts/x.lua\n",
        };
        let lines = format!(
            "{MAP}    # acl x path -f maps/a.map\n    acl known path,map(maps/a.map) -m found\n    http-request set-map(maps/a.map) /z %[path] if {{ path /set }}\n    http-request return status 200 content-type text/plain file pages/a.map.txt if {{ path /page }}\n    http-request return status 200 content-type text/plain lf-string script:%[lua.look] if {{ path /script }} known\n"
        );
        let files = [
            ("haproxy.cfg", config(global, &lines)),
            ("maps/a.map", "/map one\n/script one\n".to_owned()),
            ("pages/a.map.txt", "page\n".to_owned()),
            ("README", "maps/a.map: who is where\n".to_owned()),
            (
                "scripts/x.lua",
                "local map = Map.new(\"maps/a.map\", Map._str)\ncore.register_fetches(\"look\", function() return map:lookup(\"/script\") or \"none\" end)\n"
                    .to_owned(),
            ),
        ];
        let mut site = Site::start(version, &files);
        assert!(site.get("/script").ends_with("script:one"), "{version}");
        site.write("maps/a.map", "/map two\n/script two\n");
        site.runtime();
        assert!(site.get("/map").ends_with("map:two"), "{version}");
        assert!(site.get("/script").ends_with("script:two"), "{version}");
        site.agrees();
    }
}

/// A certificate whose file checks tokens as well.
#[test]
fn a_certificate_that_is_something_else_too_is_reloaded() {
    for version in BOTH {
        let lines = "    bind unix@@BASE@/tls.sock ssl crt certs/a.pem\n    http-request return status 200 content-type text/plain file certs/a.pem if { path /other }\n";
        let files = [("haproxy.cfg", config("", lines)), ("certs/a.pem", first())];
        let mut site = Site::start(version, &files);
        let before = site.serial("certs/a.pem");
        site.write("certs/a.pem", &second());
        site.reload("something else than a certificate");
        assert_ne!(site.serial("certs/a.pem"), before, "{version}");
        assert!(
            site.get("/other")
                .contains(second().lines().nth(1).unwrap()),
            "{version}"
        );
        site.agrees();
    }
}
