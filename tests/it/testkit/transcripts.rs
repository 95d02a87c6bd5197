//! The same commands for the fake HAProxy and the real ones, answers compared byte by
//! byte, minus addresses in memory, places in the configuration and times.

mod pair;

use crate::support::haproxy::Version;
use pair::{Pair, columns, each, mask, one_shot, until_quiet, without_numbers};

#[test]
fn sessions_and_listings() {
    each(&[
        "show cli level",
        "show version",
        "  show   version  ",
        "show version junk",
        "show map",
        "show map maps/host.map",
        "show map none",
        "show map @7 maps/host.map",
        "show ssl cert",
        "show ssl cert certs/site.pem",
        "show ssl cert certs/idle.pem",
        "show ssl cert none",
        "show ssl ca-file",
        "show ssl ca-file ca/clients.pem",
        "show ssl crl-file",
        "show ssl crt-list",
        "show ssl crt-list -n lists/a.list",
        "show ssl crt-list lists/a.list",
        "show ssl crt-list none",
        "show servers state b",
        "show servers state none",
        "show servers state",
        "show backend",
        "show proc",
        "reload",
        "frob",
        "",
        "# comment",
        "experimental-mode on",
        "show version;show cli level",
        "set map maps/host.map a x;set map maps/host.map a y",
        "show version;set map maps/host.map nokey x;add map maps/host.map <<E_O_F\np q\nE_O_F",
        "set severity-output none",
        "set map none a b",
        "set severity-output string",
        "set map none a b",
        "show cli level",
        "set severity-output frob",
        "set severity-output number",
        "echo a b",
        "wait 2ms",
        "wait",
        "wait 2ms frob",
        "prompt",
    ]);
}

#[test]
fn maps() {
    each(&[
        "add map maps/host.map c d",
        "add map maps/host.map c <<E_O_F\nx y z\nE_O_F",
        "add map maps/host.map <<E_O_F\nk1 two words\nk2   x \nk3 \nE_O_F",
        "add map maps/host.map <<E_O_F\nk4\nk5 v\nE_O_F",
        "add map maps/host.map <<E_O_F\nk6 v\nk7\nE_O_F",
        "add map maps/host.map <<\nk8 v\n\n",
        "show map maps/host.map",
        "add map none a b",
        "add map none <<E_O_F\na b\nE_O_F",
        "add map maps/host.map onlykey",
        "add map maps/host.map",
        "set map maps/host.map a uno",
        "set map maps/host.map c all",
        "set map maps/host.map nokey uno",
        "set map none a b",
        "set map maps/host.map a",
        "set map maps/host.map a\\ b c",
        "add map maps/host.map x\\;y z",
        "del map maps/host.map c",
        "show map maps/host.map",
        "del map maps/host.map c",
        "del map maps/host.map nokey",
        "del map none a",
        "prepare map maps/host.map",
        "prepare map maps/host.map",
        "add map @2 maps/host.map <<E_O_F\nn1 v1\nn2 v2\nn1 v3\nE_O_F",
        "add map @1 maps/host.map <<E_O_F\nold v1\nE_O_F",
        "show map @1 maps/host.map",
        "show map @2 maps/host.map",
        "show map maps/host.map",
        "add map @9 maps/host.map <<E_O_F\nn1 v1\nE_O_F",
        "commit map @9 maps/host.map",
        "commit map maps/host.map",
        "commit map @2 maps/host.map",
        "show map maps/host.map",
        "show map",
        "add map @1 maps/host.map <<E_O_F\nlost v1\nE_O_F",
        "show map maps/host.map",
        "commit map @1 maps/host.map",
        "commit map @2 maps/host.map",
        "prepare map none",
        "prepare map maps/other.map",
        "commit map @1 maps/other.map",
        "prepare map maps/other.map",
        "add map @2 maps/other.map <<E_O_F\npending v\nE_O_F",
        "clear map @2 maps/other.map",
        "commit map @2 maps/other.map",
        "show map maps/other.map",
        "clear map maps/host.map",
        "clear map none",
        "show map maps/host.map",
    ]);
}

