//! One connection to a peer, and what a peer's protocol looks like: the bytes of a publish, and where its answer ends.

mod http;
mod nats;
mod redis;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Everwhen,
    Redis,
    Nats,
}

#[derive(Clone, Copy)]
pub struct Peer {
    pub kind: Kind,
    pub address: SocketAddr,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Everwhen => "Everwhen, HTTP",
            Kind::Redis => "Redis Streams, AOF always",
            Kind::Nats => "NATS JetStream, sync always",
        }
    }

    /// Where the first whole answer in `bytes` ends; an error when it is a refusal.
    pub fn answer(self, bytes: &[u8]) -> io::Result<Option<Answer>> {
        match self {
            Kind::Everwhen => http::answer(bytes),
            Kind::Redis => redis::answer(bytes),
            Kind::Nats => nats::answer(bytes),
        }
    }

    /// Asks for the next deliveries; NATS sends them unasked.
    pub fn pull(self, worker: &Worker) -> Option<Vec<u8>> {
        match self {
            Kind::Everwhen => Some(http::pull(worker)),
            Kind::Redis => Some(redis::pull(worker)),
            Kind::Nats => None,
        }
    }

    /// Acknowledges all deliveries of an answer.
    pub fn ack(self, worker: &Worker, page: &str) -> Vec<u8> {
        match self {
            Kind::Everwhen => http::ack(worker, page),
            Kind::Redis => redis::ack(worker, page),
            Kind::Nats => nats::ack(page),
        }
    }
}

/// A consumer with a name of its own and a topic that nobody else uses.
pub struct Worker {
    pub topic: String,
    pub name: String,
}

/// What stands at the beginning of the bytes received, with its length.
pub enum Answer {
    Whole(usize),
    Skip(usize),
    Ping(usize),
}

pub fn refused(bytes: &[u8]) -> io::Error {
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    io::Error::other(format!("the server refused: {shown}"))
}

/// A position just after the next line end.
fn line_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|two| two == b"\r\n").map(|at| at + 2)
}

pub struct Connection {
    kind: Kind,
    stream: TcpStream,
    /// Where NATS answers this connection.
    inbox: String,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes of the answer handed out last, to be dropped before the next.
    used: usize,
}

static INBOXES: AtomicU64 = AtomicU64::new(0);

impl Connection {
    pub async fn open(peer: Peer) -> io::Result<Connection> {
        let stream = TcpStream::connect(peer.address).await?;
        stream.set_nodelay(true)?;
        let inbox = format!("_INBOX.{}", INBOXES.fetch_add(1, Ordering::Relaxed));
        let buffer = vec![0; 4 * 1024];
        let mut connection = Connection { kind: peer.kind, stream, inbox, buffer, filled: 0, used: 0 };
        if peer.kind == Kind::Nats {
            let hello = nats::hello(&connection.inbox);
            connection.exchange(&hello).await?;
        }
        Ok(connection)
    }

    /// For who goes on without a runtime. Nothing was read ahead: every answer so far was taken whole.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        self.stream.into_std()
    }

    /// The bytes of a durable publish on this connection, answered once it is synced.
    pub fn publish(&self, topic: &str, payload: &str) -> Vec<u8> {
        match self.kind {
            Kind::Everwhen => http::publish(topic, payload),
            Kind::Redis => redis::command(&["XADD", topic, "*", "payload", payload]),
            Kind::Nats => nats::publish(topic, &self.inbox, payload),
        }
    }

    /// Makes everything on the worker's topic from now on wait for it.
    pub async fn subscribe(&mut self, worker: &Worker) -> io::Result<()> {
        let request = match self.kind {
            Kind::Everwhen => http::subscribe(worker),
            Kind::Redis => redis::subscribe(worker),
            Kind::Nats => nats::subscribe(worker, &self.inbox),
        };
        self.exchange(&request).await.map(|_| ())
    }

    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<&str> {
        self.send(request).await?;
        self.receive().await
    }

    pub async fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.stream.write_all(request).await
    }

    pub async fn receive(&mut self) -> io::Result<&str> {
        let used = std::mem::take(&mut self.used);
        self.drop_first(used);
        loop {
            match self.kind.answer(&self.buffer[..self.filled])? {
                Some(Answer::Ping(length)) => {
                    self.drop_first(length);
                    self.send(b"PONG\r\n").await?;
                }
                Some(Answer::Skip(length)) => self.drop_first(length),
                Some(Answer::Whole(length)) => {
                    self.used = length;
                    return std::str::from_utf8(&self.buffer[..length]).map_err(io::Error::other);
                }
                None => self.fill().await?,
            }
        }
    }

    fn drop_first(&mut self, length: usize) {
        self.buffer.copy_within(length..self.filled, 0);
        self.filled -= length;
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.filled == self.buffer.len() {
            self.buffer.resize(self.filled * 2, 0);
        }
        match self.stream.read(&mut self.buffer[self.filled..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            some => {
                self.filled += some;
                Ok(())
            }
        }
    }
}

/// What must be there before the first publish: a stream for NATS.
pub async fn prepare(peer: Peer) -> io::Result<()> {
    let mut connection = Connection::open(peer).await?;
    if peer.kind == Kind::Nats {
        let create = nats::create_stream(&connection.inbox);
        connection.exchange(&create).await?;
    }
    Ok(())
}

/// The strings that stand between `key` and the next of `ends`.
pub fn after<'a>(text: &'a str, key: &'a str, ends: &'static [char]) -> impl Iterator<Item = &'a str> {
    text.match_indices(key).filter_map(move |(at, _)| text[at + key.len()..].split(ends).next())
}
