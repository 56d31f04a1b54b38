//! How long the server waits for others before it goes on without them.

use std::time::Duration;

/// The time limits of the doors. Only real time is meant: clients and sockets do not follow a virtual clock.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the head of the next request, idle time between two requests included.
    pub head: Duration,
    /// For the rest of a head that has begun.
    pub begun: Duration,
    /// For a whole body that is read before it is answered.
    pub body: Duration,
    /// For the answer of a door, long polls included.
    pub answer: Duration,
    /// For a read's `min_position`, if the ledger is not there yet.
    pub position: Duration,
    /// For a stream's reader that takes nothing while its buffer is full.
    pub reader: Duration,
    /// For the same reader to read why its stream ended.
    pub farewell: Duration,
    /// Between two signs of life on a silent stream.
    pub ping: Duration,
    /// For requests in progress once the server is told to stop.
    pub grace: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            head: Duration::from_secs(75),
            begun: Duration::from_secs(15),
            body: Duration::from_secs(30),
            answer: Duration::from_secs(90),
            position: Duration::from_secs(2),
            reader: Duration::from_secs(5),
            farewell: Duration::from_secs(60),
            ping: Duration::from_secs(15),
            grace: Duration::from_secs(6),
        }
    }
}
