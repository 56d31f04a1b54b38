//! Redis over RESP: `XADD` with a synced append-only file, deliveries by a consumer group.

use std::io;

use super::{Answer, Worker, after, line_end, refused};

pub fn command(words: &[&str]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len());
    for word in words {
        out.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    out.into_bytes()
}

pub fn subscribe(worker: &Worker) -> Vec<u8> {
    command(&["XGROUP", "CREATE", &worker.topic, &worker.name, "$", "MKSTREAM"])
}

pub fn pull(worker: &Worker) -> Vec<u8> {
    let Worker { topic, name } = worker;
    command(&["XREADGROUP", "GROUP", name, "one", "COUNT", "1000", "BLOCK", "20000", "STREAMS", topic, ">"])
}

/// An entry is `*2`, its id, and `*2` with the one field `payload`.
pub fn ack(worker: &Worker, page: &str) -> Vec<u8> {
    let entries = after(page, "*2\r\n$", &['*']).filter_map(|entry| entry.lines().nth(1));
    let ids = entries.filter(|id| id.contains('-'));
    let words: Vec<&str> = ["XACK", &worker.topic, &worker.name].into_iter().chain(ids).collect();
    command(&words)
}

pub fn answer(bytes: &[u8]) -> io::Result<Option<Answer>> {
    if bytes.first() == Some(&b'-') {
        return Err(refused(bytes));
    }
    Ok(value_end(bytes, 0)?.map(Answer::Whole))
}

/// Where the RESP value that begins at `at` ends.
fn value_end(bytes: &[u8], at: usize) -> io::Result<Option<usize>> {
    let Some(end) = bytes.get(at..).and_then(line_end).map(|length| at + length) else { return Ok(None) };
    let number = || {
        let text = std::str::from_utf8(&bytes[at + 1..end - 2]).map_err(io::Error::other)?;
        text.parse::<i64>().map_err(io::Error::other)
    };
    match bytes[at] {
        b'+' | b':' | b'-' => Ok(Some(end)),
        b'$' => Ok(match number()? {
            length if length < 0 => Some(end),
            length => Some(end + length as usize + 2).filter(|end| *end <= bytes.len()),
        }),
        b'*' => {
            let mut end = end;
            for _ in 0..number()? {
                match value_end(bytes, end)? {
                    Some(next) => end = next,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => Err(refused(&bytes[at..])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "*1\r\n*2\r\n$1\r\nt\r\n*2\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$7\r\npayload\r\n$2\r\n{}\r\n\
                        *2\r\n$3\r\n1-1\r\n*2\r\n$7\r\npayload\r\n$2\r\n{}\r\n";

    #[test]
    fn a_nested_answer_ends_where_its_last_part_does() {
        for cut in 0..PAGE.len() {
            assert!(answer(&PAGE.as_bytes()[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        assert!(matches!(answer(PAGE.as_bytes()), Ok(Some(Answer::Whole(end))) if end == PAGE.len()));
    }

    #[test]
    fn every_entry_is_acked() {
        let worker = Worker { topic: "t".into(), name: "w".into() };
        assert_eq!(ack(&worker, PAGE), command(&["XACK", "t", "w", "1-0", "1-1"]));
    }
}
