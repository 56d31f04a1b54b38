//! Orders of events that threads come to rarely, played one after the other.

use super::*;
use crate::authority::Sight;
use crate::state::group::CRASHES_MAX;
use crate::writer::Moment;
use model::event::{Content, Envelope};
use model::group::Definition;
use model::topic::Pattern;

fn at(ms: u64) -> Timestamp {
    Timestamp::parse("2026-01-01T00:00:00Z").unwrap().plus(Duration::from_millis(ms))
}

fn event(position: Position) -> Arc<Event> {
    let envelope: Envelope = serde_json::from_value(serde_json::json!({
        "id": format!("e{position}"), "topic": "a", "space": "default", "actor": "user:local",
        "time": "2026-01-01T00:00:00Z",
    }))
    .unwrap();
    let content = Content::new("1", None);
    Arc::new(Event { position, recorded_at: at(0), envelope, content })
}

fn dispatcher(change: impl FnOnce(&mut Group)) -> Dispatcher {
    let definition = Definition::over(vec![Pattern::parse("#").unwrap()]);
    let matcher = Matcher::new(&definition).unwrap();
    let mut group = Group::new("g", definition, 0, 1);
    change(&mut group);
    let mut dispatcher = Dispatcher::new(group, matcher, 7);
    (1..=3).for_each(|position| dispatcher.look_at(&event(position)));
    dispatcher
}

fn out(dispatcher: &mut Dispatcher, max: usize, now: Timestamp) -> Vec<(Position, u32, Token)> {
    let taken = dispatcher.take(max, now).deliveries;
    taken.into_iter().map(|one| (one.event.position, one.attempt, one.token)).collect()
}

#[test]
fn what_is_taken_at_once_is_bounded_by_its_bytes_and_one_goes_out_whatever_its_size() {
    let size = event(1).size();
    for (bytes, taken_of_three) in [(0, 1), (2 * size, 2), (3 * size - 1, 2), (3 * size, 3)] {
        let mut dispatcher = dispatcher(|_| ());
        let taken = dispatcher.take_seen(Most { events: 9, bytes }, at(0), &Sight::default());
        assert_eq!((taken.deliveries.len(), taken.is_cut), (taken_of_three, taken_of_three < 3), "{bytes}");
        assert_eq!(out(&mut dispatcher, 9, at(0)).len(), 3 - taken_of_three, "the rest is ready");
    }
}

#[test]
fn a_late_goodbye_to_the_first_failure_does_not_free_the_second() {
    let mut dispatcher = dispatcher(|_| ());
    let (position, _, token) = out(&mut dispatcher, 1, at(0)).remove(0);
    let first = dispatcher.release(token, Why::Failed, at(0)).unwrap();
    dispatcher.meet(position, Fate::Retry { at: at(1), failures: 1 });
    let (_, attempt, token) = out(&mut dispatcher, 1, at(1)).remove(0);
    assert_eq!(attempt, 2);
    let _second = dispatcher.release(token, Why::Failed, at(1)).unwrap();
    // Whoever reported the first failure only now hears that it was recorded.
    dispatcher.forgive((position, first.serial), None);
    assert!(out(&mut dispatcher, 3, at(1)).iter().all(|(other, ..)| *other != position), "attempt 2 again");
    dispatcher.meet(position, Fate::Retry { at: at(2), failures: 2 });
    let (again, attempt, _) = out(&mut dispatcher, 1, at(2)).remove(0);
    assert_eq!((again, attempt), (position, 3));
}

#[test]
fn a_failure_recorded_after_its_reporter_went_away_still_counts() {
    let mut dispatcher = dispatcher(|_| ());
    let (position, _, token) = out(&mut dispatcher, 1, at(0)).remove(0);
    let failing = dispatcher.release(token, Why::Failed, at(0)).unwrap();
    dispatcher.forgive((position, failing.serial), Some(at(1_000)));
    assert!(out(&mut dispatcher, 3, at(0)).iter().all(|(other, ..)| *other != position), "not at once");
    dispatcher.meet(position, Fate::Retry { at: at(5), failures: 1 });
    let (again, attempt, _) = out(&mut dispatcher, 1, at(5)).remove(0);
    assert_eq!((again, attempt), (position, 2));
}

