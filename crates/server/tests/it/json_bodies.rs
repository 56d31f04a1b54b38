//! Hostile JSON through the front door: refused with a reason, never a crash, never a 5xx.

use serde_json::Value;

use crate::harness::Server;

fn vectors() -> Option<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/json_torture.json");
    match std::fs::read(path) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(_) => {
            assert!(std::env::var_os("CI").is_none(), "{path} is missing");
            println!("{path} is missing: not checked");
            None
        }
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut out) = (0u32, 0, Vec::new());
    for byte in text.bytes().filter(|b| *b != b'=') {
        bits = bits << 6 | ALPHABET.iter().position(|a| *a == byte).unwrap() as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}

fn is_parse_error(code: &str) -> bool {
    code == "json.invalid"
}

#[test]
fn the_torture_vectors_are_accepted_or_refused_as_they_say() {
    let Some(vectors) = vectors() else { return };
    let server = Server::start();
    let mut client = server.client();
    for case in vectors["cases"].as_array().unwrap() {
        let (name, expect) = (case["name"].as_str().unwrap(), case["expect"].as_str().unwrap());
        let bytes = base64(case["bytes_b64"].as_str().unwrap());
        let mut inside = br#"{"topic":"a.b","payload":"#.to_vec();
        inside.extend_from_slice(&bytes);
        inside.push(b'}');
        for (body, whole) in [(bytes, true), (inside, false)] {
            let reply = client.send("POST", "/v1/events", &["content-type: application/json"], &body);
            assert!(reply.status < 500, "{name}: {}", reply.text());
            let code = if reply.status < 400 { String::new() } else { reply.problem().1 };
            match expect {
                _ if name.starts_with("y_object_duplicated_key") => {
                    assert_eq!(code, "json.duplicate_key", "{name}")
                }
                "accept" => assert!(!is_parse_error(&code), "{name} ({whole}): {}", reply.text()),
                // In the middle of an event a comma or a bracket may happen to complete it.
                "reject" if whole => assert!(is_parse_error(&code), "{name}: {}", reply.text()),
                "reject" => assert!(reply.status >= 400, "{name} inside: {}", reply.text()),
                _ => {}
            }
        }
    }
}

#[test]
fn nesting_without_end_does_not_reach_the_stack() {
    let server = Server::start();
    for open in ["[", "{\"\":", "[{\"\":"] {
        let deep = open.repeat(100_000);
        let problem = server.post("/v1/events", &deep).refused(400, "json.invalid");
        assert!(problem["offset"].as_u64().is_some(), "{problem}");
        let inside = format!(r#"{{"topic":"a.b","payload":{deep}"#);
        server.post("/v1/events", inside).refused(400, "json.invalid");
        server.put("/v1/groups/g", &deep).refused(400, "json.invalid");
    }
    server.post("/v1/events", r#"{"topic":"a.b"}"#).ok(201);
}

#[test]
fn what_is_not_json_is_refused_with_its_offset() {
    let server = Server::start();
    let table: [(&[u8], u64); 5] =
        [(b"", 0), (b"{", 1), (b"{\"topic\":\"a.b\",}", 15), (b"{\"topic\":\"\xff\"}", 10), (b"nonsense", 0)];
    for (body, offset) in table {
        let problem = server.post("/v1/events", body).refused(400, "json.invalid");
        let at = problem["offset"].as_u64().unwrap();
        assert!(at.abs_diff(offset) <= 1, "{:?}: {problem}", String::from_utf8_lossy(body));
    }
}
