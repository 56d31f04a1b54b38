//! Who follows what: an event calls those whose patterns it meets, what happens to runs those who follow runs, and nobody else.
//!
//! ```text
//!   writer    note the event in the seat of each whom it meets ─▶ raise the visible head ─▶ call those seats
//!   follower  read the visible head ─▶ look into the seat ─▶ begin at what is noted, or pass over all up to the head
//! ```
//! **Invariant:** whatever is visible, came after the follower sat down and meets one of its patterns, has been noted in its
//! seat. The writer notes before it raises the head and the follower reads the head before it looks; so one that slept through
//! a million events of others knows that none was its own without reading one of them.

use std::sync::{Arc, Mutex, MutexGuard};

use model::Position;
use model::event::Event;
use model::topic::trie::Trie;
use model::topic::{Pattern, is_engine, is_house};
use tokio::sync::Notify;

use super::lock;

/// Topics remembered in a batch, so that its further events of one of them ask nobody again.
const TOPICS_MAX: usize = 8;

#[derive(Default)]
pub(crate) struct Followers(Mutex<State>);

#[derive(Default)]
struct State {
    seats: Vec<Option<Arc<Seat>>>,
    free: Vec<u32>,
    trie: Trie<u32>,
    /// Those that want every event that is not the engine's own.
    everything: Vec<u32>,
    /// Those that want what happens to runs.
    runs: Vec<u32>,
    hits: Vec<u32>,
    called: Vec<u32>,
    taken: usize,
}

/// What one follower has not looked at.
#[derive(Default)]
struct Seat {
    noted: Mutex<Noted>,
    call: Notify,
}

#[derive(Default)]
struct Noted {
    /// Nothing before it is wanted.
    first: Option<Position>,
    /// The head of the newest batch in which something is.
    through: Position,
}

/// What is followed.
#[derive(Clone, Copy)]
pub(crate) enum Wants<'a> {
    /// Everything but the engine's own, if there are no patterns.
    Events(&'a [Pattern]),
    Runs,
}

/// Where a follower is in the ledger, and how it is called. Whoever has one gives it back by [`Followers::leave`].
pub(crate) struct Place {
    /// What it looks at next.
    pub next: Position,
    /// All up to here is read; of what comes after it, only what is noted.
    read_to: Position,
    seat: Arc<Seat>,
    number: u32,
}

impl Place {
    /// Passes over what is of no concern up to `head`, the visible one, read before.
    pub fn pass_over(&mut self, head: Position) {
        if self.next <= self.read_to {
            return;
        }
        match self.seat.take(head) {
            Some(first) => (self.next, self.read_to) = (self.next.max(first), head),
            None => self.next = self.next.max(head + 1),
        }
    }

    /// Ready once there may be something. Dropping the future loses no call.
    pub async fn called(&self) {
        self.seat.call.notified().await;
    }
}

impl Seat {
    /// From where on there is something to read up to `head`. What is noted after it stays.
    fn take(&self, head: Position) -> Option<Position> {
        let mut noted = lock(&self.noted);
        let first = noted.first.filter(|first| *first <= head)?;
        noted.first = (noted.through > head).then_some(head + 1);
        Some(first)
    }
}

impl Followers {
    /// A place after `after`; `None`, or one that is not reached yet: at the head that `visible` tells.
    pub fn join(
        &self,
        wants: Wants<'_>,
        after: Option<Position>,
        visible: impl FnOnce() -> Position,
    ) -> Place {
        let mut state = lock(&self.0);
        let seat = Arc::<Seat>::default();
        let number = state.free.pop().unwrap_or(state.seats.len() as u32);
        match state.seats.get_mut(number as usize) {
            Some(free) => *free = Some(seat.clone()),
            None => state.seats.push(Some(seat.clone())),
        }
        state.taken += 1;
        match wants {
            Wants::Runs => state.runs.push(number),
            Wants::Events([]) => state.everything.push(number),
            Wants::Events(patterns) => {
                for pattern in patterns {
                    state.trie.insert(pattern, number);
                }
            }
        }
        // Nobody is between the notes of a batch and its head, for `Calls` holds the lock that long: what becomes visible after
        // this is noted. Who was further than the ledger is, of another one perhaps, goes on at its end like everybody else.
        let read_to = visible();
        Place { next: after.map_or(read_to, |after| after.min(read_to)) + 1, read_to, seat, number }
    }

