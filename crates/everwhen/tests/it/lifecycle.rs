//! Lifecycle events: triggers that name them are pulled, and nothing reacts to its own reactions.

use serde_json::Value;

use crate::support::Place;

const AUTOMATIONS: &str = "
- automation: work
  triggers: [{event: job.*}]
  mode: parallel
  actions:
    - id: check
      if: event.payload.bad == true
      fail: no good
    - delay: 1m
- automation: alarm
  triggers:
    - event: automation.failed
      filter: event.payload.automation == 'work'
      window: {count: 2, minutes: 15, refire: every}
  mode: parallel
  actions:
    - publish: {topic: alarm.raised, payload: {error: '{{ event.payload.error.code }}', run: '{{ event.payload.executionId }}'}}
- automation: everything
  triggers: [{event: '#'}]
  mode: parallel
  actions: []
- automation: watcher
  triggers: [{event: automation.#}]
  mode: queued
  max: 100
  actions:
    - vars: {topic: '{{ event.topic }}'}
    - delay: 1s
    - publish: {topic: seen, payload: {topic: '{{ event.topic }}', of: '{{ event.payload.automation }}', by: '{{ event.payload.triggeredBy }}'}}
";

fn plays(steps: &str) {
    let place = Place::new();
    place.write("a.yaml", AUTOMATIONS);
    place.write("s.yaml", &format!("scenario: s\ngiven: {{files: [a.yaml]}}\nsteps:\n{steps}"));
    let done = place.run(&["test", "s.yaml", "--json", "--kill-at-waits"]);
    let line: Value = serde_json::from_str(done.out.lines().next().unwrap_or_default()).unwrap_or_default();
    assert_eq!(line["passed"], true, "{}\n{}", done.out, done.err);
}

#[test]
fn triggers_that_name_a_lifecycle_event_are_pulled_and_wildcards_are_not() {
    plays(
        "
  - publish: {topic: job.a, payload: {bad: true}}
  - expect: {emitted: {topic: alarm.#, total: 0}}
  - publish: {topic: job.b, payload: {bad: true}}
  - expect:
      runs: {automation: work, failed: 2}
      emitted: {topic: alarm.raised, total: 1, payloads: [{error: run.failed}]}
  - expect: {runs: {automation: everything, started: 3}}
",
    );
}

#[test]
fn a_run_that_a_lifecycle_event_started_pulls_nothing_in_turn() {
    plays(
        "
  - disable: everything
  - disable: alarm
  - publish: {topic: job.a}
  - advance: 2m
  - expect:
      emitted:
        topic: seen
        payloads:
          - {topic: automation.started, of: work, by: 'event:job.a'}
          - {topic: automation.step.started, of: work}
          - {topic: automation.step.completed, of: work}
          - {topic: automation.completed, of: work}
      runs: {automation: watcher, started: 4, completed: 4}
",
    );
}

#[test]
fn steps_tell_how_long_they_took() {
    let place = Place::new();
    place.write(
        "a.yaml",
        "
- automation: slow
  triggers: [{event: go}]
  actions:
    - {id: quick, vars: {x: 1}}
    - {id: nap, delay: 90s}
    - {id: whole, if: 'true', then: [{delay: 30s}, {delay: 30s}]}
- automation: timed
  triggers:
    - {event: automation.step.completed, filter: event.payload.automation == 'slow' && has(event.payload.stepId)}
  mode: parallel
  actions:
    - publish: {topic: 'took.{{ event.payload.stepId }}', payload: {seconds: '{{ event.payload.duration }}'}}
",
    );
    place.write(
        "s.yaml",
        "
scenario: s
given: {files: [a.yaml]}
steps:
  - publish: {topic: go}
  - advance: 10m
  - expect: {emitted: {topic: took.quick, payloads: [{seconds: 0}]}}
  - expect: {emitted: {topic: took.nap, payloads: [{seconds: 90}]}}
  - expect: {emitted: {topic: took.whole, payloads: [{seconds: 60}]}}
",
    );
    let done = place.run(&["test", "s.yaml", "--json", "--kill-at-waits"]);
    let line: Value = serde_json::from_str(done.out.lines().next().unwrap_or_default()).unwrap_or_default();
    assert_eq!(line["passed"], true, "{}\n{}", done.out, done.err);
}

#[test]
fn a_wait_for_what_is_told_of_runs_is_refused_instead_of_never_ending() {
    let place = Place::new();
    let yaml = |topic: &str| {
        format!("automation: w\ntriggers: [{{event: go}}]\nactions:\n  - wait_for: {{event: {topic}}}\n")
    };
    for topic in ["automation.completed", "automation.step.failed", "automation.step.*"] {
        place.write("d/a.yaml", &yaml(topic));
        let done = place.run(&["check", "d"]).exits(1);
        assert!(done.out.contains("never hears") && done.out.contains("use a trigger"), "{done:?}");
        place.run(&["apply", "d"]).exits(4);
    }
    for topic in ["automation.disabled", "automation.#"] {
        place.write("d/a.yaml", &yaml(topic));
        place.run(&["check", "d"]).ok();
    }
}
