//! Verdicts: admit, defer, boost, drop; by topic, filter and rate; counted.

use std::time::Duration;

use super::*;
use crate::settings::{AttentionRule, Rate, Verdict};

fn rule(topic: &str, verdict: Verdict) -> AttentionRule {
    AttentionRule { topic: pattern(topic), filter: None, rate: None, verdict }
}

fn judging(attention: Vec<AttentionRule>) -> Admitter {
    admitter(&Settings { attention, ..Settings::default() })
}

/// One word for what became of a draft.
fn fate(admission: Result<Admission, Problem>) -> String {
    match admission {
        Ok(Admission::Dropped { rule, .. }) => format!("dropped by {rule}"),
        Ok(Admission::Prepared(prepared)) => match prepared.deferred {
            Some(until) => format!("{} until {until}", prepared.record.kind),
            None => format!("{} with priority {}", prepared.record.kind, prepared.event.envelope.priority),
        },
        Err(problem) => shown(&problem),
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let admitter = judging(vec![
        rule("sensor.keep", Verdict::Admit),
        rule("sensor.later", Verdict::Defer { until: Duration::from_secs(300) }),
        rule("sensor.urgent", Verdict::Boost { by: 7 }),
        rule("sensor.#", Verdict::Drop),
    ]);
    let table = [
        ("sensor.keep", "event with priority 4"),
        ("sensor.later", "event.deferred until 2026-01-01T00:05:00Z"),
        ("sensor.urgent", "event with priority 9"),
        ("sensor.x.y", "dropped by attention[3] sensor.#"),
        ("other", "event with priority 4"),
    ];
    for (topic, want) in table {
        let draft = Draft { priority: 4, ..Draft::new(topic, &1) };
        assert_eq!(fate(admit(&admitter, draft)), want, "{topic}");
    }
    let counts = admitter.counts();
    let counts: Vec<_> = counts.iter().map(|(rule, verdict, n)| (rule.as_str(), *verdict, *n)).collect();
    let want = [
        ("attention[0] sensor.keep", "admit", 1),
        ("attention[1] sensor.later", "defer", 1),
        ("attention[2] sensor.urgent", "boost", 1),
        ("attention[3] sensor.#", "drop", 1),
    ];
    assert_eq!(counts, want);
}

#[test]
fn a_deferred_event_is_written_with_the_time_it_waits_for() {
    let admitter = judging(vec![rule("a", Verdict::Defer { until: Duration::from_secs(60) })]);
    let prepared =
        prepared(admit(&admitter, Draft { key: Some("k".into()), ..Draft::new("a", &json!({"x": 1})) }));
    let data = std::str::from_utf8(&prepared.record.data).unwrap();
    let body = &prepared.record.body.as_ref().unwrap().json;
    let at = model::record::At {
        position: 1,
        recorded_at: now(),
        kind: prepared.record.kind,
        version: 1,
        data,
        body: Some(body),
    };
    let Record::EventDeferred(deferred) = Record::decode(at).unwrap() else { panic!("not deferred") };
    assert_eq!(Some(deferred.until), prepared.deferred);
    assert_eq!(deferred.envelope, prepared.event.envelope);
    assert!(prepared.fingerprint.is_some());
}

#[test]
fn a_filter_reads_the_event_as_it_will_be() {
    let filters = [
        (json!("event.band == \"green\""), true),
        (json!("payload.n > 1 && topic == \"a\""), true),
        (json!({"field": "payload.n", "gt": 2}), false),
        (json!({"field": "actor", "eq": "user:local"}), true),
        (json!({"field": "space", "eq": "default"}), true),
        (json!({"field": "ext.device", "eq": "phone"}), true),
        (json!({"field": "recorded_at", "eq": NOW}), true),
        (json!({"field": "position", "exists": true}), false),
    ];
    for (filter, dropped) in filters {
        let admitter =
            judging(vec![AttentionRule { filter: Some(filter.clone()), ..rule("#", Verdict::Drop) }]);
        let mut draft = Draft::new("a", &json!({"n": 2}));
        draft.ext = Some(raw(r#"{"device":"phone"}"#));
        assert_eq!(fate(admit(&admitter, draft)).starts_with("dropped"), dropped, "{filter}");
    }
}

#[test]
fn the_deepest_payload_does_not_hide_from_a_filter() {
    let filter = Some(json!({"field": "payload.drop", "eq": true}));
    let admitter = judging(vec![AttentionRule { filter, ..rule("#", Verdict::Drop) }]);
    let deep = format!("{{\"drop\":true,\"x\":{}{}}}", "[".repeat(126), "]".repeat(126));
    let draft = Draft::with_payload("a".into(), raw(deep).into());
    assert!(fate(admit(&admitter, draft)).starts_with("dropped"));
}

#[test]
fn a_filter_that_errs_does_not_match_and_is_counted() {
    let filter = Some(json!("event.payload.absent > 1"));
    let admitter = judging(vec![AttentionRule { filter, ..rule("#", Verdict::Drop) }]);
    assert_eq!(fate(admit(&admitter, Draft::new("a", &1))), "event with priority 0");
    assert_eq!(admitter.counts()[1], ("attention[0] #".to_owned(), "filter_error", 1));
}

#[test]
fn a_filter_that_is_none_is_said_with_its_place() {
    let attention = vec![AttentionRule { filter: Some(json!("event.")), ..rule("#", Verdict::Drop) }];
    let problem = Admitter::new(&Settings { attention, ..Settings::default() }, Vec::new()).err().unwrap();
    assert!(
        shown(&problem).starts_with("config.invalid at -: [[attention]] rule 1: "),
        "{}",
        shown(&problem)
    );
}

#[test]
fn a_rule_with_a_rate_holds_only_above_it() {
    let rate = Some(Rate { events: 10, per: Duration::from_secs(1) });
    let admitter = judging(vec![AttentionRule { rate, ..rule("#", Verdict::Drop) }]);
    let admitted = |at: Timestamp, times: usize| {
        let one = |_: usize| {
            fate(admit_at(&admitter, &Caller::local(), Draft::new("a", &1), at)).starts_with("event")
        };
        (0..times).filter(|i| one(*i)).count()
    };
    assert_eq!(admitted(now(), 25), 10);
    assert_eq!(admitted(now().plus(Duration::from_millis(500)), 25), 5);
    assert_eq!(admitted(now().plus(Duration::from_secs(60)), 25), 10);
    assert_eq!(admitted(now(), 25), 0, "a clock that went back fills nothing");
    assert_eq!(admitted(now().plus(Duration::from_secs(1)), 25), 10, "and it goes on from there");
}

#[test]
fn nobody_judges_the_engine_and_its_runs() {
    let admitter = judging(vec![rule("#", Verdict::Drop)]);
    let run = Caller {
        actor: "system:automation:x".into(),
        trace: None,
        outside: false,
        sight: Default::default(),
    };
    assert_eq!(fate(admit_at(&admitter, &run, Draft::new("a", &1), now())), "event with priority 0");
    assert_eq!(admitter.counts()[0].2, 0);
}

#[test]
fn attention_can_be_switched_off() {
    let mut settings = Settings { attention: vec![rule("#", Verdict::Drop)], ..Settings::default() };
    settings.switches.attention = false;
    assert_eq!(fate(admit(&admitter(&settings), Draft::new("a", &1))), "event with priority 0");
}
