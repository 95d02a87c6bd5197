//! The ways an apply can go.

use crate::support::agent::{Apply, Setup, tree};
use crate::support::haproxy::{Haproxy, Version, minimal, preamble};

fn serving(base: &std::path::Path, word: &str) -> String {
    format!(
        "{}frontend front\n    bind unix@{}/front.sock\n    http-request return status 200 content-type text/plain string {word}\n",
        preamble(base),
        base.display()
    )
}

#[test]
fn a_first_apply_over_a_bootstrap_configuration_reloads_and_is_known() {
    for version in Version::ALL {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        std::fs::create_dir(&base).unwrap();
        let haproxy = Haproxy::start(version, &base, &minimal(&base));
        let agent = Setup::new(&base).start();
        let before = haproxy.worker_pid();
        let config = serving(&base, "one");
        let first = Apply::new("p1", 1, 1)
            .file("haproxy.cfg", config.as_bytes())
            .file("maps/host.map", b"a.example be_a\n");
        let answer = first.on(&agent.state()).succeed(&agent, "reload");
        assert_ne!(haproxy.worker_pid(), before, "{version}");
        assert_eq!(answer["reload"]["worker_pid"], haproxy.worker_pid());
        let state = agent.state();
        for role in [
            "applied_plan_id",
            "running_plan_id",
            "worker_ops_plan_id",
            "lkg_plan_id",
        ] {
            assert_eq!(state[role], "p1", "{version} {role}");
        }
        assert_eq!(state["generation"], 1);
        assert_eq!(tree(&base)["maps/host.map"], b"a.example be_a\n");
    }
}
