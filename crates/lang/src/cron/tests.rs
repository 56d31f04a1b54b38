//! Schedules by example: `every`, `at`, jitter, far firings, ends of the calendar, and what is said about wrong ones.

use std::time::Duration;

use model::{Code, Timestamp};

use super::{Calendar, Cron, Zone, jitter};

fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

fn next(expr: &str, zone: &str, after: &str) -> String {
    let zone = Zone::parse(zone).unwrap();
    zone.show(Cron::parse(expr).unwrap().next_after(at(after), &zone).unwrap())
}

#[test]
fn fractions_of_a_second_round_up_to_the_next_firing() {
    let (cron, zone) = (Cron::parse("* * * * * *").unwrap(), Zone::utc());
    let half = at("2026-01-01T00:00:00.5Z");
    assert_eq!(cron.next_after(half, &zone), Some(at("2026-01-01T00:00:01Z")));
    assert_eq!(cron.next_from(half, &zone), Some(at("2026-01-01T00:00:01Z")));
    assert!(!cron.fires_at(half, &zone));
    assert!(cron.fires_at(at("2026-01-01T00:00:01Z"), &zone));
}

#[test]
fn a_firing_that_is_decades_away_is_found() {
    // The fifth monday of a february: leap years that begin on the right day.
    assert_eq!(next("0 0 * 2 mon#5", "UTC", "2026-01-01T00:00:00Z"), "2044-02-29T00:00:00Z");
    // 2100 is no leap year.
    assert_eq!(next("30 2 29 2 *", "America/New_York", "2096-03-01T00:00:00Z"), "2104-02-29T02:30:00-05:00");
    let zone = Zone::parse("Europe/Berlin").unwrap();
    let last = Cron::parse("0 0 1 1 *").unwrap().next_after(at("9999-06-01T00:00:00Z"), &zone);
    assert_eq!(last, None, "the calendar ends");
}

#[test]
fn a_range_to_the_last_day_may_have_a_step() {
    assert_eq!(next("0 0 29-L/2 * *", "UTC", "2026-04-01T00:00:00Z"), "2026-04-29T00:00:00Z");
    assert_eq!(next("0 0 29-L/2 * *", "UTC", "2026-04-29T00:00:00Z"), "2026-05-29T00:00:00Z");
    assert_eq!(next("0 0 29-L/2 * *", "UTC", "2026-05-29T00:00:00Z"), "2026-05-31T00:00:00Z");
    assert_eq!(next("0 0 1-l/10,5 * *", "UTC", "2026-02-21T00:00:00Z"), "2026-03-01T00:00:00Z");
    for wrong in ["0 0 29-L/0 * *", "0 0 29-L/ * *", "0 0 x-L/2 * *", "0 0 L/2 * *", "0 0 29-L-3/2 * *"] {
        assert_eq!(Cron::parse(wrong).unwrap_err().code(), Code::CronInvalid, "{wrong}");
    }
}

#[test]
fn every_counts_from_1970_and_knows_no_zone() {
    let every = |seconds: u64| Calendar::every(Duration::from_secs(seconds)).unwrap();
    let after = at("2026-03-29T00:50:00Z");
    assert_eq!(every(900).next_after(after), Some(at("2026-03-29T01:00:00Z")));
    assert_eq!(every(86_400).next_after(after), Some(at("2026-03-30T00:00:00Z")));
    assert_eq!(every(604_800).next_after(after), Some(at("2026-04-02T00:00:00Z")), "a thursday");
    assert_eq!(every(60).next_after(at("2026-03-29T01:00:00Z")), Some(at("2026-03-29T01:01:00Z")));
    assert_eq!(every(7).next_after(at("1969-12-31T23:59:59Z")), Some(Timestamp::EPOCH));
    assert_eq!(every(900).count(after, at("2026-03-29T02:00:00Z")), 5);
    assert_eq!(every(900).latest(after, at("2026-03-29T01:59:59Z")), Some(at("2026-03-29T01:45:00Z")));
    assert_eq!(every(900).next_after(Timestamp::MAX), None);
    for wrong in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(367 * 86_400)] {
        assert_eq!(Calendar::every(wrong).unwrap_err().code(), Code::CronInvalid);
    }
}