#[test]
fn servers() {
    each(&[
        "add server b/n1 127.0.0.1:9 weight 3",
        "add server b/n1 127.0.0.1:9",
        "add server none/n1 127.0.0.1:9",
        "add server b/n2",
        "add server b",
        "add server b/n2 127.0.0.1:9 frob",
        "add server b/n2 127.0.0.1:9 resolvers x",
        "add server b/n2 127.0.0.1:9 enabled",
        "add server b/n2 127.0.0.1:70000",
        "add server b/n2 127.0.0.1:9 weight 300",
        "add server b/n2 [::1]:9",
        "add server b/un unix@/tmp/x.sock",
        "add server b/un2 /tmp/x.sock",
        "add server b/ck 127.0.0.1:9 check inter 1h agent-check agent-inter 1h agent-port 9",
        "add server b/n!2 127.0.0.1:9",
        "add server fixed/n1 127.0.0.1:9",
        "add server b/st 127.0.0.1:9 strict-maxconn",
        "show servers state b",
        "enable health b/n1",
        "enable agent b/n1",
        "disable agent b/n1",
        "disable agent b/none",
        "set server b/n1 agent up",
        "enable agent b/none",
        "enable agent b/ck",
        "set server b/ck agent up",
        "disable agent b/ck",
        "enable server b/n1",
        "enable server b/none",
        "enable server none/n1",
        "enable server b",
        "disable server b/n1",
        "disable server b/none",
        "set server b/n1 weight 7",
        "set server b/n1 weight 300",
        "set server b/n1 weight 7x",
        "set server fixed/s1 weight 7",
        "set server b/none weight 7",
        "set server none/x weight 7",
        "set server b/n1 state drain",
        "set server b/n1 state frob",
        "set server b/n1 state ready",
        "set server b/s2 state drain",
        "show servers state b",
        "set server b/n1 state maint",
        "set server b/n1 addr 127.0.0.2",
        "wait 5ms",
        "set server b/n1 addr 127.0.0.3 port 80",
        "wait 5ms",
        "set server b/n1 addr 127.0.0.3 port 80",
        "set server b/n1 addr 127.0.0.3 port 81",
        "wait 5ms",
        "set server b/n1 addr 127.0.0.3 port 70000",
        "wait 5ms",
        "set server b/n1 addr frob",
        "set server b/n1 addr 127.0.0.3 port x",
        "set server b/un addr 127.0.0.3",
        "set server b/n1",
        "set server b/n1 frob",
        "show servers state b",
        "del server b/s1",
        "del server b/n1",
        "del server b/n1",
        "del server none/n1",
        "del server b",
        "shutdown sessions server b/s1",
        "shutdown sessions server b/none",
        "wait 10ms srv-removable b/s1",
        "disable server b/s1",
        "wait 10ms srv-removable b/s1",
        "wait 10ms srv-removable b/none",
        "del server b/s1",
        "show servers state b",
    ]);
}

#[test]
fn backends() {
    each(&[
        "add backend n from tmpl mode http",
        "add backend n from tmpl mode http",
        "add backend front from tmpl mode http",
        "add backend tmpl from tmpl mode http",
        "add backend n2 from none mode http",
        "add backend n2 from tmpl mode udp",
        "add backend n2 from tmpl",
        "add backend n9",
        "add backend n!2 from tmpl mode http",
        "add backend n3 from tmpl mode tcp guid g1",
        "add backend n4 from tmpl mode tcp guid g1",
        "show backend",
        "publish backend n",
        "publish backend n",
        "publish backend none",
        "add server n/s 127.0.0.1:1",
        "enable server n/s",
        "show servers state n",
        "del backend n",
        "unpublish backend n",
        "unpublish backend none",
        "del backend n",
        "wait 10ms be-removable n",
        "disable server n/s",
        "del server n/s",
        "wait 10ms be-removable n",
        "wait 10ms be-removable none",
        "del backend n",
        "del backend n",
        "del backend b",
        "unpublish backend b",
        "del backend b",
        "publish backend b",
        "unpublish backend loose",
        "disable server loose/x",
        "del server loose/x",
        "del backend loose",
        "show backend",
        "show servers state n3",
    ]);
}

