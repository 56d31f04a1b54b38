//! As much HTTP as the crash harness needs: one connection, JSON there and back. A cut connection is an error, never an answer.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer the harness asks for may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Client {
    host: String,
    stream: BufReader<TcpStream>,
}

impl Client {
    /// `url` as `everwhen serve` says it: `http://HOST:PORT`.
    pub fn to(url: &str) -> Result<Client> {
        let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let stream = TcpStream::connect(&host)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Client { host, stream: BufReader::new(stream) })
    }

    /// Status and document of the answer.
    pub fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<(u16, Value)> {
        let (host, length) = (&self.host, body.len());
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let status = self.line()?.split(' ').nth(1).and_then(|word| word.parse().ok());
        let mut length = 0;
        loop {
            let line = self.line()?.to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().map_err(|_| garbled())?;
            }
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok((status.ok_or_else(garbled)?, serde_json::from_slice(&bytes).unwrap_or_default()))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        match self.stream.read_line(&mut line)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }
}

fn garbled() -> Error {
    Error::new(ErrorKind::InvalidData, "not an answer in HTTP")
}
