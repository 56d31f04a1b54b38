//! What an attacker found in automations, played as scenarios, and once more with kills.

use serde_json::Value;

use crate::support::Place;

const SAY: &str = r#"
logic tell {
  args { m any }
  body { publishEvent({ topic: "out.logic", payload: { m: args.m } }) }
}

@trigger(event="call.x")
automation calls { step run { logic tell(m: event.payload.m) } }
"#;

fn passes(scenario: &str) {
    let place = Place::new();
    place.write("s.yaml", scenario);
    place.write("say.ew", SAY);
    let lines: Vec<Value> = place.run(&["test", "s.yaml", "--json", "--kill-at-waits"]).ok().lines();
    assert!(lines.iter().all(|line| line["passed"] == true), "{lines:#?}");
}

#[test]
fn a_wait_in_a_loop_finds_what_came_before_what_an_earlier_round_took() {
    passes(
        "
scenario: one after the other
given:
  automations:
    - automation: a
      triggers: [{event: go}]
      actions:
        - {for: x, in: '[1,2]', do: [{wait_for: {event: paid, filter: 'event.payload.id == x'}}, {publish: {topic: out.p, payload: {x: '{{ x }}'}}}]}
steps:
  - publish: {topic: go}
  - publish: {topic: paid, payload: {id: 2}}
  - publish: {topic: paid, payload: {id: 1}}
  - expect: {emitted: {topic: out.p, payloads: [{x: 1}, {x: 2}]}, runs: {automation: a, completed: 1}}
---
scenario: side by side
given:
  automations:
    - automation: a
      triggers: [{event: go}]
      actions:
        - {for: x, in: '[1,2,3]', parallel: 2, do: [{wait_for: {event: paid, filter: 'event.payload.id == x'}}, {publish: out.p}]}
steps:
  - publish: {topic: go}
  - publish: {topic: paid, payload: {id: 3}}
  - publish: {topic: paid, payload: {id: 1}}
  - publish: {topic: paid, payload: {id: 2}}
  - expect: {emitted: {topic: out.p, total: 3}, runs: {automation: a, completed: 1}}
---
scenario: each event once
given:
  automations:
    - automation: a
      triggers: [{event: go}]
      actions:
        - {repeat: {count: 3, do: [{wait_for: {event: paid}}, {publish: {topic: out.p, payload: {x: '{{ wait.event.payload.id }}'}}}]}}
steps:
  - publish: {topic: go}
  - publish: [{topic: paid, payload: {id: 1}}, {topic: paid, payload: {id: 2}}]
  - publish: {topic: paid, payload: {id: 3}}
  - expect: {emitted: {topic: out.p, payloads: [{x: 1}, {x: 2}, {x: 3}]}, runs: {automation: a, completed: 1}}
",
    );
}

#[test]
fn a_switch_tells_a_number_from_its_text() {
    passes(
        "
scenario: switch
given:
  automations:
    - automation: s
      triggers: [{event: go}]
      actions:
        - switch: {on: event.payload.x, cases: [{case: 1, do: [{publish: out.one}]}, {case: true, do: [{publish: out.yes}]}], default: [{publish: out.other}]}
steps:
  - publish: {topic: go, payload: {x: '1'}}
  - publish: {topic: go, payload: {x: 'true'}}
  - expect: {emitted: {topic: out.other, total: 2}}
  - publish: {topic: go, payload: {x: 1.0}}
  - publish: {topic: go, payload: {x: true}}
  - expect: {emitted: {topic: out.#, total: 4}}
",
    );
}

#[test]
fn what_logic_calls_and_batches_publish_is_of_the_band_of_what_they_read() {
    passes(
        r#"
scenario: bands
given:
  files: [say.ew]
  automations:
    - automation: asks
      triggers: [{event: ask.x}]
      actions: [{automation: kid, args: {m: '{{ event.payload.m }}'}}]
    - automation: kid
      triggers: [{manual: true}]
      actions: [{publish: {topic: out.kid, payload: {m: '{{ input.m }}'}}}]
    - automation: batches
      triggers: [{event: bat.x, batch: {count: 2, for: 1d}}]
      actions: [{publish: out.batch}]
    - automation: watches
      triggers: [{event: out.*, filter: 'event.band == "red"'}]
      mode: parallel
      actions: [{publish: seen.red}]
steps:
  - publish: {topic: call.x, band: red, payload: {m: 1}}
  - expect: {emitted: {topic: seen.red, total: 1}}
  - publish: {topic: ask.x, band: red, payload: {m: 1}}
  - expect: {emitted: {topic: seen.red, total: 2}}
  - publish: {topic: bat.x, band: red}
  - publish: {topic: bat.x}
  - expect: {emitted: {topic: seen.red, total: 3}}
"#,
    );
}
