//! Many connections on one thread: what is ready is read, published and answered together, as long as it is plain publishes.
//!
//! ```text
//!   wait ─▶ read what came ─▶ post it ─▶ send it to the writers ─▶ take what they answered ─▶ write it ─▶ wait
//! ```
//! A task for each connection costs more than its publish does: a timer for every read and write, a wake-up for every answer, and
//! switches between threads for both. A connection comes here when its first publish has been answered, and goes back to its task
//! with the first request that is not plain, or that has to wait for something.
//!
//! Each of these is done for all before the next is begun: a loop over one thing finds its code in the cache, the kernel's, too.
//!
//! **Invariant:** nothing blocks here but a commit, and that only when nobody else waits, or all who do wait for it.

mod guest;
mod lone;
mod pile;
mod round;
mod shown;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mio::{Poll, Token, Waker};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use self::guest::{Back, Guest};
use self::round::Thread;
use super::Read;
use crate::{Doors, aside, guard};

/// One thread for so many cores: the rest is for writers, and for everything else that is asked. With fewer cores there are two
/// threads, which commit what they read: while one waits for the disk, the other reads. The second is for slow disks.
const CORES_A_THREAD: usize = 4;
const THREADS_MAX: usize = 8;
/// So many connections the first thread has before the next has any: few publish with the fewest syncs from one thread.
const FEW: usize = 32;
/// Where a thread commits faster than this, in the middle, it waits so little that a second one would only be in its way.
const QUICK: Duration = Duration::from_micros(700);
/// The bell's; connections have numbers from 0.
const BELL: Token = Token(usize::MAX);

/// The threads, seen from the tasks of connections.
#[derive(Default)]
pub struct Many {
    entrances: Vec<Arc<Entrance>>,
}

/// Where connections come in.
struct Entrance {
    waiting: Mutex<Waiting>,
    /// How many are inside, or about to be.
    inside: AtomicUsize,
    /// How long a commit takes of those who publish here, about; 0: none was made, or there are cores enough for all threads.
    commit_nanos: AtomicU64,
    bell: Waker,
}

#[derive(Default)]
struct Waiting {
    guests: Vec<Guest>,
    /// Nobody comes in any more.
    closed: bool,
}

/// Runs until the server stops; whoever has started them waits for them.
pub struct Threads {
    behind: Vec<(Poll, Arc<Entrance>)>,
    /// They commit, too.
    commit: bool,
}

impl Many {
    /// The entrances, and the threads behind them, which do not run yet. Without a single one connections are served by their tasks.
    pub fn new() -> (Many, Threads) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let commit = cores < CORES_A_THREAD;
        let wanted = if commit { cores.min(2) } else { (cores / CORES_A_THREAD).min(THREADS_MAX) };
        let made: io::Result<Vec<_>> = (0..wanted).map(|_| made()).collect();
        let made = made.unwrap_or_else(|error| {
            tracing::warn!(%error, "connections that publish are served one by one");
            Vec::new()
        });
        let entrances = made.iter().map(|(_, entrance)| entrance.clone()).collect();
        (Many { entrances }, Threads { behind: made, commit })
    }

    /// Serves a connection whose last request was answered; comes back with the next that cannot be answered here. False: no more
    /// will come. `None`: it is over.
    pub async fn serve(&self, socket: TcpStream, doors: &Doors) -> Option<(TcpStream, Read, bool)> {
        let Some(entrance) = self.entrance() else { return Some((socket, Read::default(), true)) };
        let (back, came_back) = oneshot::channel();
        entrance.enter(Guest::new(socket.into_std().ok()?, back));
        let Back { socket, read, more } = came_back.await.ok()?;
        let socket = TcpStream::from_std(socket).ok()?;
        // The runtime knows nothing of it yet, and its first write would have to wait. hyper, with the next request in its buffer
        // already, does not look at that again after such a wait.
        if more || !read.bytes.is_empty() {
            let _ = tokio::time::timeout(doors.patience.begun, socket.writable()).await;
        }
        Some((socket, read, more))
    }

    /// The first that has only few inside, or commits quickly; else the one with the fewest.
    fn entrance(&self) -> Option<&Arc<Entrance>> {
        let takes = |entrance: &&Arc<Entrance>| entrance.inside() < FEW || entrance.is_quick();
        let few = self.entrances.iter().find(takes);
        few.or_else(|| self.entrances.iter().min_by_key(|entrance| entrance.inside()))
    }

    /// The server is about to stop, or stops: all threads look at its phase.
    pub fn ring(&self) {
        self.entrances.iter().for_each(|entrance| entrance.ring());
    }
}

