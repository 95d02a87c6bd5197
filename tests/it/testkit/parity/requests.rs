//! Requests that are refused before anything is decided about a set.

use super::*;
use crate::support::agent::AUTHORIZATION;
use crate::testkit::kit::{self, Site};

fn first() -> Step {
    apply("first", |state| Site::new().push("p1", state))
}

fn request(line: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{line} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn get(target: &str) -> Vec<u8> {
    request(
        &format!("GET {target}"),
        &[("Authorization", AUTHORIZATION)],
        b"",
    )
}

fn form(content_type: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let headers = [
        ("Authorization", AUTHORIZATION),
        ("Content-Type", content_type),
        ("Content-Length", &length),
    ];
    request("POST /v1/apply", &headers, body)
}

fn multipart(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut body = String::new();
    for (head, content) in parts {
        body.push_str(&format!("--b\r\n{head}\r\n\r\n{content}\r\n"));
    }
    body.push_str("--b--\r\n");
    body.into_bytes()
}

const MANIFEST: &str = "Content-Disposition: form-data; name=\"manifest\"";

#[test]
fn routes_methods_and_credentials() {
    let basic = |value: &str| request("GET /v1/state?plan=0", &[("Authorization", value)], b"");
    plain(&[
        Step::Raw("healthz", request("GET /healthz", &[], b"")),
        Step::Raw("readyz", request("GET /readyz", &[], b"")),
        Step::Raw("nothing", get("/")),
        Step::Raw("nothing below", get("/v1/state/x")),
        Step::Raw(
            "state, posted",
            request("POST /v1/state", &[("Content-Length", "0")], b""),
        ),
        Step::Raw("apply, got", get("/v1/apply")),
        Step::Raw("health, deleted", request("DELETE /healthz", &[], b"")),
        Step::Raw("no credentials", request("GET /v1/state", &[], b"")),
        Step::Raw("wrong ones", basic("Basic Y29udHJvbGxlcjp3cm9uZw==")),
        Step::Raw("another scheme", basic("Bearer Y29udHJvbGxlcjpzM2NyZXQ=")),
        Step::Raw(
            "lower case scheme",
            basic(&AUTHORIZATION.replace("Basic", "basic")),
        ),
        Step::Raw(
            "apply without",
            request("POST /v1/apply", &[("Content-Length", "0")], b""),
        ),
        Step::Raw("unknown query", get("/v1/state?frob=1&verify=0&plan=0")),
    ]);
}

#[test]
fn bodies_that_are_no_form() {
    let data = "multipart/form-data; boundary=b";
    let manifest = multipart(&[(MANIFEST, "{}")]);
    plain(&[
        first(),
        Step::Raw("json", form("application/json", b"{}")),
        Step::Raw("mixed", form("multipart/mixed; boundary=b", &manifest)),
        Step::Raw("no boundary", form("multipart/form-data", &manifest)),
        Step::Raw(
            "a long boundary",
            form(
                &format!("multipart/form-data; boundary={}", "x".repeat(71)),
                &manifest,
            ),
        ),
        Step::Raw("empty", form(data, b"")),
        Step::Raw(
            "another boundary",
            form("multipart/form-data; boundary=c", &manifest),
        ),
        Step::Raw("cut off", form(data, &manifest[..manifest.len() - 6])),
        Step::Raw("closed at once", form(data, b"--b--\r\n")),
        Step::Raw(
            "another part first",
            form(
                data,
                &multipart(&[
                    ("Content-Disposition: form-data; name=\"plan\"", "x"),
                    (MANIFEST, "{}"),
                ]),
            ),
        ),
        Step::Raw(
            "a part without a name",
            form(data, &multipart(&[("Content-Disposition: form-data", "x")])),
        ),
        Step::Raw(
            "a head that is none",
            form(data, &multipart(&[("frob", "x")])),
        ),
    ]);
}

#[test]
fn manifests_that_break_a_rule() {
    type Edit = fn(&mut Value);
    let edits: &[(&'static str, Edit)] = &[
        ("no plan id", |m| m["plan_id"] = json!("")),
        ("a long plan id", |m| m["plan_id"] = json!("x".repeat(1025))),
        ("a mode", |m| m["mode"] = json!("fast")),
        ("no token", |m| {
            m.as_object_mut().unwrap().remove("token");
        }),
        ("a path", |m| m["files"][0]["path"] = json!("../x")),
        ("an absolute path", |m| {
            m["files"][0]["path"] = json!("/etc/x")
        }),
        ("a dot", |m| m["files"][0]["path"] = json!("a/.b")),
        ("a socket", |m| m["files"][0]["path"] = json!("master.sock")),
        ("below a socket", |m| {
            m["files"][0]["path"] = json!("worker.sock/x")
        }),
        ("a digest", |m| m["files"][0]["digest"] = json!("abc")),
        ("upper case", |m| {
            m["files"][0]["digest"] = json!("EF46DB3751D8E999")
        }),
        ("a size", |m| m["files"][0]["size"] = json!(-1)),
        ("a kind", |m| m["files"][0]["kind"] = json!("lua")),
        ("twice", |m| m["files"][1] = m["files"][0].clone()),
        ("a file and a directory", |m| {
            m["files"][0]["path"] = json!("haproxy.cfg/x")
        }),
        ("too big", |m| m["files"][0]["size"] = json!(65 << 20)),
        ("op of no kind", |m| m["ops"] = json!([{"kind": 7}])),
        ("ops of another type", |m| {
            m["ops"] = json!({"kind": "map_add"})
        }),
        ("in place without ids", |m| {
            m["in_place_ops"] = json!([{"kind": "map_del"}])
        }),
        ("a revert with files", |m| m["mode"] = json!("revert_lkg")),
        ("unknown keys are fine", |m| m["from_the_future"] = json!(1)),
    ];
    let mut steps = vec![first()];
    for &(what, edit) in edits {
        steps.push(apply(what, move |state| {
            Site::new().auto("p2", state, &[]).edit(edit)
        }));
    }
    steps.push(apply("too many files", |state| {
        Site::new().push("p3", state).edit(|manifest| {
            let file = manifest["files"][0].clone();
            let files = manifest["files"].as_array_mut().unwrap();
            for n in 0..4096 {
                let mut one = file.clone();
                one["path"] = json!(format!("f{n}"));
                files.push(one);
            }
        })
    }));
    steps.push(Step::Raw(
        "no json",
        form(
            "multipart/form-data; boundary=b",
            &multipart(&[(MANIFEST, "{")]),
        ),
    ));
    plain(&steps);
}

#[test]
fn parts_that_do_not_fit() {
    let sent = |change: fn(&mut Apply)| {
        move |state: &Value| {
            let mut push = Site::new().map("a p\n").push("p2", state);
            change(&mut push);
            push
        }
    };
    plain(&[
        first(),
        apply(
            "undeclared",
            sent(|push| {
                push.parts.push(("x".into(), None, b"x".to_vec()));
            }),
        ),
        apply(
            "twice",
            sent(|push| {
                let part = push.parts[0].clone();
                push.parts.push(part);
            }),
        ),
        apply(
            "short",
            sent(|push| {
                push.parts[0].2.pop();
            }),
        ),
        apply("long", sent(|push| push.parts[0].2.push(b'x'))),
        apply("other bytes", sent(|push| push.parts[0].2[0] = b'X')),
        apply(
            "two blobs",
            sent(|push| {
                push.parts
                    .push(("plan".into(), Some("plan".into()), b"1".to_vec()));
                push.parts.push(("plan".into(), None, b"2".to_vec()));
            }),
        ),
        apply("without file names", sent(|push| push.parts[0].1 = None)),
        apply("a file called plan", |state| {
            let site = Site::new().map("a p\n").with("plan", "general", "the file");
            let mut push = site.push("p3", state);
            push.parts.push(("plan".into(), None, b"the blob".to_vec()));
            push
        }),
        apply("sent although held", |state| {
            let mut state = state.clone();
            state["files"] = json!({});
            let site = Site::new().map("a p\n").with("plan", "general", "the file");
            site.auto("p4", &state, &[])
        }),
        apply("fenced before its parts are looked at", |state| {
            let mut push = Site::new().push("p5", state);
            push.parts.push(("x".into(), None, b"x".to_vec()));
            push.edit(|manifest| manifest["expected_prev_plan_id"] = json!("p0"))
        }),
        apply("quotes in a name", |state| {
            let name = "general/a%22b";
            let site = Site::new()
                .map("a p\n")
                .with("general/a\"b", "general", "q");
            let mut push = site.push("p5", state);
            for part in &mut push.parts {
                if part.0.contains('"') {
                    part.0 = name.to_owned();
                    part.1 = None;
                }
            }
            push
        }),
    ]);
}

#[test]
fn bodies_in_chunks_of_any_size() {
    let chunked = |plan: &'static str, size: usize, config: &'static str| {
        let apply = Site::bare(config).push(
            plan,
            &json!({
                "applied_plan_id": "", "files": {},
                "applied_token": {"leader_epoch": 0, "render_seq": 0},
            }),
        );
        let (body, content_type) = apply.body();
        let mut coded = Vec::new();
        for chunk in body.chunks(size) {
            coded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            coded.extend_from_slice(chunk);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        let headers = [
            ("Authorization", AUTHORIZATION),
            ("Content-Type", content_type.as_str()),
            ("Transfer-Encoding", "chunked"),
        ];
        request("POST /v1/apply", &headers, &coded)
    };
    plain(&[
        Step::Raw("a byte each", chunked("p1", 1, "1")),
        Step::Raw("again: fenced", chunked("p1", 7, "1")),
        apply("and plain", |state| Site::bare("2").push("p2", state)),
        Step::WriteBehind(kit::CONFIG, Some("global\n")),
        Step::Raw("on nothing", chunked("p3", 1000, "3")),
    ]);
}
