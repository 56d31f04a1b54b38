//! `everwhen test` as its users meet it: what passes, what fails and how that is said, and files that are wrong.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Done, Place};

const AUTOMATION: &str = "
automation: later
triggers: [{event: in.*}]
mode: parallel
actions:
  - vars: {n: \"{{ event.payload.n }}\"}
  - wait_until: {condition: 'state[\"v1:t:row\"][\"a\"].ok == true', timeout: 60s, on_timeout: fail}
  - publish: {topic: out.done, payload: {n: \"{{ vars.n }}\"}}
";

fn play(steps: &str) -> Done {
    play_with(steps, &[])
}

fn play_with(steps: &str, flags: &[&str]) -> Done {
    let place = Place::new();
    place.write("later.yaml", AUTOMATION);
    let given = "given: {files: [later.yaml], concepts: {\"v1:t:row\": {ok: any}}}";
    place.write("s.yaml", &format!("scenario: s\n{given}\nsteps:\n{steps}"));
    place.run(&[&["test", "s.yaml", "--json"], flags].concat())
}

fn failures(done: Done) -> Vec<Value> {
    let line = done.exits(1).json();
    assert_eq!(
        (&line["scenario"], &line["file"], &line["passed"]),
        (&json!("s"), &json!("s.yaml"), &json!(false))
    );
    line["failures"].as_array().unwrap().clone()
}

#[test]
fn the_scenarios_of_the_documentation_pass_also_with_kills() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scenarios.md");
    let text = std::fs::read_to_string(docs).unwrap();
    let place = Place::new();
    let mut count = 0;
    for block in text.split("```yaml").skip(1) {
        let (file, block) = block.split("```").next().unwrap().split_once('\n').unwrap();
        // What a listing needs beside it is printed under the name that it asks for.
        match file.trim() {
            "" => drop(place.write(&format!("doc{count}.yaml"), block)),
            file => drop(place.write(file, block)),
        }
        count += usize::from(file.is_empty());
    }
    let done = place.run(&["test", "--json", "--kill-at-waits"]).ok();
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), count);
    assert!(count >= 4 && lines.iter().all(|line| line["passed"] == true), "{lines:#?}");
}

#[test]
fn a_failure_names_step_path_expected_and_actual() {
    let steps = "  - publish: {topic: in.a, payload: {n: 1}}\n  - expect: {runs: {automation: later, started: 2, waiting: 1}}\n";
    let expected = json!({"step": 2, "path": "runs.started", "expected": 2, "actual": 1});
    assert_eq!(failures(play(steps)), [expected]);
}

