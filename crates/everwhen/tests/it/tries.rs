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
    place.run(&["try", "topic", "--jsonl", "--server", "http://127.0.0.1:1"]).exits(2);
}
