//! What the rules promise of automations, played as scenarios, and once more with kills.

use serde_json::Value;

use crate::support::{Done, Place};

fn play(scenario: &str) -> Done {
    let place = Place::new();
    place.write("s.yaml", scenario);
    place.run(&["test", "s.yaml", "--json", "--kill-at-waits"])
}

pub fn passes(scenario: &str) {
    let lines: Vec<Value> = play(scenario).ok().lines();
    assert!(lines.iter().all(|line| line["passed"] == true), "{lines:#?}");
}

/// The codes that `check` finds in one automation.
fn found(automation: &str) -> Vec<String> {
    let place = Place::new();
    place.write("a.yaml", automation);
    let lines = place.run(&["check", "a.yaml", "--json"]).lines();
    lines.iter().filter_map(|line| Some(line["code"].as_str()?.to_owned())).collect()
}

#[test]
fn a_loop_in_atomic_does_not_yield_and_is_taken_back_as_a_whole() {
    passes(
        "
scenario: all or nothing
given:
  automations:
    - automation: b
      triggers: [{event: t}]
      actions: [{atomic: [{repeat: {count: 300, do: [{publish: out.b}]}}, {fail: x}]}]
    - automation: c
      triggers: [{event: big}]
      actions: [{atomic: [{repeat: {count: 20000, do: [{publish: out.b}]}}]}]
steps:
  - publish: {topic: t}
  - expect: {emitted: {topic: out.b, total: 0}}
  - publish: {topic: big}
  - expect: {emitted: {topic: out.b, total: 0}, last_run: {automation: c, status: failed, error: walk.too_big}}
",
    );
}

#[test]
fn nothing_waits_or_reaches_outside_in_atomic() {
    for step in [
        "{delay: 5s}",
        "{wait_until: 'true'}",
        "{wait_for: {event: go}}",
        "{ask: sure?}",
        "{http: {url: 'https://x.example/'}}",
        "{if: 'true', then: [{delay: 5s}]}",
        "{publish: out.a, retry: {max: 2}}",
    ] {
        let text = format!("automation: a\ntriggers: [{{event: t}}]\nactions: [{{atomic: [{step}]}}]\n");
        assert_eq!(found(&text), ["definition.not_pure"], "{step}");
    }
}

#[test]
fn a_stretch_holds_four_mebibytes_and_loops_yield_before() {
    let place = Place::new();
    let text = "x".repeat(900_000);
    let publish = "{publish: {topic: out.big, payload: {s: '{{ event.payload.s }}'}}}";
    let flat = [publish; 5].join(", ");
    let scenario = format!(
        "
scenario: big
given:
  automations:
    - {{automation: flat, triggers: [{{event: flat}}], actions: [{flat}]}}
    - {{automation: loop, triggers: [{{event: loop}}], actions: [{{repeat: {{count: 8, do: [{publish}]}}}}]}}
steps:
  - publish: {{topic: flat, payload: {{s: {text}}}}}
  - expect: {{last_run: {{automation: flat, status: failed, error: walk.too_big}}}}
  - publish: {{topic: loop, payload: {{s: {text}}}}}
  - expect: {{last_run: {{automation: loop, status: completed}}, emitted: {{topic: out.big, total: 12}}}}
"
    );
    place.write("s.yaml", &scenario);
    place.run(&["test", "s.yaml", "--json"]).ok();
}

#[test]
fn each_round_of_a_loop_waits_for_a_later_event() {
    let publish = "{publish: {topic: out.x, payload: {v: '{{ wait.event.payload.v }}'}}}";
    passes(&format!(
        "
scenario: rounds
given:
  automations:
    - automation: a
      triggers: [{{event: t}}]
      actions: [{{repeat: {{count: 3, do: [{{wait_for: {{event: paid, timeout: 1h}}}}, {publish}]}}}}]
steps:
  - publish: {{topic: t}}
  - publish: {{topic: paid, payload: {{v: 1}}}}
  - publish: [{{topic: paid, payload: {{v: 2}}}}, {{topic: paid, payload: {{v: 3}}}}]
  - expect: {{emitted: {{topic: out.x, payloads: [{{v: 1}}, {{v: 2}}, {{v: 3}}]}}}}
"
    ));
}

