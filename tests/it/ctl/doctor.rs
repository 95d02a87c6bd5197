//! What the doctor finds is what HAProxy makes of it.

use super::kit::{Pod, Site, ctl};
use crate::support::certs;
use crate::support::haproxy::Version;

#[test]
fn the_doctor_looks_and_never_forbids() {
    let pod = Pod::start(Version::V3_4);
    let site = Site::of(&pod);
    // The configuration names the map under another spelling.
    let config = pod
        .config("")
        .replace("map(maps/host.map", "map(./maps/host.map");
    site.write("haproxy.cfg", &config);
    let url = &pod.url();
    ctl(url, &["push", site.path()]).ends(0);
    let found = ctl(url, &["doctor", site.path(), "-o", "json"]);
    let findings = found.json()["agents"][0]["findings"].clone();
    let about_map = findings
        .as_array()
        .unwrap()
        .iter()
        .any(|f| f["path"] == "maps/host.map");
    assert!(about_map, "{findings:#}");
    // Never silently stale: the change is a reload.
    site.write("maps/host.map", "a.example two\n");
    ctl(url, &["push", site.path()])
        .ends(0)
        .says("applied with a reload");
    assert_eq!(pod.get("a.example"), "two");
}

/// A set that HAProxy takes and does not like.
#[test]
fn what_haproxy_warned_of_is_told() {
    for version in [Version::V3_0, Version::V3_4] {
        let pod = Pod::start(version);
        let site = Site::of(&pod);
        let url = &pod.url();
        let frontends: String = (0..20).map(|n| format!("frontend silent{n}\n")).collect();
        site.write("haproxy.cfg", &(pod.config("") + &frontends));
        let warned = "[WARNING]";
        ctl(url, &["push", site.path()])
            .ends(0)
            .says("HAProxy loaded it, and warns:")
            .says(warned)
            .says("frontend 'silent0' has no 'bind' directive")
            .says("more; -o json has all");
        ctl(url, &["state"])
            .ends(0)
            .says("warnings")
            .says("frontend 'silent0' has no 'bind' directive");
        ctl(url, &["doctor", site.path()])
            .ends(0)
            .says("warning: HAProxy warned when it loaded this set")
            .says("frontend 'silent0' has no 'bind' directive");
        site.write("haproxy.cfg", &pod.config(""));
        let quiet = ctl(url, &["push", site.path()]);
        assert!(!quiet.stdout.contains("warns"), "{quiet}");
        let quiet = ctl(url, &["state"]);
        assert!(!quiet.stdout.contains("warnings"), "{quiet}");
    }
}

/// HAProxy refuses the one and serves the other without a word.
#[test]
fn certificates_that_are_empty_or_have_run_out() {
    for version in [Version::V3_0, Version::V3_4] {
        let pod = Pod::start(version);
        let url = &pod.url();
        let bind = format!(
            "    bind unix@{}/tls.sock ssl crt certs/a.pem\n",
            pod.base.display()
        );
        let site = Site::of(&pod);
        site.write("haproxy.cfg", &pod.config(&bind));
        site.write("certs/a.pem", "");
        ctl(url, &["doctor", site.path()])
            .ends(1)
            .says("error: certs/a.pem: the configuration uses it as a certificate, and it is empty: HAProxy refuses that");
        ctl(url, &["push", site.path()]).ends(1).says("certs/a.pem");
        site.write("certs/a.pem", &certs::run_out());
        ctl(url, &["doctor", site.path()])
            .ends(0)
            .says("warning: certs/a.pem: its certificate was valid until 2021-01-01 00:00 UTC; HAProxy serves it all the same");
        ctl(url, &["push", site.path()]).ends(0);
        site.write("certs/a.pem", &certs::first().pem());
        let well = ctl(url, &["doctor", site.path()]);
        assert!(!well.ends(0).stdout.contains("valid until"), "{well}");
    }
}

/// HAProxy refuses the one and ignores the other.
#[test]
fn certificates_without_keys_and_answers_that_are_none() {
    for version in [Version::V3_0, Version::V3_4] {
        let pod = Pod::start(version);
        let url = &pod.url();
        let one = certs::first();
        let bind = format!(
            "    bind unix@{}/tls.sock ssl crt certs/a.pem\n",
            pod.base.display()
        );
        let site = Site::of(&pod);
        site.write("haproxy.cfg", &pod.config(&bind));
        site.write("certs/a.pem", &one.cert);
        ctl(url, &["doctor", site.path()])
            .ends(1)
            .says("error: certs/a.pem: the configuration uses it as a certificate, and it holds no private key")
            .says("certs/a.pem.key");
        ctl(url, &["push", site.path()])
            .ends(1)
            .says("No Private Key found");
        // As it is advised.
        site.write("certs/a.pem.key", &one.key);
        site.write("certs/a.pem.ocsp", "no answer\n");
        site.write("certs/gone.pem.ocsp", "no answer\n");
        ctl(url, &["doctor", site.path()])
            .ends(1)
            .says("error: certs/a.pem.ocsp: the issuer is neither in certs/a.pem nor");
        ctl(url, &["push", site.path()])
            .ends(1)
            .says("maybe the issuer could not be found");
        site.write("certs/a.pem.issuer", &one.cert);
        ctl(url, &["doctor", site.path()])
            .ends(0)
            .says("warning: certs/a.pem.ocsp: it is no OCSP response in DER; HAProxy ignores it")
            .says("warning: certs/gone.pem.ocsp: HAProxy reads it only beside the certificate");
        ctl(url, &["push", site.path()])
            .ends(0)
            .says("HAProxy loaded it, and warns:")
            .says("Unable to parse OCSP response");
        std::fs::write(site.dir.path().join("certs/a.pem.ocsp"), one.ocsp()).unwrap();
        let well = ctl(url, &["doctor", site.path()]);
        assert!(!well.ends(0).stdout.contains("a.pem.ocsp: "), "{well}");
    }
}
