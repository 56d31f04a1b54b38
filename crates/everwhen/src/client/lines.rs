//! Answers that go on and on: NDJSON by the line, server-sent events by the frame.

use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use model::{Code, Problem};

/// The lines of an answer as they arrive.
pub struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
    /// How much of the buffer has been handed out.
    taken: usize,
}

impl Lines {
    pub fn new(response: Response<Incoming>) -> Lines {
        Lines { body: response.into_body(), buffer: Vec::new(), taken: 0 }
    }

    /// The next line without its end; `None` when the answer is over.
    pub async fn next(&mut self) -> Result<Option<String>, Problem> {
        let mut searched = self.taken;
        loop {
            if let Some(end) = self.buffer[searched..].iter().position(|b| *b == b'\n') {
                return Ok(Some(self.take(searched + end)));
            }
            self.buffer.drain(..self.taken);
            self.taken = 0;
            searched = self.buffer.len();
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    self.buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data))
                }
                Some(Err(error)) => {
                    return Err(Problem::new(
                        Code::ServerUnreachable,
                        format!("the answer was cut off: {error}"),
                    ));
                }
                None if self.buffer.is_empty() => return Ok(None),
                None => return Ok(Some(self.take(self.buffer.len()))),
            }
        }
    }

    /// Whether a whole line is here already, so that nothing waits unprinted while we wait for more.
    pub fn ready(&self) -> bool {
        self.buffer[self.taken..].contains(&b'\n')
    }

    fn take(&mut self, end: usize) -> String {
        let line = String::from_utf8_lossy(&self.buffer[self.taken..end]).trim_end_matches('\r').to_owned();
        self.taken = (end + 1).min(self.buffer.len());
        line
    }
}

/// One frame of a stream of server-sent events.
#[derive(Default, PartialEq)]
pub struct Frame {
    pub event: String,
    pub data: String,
    /// Where to go on after it.
    pub id: Option<u64>,
    /// How long to wait before coming back.
    pub retry_ms: Option<u64>,
}

impl Lines {
    /// The next frame. A comment (a ping) is one that says nothing; a frame that is cut off is none.
    pub async fn frame(&mut self) -> Result<Option<Frame>, Problem> {
        let mut frame = Frame::default();
        while let Some(line) = self.next().await? {
            match line.split_once(':') {
                _ if line.is_empty() && frame.event.is_empty() && frame.data.is_empty() => {}
                _ if line.is_empty() => return Ok(Some(frame)),
                Some(("", _)) if frame == Frame::default() => return Ok(Some(frame)),
                Some(("event", text)) => frame.event = text.trim_start().to_owned(),
                Some(("data", text)) => {
                    if !frame.data.is_empty() {
                        frame.data.push('\n');
                    }
                    frame.data.push_str(text.strip_prefix(' ').unwrap_or(text));
                }
                Some(("id", text)) => frame.id = text.trim().parse().ok(),
                Some(("retry", text)) => frame.retry_ms = text.trim().parse().ok(),
                _ => {}
            }
        }
        Ok(None)
    }
}
