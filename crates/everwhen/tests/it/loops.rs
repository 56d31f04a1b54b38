//! Loops and their conditions, waits that read time and states that hold, played as scenarios, and once more with kills.

use crate::rulings::passes;

#[test]
fn a_while_sees_the_index_of_the_round_that_it_asks_for_also_inside_another_loop() {
    passes(
        "
scenario: while
given:
  automations:
    - automation: a
      triggers: [{event: t}]
      actions: [{repeat: {while: index < 2, do: [{publish: {topic: out.a, payload: {n: '{{ index }}'}}}]}}]
    - automation: b
      triggers: [{event: t}]
      actions:
        - repeat:
            count: 2
            do:
              - repeat:
                  while: index < 2
                  do: [{delay: 1s}, {publish: {topic: out.b, payload: {n: '{{ index }}'}}}]
steps:
  - publish: {topic: t}
  - advance: 10s
  - expect:
      emitted:
        - {topic: out.a, total: 2, payloads: [{n: 0}, {n: 1}]}
        - {topic: out.b, total: 4, payloads: [{n: 0}, {n: 1}, {n: 0}, {n: 1}]}
",
    );
}

#[test]
fn a_while_or_until_that_errs_fails_its_step_at_once() {
    passes(
        "
scenario: errors
given:
  automations:
    - automation: while
      triggers: [{event: t}]
      actions: [{repeat: {while: 1 / (1 - index) > 0, do: [{publish: out.while}]}}]
    - automation: until
      triggers: [{event: t}]
      actions: [{repeat: {until: 1 / (1 - index) > 5, do: [{publish: out.until}]}}]
    - automation: on
      triggers: [{event: t}]
      actions: [{repeat: {until: 1 / index > 0, do: [{publish: out.on}]}, on_error: continue}, {publish: out.went}]
    - automation: again
      triggers: [{event: t}]
      actions:
        - repeat: {until: 'now > timestamp(\"2026-01-01T00:00:00Z\") || 1 / index > 0', do: [{publish: out.again}]}
          retry: {max: 3, base: 10s}
steps:
  - publish: {topic: t}
  - expect:
      last_run:
        - {automation: while, status: failed, error: expr.divide_by_zero}
        - {automation: until, status: failed, error: expr.divide_by_zero}
        - {automation: on, status: completed}
      emitted:
        - {topic: out.while, total: 1}
        - {topic: out.until, total: 2}
        - {topic: out.on, total: 1}
        - {topic: out.went, total: 1}
      runs: {automation: again, waiting: 1}
  - advance: 50s
  - expect:
      last_run: {automation: again, status: completed}
      emitted: {topic: out.again, total: 2}
",
    );
}

#[test]
fn a_wait_that_reads_time_is_tried_when_it_can_change() {
    let waits = [
        (r#"now - timestamp(localDate(now, "UTC") + "T00:00:00Z") < duration("1h")"#, "2026-01-02T00:00:00Z"),
        (r#"string(now) >= "2026-01-01T23:31""#, "2026-01-01T23:31:00Z"),
        ("now.getSeconds() >= 10", "2026-01-01T23:30:10Z"),
        (r#"now >= timestamp("2026-01-01T23:30:07Z") || now.getHours() == 5"#, "2026-01-01T23:30:07Z"),
        (r#"{numeric_state: {value: now.getSeconds(), above: 20}}"#, "2026-01-01T23:30:21Z"),
    ];
    for (condition, at) in waits {
        let condition =
            if condition.starts_with('{') { condition.to_owned() } else { format!("'{condition}'") };
        passes(&format!(
            "
scenario: time
start: 2026-01-01T23:30:00Z
given:
  automations:
    - automation: a
      triggers: [{{event: t}}]
      actions: [{{wait_until: {condition}}}, {{publish: {{topic: out.a, payload: {{at: '{{{{ now }}}}'}}}}}}]
steps:
  - publish: {{topic: t}}
  - advance: 31m
  - expect: {{emitted: {{topic: out.a, payloads: [{{at: {at}}}]}}}}
"
        ));
    }
}

#[test]
fn a_state_that_says_only_where_it_comes_from_holds_while_it_is_not_what_was_left() {
    let table = [
        ("from: [c, a]", &["c", "a"][..], 1),
        ("from: [a, b], not_to: a", &["b", "c", "a"], 1),
        ("from: [c, b]", &["c", "a", "c"], 0),
        ("from: c", &["c", "a", "b"], 1),
        ("from: c", &["c", "a", "b", "c"], 0),
        ("from: [c, b]", &["c", "a", "c", "a"], 1),
    ];
    for (from, states, total) in table {
        let set = |state: &&str| format!("  - set: {{v1:t:row/x: {{state: {state}}}}}\n");
        let steps: String = states[1..].iter().map(set).collect();
        let first = states[0];
        let state = format!("state: {{entity: v1:t:row/x, field: state, {from}}}, for: 3s");
        passes(&format!(
            "
scenario: dwell
given:
  concepts: {{'v1:t:row': {{state: any}}}}
  entities: {{v1:t:row/x: {{state: {first}}}}}
  automations:
    - {{automation: a, triggers: [{{{state}}}], actions: [{{publish: out.a}}]}}
    - automation: b
      triggers: [{{event: t}}]
      actions: [{{wait_for: {{trigger: {{{state}}}, timeout: 1h}}}}, {{publish: out.b}}]
steps:
  - publish: {{topic: t}}
{steps}
  - advance: 5s
  - expect: {{emitted: [{{topic: out.a, total: {total}}}, {{topic: out.b, total: {total}}}]}}
"
        ));
    }
}