#[test]
fn a_wait_with_a_timeout_of_zero_looks_once_also_far_back() {
    let noise = "  - publish: [".to_owned() + &vec!["{topic: noise}"; 600].join(", ") + "]\n";
    passes(&format!(
        "
scenario: once
given:
  automations:
    - automation: w
      triggers: [{{event: t}}]
      mode: parallel
      actions:
        - delay: 10s
        - wait_for: {{event: go, timeout: 0, on_timeout: continue}}
        - publish: {{topic: out.x, payload: {{c: '{{{{ wait.completed }}}}', r: '{{{{ wait.remaining }}}}'}}}}
steps:
  - publish: {{topic: t}}
  - publish: {{topic: go}}
  - advance: 10s
  - expect: {{emitted: {{topic: out.x, payloads: [{{c: true}}]}}}}
  - publish: {{topic: t}}
  - advance: 10s
  - expect: {{emitted: {{topic: out.x, payloads: [{{c: true}}, {{c: false, r: 0}}]}}}}
  - publish: {{topic: t}}
{noise}{noise}  - advance: 10s
  - expect: {{emitted: {{topic: out.x, payloads: [{{c: true}}, {{c: false}}, {{c: false, r: 0}}]}}}}
"
    ));
}

#[test]
fn what_an_automation_declares_must_be_given_by_events_people_and_calls() {
    let place = Place::new();
    place.write(
        "a.ew",
        r#"
@trigger(event="ar")
@mode("parallel")
automation ar {
  args {
    day string!
    n int @default(7)
  }
  publish "out.ar" { day: args.day, same: input.day, n: args.n, also: input.n }
}

@trigger(event="calls")
automation calls {
  automation ar({ day: event.payload.day })
}
"#,
    );
    place.write(
        "s.yaml",
        "
scenario: args
given: {files: [a.ew]}
steps:
  - publish: {topic: ar}
  - publish: {topic: ar, payload: {day: 5}}
  - run: {automation: ar, input: {}}
  - publish: {topic: calls}
  - expect:
      emitted: {topic: out.ar, total: 0}
      # What a failing step did is taken back, but not what became of the call.
      decisions: {automation: ar, outcome: refused, reason: invalid_input, total: 4}
      last_run: {automation: calls, status: failed, error: run.refused}
  - publish: {topic: ar, payload: {day: mon, more: 1}}
  - run: {automation: ar, input: {day: tue, n: 8}}
  - expect:
      emitted:
        topic: out.ar
        payloads: [{day: mon, same: mon, n: 7, also: 7}, {day: tue, same: tue, n: 8, also: 8}]
",
    );
    place.run(&["test", "s.yaml", "--json"]).ok();
}

#[test]
fn a_one_shot_that_was_missed_is_caught_up_with_as_it_says() {
    passes(
        "
scenario: missed
given:
  automations:
    - {automation: n, triggers: [{at: 2026-01-01T00:10:00Z, catch_up: none}], actions: [{publish: out.n}]}
    - {automation: w, triggers: [{at: 2026-01-01T00:10:00Z, catch_up: {all: 5, within: 30m}}], actions: [{publish: out.w}]}
    - {automation: l, triggers: [{at: 2026-01-01T00:10:00Z}], actions: [{publish: out.l}]}
steps:
  - {kill: {down: 115m}}
  - expect:
      emitted: [{topic: out.n, total: 0}, {topic: out.w, total: 0}, {topic: out.l, total: 1}]
      decisions:
        - {automation: n, outcome: missed, reason: catch_up_none, total: 1}
        - {automation: w, outcome: missed, reason: older_than_window, total: 1}
",
    );
}

