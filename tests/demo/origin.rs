//! The server behind HAProxy: answers every request with the backend that it came through.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The longest request head.
const MAX_HEAD: usize = 16 * 1024;

/// Starts it on a free port. Its thread ends with the process.
pub(crate) fn start() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // A client that hangs up is no concern of the origin's.
                let _ = serve(stream);
            });
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut pending = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let read = stream.read(&mut chunk)?;
        if read == 0 || pending.len() > MAX_HEAD {
            return Ok(());
        }
        pending.extend_from_slice(chunk.get(..read).unwrap_or_default());
        while let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = pending.drain(..end + 4).collect();
            let head = String::from_utf8_lossy(&head);
            let backend = head
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(name, _)| name.eq_ignore_ascii_case("x-backend"))
                .map_or("none", |(_, value)| value);
            let body = format!("backend {backend}\n");
            let answer = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes())?;
        }
    }
}
