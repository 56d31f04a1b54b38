//! Drives all connections of a load from one thread that does as little as can be: it shares the cores with the server it measures.

use std::io::{self, Read, Write};
use std::time::Instant;

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::on_one_thread;
use crate::publish::micros;
use crate::wire::{Answer, Connection, Kind, Peer};

pub struct Driver {
    kind: Kind,
    poll: Poll,
    publishers: Vec<Publisher>,
}

struct Publisher {
    socket: TcpStream,
    request: Vec<u8>,
    /// Of the request that is under way.
    begun: Instant,
    /// What is there of its answer.
    answer: Vec<u8>,
}

impl Driver {
    pub fn open(peer: Peer, publishers: usize, payload: &str) -> io::Result<Driver> {
        let poll = Poll::new()?;
        let opened = on_one_thread(async {
            let mut opened = Vec::with_capacity(publishers);
            for _ in 0..publishers {
                let connection = Connection::open(peer).await?;
                let request = connection.publish("bench.reading", payload);
                opened.push((connection.into_std()?, request));
            }
            Ok(opened)
        });
        let mut publishers = Vec::new();
        for (number, (socket, request)) in opened.map_err(io::Error::other)?.into_iter().enumerate() {
            let mut socket = TcpStream::from_std(socket);
            poll.registry().register(&mut socket, Token(number), Interest::READABLE)?;
            publishers.push(Publisher { socket, request, begun: Instant::now(), answer: Vec::new() });
        }
        Ok(Driver { kind: peer.kind, poll, publishers })
    }

    /// Publishes until `end`, and takes the answers that are still to come; how long each took that began after `counted`.
    pub fn run(&mut self, counted: Instant, end: Instant) -> io::Result<Vec<u32>> {
        let (mut latencies, mut events) = (Vec::new(), Events::with_capacity(1_024));
        let (mut scratch, mut under_way) = (vec![0; 64 * 1024], self.publishers.len());
        for publisher in &mut self.publishers {
            publisher.begun = Instant::now();
            publisher.send()?;
        }
        while under_way > 0 {
            self.poll.poll(&mut events, None)?;
            for event in &events {
                let publisher = &mut self.publishers[event.token().0];
                if !publisher.is_answered(self.kind, &mut scratch)? {
                    continue;
                }
                let now = Instant::now();
                if publisher.begun >= counted {
                    latencies.push(micros(now - publisher.begun));
                }
                publisher.begun = now;
                if now < end {
                    publisher.send()?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok(latencies)
    }
}

impl Publisher {
    /// One request is smaller than what a socket takes at once.
    fn send(&mut self) -> io::Result<()> {
        match self.socket.write(&self.request)? {
            written if written == self.request.len() => Ok(()),
            _ => Err(io::Error::other("a request was not taken whole")),
        }
    }

    fn is_answered(&mut self, kind: Kind, scratch: &mut [u8]) -> io::Result<bool> {
        loop {
            match self.socket.read(scratch) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // What comes whole is not copied.
                Ok(read) if self.answer.is_empty() => {
                    if let Some(Answer::Whole(length)) = kind.answer(&scratch[..read])?
                        && length == read
                    {
                        return Ok(true);
                    }
                    self.answer.extend_from_slice(&scratch[..read]);
                }
                Ok(read) => self.answer.extend_from_slice(&scratch[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            while let Some(answer) = kind.answer(&self.answer)? {
                let (length, whole) = match answer {
                    Answer::Whole(length) => (length, true),
                    Answer::Skip(length) => (length, false),
                    Answer::Ping(length) => {
                        self.socket.write_all(b"PONG\r\n")?;
                        (length, false)
                    }
                };
                self.answer.drain(..length);
                if whole {
                    return Ok(true);
                }
            }
        }
    }
}