#[test]
fn a_wait_takes_events_only_and_has_no_gates() {
    for trigger in [
        "{cron: '*/5 * * * *'}",
        "{every: 5m}",
        "{at: 2027-01-01T00:00:00Z}",
        "{absent: {event: x, for: 5m}}",
        "{manual: true}",
        "{event: x, for: 5m}",
        "{event: x, debounce: 5s}",
    ] {
        let text = format!(
            "automation: a\ntriggers: [{{event: t}}]\nactions: [{{wait_for: {{trigger: {trigger}}}}}]\n"
        );
        assert_eq!(found(&text), ["definition.trigger"], "{trigger}");
    }
}

#[test]
fn a_stop_with_an_error_is_a_failure_and_a_map_says_only_what_it_can() {
    passes(
        "
scenario: endings
given:
  automations:
    - {automation: s, triggers: [{event: t}], actions: [{stop: {reason: bad, error: true}}]}
    - {automation: b, triggers: [{event: t}], actions: [{stop: bad, error: true}]}
    - {automation: w, triggers: [{event: t}], actions: [{stop: {reason: fine}}]}
    - {automation: f, triggers: [{event: t}], actions: [{fail: {message: broken}}]}
steps:
  - publish: {topic: t}
  - expect:
      last_run:
        - {automation: s, status: failed, error: run.failed}
        - {automation: b, status: failed, error: run.failed}
        - {automation: w, status: completed}
        - {automation: f, status: failed, error: run.failed}
",
    );
    let text = "automation: a\ntriggers: [{event: t}]\nactions: [{stop: {reson: x}}, {fail: {code: x}}]\n";
    assert_eq!(found(text), ["definition.unknown_key", "definition.unknown_key"]);
}

#[test]
fn the_clock_of_a_step_stands_still_while_steps_in_it_wait() {
    passes(
        "
scenario: clocks
given:
  automations:
    - automation: a
      triggers: [{event: t}]
      actions: [{timeout: 5s, if: 'true', then: [{delay: 10s}, {publish: out.a}]}]
    - automation: b
      triggers: [{event: t}]
      actions: [{wait_until: 'false', timeout: 1m}, {publish: {topic: out.b, payload: {c: '{{ wait.completed }}'}}}]
    - automation: c
      triggers: [{event: t}]
      actions: [{delay: 10s, timeout: 5s}, {publish: {topic: out.c, payload: {at: '{{ now }}'}}}]
    - automation: d
      triggers: [{event: t}]
      actions: [{wait_until: {condition: 'false', timeout: 20s}, timeout: 5s}, {publish: out.d}]
    - automation: e
      triggers: [{event: t}]
      actions: [{wait_for: {event: u, timeout: 20s, on_timeout: continue}, timeout: 5s}, {publish: out.e}]
steps:
  - publish: {topic: t}
  - advance: 1m
  - expect:
      emitted:
        - {topic: out.a, total: 1}
        - {topic: out.b, payloads: [{c: false}]}
        - {topic: out.c, payloads: [{at: 2026-01-01T00:00:10Z}]}
        - {topic: out.d, total: 1}
        - {topic: out.e, total: 1}
",
    );
}

#[test]
fn a_stream_without_a_pause_runs_again_after_the_longest_wait() {
    passes(
        "
scenario: leading
given:
  automations:
    - automation: a
      triggers: [{event: t, debounce: {for: 10s, max_wait: 15s, edge: leading}}]
      mode: parallel
      actions: [{publish: {topic: out.a, payload: {n: '{{ event.payload.n }}'}}}]
steps:
  - publish: {topic: t, payload: {n: 1}}
  - {at: 8s, publish: {topic: t, payload: {n: 2}}}
  - {at: 16s, publish: {topic: t, payload: {n: 3}}}
  - {at: 24s, publish: {topic: t, payload: {n: 4}}}
  - {at: 40s, publish: {topic: t, payload: {n: 5}}}
  - expect: {emitted: {topic: out.a, payloads: [{n: 1}, {n: 3}, {n: 5}]}}
",
    );
}