#[test]
fn certificates() {
    each(&[
        "new ssl cert certs/new.pem",
        "new ssl cert certs/new.pem",
        "show ssl cert",
        "show ssl cert certs/new.pem",
        "set ssl cert certs/new.pem <<E_O_F\n{P2}E_O_F",
        "show ssl cert",
        "set ssl cert certs/new.pem <<E_O_F\n{P1}E_O_F",
        "set ssl cert certs/site.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/site.pem",
        "abort ssl cert certs/site.pem",
        "del ssl cert certs/new.pem",
        "commit ssl cert certs/new.pem",
        "show ssl cert certs/new.pem",
        "commit ssl cert certs/new.pem",
        "abort ssl cert certs/new.pem",
        "set ssl cert none.pem <<E_O_F\n{P2}E_O_F",
        "set ssl cert certs/site.pem <<E_O_F\nfrob\nE_O_F",
        "set ssl cert certs/site.pem <<E_O_F\n{C2}E_O_F",
        "commit ssl cert certs/site.pem",
        "abort ssl cert certs/site.pem",
        "set ssl cert certs/site.pem <<E_O_F\n{C2}E_O_F",
        "set ssl cert certs/site.pem.key <<E_O_F\n{K2}E_O_F",
        "commit ssl cert certs/site.pem",
        "set ssl cert certs/idle.pem <<E_O_F\n{P2}E_O_F",
        "abort ssl cert certs/idle.pem",
        "set ssl cert certs/idle.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/idle.pem",
        "set ssl cert certs/site.pem",
        "set ssl cert",
        "del ssl cert certs/site.pem",
        "del ssl cert certs/new.pem",
        "del ssl cert certs/new.pem",
    ]);
}

#[test]
fn crt_lists() {
    each(&[
        "new ssl cert certs/new.pem",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem x.example\nE_O_F",
        "set ssl cert certs/new.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/new.pem",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem new.example\nE_O_F",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem [alpn h2] *.two.example !x.two.example\nE_O_F",
        "add ssl crt-list lists/a.list certs/new.pem",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/none.pem x.example\nE_O_F",
        "add ssl crt-list none <<E_O_F\ncerts/new.pem x.example\nE_O_F",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem [frob] x.example\nE_O_F",
        "add ssl crt-list lists/a.list <<E_O_F\ncerts/new.pem x.example\ncerts/new.pem y.example\nE_O_F",
        "show ssl crt-list -n lists/a.list",
        "show ssl cert certs/new.pem",
        "set ssl cert certs/new.pem <<E_O_F\n{P1}E_O_F",
        "commit ssl cert certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem:9",
        "del ssl crt-list lists/a.list certs/new.pem:4",
        "del ssl crt-list lists/a.list certs/new.pem:5",
        "del ssl crt-list lists/a.list certs/none.pem",
        "del ssl crt-list none certs/new.pem",
        "del ssl crt-list lists/a.list certs/site.pem:1",
        "show ssl crt-list -n lists/a.list",
        "del ssl cert certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem",
        "del ssl crt-list lists/a.list certs/new.pem",
        "del ssl cert certs/new.pem",
    ]);
}