#[test]
fn at_is_once_and_the_latest_of_nothing_is_nothing() {
    let (before, once, after) =
        (at("2026-01-01T00:00:00Z"), at("2026-01-01T00:00:01Z"), at("2027-01-01T00:00:00Z"));
    let calendar = Calendar::At(once);
    assert_eq!((calendar.next_after(before), calendar.next_after(once)), (Some(once), None));
    assert_eq!((calendar.latest(before, after), calendar.latest(once, after)), (Some(once), None));
    assert_eq!((calendar.count(before, once), calendar.count(once, after)), (1, 0));
    assert_eq!(calendar.latest(after, before), None);
}

#[test]
fn jitter_is_derived_below_its_bound_and_differs_by_trigger() {
    let (now, max) = (at("2026-01-01T00:00:00Z"), Duration::from_secs(30));
    let all: Vec<Duration> = (0..100).map(|n| jitter(&format!("t{n}"), now, max)).collect();
    assert!(all.iter().all(|by| *by < max));
    assert!(all.iter().max().unwrap().as_secs() >= 25 && all.iter().min().unwrap().as_secs() < 5);
    assert_eq!(jitter("t1", now, max), all[1]);
    assert_ne!(jitter("t1", now.plus(Duration::from_secs(1)), max), all[1]);
    assert_eq!(jitter("t1", now, Duration::ZERO), Duration::ZERO);
}

#[test]
fn zones_are_shown_in_their_own_offset() {
    let show = |zone: &str, instant: &str| Zone::parse(zone).unwrap().show(at(instant));
    assert_eq!(show("Europe/London", "2026-01-01T00:00:00Z"), "2026-01-01T00:00:00+00:00");
    assert_eq!(show("america/st_johns", "2026-01-01T00:00:00.25Z"), "2025-12-31T20:30:00.25-03:30");
    assert_eq!(show("-02:30", "2026-01-01T00:00:00Z"), "2025-12-31T21:30:00-02:30");
    // Amsterdam was 19 minutes and 32 seconds ahead: the instant stays, the seconds of the offset are not written.
    let shown = show("Europe/Amsterdam", "1900-01-01T00:00:00Z");
    assert_eq!(at(&shown), at("1900-01-01T00:00:00Z"), "{shown}");
}

#[test]
fn what_is_wrong_is_named_with_its_field() {
    let said = |expr: &str| {
        let problem = Cron::parse(expr).unwrap_err();
        let field = problem.extra().get("field").and_then(|field| field.as_str()).unwrap_or("-").to_owned();
        format!("{} {field}: {}", problem.code(), problem.detail())
    };
    let table = [
        ("0 25 * * *", "cron.invalid hour: the hour \"25\" is not a number from 0 to 23"),
        ("0 7-x * * *", "cron.invalid hour: the hour \"x\" in \"7-x\" is not a number from 0 to 23"),
        (
            "*/0 * * * *",
            "cron.invalid minute: the step \"0\" of the minute \"*/0\" is not a number from 1 to 59",
        ),
        (
            "0 0 * * fun",
            "cron.invalid weekday: the weekday \"fun\" is not a number from 0 to 7, nor a name from sun to sat",
        ),
        ("0 0 1,,2 * *", "cron.invalid day: the day \"1,,2\" is a list with an empty place"),
        ("0 0 1,2W * *", "cron.invalid day: the day \"2W\" must stand alone, not in a list"),
        (
            "0 0 L-31 * *",
            "cron.invalid day: the day \"L-31\" is not L, or L-1 to L-30 for days before the last",
        ),
        (
            "0 0 * * 5#6",
            "cron.invalid weekday: the weekday \"5#6\" does not end in #1 to #5; a month has no more than five",
        ),
        ("0 0 30 2 *", "cron.never day: \"0 0 30 2 *\" never fires: none of its months has such a day"),
        ("0 0 * *", "cron.invalid -: a cron expression has 5 fields, or 6 with seconds first; this has 4"),
        ("@dayly", "cron.invalid -: the word \"@dayly\" is not known"),
    ];
    for (expr, want) in table {
        assert_eq!(said(expr), want);
    }
    let problem = Cron::parse("@dayly").unwrap_err();
    assert_eq!(problem.hint_text(), Some("did you mean \"@daily\"?"));
    let problem = Zone::parse("Europe/Berln").unwrap_err();
    assert_eq!(problem.detail(), "there is no zone \"Europe/Berln\"");
    assert_eq!(problem.hint_text(), Some("did you mean \"Europe/Berlin\"?"));
}
