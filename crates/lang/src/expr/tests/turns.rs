//! When expressions that read time are worth another try.

use serde_json::json;

use super::super::*;

/// Seconds from 2026-01-01T00:00:02.5Z to the next turn.
fn turn(text: &str) -> Option<f64> {
    let event =
        json!({"since": "2026-01-01T00:00:00Z", "list": [{"at": "2026-01-01T00:00:09Z"}], "text": "x"});
    let scope = Scope { roots: &["event", "now"], ..Scope::EVENT };
    let expr = Expr::compile(text, &scope).unwrap();
    let now = instant::parse("2026-01-01T00:00:02.5Z").unwrap();
    let turn = expr.next_turn(1, &[Val::of(&event), Val::Timestamp(now)]).unwrap();
    turn.map(|at| (at - now) as f64 / 1e9)
}

#[test]
fn sides_that_move_evenly_turn_where_they_meet() {
    for (text, want) in [
        ("now >= timestamp('2026-01-01T00:00:07Z')", Some(4.5)),
        ("timestamp('2026-01-01T00:00:07Z') > now", Some(4.5)),
        ("now - timestamp(event.since) >= duration('5m')", Some(297.5)),
        ("now - duration('5m') > timestamp(event.since)", Some(297.5)),
        ("addDuration(now, 'PT1S') > timestamp('2026-01-01T00:00:07Z')", Some(3.5)),
        ("now - (timestamp('2026-01-01T00:00:07Z') - now) > now", Some(4.5)),
        ("now > event.list.map(x, x.at)[0]", Some(6.5)),
        ("now < timestamp('2025-01-01T00:00:00Z')", None),
        ("now - timestamp(event.text) >= duration('5m')", None),
    ] {
        assert_eq!(turn(text), want, "{text}");
    }
}

#[test]
fn parts_turn_at_the_units_that_they_count() {
    for (text, want) in [
        ("now.getHours() == 5", 57.5),
        ("now.getMinutes('Europe/Berlin') % 5 == 0", 57.5),
        ("localDate(now, 'Europe/Berlin') > '2026-01-01'", 57.5),
        ("now.getSeconds() >= 10", 0.5),
        ("(now - timestamp(event.since)).getMinutes() >= 5", 57.5),
        ("(now + duration('30s')).getMinutes() >= 5", 27.5),
        ("(timestamp('2026-01-01T01:00:00Z') - now).getMinutes() < 5", 57.5),
        ("daysBetween(event.since, now) > 3", 86_397.5),
        ("event.list.exists(x, now.getHours() == 5)", 57.5),
    ] {
        assert_eq!(turn(text), Some(want), "{text}");
    }
}

#[test]
fn any_other_use_of_time_is_tried_each_second() {
    for text in [
        "now - timestamp(localDate(now, 'UTC') + 'T00:00:00Z') < duration('1h')",
        "string(now) >= '2026-01-01T00:02'",
        "string(now).endsWith('0Z')",
        "event.list.exists(x, now > timestamp(x.at))",
        "event.list.exists(x, (now - timestamp(x.at)).getMinutes() > 1)",
        "[now].exists(x, x.getHours() == 5)",
    ] {
        assert_eq!(turn(text), Some(0.5), "{text}");
    }
}

#[test]
fn the_nearest_turn_of_all_parts_counts() {
    for (text, want) in [
        ("now >= timestamp('2026-01-01T00:00:07Z') || now.getHours() == 5", 4.5),
        ("now.getHours() == 5 && now >= timestamp('2026-01-01T00:00:07Z')", 4.5),
        ("now >= timestamp('2026-01-01T00:02:07Z') ? true : now.getHours() == 5", 57.5),
    ] {
        assert_eq!(turn(text), Some(want), "{text}");
    }
}
