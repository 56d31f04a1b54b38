//! What waits to be sent to one client of a stream session: bounded, so that one that does not read costs no more than that.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Code, Problem};
use tokio::sync::Notify;

/// Most that waits for a reader.
pub const FRAMES_MAX: usize = 1_000;
pub const BYTES_MAX: usize = 1 << 20;

pub struct Outbox<F> {
    state: Mutex<State<F>>,
    /// There is something to send, or it is over. One task sends.
    filled: Notify,
    /// Something was sent.
    taken: Notify,
}

struct State<F> {
    frames: VecDeque<Waiting<F>>,
    bytes: usize,
    /// Subscriptions that go on.
    feeds: BTreeSet<u64>,
    last_feed: u64,
    over: Option<Problem>,
}

struct Waiting<F> {
    /// Of which subscription; 0: of none that could end before it is sent.
    feed: u64,
    frame: F,
    bytes: usize,
}

/// What there is to send.
pub enum Taken<F> {
    Frame(F),
    Over(Problem),
}

impl<F> Default for Outbox<F> {
    fn default() -> Outbox<F> {
        let state =
            State { frames: VecDeque::new(), bytes: 0, feeds: BTreeSet::new(), last_feed: 0, over: None };
        Outbox { state: Mutex::new(state), filled: Notify::new(), taken: Notify::new() }
    }
}

impl<F> Outbox<F> {
    fn state(&self) -> MutexGuard<'_, State<F>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`Outbox::room`] is where those wait who put much in. Once it is over nothing more is kept.
    pub fn push(&self, frame: F, bytes: usize) {
        self.push_of(0, frame, bytes);
    }

    /// A number for a subscription, whose frames are kept until [`Outbox::close`].
    pub fn open(&self) -> u64 {
        let mut state = self.state();
        state.last_feed += 1;
        let feed = state.last_feed;
        state.feeds.insert(feed);
        feed
    }

    /// Nothing of that subscription is sent any more, whatever its task still does.
    pub fn close(&self, feed: u64) {
        let mut state = self.state();
        if state.feeds.remove(&feed) {
            state.frames.retain(|waiting| waiting.feed != feed);
            state.bytes = state.frames.iter().map(|waiting| waiting.bytes).sum();
            drop(state);
            self.taken.notify_waiters();
        }
    }

    pub fn push_of(&self, feed: u64, frame: F, bytes: usize) {
        let mut state = self.state();
        if state.over.is_some() || (feed != 0 && !state.feeds.contains(&feed)) {
            return;
        }
        state.frames.push_back(Waiting { feed, frame, bytes });
        state.bytes += bytes;
        drop(state);
        self.filled.notify_one();
    }

    /// Ready once a thousand frames, or a megabyte, do not wait any more; over is it for who takes nothing for that long.
    pub async fn room(&self, patience: Duration) {
        loop {
            let taken = self.taken.notified();
            if self.has_room() {
                return;
            }
            if tokio::time::timeout(patience, taken).await.is_err() {
                let detail = {
                    let state = self.state();
                    let (frames, bytes) = (state.frames.len(), state.bytes);
                    format!(
                        "{frames} events, {bytes} bytes wait, and nothing was taken for {} s",
                        patience.as_secs_f64()
                    )
                };
                return self.end(slow(detail));
            }
        }
    }

    fn has_room(&self) -> bool {
        let state = self.state();
        state.over.is_some() || (state.frames.len() < FRAMES_MAX && state.bytes < BYTES_MAX)
    }

    /// Nothing more is sent but why.
    pub fn end(&self, why: Problem) {
        let mut state = self.state();
        state.over.get_or_insert(why);
        (state.frames, state.bytes) = (VecDeque::new(), 0);
        drop(state);
        self.filled.notify_one();
    }

    /// The next thing to send.
    pub async fn next(&self) -> Taken<F> {
        loop {
            {
                let mut state = self.state();
                if let Some(why) = state.over.clone() {
                    return Taken::Over(why);
                }
                if let Some(Waiting { frame, bytes, .. }) = state.frames.pop_front() {
                    state.bytes -= bytes;
                    drop(state);
                    self.taken.notify_waiters();
                    return Taken::Frame(frame);
                }
            }
            self.filled.notified().await;
        }
    }

    /// What else is there to send at once.
    pub fn try_next(&self) -> Option<F> {
        let mut state = self.state();
        if state.over.is_some() {
            return None;
        }
        let Waiting { frame, bytes, .. } = state.frames.pop_front()?;
        state.bytes -= bytes;
        drop(state);
        self.taken.notify_waiters();
        Some(frame)
    }

    /// Ready once it is over, while something else is waited for.
    pub async fn over(&self) -> Problem {
        loop {
            if let Some(why) = self.state().over.clone() {
                return why;
            }
            self.filled.notified().await;
        }
    }
}

pub fn slow(detail: String) -> Problem {
    Problem::new(Code::StreamSlow, detail)
        .hint("come back with the position of the last event, and read faster or ask for less")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_frames_or_a_megabyte_leave_no_room() {
        let many = Outbox::default();
        (0..999).for_each(|i| many.push(i, 10));
        assert!(many.has_room());
        many.push(999, 10);
        assert!(!many.has_room());
        many.try_next().unwrap();
        assert!(many.has_room());
        let large = Outbox::default();
        large.push(1, 1 << 20);
        assert!(!large.has_room());
    }

    #[test]
    fn of_a_subscription_that_is_over_nothing_is_sent() {
        let outbox = Outbox::default();
        let (first, second) = (outbox.open(), outbox.open());
        outbox.push_of(first, 1, 10);
        outbox.push_of(second, 2, 10);
        outbox.push(3, 10);
        outbox.close(first);
        outbox.push_of(first, 4, 10);
        assert_eq!(outbox.state().bytes, 20);
        assert_eq!([outbox.try_next(), outbox.try_next(), outbox.try_next()], [Some(2), Some(3), None]);
    }

    #[tokio::test]
    async fn who_takes_nothing_is_given_up() {
        let outbox = Outbox::default();
        outbox.push(1, BYTES_MAX);
        outbox.room(Duration::from_millis(1)).await;
        let Taken::Over(why) = outbox.next().await else { panic!("it goes on") };
        assert_eq!(why.code(), Code::StreamSlow);
    }

    #[tokio::test]
    async fn frames_leave_in_order_and_the_end_overtakes_them() {
        let outbox = Outbox::default();
        outbox.push(1, 1);
        outbox.push(2, 1);
        assert!(matches!(outbox.next().await, Taken::Frame(1)));
        outbox.end(Problem::new(Code::ShuttingDown, "over"));
        assert!(matches!(outbox.next().await, Taken::Over(_)));
        outbox.push(3, 1 << 20);
        let state = outbox.state();
        assert_eq!((state.frames.len(), state.bytes), (0, 0), "nobody will take it");
    }
}
