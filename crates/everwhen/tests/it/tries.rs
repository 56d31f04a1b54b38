//! `everwhen try`: lines in, lines out, as contracts §5 says.

use serde_json::json;

use crate::support::Place;

#[test]
fn each_line_has_its_answer_and_bad_ones_do_not_stop_the_stream() {
    let place = Place::new();
    let (first, last) =
        (r#"{"id":1,"pattern":"a.*","topic":"a.b"}"#, r##"{"pattern":"#","topic":"","more":1}"##);
    let input = &format!("{first}\n\nnonsense\n{last}\n");
    let lines = place.run_with_input(&["try", "topic", "--jsonl"], input).ok().lines();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], json!({"id":1,"match":true}));
    assert!(lines[1]["error"]["code"].is_string());
    assert_eq!(lines[2]["match"], true);
}

#[test]
fn people_give_arguments_and_no_is_exit_1() {
    let place = Place::new();
    assert_eq!(place.run(&["try", "topic", "a.*", "a.b"]).ok().out, "it matches\n");
    place.run(&["try", "topic", "a.*", "b"]).exits(1);
    assert_eq!(
        place.run(&["try", "jsonpath", "$.a[*]", r#"{"a":[1,2]}"#]).ok().out,
        "$['a'][0] 1\n$['a'][1] 2\n"
    );
    place.run(&["try", "filter", "event.payload.n > 1", r#"{"payload":{"n":2}}"#]).ok();
    let error = place.run(&["try", "jsonpath", "$[", "{}", "--json"]).exits(4).error();
    assert_eq!(error["code"], "jsonpath.invalid");
    let done = place.run(&["try", "jsonpath", "items", "{}"]).exits(4);
    assert!(done.err.contains("\n  items\n  ^") && done.err.contains("begin it with \"$\""), "{done:?}");
    place.run(&["try", "topic", "--jsonl", "--server", "http://127.0.0.1:1"]).exits(2);
}

#[test]
fn an_expression_is_tried_by_line_by_argument_and_at_the_prompt() {
    let place = Place::new();
    let input = concat!(
        r#"{"id":1,"expr":"event.n + x","with":{"event":{"n":1}},"bindings":{"x":{"int":"2"}}}"#,
        "\n",
        r#"{"id":2,"expr":"now + 90s","now":"2026-01-01T00:00:00Z"}"#,
        "\n",
        r#"{"id":3,"expr":"nope"}"#,
        "\n",
    );
    let lines = place.run_with_input(&["try", "expr", "--jsonl"], input).ok().lines();
    assert_eq!(lines[0], json!({"id":1,"value":3,"type":"int"}));
    assert_eq!(lines[1], json!({"id":2,"value":"2026-01-01T00:01:30Z","type":"timestamp"}));
    assert_eq!(lines[2]["error"]["code"], "expr.unknown_name");
    let said = place.run(&["try", "expr", "event.n + 1", r#"{"event":{"n":1}}"#]).ok().out;
    assert_eq!(said, "2 (int)\n");
    place.run(&["try", "expr", "1 +"]).exits(4);
    let roots = place.run(&["try", "expr", "--roots"]).ok().out;
    assert!(roots.lines().any(|name| name == "event") && roots.lines().any(|name| name == "now"));
    let said = place.run_with_input(&["try", "expr"], "1 + 1\n2 +\n'a' + 'b'\n").ok().out;
    assert_eq!(said, "2 (int)\n\"ab\" (string)\n");
}

#[test]
fn a_schedule_is_tried_by_line_and_by_argument() {
    let place = Place::new();
    let input = concat!(
        r#"{"id":1,"expr":"30 2 * * *","tz":"Europe/Berlin","from":"2026-03-28T12:00:00Z","count":2}"#,
        "\n",
        r#"{"id":2,"expr":"0 7 * * *","at":"2026-01-01T07:00:00Z"}"#,
        "\n",
        r#"{"id":3,"expr":"0 25 * * *","fields":5}"#,
        "\n",
        r#"{"id":4,"expr":"0 0 30 2 *"}"#,
        "\n",
        r#"{"id":5,"expr":"0 0 30 2 *","from":"2026-01-01T00:00:00Z"}"#,
        "\n",
        r#"{"id":6,"expr":"@daily","fields":6}"#,
        "\n",
    );
    let lines = place.run_with_input(&["try", "cron", "--jsonl"], input).ok().lines();
    assert_eq!(lines[0], json!({"id":1,"next":["2026-03-29T03:00:00+02:00","2026-03-30T02:30:00+02:00"]}));
    assert_eq!(lines[1], json!({"id":2,"fires":true}));
    let error = |n: usize| (lines[n]["error"]["code"].clone(), lines[n]["error"]["field"].clone());
    assert_eq!(error(2), (json!("cron.invalid"), json!("hour")));
    assert_eq!(error(3), (json!("cron.never"), json!("day")));
    assert_eq!(lines[4], json!({"id":5,"next":[]}));
    assert_eq!(lines[5], json!({"id":6,"valid":true}));
    let asked = ["try", "cron", "0 7 * * mon", "--from", "2026-01-01T00:00:00Z", "--count", "2"];
    assert_eq!(place.run(&asked).ok().out, "2026-01-05T07:00:00Z\n2026-01-12T07:00:00Z\n");
    place.run(&["try", "cron", "0 7 * * *", "--at", "2026-01-01T08:00:00Z"]).exits(1);
    place.run(&["try", "cron", "0 0 30 2 *"]).exits(4);
    assert_eq!(place.run(&["try", "cron", "0 7 * * *"]).ok().out.lines().count(), 5);
}

#[test]
fn signatures_are_judged_as_the_vectors_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/webhook_signatures.json");
    let Ok(text) = std::fs::read_to_string(path) else {
        println!("NOT RUN: {path} is not there, so the vectors were not tried");
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "CI must have shared/vectors");
        return;
    };
    let vectors: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    let input: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let lines = Place::new().run_with_input(&["try", "webhook", "--jsonl"], &input).ok().lines();
    assert_eq!(lines.len(), cases.len());
    for (case, answer) in cases.iter().zip(&lines) {
        assert_eq!(answer["id"], case["id"]);
        match case["config_error"] == true {
            true => assert_eq!(answer["error"]["code"], "hook.invalid", "{case}"),
            false if case["valid"].is_null() => assert!(answer["valid"].is_boolean(), "{case}"),
            false => assert_eq!(answer["valid"], case["valid"], "{case} {answer}"),
        }
    }
}

#[test]
fn a_person_tries_one_delivery_and_no_is_exit_1() {
    let place = Place::new();
    let case = json!({"scheme": "github", "secret": "mysecret", "headers": {}, "body": "{}"}).to_string();
    assert_eq!(place.run(&["try", "webhook", &case]).exits(1).out, "it is not believed: missing\n");
    place.run(&["try", "webhook", r#"{"scheme":"none"}"#]).exits(4);
}

#[test]
fn a_line_that_is_no_text_or_lacks_its_document_is_an_error_on_its_line() {
    let place = Place::new();
    let lines = b"{\"pattern\":\"\xff\",\"topic\":\"\xff\"}\n{\"pattern\":\"a\",\"topic\":\"a\"}\n";
    std::fs::write(place.path().join("lines"), lines).unwrap();
    let line = format!("{} try topic --jsonl < lines", env!("CARGO_BIN_EXE_everwhen"));
    let done =
        std::process::Command::new("sh").args(["-c", &line]).current_dir(place.path()).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(
        text.starts_with("{\"error\":{\"code\":\"json.invalid\"") && text.ends_with("{\"match\":true}\n"),
        "{text}"
    );
    let lines =
        place.run_with_input(&["try", "jsonpath", "--jsonl"], "{\"selector\":\"$.a\"}\n").ok().lines();
    assert_eq!(lines[0]["error"]["code"], "request.invalid");
}

#[test]
fn what_is_of_another_type_is_an_error_on_its_line_and_null_is_absent() {
    let place = Place::new();
    let codes = |kind: &str, lines: &[&str]| -> Vec<serde_json::Value> {
        let lines = place.run_with_input(&["try", kind, "--jsonl"], &lines.join("\n")).ok().lines();
        lines.into_iter().map(|line| line["error"]["code"].clone()).collect()
    };
    let filter = r#"{"filter":"event.payload.n > 1","event":"#;
    let lines =
        ["5}", "\"x\"}", "[]}", "null}", "{\"payload\":{\"n\":2}}}"].map(|event| format!("{filter}{event}"));
    let wrong = json!("request.invalid");
    let none = serde_json::Value::Null;
    assert_eq!(
        codes("filter", &lines.each_ref().map(String::as_str)),
        [&wrong, &wrong, &wrong, &wrong, &none].map(Clone::clone)
    );
    let cron = [
        r#"{"expr":"0 7 * * *","fields":"5"}"#,
        r#"{"expr":"0 7 * * *","from":"2026-01-01T00:00:00Z","inclusive":"x"}"#,
        r#"{"expr":"0 7 * * *","fields":null,"inclusive":null}"#,
    ];
    assert_eq!(codes("cron", &cron), [wrong.clone(), wrong.clone(), none.clone()]);
    assert_eq!(codes("expr", &[r#"{"expr":"now","now":null}"#, r#"{"expr":"now","now":5}"#]), [none, wrong]);
}