    pub fn leave(&self, wants: Wants<'_>, place: &Place) {
        let mut state = lock(&self.0);
        let others = |number: &u32| *number != place.number;
        match wants {
            Wants::Runs => state.runs.retain(others),
            Wants::Events([]) => state.everything.retain(others),
            Wants::Events(patterns) => {
                for pattern in patterns {
                    state.trie.remove(pattern, place.number);
                }
            }
        }
        state.seats[place.number as usize] = None;
        state.free.push(place.number);
        state.taken -= 1;
    }

    /// Of a batch that ends at `head`. Nobody sits down or leaves until it is visible and [`Calls::go_out`].
    pub fn calls(&self, head: Position) -> Calls<'_> {
        Calls { state: lock(&self.0), head, met: Vec::new(), everything: false }
    }
}

/// Those whom a batch concerns.
pub(crate) struct Calls<'a> {
    state: MutexGuard<'a, State>,
    head: Position,
    met: Vec<Arc<Event>>,
    everything: bool,
}

impl Calls<'_> {
    /// Notes the event for those whom it meets. To be told of all events of a batch in their order, before they are visible.
    pub fn meet(&mut self, event: &Arc<Event>) {
        let topic = event.envelope.topic.as_str();
        if self.state.taken == 0 || self.met.iter().any(|met| met.envelope.topic == topic) {
            return;
        }
        if self.met.len() < TOPICS_MAX {
            self.met.push(event.clone());
        }
        let State { trie, everything, hits, .. } = &mut *self.state;
        hits.clear();
        trie.receivers(topic, hits);
        if !self.everything && !is_engine(topic) && !is_house(topic) {
            self.everything = true;
            hits.extend_from_slice(everything);
        }
        self.note(event.position);
    }

    /// Something happens to a run, here first in the batch.
    pub fn meet_run(&mut self, position: Position) {
        let State { runs, hits, .. } = &mut *self.state;
        hits.clone_from(runs);
        self.note(position);
    }

    /// For those in `hits`.
    fn note(&mut self, position: Position) {
        let State { seats, hits, called, .. } = &mut *self.state;
        for number in hits.iter() {
            let Some(seat) = &seats[*number as usize] else { continue };
            let mut noted = lock(&seat.noted);
            if noted.through != self.head {
                noted.through = self.head;
                noted.first.get_or_insert(position);
                called.push(*number);
            }
        }
    }

    /// The batch is visible.
    pub fn go_out(mut self) {
        let State { seats, called, .. } = &mut *self.state;
        for seat in called.drain(..).filter_map(|number| seats[number as usize].as_ref()) {
            seat.call.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use model::event::{Content, Envelope};
    use model::{Position, Timestamp};

    use super::*;

    fn event(position: Position, topic: &str) -> Arc<Event> {
        let envelope = Envelope { topic: topic.to_owned(), ..Envelope::default() };
        let recorded_at = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        Arc::new(Event { position, recorded_at, envelope, content: Content::new("null", None) })
    }

    fn pattern(text: &str) -> Vec<Pattern> {
        vec![Pattern::parse(text).unwrap()]
    }

    fn join(followers: &Followers, patterns: &[Pattern]) -> Place {
        followers.join(Wants::Events(patterns), None, || 0)
    }

    /// A batch up to its last event.
    fn batch(followers: &Followers, events: &[(Position, &str)]) {
        let mut calls = followers.calls(events.last().unwrap().0);
        events.iter().for_each(|(position, topic)| calls.meet(&event(*position, topic)));
        calls.go_out();
    }

    fn is_called(place: &Place) -> bool {
        use std::task::{Context, Poll, Waker};
        let called = std::pin::pin!(place.called());
        called.poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(())
    }

    #[test]
    fn only_those_are_called_whom_an_event_meets() {
        let followers = Followers::default();
        let (a, b, all) = (pattern("a.*"), pattern("b"), Vec::new());
        let (of_a, of_b, of_all) = (join(&followers, &a), join(&followers, &b), join(&followers, &all));
        batch(&followers, &[(1, "a.x"), (2, "engine.request.answered"), (3, "a.y")]);
        assert_eq!([is_called(&of_a), is_called(&of_b), is_called(&of_all)], [true, false, true]);
        assert_eq!([of_a.seat.take(3), of_b.seat.take(3), of_all.seat.take(3)], [Some(1), None, Some(1)]);
        assert_eq!(of_a.seat.take(3), None, "taken");
        batch(&followers, &[(4, "graph.node.created.v1:everwhen:token"), (5, "engine.note")]);
        assert!(!is_called(&of_all), "the engine's own are for those who name them");
        assert_eq!(of_all.seat.take(5), None);
    }

    #[test]
    fn who_has_left_is_not_called_and_its_place_is_given_away() {
        let followers = Followers::default();
        let (a, b) = (pattern("a"), pattern("b"));
        let first = join(&followers, &a);
        followers.leave(Wants::Events(&a), &first);
        let second = join(&followers, &b);
        assert_eq!(first.number, second.number);
        batch(&followers, &[(1, "a")]);
        assert_eq!((first.seat.take(1), second.seat.take(1), is_called(&second)), (None, None, false));
        batch(&followers, &[(2, "b")]);
        assert_eq!((second.seat.take(2), is_called(&second)), (Some(2), true));
    }

    #[test]
    fn what_is_noted_and_not_visible_yet_stays_for_the_next_look() {
        let followers = Followers::default();
        let place = join(&followers, &pattern("a"));
        batch(&followers, &[(1, "a")]);
        // The second batch is noted; the follower still knows the head of the first.
        let mut calls = followers.calls(3);
        calls.meet(&event(2, "b"));
        calls.meet(&event(3, "a"));
        assert_eq!(place.seat.take(1), Some(1));
        assert_eq!(place.seat.take(1), None, "not visible");
        assert!(is_called(&place), "by the first");
        assert!(!is_called(&place));
        calls.go_out();
        assert!(is_called(&place), "and by the second, although something was noted already");
        assert_eq!(place.seat.take(3), Some(2), "or before what is wanted, never after it");
        assert_eq!(place.seat.take(3), None);
    }

    #[test]
    fn who_follows_runs_is_called_by_what_happens_to_them_only() {
        let followers = Followers::default();
        let mut runs = followers.join(Wants::Runs, None, || 0);
        batch(&followers, &[(1, "a")]);
        assert!(!is_called(&runs));
        let mut calls = followers.calls(4);
        calls.meet(&event(2, "a"));
        calls.meet_run(3);
        calls.go_out();
        assert!(is_called(&runs));
        runs.pass_over(4);
        assert_eq!(runs.next, 3);
        followers.leave(Wants::Runs, &runs);
    }

    #[test]
    fn who_begins_in_the_past_passes_over_nothing_until_it_is_read() {
        let followers = Followers::default();
        let mut place = followers.join(Wants::Events(&pattern("a")), Some(4), || 9);
        batch(&followers, &[(10, "b"), (11, "a")]);
        place.pass_over(11);
        assert_eq!(place.next, 5);
        place.next = 10;
        place.pass_over(11);
        assert_eq!(place.next, 11);
    }

    #[test]
    fn many_topics_in_a_batch_are_all_looked_at() {
        let followers = Followers::default();
        let place = join(&followers, &pattern("t11"));
        let topics: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
        let events: Vec<_> = (1..).zip(topics.iter().map(String::as_str)).collect();
        batch(&followers, &events);
        assert_eq!(place.seat.take(12), Some(12));
    }
}
