use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;

use super::*;

const CERT: &str = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nKKKK\n-----END EC PRIVATE KEY-----\n";

fn set(files: &[(&str, &str)]) -> Result<FileSet, FileSetError> {
    with(files, &FileSetOptions::default())
}

fn with(files: &[(&str, &str)], options: &FileSetOptions) -> Result<FileSet, FileSetError> {
    let files = files
        .iter()
        .map(|(path, text)| (*path, text.as_bytes().to_vec()));
    FileSet::from_files(files, options)
}

fn paths(set: &FileSet) -> Vec<&str> {
    set.files().map(|entry| entry.path.as_str()).collect()
}

#[test]
fn the_plan_id_is_the_hash_that_is_documented() {
    let one = set(&[("haproxy.cfg", "global\n"), ("maps/a.map", "")]).unwrap();
    // printf 'haptic-files 1\nhaproxy.cfg config %s\nmaps/a.map map %s\n' \
    //   $(printf 'global\n' | sha256sum) $(printf '' | sha256sum) | sha256sum
    let hash = |bytes: &[u8]| hex(&Sha256::digest(bytes));
    let lines = format!(
        "haptic-files 1\nhaproxy.cfg config {}\nmaps/a.map map {}\n",
        hash(b"global\n"),
        hash(b"")
    );
    assert_eq!(one.plan_id(), hash(lines.as_bytes()));
    assert_eq!(one.plan_id().len(), 64);

    let turned = set(&[("maps/a.map", ""), ("haproxy.cfg", "global\n")]).unwrap();
    assert_eq!(turned.plan_id(), one.plan_id());
    for other in [
        set(&[("haproxy.cfg", "global\n"), ("maps/a.map", "x")]),
        set(&[("haproxy.cfg", "global\n"), ("maps/b.map", "")]),
        set(&[("haproxy.cfg", "global\n")]),
        with(
            &[("haproxy.cfg", "global\n"), ("maps/a.map", "")],
            &FileSetOptions {
                kinds: BTreeMap::from([("maps/a.map".into(), FileKind::General)]),
                ..FileSetOptions::default()
            },
        ),
    ] {
        assert_ne!(other.unwrap().plan_id(), one.plan_id());
    }
}