#[test]
fn a_storm_that_pauses_is_said_once() {
    passes(
        "
scenario: storm
given:
  automations:
    - automation: p
      triggers: [{event: t}]
      mode: parallel
      storm: {per_minute: 2, pause: true}
      actions: [{publish: out.p}]
    - automation: e
      triggers: [{every: 10s}]
      mode: parallel
      storm: {per_minute: 2, pause: true}
      actions: [{publish: out.e}]
    - {automation: told, triggers: [{event: automation.storm}], mode: parallel, actions: [{publish: out.told}]}
steps:
  - publish: [{topic: t}, {topic: t}, {topic: t}, {topic: t}]
  - expect:
      emitted: [{topic: out.p, total: 2}, {topic: automation.storm, total: 1}, {topic: out.told, total: 1}]
  - advance: 30s
  - expect: {emitted: [{topic: out.e, total: 2}, {topic: automation.storm, total: 2}]}
",
    );
}

#[test]
fn disabling_ends_what_is_queued() {
    passes(
        "
scenario: queue
given:
  automations:
    - automation: q
      triggers: [{event: t}]
      mode: queued
      actions: [{delay: 1m}, {publish: out.q}]
steps:
  - publish: [{topic: t}, {topic: t}]
  - disable: q
  - advance: 5m
  - expect:
      emitted: {topic: out.q, total: 1}
      decisions: {automation: q, outcome: skipped, reason: disabled, total: 1}
",
    );
}

#[test]
fn an_automation_whose_budget_is_used_up_is_paused_and_it_is_said() {
    passes(
        "
scenario: no credit
given:
  automations:
    - automation: buy
      triggers: [{event: order}]
      mode: queued
      actions:
        - http: {url: 'https://pay.example/{{ event.payload.n }}'}
          retry: {max: 5, base: 1s}
        - publish: {topic: bought, payload: {n: '{{ event.payload.n }}'}}
  effects:
    - {url: 'https://pay.example/1', error: {code: http.status, message: no credit, class: budget}}
steps:
  - publish: [{topic: order, payload: {n: 1}}, {topic: order, payload: {n: 2}}]
  - advance: 5m
  - expect:
      effects: [{url: 'https://pay.example/1', attempt: 1}]
      last_run: {automation: buy, status: failed, error: {code: http.status, class: budget}}
      emitted: [{topic: automation.paused, payloads: [{automation: buy, reason: budget, code: http.status, message: no credit}]}]
  - publish: {topic: order, payload: {n: 3}}
  - expect:
      decisions: {automation: buy, outcome: pending, reason: paused, total: 2}
",
    );
}

#[test]
fn a_wait_for_a_state_may_ask_that_it_holds_for_a_while() {
    let place = Place::new();
    place.write(
        "concepts.ew",
        "@namespace(\"t\")\n@version(\"1.0.0\")\nconcept system {\n  status string\n  latency double\n}\n",
    );
    place.write(
        "a.ew",
        "@trigger(event=\"begin\")\nautomation a {\n  wait_for { state: { entity: \"v1:t:system/api\", field: \"status\", to: \"down\" }, for: 5m } timeout 1h\n  publish \"out.down\" { at: wait.event.payload.next.status, left: wait.remaining }\n}\n",
    );
    place.write(
        "b.yaml",
        "automation: b
triggers: [{event: begin}]
actions:
  - wait_for: {trigger: {state: {entity: v1:t:system/api, field: status, to: down}, for: 5m}, timeout: 1h}
  - publish: {topic: out.down, payload: {at: '{{ wait.event.payload.next.status }}', left: '{{ wait.remaining }}'}}
---
automation: n
triggers: [{event: begin}]
actions:
  - wait_for: {numeric_state: {entity: v1:t:system, field: latency, above: 100}, for: 2m, timeout: 1h, on_timeout: continue}
  - publish: {topic: out.slow, payload: {met: '{{ wait.completed }}'}}
",
    );
    place.write(
        "s.yaml",
        "
scenario: down for five minutes
given: {files: [concepts.ew, a.ew, b.yaml], entities: {v1:t:system/api: {status: ok, latency: 10.0}, v1:t:system/db: {status: ok, latency: 10.0}}}
steps:
  - publish: {topic: begin}
  - set: {v1:t:system/api: {status: down}}
  - advance: 4m
  - set: {v1:t:system/db: {status: down}}
  - set: {v1:t:system/api: {status: ok}}
  - advance: 10m
  - expect: {emitted: {topic: out.down, total: 0}, runs: {automation: b, waiting: 1}}
  - set: {v1:t:system/api: {status: down, latency: 200.0}}
  - advance: 1m
  - set: {v1:t:system/api: {latency: 300.0}}
  - restart
  - advance: 61s
  - expect: {emitted: {topic: out.slow, payloads: [{met: true}]}}
  - advance: 178s
  - expect: {emitted: {topic: out.down, total: 0}}
  - advance: 1s
  - expect: {emitted: {topic: out.down, payloads: [{at: down, left: 2460}, {at: down, left: 2460}]}}
---
scenario: never down for long enough
given: {files: [concepts.ew, a.ew, b.yaml], entities: {v1:t:system/api: {status: ok, latency: 10.0}}}
steps:
  - publish: {topic: begin}
  - advance: 58m
  - set: {v1:t:system/api: {status: down}}
  - advance: 10m
  - expect: {last_run: {automation: a, status: failed, error: wait.timeout}, emitted: {topic: out.slow, payloads: [{met: false}]}}
",
    );
    let lines = place.run(&["test", "s.yaml", "--json", "--kill-at-waits"]).ok().lines();
    assert!(lines.iter().all(|line| line["passed"] == true), "{lines:#?}");
}

