//! The few threads that write for tenants whose callers do not: one queue of tenants with mail, served in turn.

#![expect(clippy::disallowed_methods, reason = "the one place that starts the engine's own threads")]

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use model::{Code, Problem};

use crate::deliver::lock;

/// Something a pool thread can be asked to do.
pub trait Work: Send + Sync {
    fn work(self: Arc<Self>);
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Arc<dyn Work>>,
    closed: bool,
}

/// Threads that outlive tenants but not the engine.
pub struct Pool {
    queue: Mutex<Queue>,
    ready: Condvar,
}

impl Pool {
    pub fn start(threads: usize, health: &Arc<Watch>) -> Result<Arc<Pool>, Problem> {
        let pool = Arc::new(Pool { queue: Mutex::default(), ready: Condvar::new() });
        for index in 0..threads {
            let pool = pool.clone();
            supervise(&format!("writer-{index}"), health, move || pool.serve())?;
        }
        Ok(pool)
    }

    /// A pool without threads: what is pushed waits for [`Pool::run_waiting`]. Simulation.
    pub fn inline() -> Arc<Pool> {
        Arc::new(Pool { queue: Mutex::default(), ready: Condvar::new() })
    }

    /// Does on the caller's thread what waits now.
    pub fn run_waiting(&self) {
        let waiting = std::mem::take(&mut lock(&self.queue).waiting);
        waiting.into_iter().for_each(Work::work);
    }

    /// Lets go of what waits: the simulated process is dead.
    pub fn forget_waiting(&self) {
        lock(&self.queue).waiting.clear();
    }

    pub fn push(&self, work: Arc<dyn Work>) {
        lock(&self.queue).waiting.push_back(work);
        self.ready.notify_one();
    }

    pub fn close(&self) {
        lock(&self.queue).closed = true;
        self.ready.notify_all();
    }

    fn serve(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let work = loop {
                if let Some(work) = queue.waiting.pop_front() {
                    break work;
                }
                if queue.closed {
                    return;
                }
                queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            work.work();
        }
    }
}

/// Does `work` on every item, a few at a time, and waits for all. In no order.
pub fn each<T: Sync, R: Send>(threads: usize, items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let take = || items.get(next.fetch_add(1, Ordering::Relaxed));
        std::iter::from_fn(take).map(&work).collect::<Vec<R>>()
    };
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads.min(items.len())).map(|_| scope.spawn(run)).collect();
        let done = running.into_iter().map(|thread| thread.join().unwrap_or_else(|why| resume_unwind(why)));
        done.flatten().collect()
    })
}

/// Who is alive. A part that died is named here, and readiness fails until the process is started again.
#[derive(Default)]
pub struct Watch {
    dead: Mutex<Vec<String>>,
}

impl Watch {
    pub fn report(&self, what: &str) {
        let mut dead = lock(&self.dead);
        if !dead.iter().any(|known| known == what) {
            dead.push(what.to_owned());
        }
    }

    pub fn dead(&self) -> Vec<String> {
        lock(&self.dead).clone()
    }
}

/// Starts a thread whose death by panic is noticed and named.
pub fn supervise(
    name: &str,
    health: &Arc<Watch>,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), Problem> {
    let (health, task) = (health.clone(), name.to_owned());
    let body = move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
            tracing::error!(task, "a part of the engine died; restart the process");
            health.report(&format!("task {task} died"));
        }
    };
    let started = thread::Builder::new().name(format!("ew-{name}")).spawn(body);
    started
        .map(|_| ())
        .map_err(|error| Problem::new(Code::Internal, format!("cannot start thread \"{name}\": {error}")))
}

/// A bell that a thread waits for, at most so long.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    pub fn ring(&self) {
        *lock(&self.rung) = true;
        self.ringing.notify_all();
    }

    pub fn wait(&self, most: Duration) {
        let rung = lock(&self.rung);
        let waited = self.ringing.wait_timeout_while(rung, most, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *rung = false;
    }
}