#[test]
fn a_suspect_goes_out_alone_and_the_move_says_so() {
    let nine = vec![2; CRASHES_MAX as usize - 1];
    let mut dispatcher = dispatcher(|group| (group.crashes, group.delivered_to) = (nine, 2));
    let suspects = out(&mut dispatcher, 10, at(0));
    assert_eq!(suspects.len(), 1);
    assert_eq!(dispatcher.progress().unwrap().alone, 1, "though delivered_to was not raised");
    assert!(out(&mut dispatcher, 10, at(0)).is_empty(), "nothing beside it");
    assert!(dispatcher.ack(suspects[0].2, at(0)));
    assert_eq!(out(&mut dispatcher, 10, at(0))[0].0, 2, "the next suspect, alone");
    assert_eq!(dispatcher.progress().unwrap().alone, 2);
    let deliveries = [2].map(|position| dispatcher.slots[&position].event.clone());
    let token = Token { epoch: 7, position: 2, serial: dispatcher.serial };
    dispatcher.take_back(&[Delivery { token, attempt: 1, deadline: at(0), event: deliveries[0].clone() }]);
    dispatcher.group.crashes.clear();
    assert_eq!(out(&mut dispatcher, 10, at(0)).len(), 2);
    assert_eq!(dispatcher.progress().unwrap().alone, 0, "nobody is alone any more");
}

#[test]
fn until_a_step_of_the_clock_is_recorded_time_goes_on_as_before() {
    let mut dispatcher = dispatcher(|_| ());
    let boot = Duration::from_secs(100);
    let moment = |now: Timestamp, more: u64| {
        let boot = boot + Duration::from_millis(more);
        Moment { now, boot, real: boot }
    };
    dispatcher.offset = Some(moment(at(0), 0).offset());
    let hour = 3_600_000;
    let stepped = moment(at(hour), 5);
    assert_eq!(dispatcher.now(stepped), at(5));
    assert!(dispatcher.is_stepped(stepped));
    let taken = dispatcher.take(1, dispatcher.now(stepped)).deliveries;
    dispatcher.shift(4, hour as i64 - 5);
    assert!(!dispatcher.is_stepped(stepped));
    assert_eq!(dispatcher.deadline_of(taken[0].token), Some(at(hour).plus(Duration::from_secs(30))));
}

fn mortal(position: Position, ttl_ms: u64, recorded_at: Timestamp) -> Arc<Event> {
    let mut event = Event::clone(&event(position));
    (event.recorded_at, event.envelope.time, event.envelope.ttl_ms) = (recorded_at, None, Some(ttl_ms));
    Arc::new(event)
}

#[test]
fn a_step_of_the_wall_clock_neither_expires_an_event_nor_keeps_it() {
    let hour = 3_600_000;
    for (step, now) in [(hour as i64, at(2 * hour)), (-(hour as i64), at(0))] {
        let mut dispatcher = dispatcher(|group| group.raise_floor(3));
        dispatcher.look_at(&mortal(4, 60_000, at(hour)));
        dispatcher.shift(5, step);
        dispatcher.look_at(&mortal(6, 60_000, now));
        // Read from the ledger only now, but recorded before the step.
        let late = mortal(4, 60_000, at(hour));
        assert_eq!(dispatcher.expires_at(&late), Some(now.plus(Duration::from_secs(60))));
        let soon = now.plus(Duration::from_secs(59));
        assert!(
            !dispatcher.is_expired(&late, soon)
                && dispatcher.is_expired(&late, soon.plus(Duration::from_secs(1)))
        );
        let positions: Vec<Position> = out(&mut dispatcher, 10, soon).iter().map(|one| one.0).collect();
        assert_eq!(positions, [4, 6]);
    }
}

