//! What well-behaved clients get.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use haptic_agent::http::{ListenAddr, Request, Response, Server, ServerConfig, Status};

use super::kit::{CLIENT_GONE, Client, Toy, short, until_equal};

#[test]
fn requests_follow_each_other_on_one_connection() {
    let toy = Toy::start();
    let mut client = toy.connect();
    for _ in 0..3 {
        let answer = client.get("/");
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
        assert!(!answer.closes());
    }
    assert_eq!(
        client.get("/seen?a=b&c").text(),
        "GET /seen Some(\"a=b&c\") Some(0) 127.0.0.1"
    );
    assert_eq!(client.get("/nowhere").status, 404);
    assert_eq!(toy.stats.accepted.load(Ordering::SeqCst), 1);
    assert_eq!(toy.stats.requests.load(Ordering::SeqCst), 5);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let toy = Toy::start();
    let mut client = toy.connect();
    client.send(
        "POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\none\
         POST /echo HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n\
         2;x=y\r\ntw\r\n1\r\no\r\n0\r\nTrailer: x\r\n\r\n\
         HEAD /echo HTTP/1.1\r\nHost: t\r\n\r\n\
         GET /seen HTTP/1.1\r\nHost: t\r\nConnection: x, Close\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "one");
    assert_eq!(client.answer().text(), "two");
    assert!(
        client
            .answer_without_body()
            .head
            .contains("Content-Length: 0\r\n")
    );
    let last = client.answer();
    assert!(last.closes());
    assert!(last.text().starts_with("GET /seen"));
    assert!(client.ended());
}

#[test]
fn head_has_the_length_of_what_get_would_send() {
    let toy = Toy::start();
    let mut client = toy.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: t\r\n\r\n");
    let answer = client.answer_without_body();
    assert!(answer.head.contains("\r\nContent-Length: 2\r\n"));
    assert_eq!(client.get("/").text(), "ok");
}

#[test]
fn old_clients_get_an_answer_and_a_close() {
    let toy = Toy::start();
    let mut client = toy.connect();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let answer = client.answer();
    assert!(answer.closes());
    assert_eq!(answer.text(), "ok");
    assert!(client.ended());
}

#[test]
fn a_body_is_invited_only_when_it_is_read() {
    let toy = Toy::start();
    let mut client = toy.connect();
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        )
    };
    client.send(head("/echo"));
    assert_eq!(client.answer().status, 100);
    client.send("body");
    assert_eq!(client.answer().text(), "body");
    client.send(head("/401"));
    let answer = client.answer();
    assert_eq!(answer.status, 401);
    assert!(answer.closes());
    assert!(client.ended());
}

