//! Who answers, and what it holds.

use super::*;
use crate::support::{certs, haproxy::preamble};
use haptic_agent::haproxy::RuntimeInventory;
use haptic_agent::haproxy::inventory::{self, InventoryError, Kind};
use haptic_agent::haproxy::worker::{CliLevel, DumpError};
use std::fs;

#[test]
fn a_worker_says_who_it_is() {
    on_each(|version, haproxy| {
        let info = info_of(haproxy);
        assert_eq!(info.identity.pid, haproxy.worker_pid(), "{version}");
        assert!(!info.stopping);
        assert!(info.version.short().starts_with(version.branch()));
        assert!(info.version.full().starts_with(info.version.short()));
        assert_eq!(info, info_of(haproxy), "the same worker, the same identity");
    });
}

#[test]
fn the_master_lists_its_processes() {
    on_each(|version, haproxy| {
        let list = master_of(haproxy).show_proc(soon()).unwrap();
        assert_eq!(list.master_pid, haproxy.master_pid(), "{version}");
        assert_eq!(list.workers, [haproxy.worker_pid()]);
        assert_eq!((list.reloads, list.failed), (0, 0));
        assert!(list.old_workers.is_empty());
        let wrong = MasterSocket::new(haproxy.worker_socket()).show_proc(soon());
        assert!(
            wrong.is_err(),
            "a stats socket has no process list: {wrong:?}"
        );
    });
}

#[test]
fn the_inventory_names_everything_as_the_configuration_does() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        for sub in ["maps", "certs", "ca"] {
            fs::create_dir(base.join(sub)).unwrap();
        }
        let (first, second) = (certs::first(), certs::second());
        fs::write(base.join("maps/host.map"), "a b\n").unwrap();
        fs::write(base.join("maps/empty.map"), "").unwrap();
        fs::write(base.join("maps/known.map"), "a b\n").unwrap();
        fs::write(base.join("maps/keys.acl"), "a\nb\n").unwrap();
        fs::write(base.join("certs/first.pem"), first.pem()).unwrap();
        fs::write(base.join("certs/second.pem"), second.pem()).unwrap();
        fs::write(base.join("ca/ca.pem"), &first.cert).unwrap();
        fs::write(base.join("ca/crl.pem"), &first.crl).unwrap();
        fs::write(base.join("certs/list.txt"), "certs/second.pem\n").unwrap();
        let config = format!(
            "{}frontend f\n    bind unix@{base}/a.sock ssl crt certs/first.pem ca-file ca/ca.pem crl-file ca/crl.pem verify optional\n    bind unix@{base}/b.sock ssl crt-list certs/list.txt\n    http-request set-header x %[path,map(maps/host.map)]\n    http-request set-header y %[path,map_beg(maps/empty.map)]\n    acl inline path /a /b\n    acl keys path -f ./maps/keys.acl -i -f maps/keys.acl\n    acl known path -M -f maps/known.map\n    http-request deny if inline keys or known\n    http-request return status 200\n",
            preamble(base),
            base = base.display()
        );
        let haproxy = Haproxy::start(version, base, &config);
        let seen = RuntimeInventory::read(&worker_of(&haproxy), soon()).unwrap();
        let expected = RuntimeInventory {
            maps: vec![
                "maps/empty.map".into(),
                "maps/host.map".into(),
                "maps/known.map".into(),
            ],
            acl_files: vec![
                "./maps/keys.acl".into(),
                "maps/keys.acl".into(),
                "maps/known.map".into(),
            ],
            certs: vec!["certs/first.pem".into(), "certs/second.pem".into()],
            ca_files: vec!["ca/ca.pem".into()],
            crl_files: vec!["ca/crl.pem".into()],
            crt_lists: vec!["certs/list.txt".into()],
        };
        assert_eq!(seen, expected, "{version}");
        // A certificate transaction of someone else is not a certificate.
        let open = haproxy.ask(&format!(
            "new ssl cert certs/new.pem;set ssl cert certs/new.pem <<\n{}",
            second.pem()
        ));
        assert!(open.unwrap().contains("Transaction created"), "{version}");
        let seen = RuntimeInventory::read(&worker_of(&haproxy), soon()).unwrap();
        assert_eq!(
            seen.certs,
            ["certs/first.pem", "certs/new.pem", "certs/second.pem"],
            "{version}"
        );
        let listing = inventory::read(&worker_of(&haproxy), Kind::Certs, soon()).unwrap();
        assert_eq!(listing.open, ["certs/new.pem"], "{version}");
    }
}

#[test]
fn an_empty_haproxy_has_an_empty_inventory() {
    on_each(|version, haproxy| {
        let seen = RuntimeInventory::read(&worker_of(haproxy), soon()).unwrap();
        assert_eq!(seen, RuntimeInventory::default(), "{version}");
    });
}

#[test]
fn below_admin_there_is_no_inventory() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let operator = base.join("operator.sock");
        let config = minimal(base).replace(
            "global\n",
            &format!(
                "global\n    stats socket {} level operator\n",
                operator.display()
            ),
        );
        let _haproxy = Haproxy::start(version, base, &config);
        let worker = WorkerSocket::new(operator);
        assert_eq!(worker.cli_level(soon()).unwrap(), CliLevel::Operator);
        let refused = RuntimeInventory::read(&worker, soon());
        let level = CliLevel::Operator;
        assert!(
            matches!(refused, Err(InventoryError::Level { level: l }) if l == level),
            "{version}: {refused:?}"
        );
    }
}

#[test]
fn a_refused_listing_is_an_error() {
    on_each(|version, haproxy| {
        let worker = worker_of(haproxy);
        for command in [
            "show map no/such.map",
            "frobnicate",
            "show servers state nowhere",
        ] {
            let refused = worker.dump(command, soon());
            assert!(
                matches!(refused, Err(DumpError::Refused { .. })),
                "{version}: {command}: {refused:?}"
            );
        }
        assert_eq!(
            worker.dump("show map", soon()).unwrap(),
            b"# id (file) description\n"
        );
    });
}
