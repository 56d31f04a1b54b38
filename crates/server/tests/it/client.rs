//! A client that shows every byte: HTTP/1.1 by hand over a socket.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// So that a test which waits for something that never comes fails instead of hanging.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Client {
    pub reader: BufReader<TcpStream>,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The code of a problem, after a check that it is whole.
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.text());
        let json = self.json();
        let code = json["code"].as_str().unwrap().to_owned();
        assert_eq!(json["type"], format!("/errors/{code}"));
        assert_eq!(json["status"], self.status);
        for name in ["title", "detail", "request_id"] {
            assert!(json[name].as_str().is_some_and(|text| !text.is_empty()), "{name} in {json}");
        }
        (self.status, code)
    }

    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.problem(), (status, code.to_owned()), "{}", self.text());
        self.json()
    }

    /// What was deleted: there is nothing to say.
    #[track_caller]
    pub fn gone(&self) {
        assert_eq!((self.status, self.text().as_str()), (204, ""));
    }

    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.json()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        socket.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(socket) }
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Reply {
        let body = body.as_ref();
        self.head(method, path, headers, Some(body.len()));
        self.write(body);
        if method == "HEAD" {
            let (status, headers) = self.reply_head();
            return Reply { status, headers, body: Vec::new() };
        }
        self.reply()
    }

    /// Writes a request's head; `None` says that the body comes in chunks.
    pub fn head(&mut self, method: &str, path: &str, headers: &[&str], length: Option<usize>) {
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
        for header in headers {
            head.push_str(header);
            head.push_str("\r\n");
        }
        match length {
            Some(length) => head.push_str(&format!("content-length: {length}\r\n\r\n")),
            None => head.push_str("transfer-encoding: chunked\r\n\r\n"),
        }
        self.write(head.as_bytes());
    }

    /// A server may refuse and close before it has read everything; what it answered is still read.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.reader.get_mut().write_all(bytes);
    }

    pub fn chunk(&mut self, bytes: &[u8]) {
        self.write(format!("{:x}\r\n", bytes.len()).as_bytes());
        self.write(bytes);
        self.write(b"\r\n");
    }

    /// No more will be written.
    pub fn end(&mut self) {
        let _ = self.reader.get_ref().shutdown(Shutdown::Write);
    }

    pub fn reply(&mut self) -> Reply {
        let (status, headers) = self.reply_head();
        let mut body = Vec::new();
        if headers.get("transfer-encoding").is_some_and(|v| v == "chunked") {
            while let Some(part) = self.read_chunk() {
                body.extend(part);
            }
        } else if let Some(length) = headers.get("content-length") {
            body.resize(length.parse().unwrap(), 0);
            self.reader.read_exact(&mut body).unwrap();
        }
        Reply { status, headers, body }
    }

    pub fn reply_head(&mut self) -> (u16, HashMap<String, String>) {
        let line = self.line();
        let status =
            line.split(' ').nth(1).unwrap_or_else(|| panic!("no status in {line:?}")).parse().unwrap();
        let mut headers = HashMap::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else { break };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        (status, headers)
    }

    /// The next piece of a chunked answer; `None` at its end.
    pub fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line(), 16).ok()?;
        let mut part = vec![0; length + 2];
        self.reader.read_exact(&mut part).unwrap();
        part.truncate(length);
        (length > 0).then_some(part)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// Reads the pieces of a chunked answer up to a separator, one after the other.
pub struct Pieces {
    pub client: Client,
    pub headers: HashMap<String, String>,
    separator: &'static str,
    buffer: String,
}

impl Pieces {
    /// Takes over a client whose request is written.
    pub fn of(mut client: Client, separator: &'static str) -> Pieces {
        let (status, headers) = client.reply_head();
        assert_eq!(status, 200, "{headers:?}");
        Pieces { client, headers, separator, buffer: String::new() }
    }

    /// The next piece without its separator; `None` at the end.
    pub fn next(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.buffer.find(self.separator) {
                let rest = self.buffer.split_off(at + self.separator.len());
                let mut piece = std::mem::replace(&mut self.buffer, rest);
                piece.truncate(at);
                return Some(piece);
            }
            let part = self.client.read_chunk()?;
            self.buffer.push_str(std::str::from_utf8(&part).unwrap());
        }
    }
}