#[test]
fn authorities() {
    each(&[
        "new ssl ca-file ca/new.pem",
        "new ssl ca-file ca/new.pem",
        "show ssl ca-file",
        "set ssl ca-file ca/new.pem <<E_O_F\n{C1}E_O_F",
        "show ssl ca-file",
        "add ssl ca-file ca/new.pem <<E_O_F\n{C2}E_O_F",
        "set ssl ca-file ca/clients.pem <<E_O_F\n{C2}E_O_F",
        "commit ssl ca-file ca/clients.pem",
        "abort ssl ca-file ca/clients.pem",
        "commit ssl ca-file ca/new.pem",
        "show ssl ca-file",
        "commit ssl ca-file ca/new.pem",
        "abort ssl ca-file ca/new.pem",
        "set ssl ca-file none.pem <<E_O_F\n{C2}E_O_F",
        "set ssl ca-file ca/new.pem <<E_O_F\nfrob\nE_O_F",
        "set ssl ca-file ca/new.pem <<E_O_F\n{C2}E_O_F",
        "abort ssl ca-file ca/new.pem",
        "del ssl ca-file ca/clients.pem",
        "del ssl ca-file ca/new.pem",
        "del ssl ca-file ca/new.pem",
        "set ssl ca-file ca/clients.pem <<E_O_F\n{C2}E_O_F",
        "commit ssl ca-file ca/clients.pem",
        "set ssl cert certs/site.pem <<E_O_F\n{P2}E_O_F",
        "commit ssl cert certs/site.pem",
        "show ssl ca-file",
        "show ssl cert certs/site.pem",
    ]);
}

#[test]
fn lines_of_their_own() {
    for version in Version::ALL {
        let pair = Pair::start(version);
        let (fake, real) = (pair.fake_worker(), pair.real.worker_socket());
        for line in [
            "show version",
            "set severity-output number;show map maps/host.map;show version",
            "show map maps/host.map;frob;show version",
            "frob",
            "set map maps/host.map a z",
            "set map none a z;set map maps/host.map a y",
            "add map maps/host.map <<E_O_F\nq r\nE_O_F",
            "quit;show version",
            "show version;quit",
        ] {
            let (fake, real) = (one_shot(&fake, line), one_shot(&real, line));
            assert_eq!(mask(line, &fake), mask(line, &real), "{version}: {line}");
        }
        // Fields come in HAProxy's order, and the fake has no other.
        let names = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.split_once(": "));
            lines.map(|(name, _)| name.to_owned()).collect()
        };
        for line in ["show info", "show info float"] {
            let (fake, real) = (one_shot(&fake, line), one_shot(&real, line));
            let mut order = names(&real).into_iter();
            for name in names(&fake) {
                assert!(
                    order.any(|real| real == name),
                    "{version}: {name} in {real}"
                );
            }
        }
    }
}

/// Digits become one sign each run, so that pids and times are the same.
#[test]
fn the_master() {
    for version in Version::ALL {
        let pair = Pair::start(version);
        let fake = pair.dir.path().join("master.sock");
        let real = pair.real.master_socket();
        for line in [
            "show proc",
            "show version",
            "show version;show version",
            "@1 show cli level",
            "@9 show info;show version",
        ] {
            let (fake, real) = (until_quiet(&fake, line), until_quiet(&real, line));
            assert_eq!(columns(&fake), columns(&real), "{version}: {line}");
        }
        let verdict = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| {
                // The rest depends on the moment, the user and the machine.
                ["Success=", "--", "[NOTICE] ", "[ALERT] "]
                    .iter()
                    .any(|start| line.starts_with(start))
                    && !["version is", "path to executable", "Automatically"]
                        .iter()
                        .any(|noise| line.contains(noise))
            });
            lines.map(without_numbers).collect()
        };
        let (said, wanted) = (one_shot(&fake, "reload"), one_shot(&real, "reload"));
        assert_eq!(
            verdict(&said),
            verdict(&wanted),
            "{version}: {said}{wanted}"
        );
        assert_eq!(&said[said.len() - 2..], "\n\n");
        assert_eq!(&wanted[wanted.len() - 2..], "\n\n");
        let count = |text: &str| without_numbers(text.lines().nth(1).unwrap_or_default());
        let (said, wanted) = (
            one_shot(&fake, "show proc;quit"),
            one_shot(&real, "show proc;quit"),
        );
        assert_eq!(
            columns(&count(&said)),
            columns(&count(&wanted)),
            "{version}"
        );
    }
}
