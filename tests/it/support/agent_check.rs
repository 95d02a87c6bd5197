//! An agent for HAProxy's agent-checks that does what the test says.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Says `ready`, or `drain` when told so, to whoever asks.
pub(crate) fn responder() -> (SocketAddr, Arc<AtomicBool>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let drain = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&drain);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer: &[u8] = match told.load(Ordering::SeqCst) {
                true => b"drain\n",
                false => b"ready 100%\n",
            };
            let _ = (&stream).write_all(answer);
        }
    });
    (address, drain)
}