#[test]
fn entries_carry_what_was_hashed() {
    let set = set(&[("haproxy.cfg", "global\n"), ("x", "abc")]).unwrap();
    let entry = set.get("x").unwrap();
    assert_eq!((entry.size, entry.content), (3, &b"abc"[..]));
    assert_eq!(
        entry.digest.to_string(),
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
    let file = entry.manifest_file();
    assert_eq!((file.path.as_str(), file.size), ("x", 3));
    assert_eq!(set.bytes(), 10);
    assert!(set.get("y").is_none());
}

#[test]
fn kinds_by_rule() {
    let whole = format!("{CERT}{KEY}");
    let dos = whole.replace('\n', "\r\n");
    let glued = format!("{}{KEY}", CERT.trim_end());
    let in_lua = format!("x = [[\n{KEY}]]\n");
    let table: &[(&str, &str, FileKind)] = &[
        ("maps/host", "", FileKind::Map),
        ("a/maps/b/x.txt", "", FileKind::Map),
        ("x.map", "", FileKind::Map),
        ("mapsx/y", "", FileKind::General),
        ("a.pem", &whole, FileKind::Cert),
        ("noend", &dos, FileKind::Cert),
        ("glued.pem", &glued, FileKind::Cert),
        ("ca.crt", CERT, FileKind::Ca),
        ("pair.pem", CERT, FileKind::Cert),
        ("pair.pem.key", KEY, FileKind::Cert),
        ("secret.lua", &in_lua, FileKind::Cert),
        ("maps/secret.map", KEY, FileKind::Cert),
        ("site.crtlist", "a.pem\n", FileKind::Crtlist),
        ("l/crt-list.txt", "a.pem\n", FileKind::Crtlist),
        ("l/site-crt-list", "a.pem\n", FileKind::Crtlist),
        ("503.http", "HTTP/1.0 503 x\r\n\r\n", FileKind::General),
        (
            "about.md",
            "see -----BEGIN CERTIFICATE-----",
            FileKind::General,
        ),
        ("other.cfg", "", FileKind::General),
        ("haproxy.cfg", &whole, FileKind::Config),
    ];
    let files: Vec<(&str, &str)> = table.iter().map(|(path, text, _)| (*path, *text)).collect();
    let set = set(&files).unwrap();
    for (path, _, kind) in table {
        assert_eq!(set.get(path).unwrap().kind, *kind, "{path}");
    }
}

#[test]
fn a_declared_kind_comes_first() {
    let options = FileSetOptions {
        config: "etc/main.cfg".to_owned(),
        kinds: BTreeMap::from([("hosts".into(), FileKind::Map)]),
        unordered_maps: BTreeSet::from(["hosts".into()]),
    };
    let set = with(&[("etc/main.cfg", "x\n"), ("hosts", "")], &options).unwrap();
    assert_eq!(set.get("hosts").unwrap().kind, FileKind::Map);
    assert_eq!(set.config().as_str(), "etc/main.cfg");
    assert!(set.is_unordered("hosts") && !set.is_unordered("etc/main.cfg"));
}

/// Each row: the files, and a piece of the refusal that leads on.
#[test]
fn what_is_no_set_is_refused_with_the_way_out() {
    type Files = &'static [(&'static str, &'static str)];
    let table: &[(Files, &str)] = &[
        (&[], "is this the right directory?"),
        (&[("main.cfg", "x\n")], "--config main.cfg"),
        (&[("haproxy.cfg", ""), ("/x", "")], "relative to the base"),
        (&[("haproxy.cfg", ""), ("a/../x", "")], "rename it"),
        (&[("haproxy.cfg", ""), (".x", "")], "start with a dot"),
        (
            &[("haproxy.cfg", ""), ("x", ""), ("x", "")],
            "x is there twice",
        ),
        (
            &[("haproxy.cfg", ""), ("a/b/c", ""), ("a", "")],
            "a is a file and also the directory",
        ),
        (
            &[("haproxy.cfg", ""), ("backends.json", "{}")],
            "put the line `# haptic: backends`",
        ),
    ];
    for (files, wanted) in table {
        let words = set(files).unwrap_err().to_string();
        assert!(words.contains(wanted), "{words}");
    }
    let options = FileSetOptions {
        unordered_maps: BTreeSet::from(["maps/hots.map".into()]),
        ..FileSetOptions::default()
    };
    let words = with(&[("haproxy.cfg", "")], &options)
        .unwrap_err()
        .to_string();
    assert!(
        words.contains("maps/hots.map") && words.contains("spelling"),
        "{words}"
    );
}

#[test]
fn limits_hold_for_files_at_hand() {
    let many = (0..=MAX_FILES).map(|n| (format!("f{n}"), Vec::new()));
    let many = many.chain([("haproxy.cfg".to_owned(), Vec::new())]);
    let words = FileSet::from_files(many, &FileSetOptions::default()).unwrap_err();
    assert!(matches!(words, FileSetError::TooManyFiles { .. }));
    let half = usize::try_from(MAX_FILES_BYTES / 2).unwrap();
    let files = [("haproxy.cfg", vec![0; half]), ("b", vec![0; half + 1])];
    let words = FileSet::from_files(files, &FileSetOptions::default()).unwrap_err();
    assert!(matches!(words, FileSetError::TooManyBytes { .. }));
}

fn dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("haproxy.cfg"), "global\n").unwrap();
    fs::create_dir_all(dir.path().join("maps")).unwrap();
    fs::write(dir.path().join("maps/host.map"), "a b\n").unwrap();
    dir
}

fn read(dir: &Path) -> Result<FileSet, FileSetError> {
    FileSet::from_dir(dir, &FileSetOptions::default())
}

