//! No reply mixes two versions of the copy.

use super::kit::{Sockets, ask, copy};
use haptic_agent::responder::value::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// In one version the row's key decides, in the other the group's; a look at both would
/// find neither and say ready.
#[test]
fn a_reply_is_wholly_one_version_of_the_copy() {
    const QUESTIONS: usize = 2000;
    let sockets = Sockets::unsynced();
    let one = Arc::new(copy(&[("web/s1", Value::Drain)]));
    let other = Arc::new(copy(&[("canary", Value::Maint)]));
    sockets.cell.swap(Arc::clone(&one));
    let done = AtomicBool::new(false);
    let (mut drains, mut maints) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                for version in [&other, &one] {
                    sockets.cell.swap(Arc::clone(version));
                    thread::yield_now();
                }
            }
        });
        for _ in 0..QUESTIONS {
            match ask(sockets.address, "web/s1 canary\n").as_str() {
                "drain\n" => drains += 1,
                "maint\n" => maints += 1,
                other => panic!("{other:?} is of neither version"),
            }
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(
        drains > 0 && maints > 0,
        "{drains} {maints}: only one was seen"
    );
}