#[test]
fn runs_waits_variables_and_rows_are_seen() {
    let steps = "
  - publish: {topic: in.a, payload: {n: 1}}
  - expect:
      runs: {automation: later, started: 1, active: 1, waiting: 1}
      waits: [{automation: later, kind: until, due: 2026-01-01T00:01:00Z, refs: [v1:t:row/a]}]
  - set: {v1:t:row/a: {ok: true}}
    at: 20s
  - expect:
      last_run: {automation: later, status: completed, vars: {n: 1}, wait: {completed: true, remaining: {gt: 39, lte: 40}}}
      entities: {v1:t:row/a: {ok: true}, v1:t:row/b: null}
      emitted: {topic: out.#, total: 1, payloads: [{n: 1}]}
      decisions: {automation: later, outcome: ran, total: 1}
      waits: []
  - set: {v1:t:row/a: {ok: false}}
  - publish: {topic: in.a, payload: {n: 2}}
  - advance_to: 2026-01-01T00:01:20Z
  - expect:
      last_run: {automation: later, status: failed, error: wait.timeout, vars: {n: 2}, wait: {completed: false, remaining: 0}}
      runs: [{automation: later, failed: 1}, {completed: 1, active: 0}]
  - publish: {topic: in.a, payload: {n: 3}}
  - cancel: later
  - expect: {last_run: {status: cancelled, wait: {completed: false, remaining: 60}}, runs: {cancelled: 1}}
  - remove: v1:t:row/a
  - expect: {entities: {v1:t:row/a: null}}
";
    play(steps).ok();
    play_with(steps, &["--kill-at-waits"]).ok();
}

#[test]
fn what_happened_before_a_kill_or_a_restart_still_counts() {
    let steps = "
  - publish: {topic: in.a, payload: {n: 1}}
  - kill
  - restart
  - expect: {runs: {automation: later, started: 1, waiting: 1}}
  - restart: {down: 2m}
  - expect: {runs: {automation: later, active: 0, failed: 1}, last_run: {error: {code: wait.timeout}}}
";
    play(steps).ok();
}

#[test]
fn disabled_manual_and_applied_automations() {
    let steps = "
  - disable: '*'
  - publish: {topic: in.a, payload: {n: 1}}
  - expect: {runs: {started: 0}}
  - enable: later
  - run: {automation: later, input: {n: 5}}
  - expect: {runs: {automation: later, waiting: 1}}
  - apply: {files: [], automations: [{automation: quick, triggers: [{event: in.*}], actions: [{publish: out.now}]}]}
  - expect: {runs: {automation: later, active: 0, cancelled: 1}}
  - publish: {topic: in.a}
  - expect: {emitted: {topic: out.now, total: 1}}
  - apply: {automations: [{automation: quick, triggers: [{evnt: in.*}]}]}
    refused: true
  - publish: {topic: graph.node.x}
    refused: true
";
    play(steps).ok();
}

#[test]
fn starts_by_hand_and_by_time_wait_in_the_queue_too() {
    let steps = "
  - apply:
      automations:
        - automation: turn
          mode: queued
          max: 3
          triggers: [{manual: true}, {at: 2026-01-01T00:01:00Z}]
          actions: [{delay: 90s}, {publish: {topic: out.turn, payload: {n: '{{ input.n }}'}}}]
  - run: {automation: turn, input: {n: 1}}
  - run: {automation: turn, input: {n: 2}}
  - expect: {runs: {automation: turn, active: 1, queued: 1, started: 1}}
  - kill
  - advance: 60s
  - expect: {runs: {automation: turn, active: 1, queued: 2, started: 1}}
  - run: {automation: turn, input: {n: 9}}
  - expect: {decisions: {automation: turn, outcome: refused, reason: max_runs, total: 1}}
  - advance: 1h
  - expect:
      runs: {automation: turn, active: 0, queued: 0, completed: 3}
      emitted: {topic: out.turn, total: 3, payloads: [{n: 1}, {n: 2}, {n: null}]}
";
    play(steps).ok();
}

#[test]
fn effects_are_written_down_and_answered_as_given() {
    let place = Place::new();
    place.write(
        "s.yaml",
        "
scenario: s
given:
  automations:
    - automation: call
      triggers: [{event: in.*}]
      actions:
        - id: got
          http: {url: 'https://x.test/{{ event.payload.n }}'}
          retry: {max: 2, base: 1s}
        - publish: {topic: out.got, payload: {v: '{{ got.v }}'}}
  effects:
    - {url: 'https://x.test/1', error: {code: http.status, class: transient}, times: 1}
    - {url: 'https://x.test/1', output: {v: 7}}
    - {url: 'https://x.test/2', error: http.refused}
steps:
  - publish: {topic: in.a, payload: {n: 1}}
  - advance: 1m
  - expect:
      effects: [{kind: http, url: 'https://x.test/1', attempt: 1}, {attempt: 2}]
      emitted: {topic: out.got, payloads: [{v: 7}]}
  - publish: {topic: in.a, payload: {n: 2}}
  - advance: 5m
  - expect: {last_run: {status: failed, error: http.refused}}
",
    );
    place.run(&["test", "s.yaml"]).ok();
}

#[test]
fn steps_without_a_runner_are_effects_of_their_kind() {
    let place = Place::new();
    place.write(
        "s.yaml",
        "
scenario: s
given:
  automations:
    - automation: call
      triggers: [{event: in.*}]
      actions:
        - {id: ran, exec: {command: 'date {{ event.payload.n }}'}}
        - {id: said, agent: 'look at {{ event.payload.n }}', retry: {max: 2, base: 1s}}
        - deliver: {to: ops, text: '{{ steps.said.output.text }}'}
        - publish: {topic: out.got, payload: {code: '{{ ran.code }}'}}
  effects:
    - {kind: exec, command: date 2, error: exec.failed}
    - {kind: exec, output: {code: 0}}
    - {kind: agent, error: {code: agent.busy, class: transient}, times: 1}
    - {kind: agent, with: look at 1, output: {text: fine}}
steps:
  - publish: {topic: in.a, payload: {n: 1}}
  - advance: 1m
  - expect:
      effects:
        - {kind: exec, command: date 1}
        - {kind: agent, with: look at 1, attempt: 1}
        - {kind: agent, attempt: 2}
        - {kind: deliver, to: ops, text: fine}
      emitted: {topic: out.got, payloads: [{code: 0}]}
  - publish: {topic: in.a, payload: {n: 2}}
  - expect: {last_run: {status: failed, error: exec.failed}}
",
    );
    place.run(&["test", "s.yaml", "--kill-at-waits"]).ok();
}

#[test]
fn steps_say_how_they_ended_also_after_a_wait() {
    let place = Place::new();
    place.write(
        "s.yaml",
        "
scenario: s
given:
  automations:
    - automation: tells
      triggers: [{event: in.*}]
      actions:
        - {id: bad, http: {url: 'https://x.test/'}, on_error: continue}
        - {id: off, if: 'false', vars: {n: 1}}
        - {id: many, for: x, in: [1, 2, 3], do: [{delay: 1m}]}
        - delay: 5m
        - publish:
            topic: out.said
            payload:
              bad: '{{ steps.bad.status }} {{ steps.bad.error.code }}'
              off: '{{ steps.off.status }}'
              many: '{{ steps.many.status }}'
              count: '{{ steps.many.metadata.itemCount }}'
              same: '{{ steps.many.result == steps.many.output && steps.off.error == null }}'
  effects: [{kind: http, error: http.refused}]
steps:
  - publish: {topic: in.a, payload: {}}
  - advance: 20m
  - expect:
      emitted:
        topic: out.said
        payloads: [{bad: failed http.refused, off: skipped, many: success, count: 3, same: true}]
",
    );
    place.run(&["test", "s.yaml", "--kill-at-waits"]).ok();
}

#[test]
fn a_scenario_that_failed_says_why_its_runs_did() {
    let place = Place::new();
    place.write(
        "s.yaml",
        r#"scenario: s
given:
  automations:
    - automation: part
      triggers: [{event: in.*}]
      actions:
        - {publish: out.tried, on_error: continue}
        - if: event.payload.n > 1
          then: [{fail: "no {{ event.payload.n }} of these"}]
        - publish: out.done
steps:
  - publish: [{topic: in.a, payload: {n: 1}}, {topic: in.a, payload: {n: 2}}]
  - expect: {emitted: {topic: out.done, total: 2}}
"#,
    );
    let line = place.run(&["test", "s.yaml", "--json"]).exits(1).json();
    let why = json!([{"automation": "part", "step": "actions[1].then[0]", "kind": "fail",
        "code": "run.failed", "message": "no 2 of these"}]);
    assert_eq!(line["failed_runs"], why, "{line}");
    let shown = place.run(&["test", "s.yaml"]).exits(1).out;
    let said = "\n  a run of part failed at actions[1].then[0] (fail): no 2 of these [run.failed]\n";
    assert!(shown.contains(said), "{shown}");
}

#[test]
fn a_refusal_nobody_expected_ends_the_scenario() {
    let steps = "  - answer: {automation: later, value: 1}\n  - expect: {runs: {started: 9}}\n";
    let failures = failures(play(steps));
    assert_eq!(
        (failures.len(), &failures[0]["path"], &failures[0]["step"]),
        (1, &json!("answer"), &json!(1))
    );
}

#[test]
fn people_and_build_servers_read_what_failed() {
    let place = Place::new();
    place.write("a/good.yaml", "scenario: good <1>\nsteps:\n  - advance: 1h\n");
    place.write("a/bad.yaml", "scenario: bad\nsteps:\n  - expect: {emitted: {total: 3}}\n");
    place.write("a/other.yaml", "automation: not_a_scenario\n");
    let done = place.run(&["test", "a", "--junit", "out.xml"]).exits(1);
    assert!(done.out.contains("ok      good <1> (a/good.yaml)"), "{done:?}");
    assert!(done.out.contains("FAILED  bad (a/bad.yaml)\n  step 1: {\"expect\""), "{done:?}");
    assert!(done.out.contains("emitted.total\n      expected 3\n      actual   0"), "{done:?}");
    assert!(done.err.contains("2 scenarios: 1 passed, 1 failed"), "{done:?}");
    let xml = std::fs::read_to_string(place.path().join("out.xml")).unwrap();
    assert!(xml.contains("tests=\"2\" failures=\"1\"") && xml.contains("name=\"good &lt;1&gt;\"/>"), "{xml}");
    assert!(xml.contains("<failure message=\"step 1: emitted.total: expected 3, actual 0\">"), "{xml}");
}

#[test]
fn a_wrong_file_is_said_with_its_place_and_nothing_is_played() {
    for (text, said) in [
        ("scenario: s\nsteps:\n  - advanse: 5m\n", "step 1: \\\"advanse\\\" is no key of a step"),
        ("scenario: s\nsteps:\n  - {advance: 5m, kill: true}\n", "is a second one"),
        ("scenario: s\nsteps:\n  - advance: soon\n", "no length of time"),
        ("scenario: s\nstart: today\nsteps: []\n", "no instant"),
        ("scenario: s\ngiven: {files: [absent.yaml]}\nsteps: []\n", "absent.yaml"),
        (
            "scenario: s\ngiven: {automations: [{automation: a, triggers: [{evnt: x}]}]}\nsteps: []\n",
            "given.automations \\\"a\\\": ",
        ),
        ("scenario: s\nsteps:\n  - expect: {runs: {strated: 1}}\n", "is no key of runs"),
        ("scenario: s\nsteps:\n  - set: {v1:t:row: {a: 1}}\n", "names no row"),
        ("scenario: [\n", "s.yaml"),
        ("automation: a\n", "holds no scenario"),
    ] {
        let place = Place::new();
        place.write("s.yaml", text);
        let done = place.run(&["test", "s.yaml", "--json"]).exits(4);
        assert!(
            done.out.is_empty() && done.err.contains("scenario.invalid") && done.err.contains(said),
            "{text}: {done:?}"
        );
    }
    Place::new().run(&["test", "absent.yaml"]).exits(4);
    Place::new().run(&["test", "--server", "http://127.0.0.1:1"]).exits(2);
}

#[test]
fn every_example_checks_is_laid_out_and_passes_its_scenarios_also_with_kills() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let place = Place::new();
    for pack in ["cognition", "health", "memory", "pricing"] {
        let pack = examples.join(pack);
        let pack = pack.to_str().unwrap();
        place.run(&["check", pack]).ok();
        place.run(&["fmt", "--check", pack]).ok();
        let done = place.run(&["test", pack, "--json", "--kill-at-waits"]).ok();
        assert!(done.out.lines().count() >= 2, "{pack} shows too little:\n{}", done.out);
    }
}

