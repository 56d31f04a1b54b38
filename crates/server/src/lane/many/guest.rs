//! One connection while it is served by the thread of many.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream as StdStream;
use std::time::Duration;

use engine::Post;
use mio::net::TcpStream;
use tokio::sync::oneshot;

use super::shown::Shown;
use crate::lane::Read;

/// A connection that goes back to its task.
pub struct Back {
    pub socket: StdStream,
    pub read: Read,
    /// False: it has ended, or nobody waits for more of it.
    pub more: bool,
}

pub struct Guest {
    pub socket: TcpStream,
    pub read: Read,
    pub doing: Doing,
    /// Something may be there to be read.
    pub readable: bool,
    /// It has said all, or is broken: the last read says so.
    pub ends: bool,
    /// When it is looked at if nothing happens: in the machine's time.
    pub due: Duration,
    /// Which of all requests of the thread its last one was.
    pub ticket: u64,
    /// As whom it published last, if it showed a token.
    pub shown: Option<Box<Shown>>,
    back: oneshot::Sender<Back>,
}

pub enum Doing {
    /// Waits for a request, or for the rest of one.
    Reads,
    /// What was read of it is about to be looked at.
    Read,
    /// Its answer is about to be sent.
    Told,
    /// Its publish is with the writer.
    Asks(Post),
    /// This much of its answer has not been taken.
    Hears(Vec<u8>),
    /// Its answer is kept for a moment: it asks for more than it may have.
    Held(Vec<u8>),
}

/// Where to find what was read.
#[derive(Clone, Copy)]
pub enum Came {
    /// All there is lies in the scratch, so much of it.
    Whole(usize),
    /// With what was read before.
    More,
    End,
}

impl Guest {
    pub fn new(socket: StdStream, back: oneshot::Sender<Back>) -> Guest {
        let socket = TcpStream::from_std(socket);
        let (read, doing) = (Read::default(), Doing::Reads);
        Guest {
            socket,
            read,
            doing,
            readable: true,
            ends: false,
            due: Duration::ZERO,
            ticket: 0,
            shown: None,
            back,
        }
    }

    /// Reads what is there, as long as that is not much more than `most`.
    pub fn fill(&mut self, scratch: &mut [u8], most: usize) -> Came {
        while self.read.bytes.len() <= most {
            match self.socket.read(scratch) {
                Ok(0) => return Came::End,
                // Less than there was room for: that was all, and what comes next is told.
                Ok(length) if length < scratch.len() => {
                    self.readable = self.ends;
                    if self.read.bytes.is_empty() {
                        return Came::Whole(length);
                    }
                    self.read.bytes.extend_from_slice(&scratch[..length]);
                    break;
                }
                Ok(_) => self.read.bytes.extend_from_slice(scratch),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Came::End,
            }
        }
        Came::More
    }

    /// Writes as much as is taken now; the rest is kept. False: there is nobody.
    pub fn say(&mut self, answer: &[u8]) -> bool {
        let mut rest = answer;
        while !rest.is_empty() {
            match self.socket.write(rest) {
                Ok(0) => return false,
                Ok(length) => rest = &rest[length..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.doing = if rest.is_empty() { Doing::Reads } else { Doing::Hears(rest.to_vec()) };
        true
    }

    /// Back to its task. One that is not waited for is closed.
    pub fn leave(self, more: bool) {
        let Guest { socket, read, back, .. } = self;
        let _ = back.send(Back { socket: socket.into(), read, more });
    }
}
