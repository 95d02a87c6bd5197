//! The trait on a real directory: nothing leaves the base, nothing blocks, nothing is
//! followed. Everything runs with both ways of resolving a path.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Mutex;

use haptic_agent::clock::{Clock as _, SystemClock};
use haptic_agent::store::disk::DiskFs;
use haptic_agent::store::fs::{Attrs, FileKind, Fs, Stat};
use haptic_agent::store::lock::{BaseLock, LockError};
use haptic_agent::store::prepare::PrepareError;
use haptic_agent::store::restore::restore;
use haptic_agent::store::tree::Tree;
use haptic_agent::wire::digest::ContentHash;
use haptic_agent::wire::path::ManifestPath;

use super::{Failed, Session, files, left_over, store_on};

type Change<'a> = &'a dyn Fn(&dyn Fs, &str) -> std::io::Result<()>;

fn both(base: &Path, test: impl Fn(&DiskFs)) {
    test(&DiskFs::open(base).unwrap());
    test(&DiskFs::open_by_components(base).unwrap());
}

fn errno(result: std::io::Result<impl Sized>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Many looks at once say what as many single ones say, whatever the order.
#[test]
fn many_looks_are_as_many_single_ones() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    std::fs::create_dir_all(base.join("a/b")).unwrap();
    for (name, bytes) in [("x", "1"), ("a/x", "22"), ("a/y", "333"), ("a/b/x", "4444")] {
        std::fs::write(base.join(name), bytes).unwrap();
    }
    symlink("a", base.join("link")).unwrap();
    symlink("x", base.join("a/link")).unwrap();
    let names = [
        "a/b/x", "a/none", "a/x", "a/y", "a/link", "a/../x", "a/..", "a/", "gone/x", "gone/y",
        "link/x", "link/y", "x/below", "x", "", ".", "a", "a/x",
    ];
    let known = |looked: std::io::Result<Option<Stat>>| match looked {
        Ok(stat) => Ok(stat),
        Err(error) => Err(error.raw_os_error()),
    };
    // Enough of them that several threads look.
    let names = names.repeat(200);
    both(base, |fs| {
        let asked = Mutex::new(vec![0; names.len()]);
        let told = fs.stat_where(&names, &|place, looked| {
            asked.lock().unwrap()[place] += 1;
            assert_eq!(
                known(looked),
                known(fs.stat(names[place])),
                "{}",
                names[place]
            );
            place % 3 == 0
        });
        assert!(asked.into_inner().unwrap().iter().all(|times| *times == 1));
        assert!(told.into_iter().eq((0..names.len()).step_by(3)));
    });
}

