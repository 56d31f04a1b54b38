//! One keep-alive connection of a benchmark: request bytes out, the answer's body back, and as little work as possible
//! between, because client and server share the cores.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A first guess that fits every small answer; a page of deliveries makes it grow once.
const BUFFER: usize = 4 * 1024;

pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: vec![0; BUFFER] })
    }

    /// As [`Connection::ask`]. Any status but 2xx is an error: a benchmark of refusals is none.
    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<&str> {
        match self.ask(request).await? {
            (200..300, body) => Ok(body),
            (status, body) => Err(io::Error::other(format!("the server answered {status}: {body}"))),
        }
    }

    /// Sends a request and waits for its whole answer: status and body.
    pub async fn ask(&mut self, request: &[u8]) -> io::Result<(u16, &str)> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        let head = loop {
            filled += self.read(filled).await?;
            if let Some(head) = Head::parse(&self.buffer[..filled])? {
                break head;
            }
        };
        while filled < head.end() {
            filled += self.read(filled).await?;
        }
        let body = std::str::from_utf8(&self.buffer[head.length..head.end()]).map_err(io::Error::other)?;
        Ok((head.status, body))
    }

    async fn read(&mut self, filled: usize) -> io::Result<usize> {
        if filled == self.buffer.len() {
            self.buffer.resize(filled * 2, 0);
        }
        match self.stream.read(&mut self.buffer[filled..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            some => Ok(some),
        }
    }
}

/// What must be known of an answer's head to find its end. Our server sends no chunks where a benchmark asks.
struct Head {
    status: u16,
    /// Bytes of the head, its empty line included.
    length: usize,
    body: usize,
}

impl Head {
    fn parse(bytes: &[u8]) -> io::Result<Option<Head>> {
        let Some(length) = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4) else {
            return Ok(None);
        };
        let unreadable = || io::Error::other("the head of an answer cannot be read");
        let text = std::str::from_utf8(&bytes[..length]).map_err(|_| unreadable())?;
        let status = text.get(9..12).and_then(|code| code.parse().ok()).ok_or_else(unreadable)?;
        let body = text.lines().find_map(content_length).ok_or_else(unreadable)?;
        Ok(Some(Head { status, length, body }))
    }

    fn end(&self) -> usize {
        self.length + self.body
    }
}

fn content_length(line: &str) -> Option<usize> {
    let (name, value) = line.split_once(':')?;
    name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
}

/// The bytes of a POST of JSON.
pub fn post(path: &str, body: &str) -> Vec<u8> {
    request("POST", path, body)
}

pub fn request(method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "host: 127.0.0.1\r\ncontent-type: application/json";
    format!("{method} {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
}

/// The same request with a token in its head.
pub fn authorized(request: Vec<u8>, token: Option<&str>) -> Vec<u8> {
    let Some(token) = token else { return request };
    let line = request.windows(2).position(|two| two == b"\r\n").map_or(0, |at| at + 2);
    [&request[..line], format!("authorization: Bearer {token}\r\n").as_bytes(), &request[line..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_answer_is_known_from_its_head() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello";
        let head = Head::parse(answer).unwrap().unwrap();
        assert_eq!((head.status, head.end()), (201, answer.len()));
        for cut in 0..answer.len() - 5 {
            assert!(Head::parse(&answer[..cut]).unwrap().is_none(), "cut at {cut}");
        }
        assert!(Head::parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").is_err());
    }
}