#[test]
fn every_loop_knows_its_item_and_index_unless_the_name_means_something_else() {
    passes(
        "
scenario: loops
given:
  automations:
    - automation: a
      triggers: [{event: t}]
      actions:
        - for: x
          in: [5, 7]
          where: item > 4
          do:
            - publish: {topic: out.a, payload: {x: '{{ x }}', item: '{{ item }}', index: '{{ index }}'}}
            - for: y
              in: [1]
              do: [{publish: {topic: out.b, payload: {item: '{{ item }}'}}}]
    - automation: b
      triggers: [{event: t}]
      actions:
        - {id: item, vars: {n: 1}}
        - for: item
          in: [2]
          do: [{for: y, in: [3], do: [{publish: {topic: out.c, payload: {item: '{{ item }}'}}}]}]
steps:
  - publish: {topic: t}
  - expect:
      emitted:
        - {topic: out.a, payloads: [{x: 5, item: 5, index: 0}, {x: 7, item: 7, index: 1}]}
        - {topic: out.b, payloads: [{item: 1}, {item: 1}]}
        - {topic: out.c, payloads: [{item: 2}]}
",
    );
}

#[test]
fn a_long_base_of_a_retry_is_not_cut_short_and_a_limit_below_it_is_an_error() {
    let retried = |retry: &str| {
        format!(
            "automation: a\ntriggers: [{{event: t}}]\nactions: [{{http: {{url: 'https://x.example/'}}, retry: {retry}}}]\n"
        )
    };
    assert_eq!(found(&retried("{max: 2, base: 1h, limit: 30s}")), ["definition.invalid"]);
    assert_eq!(found(&retried("{max: 2, base: 1h, limit: 1h}")), [] as [&str; 0]);
    // It waits up to an hour, by chance at least two minutes: the chance is drawn from ids that are the same each time.
    passes(
        "
scenario: patience
given:
  automations:
    - automation: a
      triggers: [{event: t}]
      mode: parallel
      actions: [{http: {url: 'https://x.example/'}, retry: {max: 1, base: 1h}}]
  effects: [{error: {code: http.failed, class: transient}}]
steps:
  - publish: [{topic: t}, {topic: t}, {topic: t}, {topic: t}, {topic: t}, {topic: t}, {topic: t}, {topic: t}]
  - advance: 30s
  - expect: {runs: {automation: a, waiting: {gte: 6}}}
  - advance: 1h
  - expect: {runs: {automation: a, failed: {gte: 3}}}
",
    );
}
