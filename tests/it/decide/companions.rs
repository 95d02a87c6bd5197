//! What lies beside a certificate and belongs to it: HAProxy reads them together, and only
//! when it starts.

use super::kit::{BOTH, Site, preamble};
use crate::support::certs;
use haptic_agent::client::decide::Why;

/// A certificate that is its own issuer, with all that can lie beside it.
fn site(version: crate::support::haproxy::Version) -> Site {
    let one = certs::first();
    let config = format!(
        "{}frontend front\n    bind unix@@BASE@/tls.sock ssl crt certs/one.pem\n    bind unix@@BASE@/list.sock ssl crt-list site.crtlist\n    http-request return status 200\n",
        preamble()
    );
    let mut site = Site::start(
        version,
        &[
            ("haproxy.cfg", config),
            ("certs/one.pem", one.pem()),
            ("certs/two.pem", certs::second().pem()),
            ("site.crtlist", "certs/two.pem\n".to_owned()),
        ],
    );
    // Each of them is new to a certificate that could be replaced at runtime.
    for (end, content) in [
        (".issuer", one.cert.clone().into_bytes()),
        (".ocsp", one.ocsp()),
        (".sctl", b"\0\x06\0\x04abcd".to_vec()),
    ] {
        site.files.insert(format!("certs/one.pem{end}"), content);
        let pushed = site.reload("it belongs to certs/one.pem");
        assert_eq!(pushed.decision.reasons[0].why, Why::Companion, "{end}");
    }
    site
}

impl Site {
    /// What it staples, as it shows it.
    fn stapled(&self) -> String {
        let shown = self.ask("show ssl ocsp-response certs/one.pem");
        assert!(shown.contains("Cert Status: good"), "{shown}");
        shown
    }
}

#[test]
fn each_sort_of_companion_is_reloaded_and_so_is_its_certificate() {
    for version in BOTH {
        let mut site = site(version);
        let before = site.stapled();
        site.files
            .insert("certs/one.pem.ocsp".into(), certs::first().ocsp());
        site.reload("it belongs to certs/one.pem");
        assert_ne!(
            site.stapled(),
            before,
            "{version}: the old answer is stapled on"
        );
        site.agrees();
        site.files
            .insert("certs/one.pem.sctl".into(), b"\0\x06\0\x04wxyz".to_vec());
        site.reload("it belongs to certs/one.pem");
        site.agrees();
        // The certificate by itself, which a command would rob of what lies beside it.
        let text = String::from_utf8(site.files["certs/one.pem"].clone()).unwrap();
        site.write("certs/one.pem", &format!("{text}{}", certs::second().cert));
        site.reload("certs/one.pem.ocsp belongs to it");
        site.stapled();
        site.agrees();
        // Gone is as much of a change as new.
        for end in [".ocsp", ".sctl", ".issuer"] {
            site.files.remove(&format!("certs/one.pem{end}"));
            site.reload("it is removed");
        }
        site.agrees();
        assert!(
            !site
                .ask("show ssl ocsp-response certs/one.pem")
                .contains("Cert Status"),
            "{version}"
        );
        // Without companions it is a certificate like any other.
        site.write("certs/one.pem", &certs::second().pem());
        site.runtime();
        site.agrees();
    }
}

/// A new certificate for a list could be added at runtime, without what lies beside it.
#[test]
fn a_new_certificate_with_a_companion_is_reloaded() {
    for version in BOTH {
        let mut site = site(version);
        site.write("certs/new.pem", &certs::first().pem());
        site.files
            .insert("certs/new.pem.ocsp".into(), certs::first().ocsp());
        site.write("certs/new.pem.issuer", &certs::first().cert);
        site.write("site.crtlist", "certs/two.pem\ncerts/new.pem\n");
        site.reload("it belongs to certs/new.pem");
        site.agrees();
    }
}
