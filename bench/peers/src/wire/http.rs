//! Everwhen over HTTP/1.1: one event a POST, deliveries by a long pull.

use std::io;
use std::sync::OnceLock;

use super::{Answer, Worker, after, refused};

pub fn publish(topic: &str, payload: &str) -> Vec<u8> {
    request("POST", "/v1/events", &format!(r#"{{"topic":"{topic}","payload":{payload}}}"#))
}

pub fn subscribe(worker: &Worker) -> Vec<u8> {
    let Worker { topic, name } = worker;
    request("PUT", &format!("/v1/groups/{name}"), &format!(r#"{{"pattern":"{topic}","max_inflight":1000}}"#))
}

pub fn pull(worker: &Worker) -> Vec<u8> {
    request("POST", &format!("/v1/groups/{}/pull", worker.name), r#"{"max":1000,"wait":"20s"}"#)
}

pub fn ack(worker: &Worker, page: &str) -> Vec<u8> {
    let tokens: Vec<&str> = after(page, "{\"token\":\"", &['"']).collect();
    let body = format!(r#"{{"tokens":["{}"]}}"#, tokens.join("\",\""));
    request("POST", &format!("/v1/groups/{}/ack", worker.name), &body)
}

fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!("host: 127.0.0.1\r\ncontent-type: application/json{}", authorization());
    format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// The server asks every request for the token that it printed when it first started.
fn authorization() -> &'static str {
    static LINE: OnceLock<String> = OnceLock::new();
    let line = || std::env::var("EVERWHEN_TOKEN").map(|token| format!("\r\nauthorization: Bearer {token}"));
    LINE.get_or_init(|| line().unwrap_or_default())
}

pub fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes[..head]).map_err(io::Error::other)?;
    let length = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    };
    let body = text.lines().find_map(length).ok_or_else(|| refused(bytes))?;
    if bytes.len() < head + body {
        return Ok(None);
    }
    if text.as_bytes().get(9) == Some(&b'2') {
        Ok(Some(Answer::Whole(head + body)))
    } else {
        Err(refused(bytes))
    }
}