#[test]
fn templates_in_ew_are_filled_in_and_what_stands_beside_them_keeps_its_type() {
    let place = Place::new();
    place.write(
        "t/shop.ew",
        r#"
@trigger(event="order.placed")
automation confirm {
  answer := ask "take order {{ event.payload.number }}?" { to: "user:{{ event.payload.seller | lower }}" }
  publish "order.{{ event.payload.number }}" { text: "{{ answer | upper }}!", number: event.payload.number, all: input(), list: [1, "n{{ 1 + 1 }}"] }
}
"#,
    );
    place.write(
        "s.yaml",
        "
scenario: s
given: {files: [t]}
steps:
  - publish: {topic: order.placed, payload: {number: 7, seller: ANN}}
  - expect: {waits: [{automation: confirm, kind: ask, question: 'take order 7?', to: 'user:ann'}]}
  - answer: {automation: confirm, value: fine, by: 'user:ann'}
  - expect: {emitted: {topic: order.7, payloads: [{text: 'FINE!', number: 7, all: {seller: ANN}, list: [1, n2]}]}}
",
    );
    let done = place.run(&["test", "s.yaml", "--json"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}

#[test]
fn what_is_pending_ends_under_the_version_it_was_armed_under() {
    let version = |text: &str| {
        format!(
            "
- automation: calm
  triggers: [{{event: in.a, debounce: {{for: 10s}}}}]
  actions: [{{publish: {{topic: out.calm, payload: {{by: {text}}}}}}}]
- automation: together
  triggers: [{{event: in.a, batch: {{count: 5, for: 10s}}}}]
  actions: [{{publish: {{topic: out.together, payload: {{by: {text}}}}}}}]
- automation: turn
  mode: queued
  triggers: [{{event: in.a}}]
  actions: [{{delay: 10s}}, {{publish: {{topic: out.turn, payload: {{by: {text}}}}}}}]
"
        )
    };
    let place = Place::new();
    place.write("old.yaml", &version("old"));
    place.write("new.yaml", &version("new"));
    place.write(
        "s.yaml",
        "
scenario: s
given: {files: [old.yaml]}
steps:
  - publish: [{topic: in.a}, {topic: in.a}]
  - apply: {files: [new.yaml]}
  - kill
  - advance: 30s
  - expect: {emitted: {topic: out.calm, payloads: [{by: old}]}}
  - expect: {emitted: {topic: out.together, payloads: [{by: old}]}}
  - expect: {emitted: {topic: out.turn, payloads: [{by: old}, {by: old}]}}
  - publish: {topic: in.a}
  - advance: 30s
  - expect: {emitted: {topic: out.calm, payloads: [{by: old}, {by: new}]}}
",
    );
    let done = place.run(&["test", "s.yaml", "--json"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}

#[test]
fn a_chain_of_calls_that_fails_says_so_in_few_words() {
    let place = Place::new();
    let steps = "actions: [{delay: 1s}, {automation: ping}]";
    place.write(
        "a.yaml",
        &format!("automation: ping\ntriggers: [{{event: go}}]\nmode: parallel\nmax: 200\n{steps}\n"),
    );
    place.write(
        "s.yaml",
        "
scenario: s
given: {files: [a.yaml]}
steps:
  - publish: {topic: go}
  - advance: 10m
  - expect: {runs: {automation: ping, active: 0, completed: 0, failed: {gt: 10}}}
",
    );
    let done = place.run(&["test", "s.yaml", "--json"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}

#[test]
fn an_event_whose_time_to_live_is_over_starts_nothing() {
    let place = Place::new();
    let late = "- automation: late\n  triggers: [{event: in.*, debounce: {for: 1m}}]\n  actions: []\n";
    let turn = "- automation: turn\n  triggers: [{event: q.*}]\n  mode: queued\n  actions: [{delay: 1m}]\n";
    place.write("a.yaml", &format!("{late}{turn}"));
    place.write(
        "s.yaml",
        "
scenario: s
given: {files: [a.yaml]}
steps:
  - publish: {topic: in.a, ttl: 5}
  - advance: 2m
  - expect: {runs: {automation: late, started: 0}, decisions: {automation: late, outcome: expired, reason: ttl, total: 1}}
  - publish: [{topic: q.a}, {topic: q.b, ttl: 5}, {topic: q.c}]
  - advance: 3m
  - expect: {runs: {automation: turn, completed: 2, queued: 0}}
",
    );
    let done = place.run(&["test", "s.yaml", "--json"]);
    assert_eq!(done.code, 0, "{}{}", done.out, done.err);
}

#[test]
fn names_that_nothing_has_make_a_scenario_wrong() {
    for (steps, what) in [
        ("  - expect: {runs: {automation: latr, started: 0}}\n", "did you mean \"later\"?"),
        ("  - expect: {decisions: {automation: later, outcome: skiped}}\n", "skipped"),
        ("  - expect: {last_run: {automation: later, status: done}}\n", "completed"),
        ("  - expect: {waits: [{automation: later, kind: untl}]}\n", "until"),
        ("  - disable: nobody\n", "later"),
        ("  - run: nobody\n", "later"),
        ("  - cancel: nobody\n", "later"),
        ("  - answer: {automation: nobody, value: yes}\n", "later"),
        ("  - restart: now\n", "down"),
        ("  - kill: 5\n", "down"),
    ] {
        let error = play(steps).exits(4).error();
        assert_eq!(error["code"], "scenario.invalid", "{steps}");
        assert!(error["hint"].as_str().unwrap_or_default().contains(what), "{steps}: {error}");
    }
    let later = "  - apply: {automations: [{automation: new, triggers: [{event: x}], actions: []}]}\n  - disable: new\n";
    play(later).ok();
    play("  - restart\n  - restart: {down: 5m}\n  - kill:\n").ok();
}

#[test]
fn a_folder_without_a_scenario_is_an_error() {
    let place = Place::new();
    place.write("a.yaml", "automation: a\nactions: []\n");
    let error = place.run(&["test", "--json"]).exits(4).error();
    assert_eq!(error["code"], "scenario.invalid");
}
