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

/// Line by line, and no byte is looked at twice: the client shares the cores with the server it measures.
pub fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let (mut at, mut body) = (0, None);
    loop {
        let Some(end) = memchr::memchr(b'\n', &bytes[at..]) else { return Ok(None) };
        let line = bytes[at..at + end].trim_ascii_end();
        at += end + 1;
        if line.is_empty() {
            break;
        }
        body = body.or_else(|| length(line));
    }
    let whole = at + body.ok_or_else(|| refused(bytes))?;
    match bytes.get(9) {
        _ if bytes.len() < whole => Ok(None),
        Some(b'2') => Ok(Some(Answer::Whole(whole))),
        _ => Err(refused(bytes)),
    }
}

/// Of the body, if that is what the header says.
fn length(line: &[u8]) -> Option<usize> {
    let name = b"content-length:";
    let value = line.get(name.len()..).filter(|_| line[..name.len()].eq_ignore_ascii_case(name))?;
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &[u8] = b"HTTP/1.1 201 Created\r\ndate: x\r\nContent-Length: 2\r\nx-y: 2\r\n\r\n{}";

    #[test]
    fn an_answer_is_whole_with_its_last_byte() {
        for cut in 0..ANSWER.len() {
            assert!(answer(&ANSWER[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        let twice = ANSWER.repeat(2);
        assert!(matches!(answer(&twice), Ok(Some(Answer::Whole(end))) if end == ANSWER.len()));
    }

    #[test]
    fn a_refusal_is_an_error() {
        let refusal = String::from_utf8(ANSWER.to_vec()).unwrap().replace("201", "429");
        assert!(answer(refusal.as_bytes()).is_err());
        assert!(answer(b"HTTP/1.1 200 OK\r\n\r\n").is_err(), "nothing says how long it is");
    }
}
