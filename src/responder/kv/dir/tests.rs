//! What one look makes of one file.

use super::*;
use crate::clock;
use crate::responder::copy::CopyCell;
use crate::responder::kv::KvStatus;
use crate::responder::value::Value;

fn watch() -> Watch {
    let clock = clock::system();
    let status = Arc::new(KvStatus::new(clock.clone()));
    let cell = Arc::new(CopyCell::new());
    let keeper = Keeper::new(cell, status, clock.clone(), "test".to_owned());
    let config = DirConfig::new(PathBuf::from("/nonexistent"));
    Watch::new(
        config,
        Weights::Set,
        clock,
        Arc::new(Stop::default()),
        keeper,
    )
}

fn denied() -> io::Result<Found> {
    Err(io::ErrorKind::PermissionDenied.into())
}

fn file(bytes: &[u8]) -> io::Result<Found> {
    Ok(Found::File {
        bytes: bytes.to_vec(),
        modified: UnixNanos(0),
    })
}

fn followed(known: &Option<Known>) -> Option<Value> {
    known.as_ref()?.followed.as_ref()?.stored().ok()
}

#[test]
fn before_the_first_copy_every_file_has_to_be_readable() {
    let watch = watch();
    let mut look = Look::default();
    assert!(watch.see("a", None, denied(), &mut look).is_none());
    let awaited = look.awaited.unwrap();
    assert!(awaited.contains("/nonexistent/a"), "{awaited}");
    // What is no file is none at the start, and no reason to wait.
    let mut look = Look::default();
    let odd = || Ok(Found::Other("a pipe"));
    assert!(watch.see("a", None, odd(), &mut look).is_none());
    assert_eq!(
        (look.unreadable.told, look.awaited),
        (vec!["a (a pipe)".to_owned()], None)
    );
}

#[test]
fn later_what_cannot_be_read_keeps_its_value() {
    let mut watch = watch();
    let mut look = Look::default();
    let known = watch.see("a", None, file(b"drain"), &mut look);
    assert_eq!(followed(&known), Some(Value::Drain));
    watch.device = Some(1);
    for unreadable in [denied(), Ok(Found::Other("a pipe")), denied()] {
        let mut look = Look::default();
        let again = watch.see("a", copied(&known), unreadable, &mut look);
        assert_eq!(followed(&again), Some(Value::Drain));
        assert_eq!((look.unreadable.count, look.changed), (1, false));
        assert!(look.awaited.is_none());
    }
    // One that was never read decides nothing.
    let mut look = Look::default();
    assert!(watch.see("b", None, denied(), &mut look).is_none());
    assert_eq!((look.unreadable.count, look.awaited), (1, None));
    // And one that is gone is gone.
    let mut look = Look::default();
    assert!(
        watch
            .see("a", known, Ok(Found::Nothing), &mut look)
            .is_none()
    );
    assert!(look.changed);
}

fn copied(known: &Option<Known>) -> Option<Known> {
    known.as_ref().map(|known| Known {
        bytes: known.bytes.clone(),
        says: known.says.clone(),
        followed: known.followed.clone(),
        invalid_since: known.invalid_since,
    })
}