#[test]
fn a_symbolic_link_in_any_component_is_refused_by_every_call() {
    let outside = tempfile::tempdir().unwrap();
    std::fs::create_dir(outside.path().join("sub")).unwrap();
    std::fs::write(outside.path().join("sub/secret"), "secret").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    std::fs::create_dir_all(base.join("real/sub")).unwrap();
    std::fs::write(base.join("real/sub/secret"), "inside").unwrap();
    std::fs::write(base.join("plain"), "plain").unwrap();
    symlink(outside.path(), base.join("out")).unwrap();
    symlink(outside.path().join("sub"), base.join("real/out")).unwrap();
    // Even one that stays inside.
    symlink("real", base.join("in")).unwrap();
    let calls: [(&str, Change); 12] = [
        ("stat", &|fs, p| fs.stat(p).map(|_| ())),
        ("open", &|fs, p| fs.open(p).map(|_| ())),
        ("create", &|fs, p| {
            fs.create(&format!("{p}x"), 0o644).map(|_| ())
        }),
        ("set_attrs", &|fs, p| fs.set_attrs(p, Attrs::default())),
        ("sync_file", &|fs, p| fs.sync_file(p)),
        ("link from", &|fs, p| fs.link(p, "linked")),
        ("link to", &|fs, p| fs.link("plain", &format!("{p}x"))),
        ("rename from", &|fs, p| fs.rename(p, "renamed")),
        ("rename to", &|fs, p| fs.rename("plain", p)),
        ("unlink", &|fs, p| fs.unlink(p)),
        ("mkdir", &|fs, p| fs.mkdir(&format!("{p}x"), 0o755)),
        ("rmdir", &|fs, p| fs.rmdir(p)),
    ];
    both(base, |fs| {
        for through in ["out/sub/secret", "real/out/secret", "in/sub/secret"] {
            for (name, call) in calls {
                assert_eq!(
                    errno(call(fs, through)),
                    Some(libc::ELOOP),
                    "{name} {through}"
                );
            }
        }
        assert_eq!(errno(fs.list("out")), Some(libc::ELOOP));
        assert_eq!(errno(fs.sync_dir("in/sub")), Some(libc::ELOOP));
        // As the last component it is seen, never followed.
        assert_eq!(fs.stat("out").unwrap().unwrap().kind, FileKind::Symlink);
        assert_eq!(errno(fs.open("out")), Some(libc::ELOOP));
        assert_eq!(errno(fs.create("out", 0o644)), Some(libc::EEXIST));
        assert_eq!(
            errno(fs.set_attrs("out", Attrs::default())),
            Some(libc::ELOOP)
        );
    });
    let kept = std::fs::read(outside.path().join("sub/secret")).unwrap();
    assert_eq!(kept, b"secret");
    assert_eq!(
        std::fs::read_dir(outside.path().join("sub"))
            .unwrap()
            .count(),
        1
    );
    assert!(base.join("plain").exists());
}

#[test]
fn a_path_cannot_climb_or_be_absolute() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("a")).unwrap();
    both(dir.path(), |fs| {
        for bad in [
            "..",
            "../x",
            "a/../../x",
            "/etc/passwd",
            "a//b",
            "a/",
            ".",
            "a/./b",
        ] {
            assert_eq!(errno(fs.stat(bad)), Some(libc::EINVAL), "{bad}");
            assert_eq!(errno(fs.create(bad, 0o644)), Some(libc::EINVAL), "{bad}");
            assert_eq!(errno(fs.unlink(bad)), Some(libc::EINVAL), "{bad}");
        }
        for bad in ["..", "/etc", "a/.."] {
            assert_eq!(errno(fs.list(bad)), Some(libc::EINVAL), "{bad}");
        }
    });
}

#[test]
fn nothing_blocks_on_what_is_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    let made = std::process::Command::new("mkfifo")
        .arg(base.join("fifo"))
        .status()
        .unwrap();
    assert!(made.success());
    let _socket = UnixListener::bind(base.join("socket")).unwrap();
    std::fs::create_dir(base.join("dir")).unwrap();
    symlink("/dev/zero", base.join("zero")).unwrap();
    both(base, |fs| {
        for (name, kind) in [
            ("fifo", FileKind::Fifo),
            ("socket", FileKind::Socket),
            ("dir", FileKind::Dir),
            ("zero", FileKind::Symlink),
        ] {
            assert_eq!(fs.stat(name).unwrap().unwrap().kind, kind);
            assert!(fs.open(name).is_err(), "{name}");
            assert!(fs.sync_file(name).is_err(), "{name}");
            assert!(fs.set_attrs(name, Attrs::default()).is_err(), "{name}");
            let listed = fs.list("").unwrap();
            assert!(listed.iter().any(|e| e.name == name && e.kind == kind));
        }
        assert_eq!(errno(fs.unlink("dir")), Some(libc::EISDIR));
        assert_eq!(errno(fs.stat("fifo/x")), Some(libc::ENOTDIR));
        assert_eq!(fs.stat("none/x").unwrap(), None);
        assert_eq!(fs.stat("").unwrap().unwrap().kind, FileKind::Dir);
    });
    let mut session = Session::new(store_on(base));
    for target in ["fifo", "socket", "dir", "zero", "fifo/x", "zero/x"] {
        let failed = session
            .apply(&[("fine", b"x"), (target, b"x")], &[])
            .unwrap_err();
        let refused = matches!(&failed, Failed::Prepare(PrepareError::Refused(_)));
        assert!(refused, "{target}: {}", failed.text());
        assert!(failed.text().starts_with(target), "{}", failed.text());
        assert!(!base.join("fine").exists());
        assert_eq!(left_over(base), [""; 0]);
    }
}