#[test]
fn a_directory_is_what_lies_in_it() {
    let dir = dir();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at(".git/objects")).unwrap();
    fs::write(at(".git/objects/x"), "").unwrap();
    fs::write(at("maps/.host.map.swp"), "").unwrap();
    fs::create_dir_all(at("empty/deep")).unwrap();
    let same = set(&[("haproxy.cfg", "global\n"), ("maps/host.map", "a b\n")]).unwrap();
    let seen = read(dir.path()).unwrap();
    assert_eq!(seen.plan_id(), same.plan_id());
    assert_eq!(paths(&seen), ["haproxy.cfg", "maps/host.map"]);
    assert_eq!(seen.skipped(), [".git", "maps/.host.map.swp"]);

    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("site");
    symlink(dir.path(), &link).unwrap();
    assert_eq!(read(&link).unwrap().plan_id(), same.plan_id());
}

/// The shape in which Kubernetes mounts a ConfigMap: files are links through a link
/// whose name starts with a dot.
#[test]
fn links_inside_the_directory_are_followed_under_their_names() {
    let dir = dir();
    let at = |path: &str| dir.path().join(path);
    fs::create_dir_all(at("..2026/certs")).unwrap();
    fs::write(at("..2026/certs/x.pem"), CERT).unwrap();
    fs::write(at("..2026/503.http"), "x").unwrap();
    symlink("..2026", at("..data")).unwrap();
    symlink("..data/503.http", at("503.http")).unwrap();
    symlink("..data/certs", at("certs")).unwrap();
    let set = read(dir.path()).unwrap();
    let wanted = ["503.http", "certs/x.pem", "haproxy.cfg", "maps/host.map"];
    assert_eq!(paths(&set), wanted);
    assert_eq!(set.skipped(), ["..2026", "..data"]);
}

#[test]
fn links_that_lead_out_to_nothing_or_in_circles_are_named() {
    for (target, wanted) in [
        ("/etc/passwd", "is a link to /etc/passwd, outside"),
        ("..", "is a link to .., outside"),
        ("gone", "is a link to gone, which is not there"),
        ("maps/..", "a directory that it lies in itself"),
    ] {
        let dir = dir();
        symlink(target, dir.path().join("odd")).unwrap();
        let words = read(dir.path()).unwrap_err().to_string();
        assert!(words.contains(wanted) && words.contains("/odd "), "{words}");
    }
    let dir = dir();
    symlink("../maps", dir.path().join("maps/again")).unwrap();
    let words = read(dir.path()).unwrap_err().to_string();
    assert!(
        words.contains("maps/again") && words.contains("lies in itself"),
        "{words}"
    );
}

#[test]
fn what_is_no_file_or_cannot_be_read_is_named() {
    let dir = dir();
    let socket = dir.path().join("worker.sock");
    let _listener = UnixListener::bind(&socket).unwrap();
    let words = read(dir.path()).unwrap_err().to_string();
    assert!(words.contains("worker.sock is a socket"), "{words}");
    fs::remove_file(&socket).unwrap();

    let odd = dir.path().join("two\nlines");
    fs::write(&odd, "").unwrap();
    let words = read(dir.path()).unwrap_err().to_string();
    assert!(words.contains("control characters"), "{words}");
    fs::remove_file(&odd).unwrap();

    let locked = dir.path().join("locked");
    fs::write(&locked, "").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
    // Root reads everything.
    if fs::File::open(&locked).is_err() {
        let words = read(dir.path()).unwrap_err().to_string();
        assert!(
            words.contains("locked cannot be read") && words.contains("make it readable"),
            "{words}"
        );
    }
    for path in ["haproxy.cfg", "no/such/place"] {
        assert!(read(&dir.path().join(path)).is_err());
    }
}

#[test]
fn limits_hold_while_a_directory_is_read() {
    let dir = dir();
    let big = fs::File::create(dir.path().join("big")).unwrap();
    big.set_len(MAX_FILES_BYTES + 1).unwrap();
    let words = read(dir.path()).unwrap_err();
    assert!(
        matches!(words, FileSetError::TooManyBytes { .. }),
        "{words}"
    );
}