#[test]
fn a_group_is_behind_by_what_is_known_to_match_and_has_not_expired() {
    let mut dispatcher = dispatcher(|_| ());
    dispatcher.behind(1_000);
    assert_eq!(dispatcher.lag(), (1_000, false), "any of them may match");
    assert_eq!(dispatcher.behind_by(100, at(0)), 3, "but only three are known to");
    assert_eq!(dispatcher.uncounted(100), Some((4, 1_000)));
    let more = [event(10), mortal(11, 1_000, at(0)), mortal(12, 1, at(0))];
    dispatcher.count(&more, 900, at(500));
    assert_eq!((dispatcher.behind_by(100, at(500)), dispatcher.lag()), (5, (105, false)));
    dispatcher.count(&[], 1_000, at(500));
    assert_eq!((dispatcher.uncounted(100), dispatcher.lag()), (None, (5, true)));
    // What gets a slot is counted once.
    more.iter().for_each(|event| dispatcher.look_at(event));
    assert_eq!(dispatcher.lag(), (6, true));
    assert_eq!((dispatcher.behind_by(6, at(500)), dispatcher.behind_by(6, at(2_000))), (5, 4));
}

#[test]
fn what_goes_out_again_after_a_clean_stop_is_written_once_so_that_a_crash_shows() {
    let mut dispatcher = dispatcher(|group| group.delivered_to = 3);
    assert!(!dispatcher.must_record() && dispatcher.progress().is_none(), "nothing is out");
    out(&mut dispatcher, 1, at(0));
    assert!(
        dispatcher.must_record() && dispatcher.progress().is_some(),
        "it stood below `delivered_to` before"
    );
    out(&mut dispatcher, 2, at(0));
    assert!(!dispatcher.must_record() && dispatcher.progress().is_none(), "once a life is enough");
}

#[test]
fn who_keeps_up_is_written_ahead_and_a_suspect_never_is() {
    let mut dispatcher = dispatcher(|_| ());
    out(&mut dispatcher, 3, at(0));
    dispatcher.keeps_up(true);
    assert!(dispatcher.must_record(), "nothing is written yet");
    let written = dispatcher.progress().unwrap().delivered_to;
    assert!(written > 3, "ahead of what was handed out: {written}");
    dispatcher.look_at(&event(4));
    out(&mut dispatcher, 1, at(0));
    assert!(!dispatcher.must_record() && dispatcher.progress().is_none(), "4 is covered by it");
    dispatcher.look_at(&event(written + 1));
    out(&mut dispatcher, 1, at(0));
    assert!(dispatcher.must_record(), "beyond it, it must be written again");
    let mut suspects = self::dispatcher(|group| group.crashes = vec![3; CRASHES_MAX as usize - 1]);
    out(&mut suspects, 3, at(0));
    suspects.keeps_up(true);
    let moved = suspects.progress().unwrap();
    assert_eq!((moved.alone, moved.delivered_to), (1, 1));
}

#[test]
fn who_leaves_something_behind_is_written_as_far_as_they_took() {
    let mut dispatcher = dispatcher(|_| ());
    out(&mut dispatcher, 2, at(0));
    dispatcher.keeps_up(true);
    assert_eq!(dispatcher.progress().unwrap().delivered_to, 2, "the third is still there");
    out(&mut dispatcher, 1, at(0));
    assert_eq!(dispatcher.progress().unwrap().delivered_to, 3, "and nobody said that they come again");
}

#[test]
fn what_is_settled_is_acked_whether_or_not_a_move_has_said_so() {
    let mut dispatcher = dispatcher(|_| ());
    let token = out(&mut dispatcher, 3, at(0))[1].2;
    assert!(dispatcher.ack(token, at(0)));
    let states = |dispatcher: &Dispatcher| [1, 2, 3, 4].map(|position| dispatcher.state_of(&event(position)));
    assert_eq!(states(&dispatcher), ["in_flight", "acked", "in_flight", "ready"], "not flushed yet");
    dispatcher.progress().unwrap();
    assert_eq!(states(&dispatcher), ["in_flight", "acked", "in_flight", "ready"], "behind an open one");
}