#[test]
fn modes_are_exact_whatever_the_umask_and_a_set_gid_directory_keeps_its_bit() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    std::fs::create_dir(base.join("sg")).unwrap();
    std::os::unix::fs::chown(base.join("sg"), None, Some(1234)).ok();
    let set_gid = std::fs::Permissions::from_mode(0o2775);
    std::fs::set_permissions(base.join("sg"), set_gid).unwrap();
    // The umask is the process's; 0o022 as usual already cuts 0o666 and 0o775.
    let fs = DiskFs::open(base).unwrap();
    fs.create("f", 0o666).unwrap().write_all(b"x").unwrap();
    fs.mkdir("d", 0o775).unwrap();
    fs.mkdir("sg/d", 0o775).unwrap();
    let mode = |name: &str| std::fs::metadata(base.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(mode("f"), 0o666);
    assert_eq!(mode("d"), 0o775);
    assert_eq!(mode("sg/d"), 0o2775);
    let mut session = Session::new(store_on(base));
    session
        .apply(&[("sg/new", b"x"), ("sg/d/deep/new", b"x")], &[])
        .unwrap();
    let group = std::fs::metadata(base.join("sg")).unwrap().gid();
    for name in ["sg/new", "sg/d/deep/new"] {
        assert_eq!(std::fs::metadata(base.join(name)).unwrap().gid(), group);
    }
    assert_eq!(mode("sg/d/deep"), 0o2755);
}

#[test]
fn replaced_files_keep_owner_and_mode_and_a_restore_brings_the_very_inodes_back() {
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path();
    std::fs::create_dir(base.join("certs")).unwrap();
    for (name, mode, owner) in [("haproxy.cfg", 0o640, 99), ("certs/a.pem", 0o600, 101)] {
        std::fs::write(base.join(name), format!("old {name}")).unwrap();
        std::fs::set_permissions(base.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        // Not root: then owner and group stay the agent's, which is what is compared below.
        std::os::unix::fs::chown(base.join(name), Some(owner), Some(owner)).ok();
    }
    let look = |name: &str| {
        let m = std::fs::metadata(base.join(name)).unwrap();
        (m.mode() & 0o7777, m.uid(), m.gid())
    };
    let inode = |name: &str| std::fs::metadata(base.join(name)).unwrap().ino();
    let names = ["haproxy.cfg", "certs/a.pem"];
    let before = (names.map(look), names.map(inode), files(base));

    let mut session = Session::new(store_on(base));
    session
        .apply(
            &[
                ("haproxy.cfg", b"new"),
                ("certs/a.pem", b"new"),
                ("maps/x/y.map", b"new"),
            ],
            &[],
        )
        .unwrap();
    assert_eq!(names.map(look), before.0);
    assert_ne!(names.map(inode), before.1);
    assert_eq!(look("maps/x/y.map").0, 0o644);
    session
        .apply(
            &[("haproxy.cfg", b"third")],
            &["certs/a.pem", "maps/x/y.map"],
        )
        .unwrap();
    assert!(!base.join("maps").exists(), "pruned");

    for _ in 0..2 {
        restore(&session.store, &session.journal, "haproxy.cfg").unwrap();
        assert_eq!(names.map(look), before.0);
        assert_eq!(names.map(inode), before.1);
        assert_eq!(files(base), before.2);
    }
    haptic_agent::store::journal::clear(&session.store, &session.journal).unwrap();
    assert_eq!(left_over(base), [""; 0]);
}

#[test]
fn a_base_that_is_a_symbolic_link_works() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    let base = dir.path().join("base");
    symlink("real", &base).unwrap();
    let mut session = Session::new(store_on(&base));
    session.apply(&[("a/b", b"x")], &[]).unwrap();
    assert_eq!(std::fs::read(dir.path().join("real/a/b")).unwrap(), b"x");
}