#[test]
fn a_body_over_the_limit_is_not_invited() {
    let toy = Toy::start();
    let mut client = toy.connect();
    client.send(
        "POST /small HTTP/1.1\r\nHost: t\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.answer().status, 413);
    let mut client = toy.connect();
    client.send("POST /small HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("a\r\n0123456789\r\n1\r\n");
    assert_eq!(client.answer().status, 413);
    let mut client = toy.connect();
    client.send("POST /small HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("a\r\n0123456789\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "0123456789");
}

#[test]
fn a_large_answer_arrives_whole() {
    let toy = Toy::start();
    let mut client = toy.connect();
    let answer = client.get("/big");
    assert_eq!(answer.body.len(), 10 * 1024 * 1024);
    assert_eq!(client.get("/").text(), "ok");
}

#[test]
fn a_form_is_read_part_by_part_and_the_connection_stays() {
    let toy = Toy::start();
    let mut client = toy.connect();
    let body = "--b\r\nContent-Disposition: form-data; name=\"manifest\"\r\n\r\n{}\r\n\
                --b\r\nContent-Disposition: form-data; name=\"a/b\"; filename=\"a/b\"\r\n\
                Content-Type: application/octet-stream\r\n\r\n\r\n--b-\r\n\r\n--b--\r\n";
    client.send(format!(
        "POST /form HTTP/1.1\r\nHost: t\r\nContent-Type: multipart/form-data; boundary=b\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let answer = client.answer();
    assert_eq!(answer.text(), "manifest None 2\na/b Some(\"a/b\") 8\n");
    assert!(!answer.closes());
    assert_eq!(client.get("/").text(), "ok");
}

#[test]
fn a_held_request_ends_when_its_client_leaves() {
    let toy = Toy::start();
    let before = CLIENT_GONE.load(Ordering::SeqCst);
    let mut client = toy.connect();
    client.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until_equal("held", &toy.stats.requests, 1);
    drop(client);
    until_equal("noticed", &CLIENT_GONE, before + 1);
    until_equal("closed", &toy.stats.open, 0);
}

#[test]
fn a_stop_closes_the_listener_and_lets_requests_finish() {
    let mut toy = Toy::with(8, short());
    let mut waiting = toy.connect();
    assert_eq!(waiting.get("/").status, 200);
    let mut busy = toy.connect();
    busy.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 4\r\n\r\nha");
    until_equal("busy", &toy.stats.requests, 2);
    let mut held = toy.connect();
    held.send("GET /hold HTTP/1.1\r\nHost: t\r\n\r\n");
    until_equal("held", &toy.stats.requests, 3);
    toy.stopper.stop();
    assert!(waiting.ended());
    assert_eq!(held.answer().text(), "stopping");
    assert!(std::net::TcpStream::connect(toy.address).is_err());
    busy.send("lf");
    let answer = busy.answer();
    assert_eq!(answer.text(), "half");
    assert!(answer.closes());
    drop((busy, held));
    toy.join().unwrap();
}

#[test]
fn a_stop_waits_no_longer_than_its_grace() {
    let mut toy = Toy::with(8, short());
    let mut busy = toy.connect();
    busy.send("POST /echo HTTP/1.1\r\nHost: t\r\nContent-Length: 400000\r\n\r\nha");
    until_equal("busy", &toy.stats.requests, 1);
    let begin = Instant::now();
    toy.stopper.stop();
    toy.join().unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4), "{begin:?}");
}

#[test]
fn a_panic_is_answered_and_ends_only_its_connection() {
    let toy = Toy::start();
    let mut other = toy.connect();
    assert_eq!(other.get("/").status, 200);
    let mut client = toy.connect();
    let answer = client.get("/panic");
    assert_eq!(answer.status, 500);
    assert!(answer.closes());
    assert!(client.ended());
    assert_eq!(other.get("/").status, 200);
    assert_eq!(toy.stats.panics.load(Ordering::SeqCst), 1);
}

#[test]
fn a_connection_is_closed_after_a_thousand_requests() {
    let toy = Toy::start();
    let mut client = toy.connect();
    for _ in 0..999 {
        assert!(!client.get("/").closes());
    }
    assert!(client.get("/").closes());
    assert!(client.ended());
    assert_eq!(toy.connect().get("/").status, 200);
}

#[test]
fn all_addresses_means_both_families() {
    let server = Server::bind(&ListenAddr::all(0), config()).unwrap();
    let (address, stopper) = (server.local_addr(), server.stopper());
    let thread = std::thread::spawn(move || {
        server.run(Arc::new(|request: &mut Request<'_>| {
            Response::text(Status::Ok, &request.peer().ip().to_string())
        }))
    });
    let v4 = SocketAddr::from(([127, 0, 0, 1], address.port()));
    assert_eq!(Client::connect(v4).get("/").text(), "127.0.0.1");
    if address.is_ipv6() {
        let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, address.port()));
        match std::net::TcpStream::connect(v6) {
            Ok(_) => assert_eq!(Client::connect(v6).get("/").text(), "::1"),
            Err(error) => println!("no IPv6 loopback here: {error}"),
        }
    }
    stopper.stop();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_taken_port_is_named_with_the_way_out() {
    let toy = Toy::start();
    let error = Server::bind(&ListenAddr::from(toy.address), config()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("test listener"), "{text}");
    assert!(text.contains(&toy.address.to_string()), "{text}");
    assert!(text.contains("another process"), "{text}");
    assert!(std::error::Error::source(&error).is_some());
}

fn config() -> ServerConfig {
    ServerConfig {
        name: "test",
        max_connections: 4,
        deadlines: short(),
    }
}

/// A connection's stack carries the deepest JSON that the parser lets through.
#[test]
fn a_services_stack_is_deep_enough_for_json() {
    let server = Server::bind(&"127.0.0.1:0".parse().unwrap(), config()).unwrap();
    let (address, stopper) = (server.local_addr(), server.stopper());
    let thread = std::thread::spawn(move || {
        server.run(Arc::new(|request: &mut Request<'_>| {
            let parsed = serde_json::from_reader::<_, serde_json::Value>(request.body(1000));
            Response::text(Status::Ok, &parsed.is_ok().to_string())
        }))
    });
    for (depth, outcome) in [(127, "true"), (400, "false")] {
        let json = "[".repeat(depth) + &"]".repeat(depth);
        let mut client = Client::connect(address);
        client.send(format!(
            "POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n{json}",
            json.len()
        ));
        assert_eq!(client.answer().text(), outcome);
    }
    stopper.stop();
    thread.join().unwrap().unwrap();
}
