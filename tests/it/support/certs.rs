//! Certificates made with the `openssl` command, once a test run and kept in memory.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A self-signed certificate.
#[derive(Debug, Clone)]
pub(crate) struct Material {
    /// Certificate block.
    pub(crate) cert: String,
    /// Private key block.
    pub(crate) key: String,
    /// An empty revocation list signed with the key.
    pub(crate) crl: String,
}

impl Material {
    /// Certificate and key in one text, as HAProxy's `crt` takes it.
    pub(crate) fn pem(&self) -> String {
        format!("{}{}", self.cert, self.key)
    }

    /// A signed answer that the certificate is good, another one each time.
    pub(crate) fn ocsp(&self) -> Vec<u8> {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        std::fs::write(file("cert.pem"), &self.cert).unwrap();
        std::fs::write(file("key.pem"), &self.key).unwrap();
        let serial = openssl(&dir, &["x509", "-in", "cert.pem", "-noout", "-serial"]);
        let serial = serial.trim().strip_prefix("serial=").unwrap();
        let row = format!("V\t360101000000Z\t\t{serial}\tunknown\t/CN=x\n");
        std::fs::write(file("index"), row).unwrap();
        openssl(
            &dir,
            &[
                "ocsp", "-index", "index", "-CA", "cert.pem", "-rsigner", "cert.pem", "-rkey",
                "key.pem", "-issuer", "cert.pem", "-cert", "cert.pem", "-respout", "answer",
                "-ndays", "100",
            ],
        );
        std::fs::read(file("answer")).unwrap()
    }
}

/// The first of two that are always the same within a run.
pub(crate) fn first() -> &'static Material {
    static MADE: OnceLock<Material> = OnceLock::new();
    MADE.get_or_init(|| make("first.example"))
}

/// The second of two.
pub(crate) fn second() -> &'static Material {
    static MADE: OnceLock<Material> = OnceLock::new();
    MADE.get_or_init(|| make("second.example"))
}

/// A new self-signed certificate for `name`.
pub(crate) fn make(name: &str) -> Material {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| openssl(&dir, args);
    let subject = format!("/CN={name}");
    run(&[
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
        "-days",
        "3650",
        "-subj",
        &subject,
    ]);
    let config =
        "[ca]\ndefault_ca=it\n[it]\ndatabase=index\ndefault_md=sha256\ndefault_crl_days=3650\n";
    std::fs::write(dir.path().join("ca.cnf"), config).unwrap();
    std::fs::write(dir.path().join("index"), "").unwrap();
    run(&[
        "ca", "-gencrl", "-config", "ca.cnf", "-keyfile", "key.pem", "-cert", "cert.pem", "-out",
        "crl.pem",
    ]);
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    Material {
        cert: read("cert.pem"),
        key: read("key.pem"),
        crl: read("crl.pem"),
    }
}

/// A self-signed certificate and its key in one text, whose time was over with the year 2020.
pub(crate) fn run_out() -> String {
    let dir = tempfile::tempdir().unwrap();
    let config = "[ca]\ndefault_ca=it\n[it]\ndatabase=index\nrand_serial=yes\nnew_certs_dir=.\ndefault_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n";
    std::fs::write(dir.path().join("ca.cnf"), config).unwrap();
    std::fs::write(dir.path().join("index"), "").unwrap();
    let steps = [
        "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out req.pem -subj /CN=old.example",
        "ca -batch -notext -selfsign -config ca.cnf -keyfile key.pem -in req.pem -out cert.pem -startdate 20200101000000Z -enddate 20210101000000Z",
    ];
    for step in steps {
        openssl(&dir, &step.split(' ').collect::<Vec<_>>());
    }
    let read = |file: &str| std::fs::read_to_string(dir.path().join(file)).unwrap();
    read("cert.pem") + &read("key.pem")
}

/// What it prints, run in that directory.
fn openssl(dir: &tempfile::TempDir, args: &[&str]) -> String {
    let done = Command::new("openssl")
        .args(args)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .output()
        .expect("the openssl command makes the certificates for these tests; install it");
    assert!(
        done.status.success(),
        "openssl {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8(done.stdout).unwrap()
}
