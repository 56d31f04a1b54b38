//! Schedules against other people's vectors, through the lines that `everwhen try cron` takes.

use std::time::Duration;

use lang::try_lines::Kind;
use model::Timestamp;
use serde_json::{Value, json};

use crate::vectors::{answer, suite};

fn right(case: &Value) -> bool {
    let got = answer(Kind::Cron, case);
    if case.get("at").is_some() {
        return got.get("fires") == Some(&case["fires"]);
    }
    let want = if case["next"].is_null() { json!([]) } else { json!([case["next"]]) };
    got.get("next") == Some(&want)
}

/// Cases that follow another rule than ours (contracts §5): day *and* weekday, a gap that is skipped, an overlap that
/// fires twice; and a range of weekdays in steps that counts one day twice on its way round the week.
fn other_rule(case: &Value) -> bool {
    let tags = case["tags"].as_array().cloned().unwrap_or_default();
    let tagged = |tag: &str| tags.iter().any(|has| has.as_str().is_some_and(|has| has.starts_with(tag)));
    let counts_twice = case["expr"].as_str().is_some_and(|expr| expr.to_lowercase().ends_with("thu-tue/2"));
    tagged("dom-and-dow-both-set") || tagged("dst-policy") || counts_twice
}

#[test]
fn cron_next() {
    let Some(cases) = suite("cron_next") else { return };
    let (mut portable, mut others, mut apart) = (0, 0, 0);
    for case in &cases {
        let gated = case["portable"] == true;
        if right(case) {
            if gated { portable += 1 } else { others += 1 }
        } else {
            assert!(!gated && other_rule(case), "{case}\n{:?}", answer(Kind::Cron, case));
            apart += 1;
        }
    }
    println!("cron_next: all {portable} portable cases, {others} others; {apart} follow another rule");
    assert!(portable >= 486 && others >= 391);
}

#[test]
fn cron_valid() {
    let Some(cases) = suite("cron_valid") else { return };
    let fields = [
        ("Seconds", "second"),
        ("Minutes", "minute"),
        ("Hours", "hour"),
        ("Days of month", "day"),
        ("Months", "month"),
        ("Days of week", "weekday"),
    ];
    for case in &cases {
        let got = answer(Kind::Cron, case);
        if case["valid"] == true {
            assert_eq!(got["valid"], true, "{case}\n{got:?}");
            continue;
        }
        assert_eq!(got["error"]["code"], "cron.invalid", "{case}\n{got:?}");
        if let Some((_, field)) = fields.iter().find(|(name, _)| case["bad_field"] == *name) {
            assert_eq!(got["error"]["field"], *field, "{case}\n{got:?}");
        }
        if case["expr"].as_str().is_some_and(|expr| expr.starts_with('@')) {
            assert_eq!(got["error"].get("field"), None, "{case}");
        }
    }
}

/// The firings from `from` on, as they are shown and as instants.
fn firings(expr: &str, tz: &Value, from: Timestamp, count: usize) -> Vec<(String, Timestamp)> {
    let case = json!({"id": 1, "expr": expr, "tz": tz, "from": from, "inclusive": true, "count": count});
    let got = answer(Kind::Cron, &case);
    let shown = got["next"].as_array().unwrap_or_else(|| panic!("{case} {got:?}"));
    let shown = shown.iter().map(|at| at.as_str().unwrap().to_owned());
    shown.map(|shown| (shown.clone(), Timestamp::parse(&shown).unwrap())).collect()
}

/// Each day at the time of a local instant that is `by` after `local`.
fn daily(local: &str, by: Duration) -> String {
    let text = Timestamp::parse(&format!("{local}Z")).unwrap().plus(by).to_string();
    format!("{} {} {} * * *", &text[17..19], &text[14..16], &text[11..13])
}

#[test]
fn tz_transitions() {
    let Some(cases) = suite("tz_transitions") else { return };
    for case in &cases {
        let (tz, shift) = (&case["tz"], case["shift_seconds"].as_i64().unwrap());
        let change = Timestamp::parse(case["instant"].as_str().unwrap()).unwrap();
        let size = Duration::from_secs(shift.unsigned_abs());
        let local = |name: &str| case[name].as_str().unwrap();
        let around = firings("* * * * * *", tz, change.minus(Duration::from_secs(1)), 2);
        let shown = [("local_before", &around[0].0), ("local_after", &around[1].0)];
        if !shown.iter().all(|(name, shown)| shown.starts_with(local(name))) {
            // The compiled-in database is newer than the vectors', and Morocco has changed its mind since.
            assert!(tz == "Africa/Casablanca" && local("instant") > "2026-09", "{case} {around:?}");
            continue;
        }
        if case["kind"] == "gap" {
            let got = firings(
                &daily(local("local_before"), size / 2),
                tz,
                change.minus(Duration::from_secs(60)),
                2,
            );
            assert_eq!(got[0].1, change, "{case}: at the first instant after the gap");
            assert!(got[1].1.since(change) >= Duration::from_secs(11 * 3_600), "{case}: and once");
        } else {
            let got = firings(&daily(local("local_after"), size / 2), tz, change.minus(size), 2);
            assert_eq!(got[0].1, change.minus(size / 2), "{case}: in the first pass");
            assert!(
                got[1].1.since(change) >= Duration::from_secs(11 * 3_600),
                "{case}: and not in the second"
            );
        }
        for (expr, longest) in [("*/10 * * * * *", 10), ("0 */15 * * * *", 900), ("0 0 * * * *", 3_600)] {
            let from = change.minus(Duration::from_secs(longest * 12));
            let got = firings(expr, tz, from, 24);
            // Half an hour put back makes the hour that it falls into longer.
            let longest = Duration::from_secs(longest) + if shift < 0 { size } else { Duration::ZERO };
            for pair in got.windows(2) {
                let between = pair[1].1.since(pair[0].1);
                assert!(between > Duration::ZERO && between <= longest, "{expr} {case} {pair:?}");
            }
        }
    }
    println!("tz_transitions: {} changes of offset", cases.len());
}
