//! Many connections on one thread: what is ready is read, published and answered together, as long as it is plain publishes.
//!
//! ```text
//!   wait ─▶ read what came ─▶ post it ─▶ send it to the writers ─▶ take what they answered ─▶ write it ─▶ wait
//! ```
//! A task for each connection costs more than its publish does: a timer for every read and write, a wake-up for every answer, and
//! switches between threads for both. A connection comes here when its first publish has been answered, and goes back to its task
//! with the first request that is not plain, or that has to wait for something.
//!
//! **Invariant:** nothing blocks here but a commit, and that only when nobody else is waiting.

mod guest;
mod round;
mod shown;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mio::{Poll, Token, Waker};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use self::guest::{Back, Guest};
use self::round::Thread;
use super::Read;
use crate::{Doors, aside, guard};

/// One thread for so many cores: the rest is for writers, and for everything else that is asked.
const CORES_A_THREAD: usize = 4;
const THREADS_MAX: usize = 8;
/// The bell's; connections have numbers from 0.
const BELL: Token = Token(usize::MAX);

/// The threads, seen from the tasks of connections.
#[derive(Default)]
pub struct Many {
    entrances: Vec<Arc<Entrance>>,
    next: AtomicUsize,
}

/// Where connections come in.
struct Entrance {
    waiting: Mutex<Waiting>,
    bell: Waker,
}

#[derive(Default)]
struct Waiting {
    guests: Vec<Guest>,
    /// Nobody comes in any more.
    closed: bool,
}

/// Runs until the server stops; whoever has started them waits for them.
pub struct Threads(Vec<(Poll, Arc<Entrance>)>);

impl Many {
    /// The entrances, and the threads behind them, which do not run yet. Without a single one connections are served by their tasks.
    pub fn new() -> (Many, Threads) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = (cores / CORES_A_THREAD).clamp(1, THREADS_MAX);
        let made: io::Result<Vec<_>> = (0..wanted).map(|_| made()).collect();
        let made = made.unwrap_or_else(|error| {
            tracing::warn!(%error, "connections that publish are served one by one");
            Vec::new()
        });
        let entrances = made.iter().map(|(_, entrance)| entrance.clone()).collect();
        (Many { entrances, next: AtomicUsize::new(0) }, Threads(made))
    }

    /// Serves a connection whose last request was answered; comes back with the next that cannot be answered here. False: no more
    /// will come. `None`: it is over.
    pub async fn serve(&self, socket: TcpStream, doors: &Doors) -> Option<(TcpStream, Read, bool)> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(entrance) = self.entrances.get(turn % self.entrances.len().max(1)) else {
            return Some((socket, Read::default(), true));
        };
        let (back, came_back) = oneshot::channel();
        entrance.enter(Guest::new(socket.into_std().ok()?, back));
        let Back { socket, read, more } = came_back.await.ok()?;
        let socket = TcpStream::from_std(socket).ok()?;
        // The runtime knows nothing of it yet, and its first write would have to wait. hyper, with the next request in its buffer
        // already, does not look at that again after such a wait.
        if more {
            let _ = tokio::time::timeout(doors.patience.begun, socket.writable()).await;
        }
        Some((socket, read, more))
    }

    /// The server is about to stop, or stops: all threads look at its phase.
    pub fn ring(&self) {
        self.entrances.iter().for_each(|entrance| entrance.ring());
    }
}

fn made() -> io::Result<(Poll, Arc<Entrance>)> {
    let poll = Poll::new()?;
    let bell = Waker::new(poll.registry(), BELL)?;
    Ok((poll, Arc::new(Entrance { waiting: Mutex::default(), bell })))
}

impl Threads {
    pub fn start(self, doors: &Arc<Doors>) -> Vec<aside::Thread> {
        let started = self.0.into_iter().enumerate();
        started.filter_map(|(n, (poll, entrance))| start(n, poll, entrance, doors.clone())).collect()
    }
}

/// Where nobody serves any more, or there is no thread to be had, the entrance is closed: tasks go on by themselves.
fn start(n: usize, poll: Poll, entrance: Arc<Entrance>, doors: Arc<Doors>) -> Option<aside::Thread> {
    let open = entrance.clone();
    let run = move || {
        let served = catch_unwind(AssertUnwindSafe(|| Thread::new(poll, open.clone(), doors).run()));
        open.close();
        if let Err(panic) = served {
            guard::bug(&*panic);
        }
    };
    let started = aside::thread(&format!("lane-{n}"), run);
    if started.is_none() {
        entrance.close();
    }
    started
}

impl Entrance {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One that comes too late goes back at once.
    fn enter(&self, guest: Guest) {
        let mut waiting = self.waiting();
        if waiting.closed {
            return guest.leave(true);
        }
        waiting.guests.push(guest);
        drop(waiting);
        self.ring();
    }

    fn ring(&self) {
        if let Err(error) = self.bell.wake() {
            tracing::error!(%error, "a thread that serves connections cannot be woken");
        }
    }

    fn close(&self) {
        let mut waiting = self.waiting();
        waiting.closed = true;
        waiting.guests.drain(..).for_each(|guest| guest.leave(true));
    }
}
