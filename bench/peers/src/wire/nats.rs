//! NATS over its text protocol: a JetStream publish is a request, its answer a message on the connection's own inbox.

use std::io;

use super::{Answer, Worker, line_end, refused};

/// `verbose` is off, so the `PONG` is the one answer to all of it.
pub fn hello(inbox: &str) -> Vec<u8> {
    let connect = r#"CONNECT {"verbose":false,"pedantic":false}"#;
    format!("{connect}\r\nSUB {inbox} 1\r\nPING\r\n").into_bytes()
}

pub fn publish(subject: &str, inbox: &str, payload: &str) -> Vec<u8> {
    format!("PUB {subject} {inbox} {}\r\n{payload}\r\n", payload.len()).into_bytes()
}

pub fn create_stream(inbox: &str) -> Vec<u8> {
    let stream = r#"{"name":"bench","subjects":["bench.>"],"storage":"file","num_replicas":1}"#;
    publish("$JS.API.STREAM.CREATE.bench", inbox, stream)
}

/// A durable consumer that the server pushes to, as soon as a message is stored.
pub fn subscribe(worker: &Worker, inbox: &str) -> Vec<u8> {
    let Worker { topic, name } = worker;
    let config = format!(
        r#"{{"stream_name":"bench","config":{{"durable_name":"{name}","deliver_subject":"deliver.{name}","deliver_policy":"new","ack_policy":"explicit","filter_subject":"{topic}"}}}}"#
    );
    let mut out = format!("SUB deliver.{name} 2\r\n").into_bytes();
    out.extend(publish(&format!("$JS.API.CONSUMER.DURABLE.CREATE.bench.{name}"), inbox, &config));
    out
}

/// To the reply subject of the message.
pub fn ack(message: &str) -> Vec<u8> {
    let reply = message.split_whitespace().nth(3).unwrap_or_default();
    format!("PUB {reply} 4\r\n+ACK\r\n").into_bytes()
}

pub fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    let Some(line) = line_end(bytes) else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..line]).map_err(io::Error::other)?;
    let mut words = text.split_whitespace();
    match words.next() {
        Some("PING") => Ok(Some(Answer::Ping(line))),
        Some("PONG") => Ok(Some(Answer::Whole(line))),
        Some("INFO" | "+OK") => Ok(Some(Answer::Skip(line))),
        Some("MSG") => {
            let length = words.next_back().and_then(|length| length.parse::<usize>().ok());
            let end = line + length.ok_or_else(|| refused(bytes))? + 2;
            if bytes.len() < end {
                return Ok(None);
            }
            // A refusal of JetStream is a message like any other, but only on an inbox.
            let asked = words.next().is_some_and(|subject| subject.starts_with("_INBOX"));
            let error = asked && bytes[line..end].windows(8).any(|part| part == b"\"error\":");
            if error { Err(refused(&bytes[..end])) } else { Ok(Some(Answer::Whole(end))) }
        }
        _ => Err(refused(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_ends_after_its_bytes_and_names_where_to_ack() {
        let message = "MSG deliver.w 2 $JS.ACK.bench.w.1 5\r\nhello\r\n";
        assert!(matches!(answer(message.as_bytes()), Ok(Some(Answer::Whole(end))) if end == message.len()));
        assert!(matches!(answer(&message.as_bytes()[..message.len() - 1]), Ok(None)));
        assert_eq!(ack(message), b"PUB $JS.ACK.bench.w.1 4\r\n+ACK\r\n");
    }

    #[test]
    fn a_refusal_on_an_inbox_is_an_error() {
        let body = r#"{"error":{"code":503}}"#;
        assert!(answer(format!("MSG _INBOX.1 1 {}\r\n{body}\r\n", body.len()).as_bytes()).is_err());
    }
}
