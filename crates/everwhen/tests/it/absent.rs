//! The `absent` trigger, played as scenarios: a silence is told once, and every wait of it survives a power cut.

use serde_json::Value;

use crate::support::Place;

const WATCH: &str = "
automation: watch
triggers:
  - absent: {event: beat.*, for: 10m}
    filter: event.payload.ok != false
mode: parallel
actions:
  - publish: {topic: silence.told, payload: {since: '{{ event.payload.since }}', kind: '{{ trigger.kind }}'}}
";

fn plays(steps: &str) {
    let place = Place::new();
    place.write("watch.yaml", WATCH);
    place.write("s.yaml", &format!("scenario: s\ngiven: {{files: [watch.yaml]}}\nsteps:\n{steps}"));
    let done = place.run(&["test", "s.yaml", "--json"]);
    let line: Value = serde_json::from_str(done.out.lines().next().unwrap_or_default()).unwrap_or_default();
    assert_eq!(line["passed"], true, "{}\n{}", done.out, done.err);
}

#[test]
fn a_silence_is_told_once_and_again_after_the_next_event() {
    plays(
        "
  - advance: 9m
  - publish: {topic: beat.a}
  - advance: 9m59s
  - expect: {emitted: {topic: silence.#, total: 0}}
  - advance: 1s
  - expect:
      emitted: {topic: silence.#, payloads: [{since: 2026-01-01T00:09:00Z, kind: absent}]}
      decisions: {automation: watch, outcome: ran, total: 1}
  - advance: 1d
  - expect: {emitted: {topic: silence.#, total: 1}}
  - publish: {topic: beat.b}
  - advance: 10m
  - expect: {emitted: {topic: silence.#, total: 2}}
",
    );
}

#[test]
fn a_silence_begins_with_the_deployment_and_only_events_that_pass_the_filter_end_it() {
    plays(
        "
  - publish: {topic: beat.a, payload: {ok: false}}
    at: 5m
  - publish: {topic: other.a}
  - advance: 5m
  - expect: {emitted: {topic: silence.#, payloads: [{since: 2026-01-01T00:00:00Z}]}}
",
    );
}

#[test]
fn a_silence_outlives_power_cuts_and_is_told_at_the_start_when_it_ended_meanwhile() {
    plays(
        "
  - publish: {topic: beat.a}
    at: 1m
  - kill
  - advance: 5m
  - expect: {emitted: {topic: silence.#, total: 0}}
  - kill: {down: 20m}
  - expect: {emitted: {topic: silence.#, payloads: [{since: 2026-01-01T00:01:00Z}]}}
  - kill
  - advance: 1h
  - expect: {emitted: {topic: silence.#, total: 1}}
",
    );
}

#[test]
fn a_disabled_one_is_silent_and_enabling_begins_a_new_silence() {
    plays(
        "
  - disable: watch
  - advance: 1h
  - expect:
      emitted: {topic: silence.#, total: 0}
      decisions: {automation: watch, outcome: skipped, reason: disabled, gate: enabled, total: 1}
  - enable: watch
  - advance: 9m
  - expect: {emitted: {topic: silence.#, total: 0}}
  - advance: 1m
  - expect: {emitted: {topic: silence.#, payloads: [{since: 2026-01-01T01:00:00Z}]}}
",
    );
}
