//! The outside that runs act on: answers every request, and remembers which order came under which idempotency key.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// Order → the keys it came under.
type Seen = BTreeMap<usize, BTreeSet<String>>;

#[derive(Clone)]
pub struct Sink {
    pub port: u16,
    seen: Arc<Mutex<Seen>>,
}

impl Sink {
    /// Answers until the process ends.
    pub fn open() -> Result<Sink> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let sink = Sink { port: listener.local_addr()?.port(), seen: Arc::default() };
        let each = sink.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let sink = each.clone();
                // A client that dies in the middle is what this is for.
                std::thread::spawn(move || _ = sink.answer(stream));
            }
        });
        Ok(sink)
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests of one connection, each remembered before it is answered.
    fn answer(&self, stream: TcpStream) -> Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let first = line(&mut stream)?;
            let order = first.split(' ').nth(1).and_then(|path| path.rsplit('/').next()?.parse().ok());
            let (mut key, mut length) = (String::new(), 0);
            loop {
                let header = line(&mut stream)?;
                match header.split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("idempotency-key") => {
                        key = value.to_owned()
                    }
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                        length = value.parse().unwrap_or(0);
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            stream.read_exact(&mut vec![0; length])?;
            if let Some(order) = order {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.entry(order).or_default().insert(key);
            }
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")?;
        }
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end().to_owned()),
    }
}