fn made() -> io::Result<(Poll, Arc<Entrance>)> {
    let poll = Poll::new()?;
    let bell = Waker::new(poll.registry(), BELL)?;
    let (inside, commit_nanos) = (AtomicUsize::new(0), AtomicU64::new(0));
    Ok((poll, Arc::new(Entrance { waiting: Mutex::default(), inside, commit_nanos, bell })))
}

impl Threads {
    pub fn start(self, doors: &Arc<Doors>) -> Vec<aside::Thread> {
        let Threads { behind, commit } = self;
        let serve = |(poll, entrance): (Poll, Arc<Entrance>)| {
            let (open, doors) = (entrance.clone(), doors.clone());
            (entrance, move || Thread::new(poll, open, doors, commit).run())
        };
        let started = behind.into_iter().map(serve).enumerate();
        started.filter_map(|(n, (entrance, run))| start(n, entrance, run)).collect()
    }
}

/// Where nobody serves any more, or there is no thread to be had, the entrance is closed: tasks go on by themselves.
fn start(n: usize, entrance: Arc<Entrance>, serve: impl FnOnce() + Send + 'static) -> Option<aside::Thread> {
    let open = entrance.clone();
    let run = move || {
        let served = catch_unwind(AssertUnwindSafe(serve));
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
        self.inside.fetch_add(1, Ordering::Relaxed);
        waiting.guests.push(guest);
        drop(waiting);
        self.ring();
    }

    fn left(&self) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    fn inside(&self) -> usize {
        self.inside.load(Ordering::Relaxed)
    }

    /// So long a commit takes, by what the engine knows of it: a batch that is handed over comes back here at once.
    fn takes(&self, time: Duration) {
        self.commit_nanos.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn is_quick(&self) -> bool {
        (1..QUICK.as_nanos() as u64).contains(&self.commit_nanos.load(Ordering::Relaxed))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_with_the_first_and_many_are_shared_out() {
        let entrances: Vec<_> = (0..2).map(|_| made().unwrap().1).collect();
        let many = Many { entrances };
        let come = |count: usize| {
            (0..count).for_each(|_| _ = many.entrance().unwrap().inside.fetch_add(1, Ordering::Relaxed));
            many.entrances.iter().map(|entrance| entrance.inside()).collect::<Vec<_>>()
        };
        assert_eq!(come(FEW), [FEW, 0]);
        assert_eq!(come(FEW), [FEW, FEW]);
        assert_eq!(come(10), [FEW + 5, FEW + 5]);
        many.entrances[0].left();
        assert_eq!(come(1), [FEW + 5, FEW + 5], "the place that was left is taken");
        assert!(Many::default().entrance().is_none());
    }

    #[test]
    fn a_quick_disk_needs_one_thread_and_a_slow_one_two() {
        let many = Many { entrances: (0..2).map(|_| made().unwrap().1).collect() };
        let [first, second] = &many.entrances[..] else { panic!("there are two") };
        first.inside.store(FEW, Ordering::Relaxed);
        assert!(Arc::ptr_eq(many.entrance().unwrap(), second), "nothing is known of the disk");
        first.takes(QUICK / 2);
        assert!(Arc::ptr_eq(many.entrance().unwrap(), first));
        first.takes(QUICK * 2);
        assert!(Arc::ptr_eq(many.entrance().unwrap(), second));
        first.takes(QUICK / 2);
        assert!(Arc::ptr_eq(many.entrance().unwrap(), first), "it has recovered");
    }
}