#[test]
fn content_is_read_back_as_written() {
    let dir = tempfile::tempdir().unwrap();
    both(dir.path(), |fs| {
        let bytes: Vec<u8> = (0..=255).cycle().take(100_001).collect();
        let mut out = fs.create("x", 0o600).unwrap();
        out.write_all(&bytes).unwrap();
        out.sync().unwrap();
        drop(out);
        let mut back = Vec::new();
        fs.open("x").unwrap().read_to_end(&mut back).unwrap();
        assert_eq!(back, bytes);
        fs.link("x", "y").unwrap();
        // Two names of one inode: a rename between them leaves both.
        fs.rename("x", "y").unwrap();
        assert_eq!(fs.stat("x").unwrap().unwrap().nlink, 2);
        assert!(fs.stat("x").unwrap().unwrap().mount_id.is_some());
        fs.sync_dir("").unwrap();
        fs.sync_files(&["x"; 100]).unwrap();
        let mut some = vec!["x"; 100];
        some[77] = "none";
        let (failed, error) = fs.sync_files(&some).unwrap_err();
        assert_eq!((failed, error.raw_os_error()), (77, Some(libc::ENOENT)));
        fs.sync_files(&[]).unwrap();
        fs.unlink("x").unwrap();
        fs.unlink("y").unwrap();
    });
}

/// The agent's own file is not hashed again while it is fresh, and still a write right
/// behind the agent's, of the same size and within the same tick, is found.
#[test]
fn a_write_in_the_tick_of_the_agents_own_is_found() {
    const ROUNDS: usize = 500;
    let dir = tempfile::tempdir().unwrap();
    let fs = DiskFs::open(dir.path()).unwrap();
    let path = ManifestPath::parse("map").unwrap();
    let (ours, theirs) = (b"one\n", b"two\n");
    let mut marked = 0;
    for round in 0..ROUNDS {
        let mut file = fs.create("new", 0o600).unwrap();
        file.write_all(ours).unwrap();
        let mark = file.mark();
        drop(file);
        fs.rename("new", "map").unwrap();
        let mut tree = Tree::default();
        let now = SystemClock.wall();
        tree.note(&fs, &path, ContentHash::of(ours), mark, now)
            .unwrap();
        marked += usize::from(mark.is_some() && mark == fs.stat("map").unwrap().map(|s| s.mtime));
        assert_eq!(tree.recheck(&fs, now).unwrap(), [], "round {round}");
        std::fs::write(dir.path().join("map"), theirs).unwrap();
        assert_eq!(
            tree.recheck(&fs, now).unwrap(),
            std::slice::from_ref(&path),
            "round {round}"
        );
    }
    assert_eq!(marked, ROUNDS, "the mark is what the disk shows");
}

#[test]
fn one_agent_a_base_directory() {
    let dir = tempfile::tempdir().unwrap();
    let disk = DiskFs::open(dir.path()).unwrap();
    let held = BaseLock::acquire(&disk).unwrap();
    let other = DiskFs::open(dir.path()).unwrap();
    let error = BaseLock::acquire(&other).unwrap_err();
    let me = std::process::id();
    assert!(matches!(error, LockError::Held { pid: Some(pid) } if pid == me));
    assert!(error.to_string().contains("another agent"), "{error}");
    drop(held);
    let held = BaseLock::acquire(&other).unwrap();
    drop(held);
    // A planted link is not followed and not locked.
    std::fs::remove_file(dir.path().join(".haptic-agent.lock")).unwrap();
    symlink("/tmp/elsewhere", dir.path().join(".haptic-agent.lock")).unwrap();
    let error = BaseLock::acquire(&disk).unwrap_err();
    assert!(matches!(error, LockError::Store(_)), "{error}");
}
