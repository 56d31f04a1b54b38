//! `everwhen check`, `fmt` and `schema` on a folder.

use crate::support::Place;

const GOOD: &str = "concept order {\n  status enum(\"new\", \"paid\")\n}\n";

#[test]
fn findings_are_lines_of_json_and_errors_end_with_1() {
    let place = Place::new();
    place.write("shop/concepts.ew", GOOD);
    place.write("shop/queries.ew", "query order paid {\n  filter payload.staus == \"paid\"\n}\n");
    let done = place.run(&["check", ".", "--json"]).exits(1);
    let lines = done.lines();
    assert_eq!(lines.len(), 1, "{}", done.out);
    let finding = &lines[0];
    assert!(finding["file"].as_str().unwrap().ends_with("shop/queries.ew"), "{finding}");
    assert_eq!((&finding["line"], &finding["col"]), (&2.into(), &10.into()));
    assert_eq!(finding["severity"], "error");
    assert_eq!(finding["code"], "definition.unknown_name");
    assert_eq!(finding["suggestion"], "did you mean \"status\"?");
    let shown = place.run(&["check", "."]).exits(1).out;
    assert!(shown.contains("shop/queries.ew:2:10: error: "), "{shown}");
    place.write("shop/queries.ew", "query order paid {\n  filter payload.status == \"paid\"\n}\n");
    assert_eq!(place.run(&["check", ".", "--json"]).ok().out, "");
    place.run(&["check", "nowhere"]).exits(3);
    place.run(&["check", "--server", "http://127.0.0.1:1"]).exits(2);
}

#[test]
fn a_file_that_uses_another_which_was_not_given_says_so_and_names_the_folder() {
    let place = Place::new();
    place.write("wm/shop/concepts.ew", GOOD);
    let queries =
        "use shop.concepts.{ order }\n\nquery order paid {\n  filter payload.status == \"paid\"\n}\n";
    place.write("wm/shop/queries.ew", queries);
    let finding = place.run(&["check", "wm/shop/queries.ew", "--json"]).exits(1).lines()[0].clone();
    assert_eq!(finding["message"], "there is no module \"shop.concepts\": only this file was given");
    let hint = finding["suggestion"].as_str().unwrap();
    let (_, folder) = hint.split_once("everwhen check ").unwrap();
    assert_eq!(folder, "wm", "{hint}");
    place.run(&["check", folder]).ok();
    place.write("wm/shop/queries.ew", &queries.replace("concepts", "koncepts"));
    let finding = place.run(&["check", "wm", "--json"]).exits(1).lines()[0].clone();
    assert_eq!(finding["message"], "there is no module \"shop.koncepts\"", "all of it was read");
}

#[test]
fn fmt_writes_once_and_then_has_nothing_to_do() {
    let place = Place::new();
    let path = place.write("shop/concepts.ew", "concept order{ // kept\nstatus   enum(\"new\",\"paid\")\n}");
    place.run(&["fmt", "--check"]).exits(1);
    place.run(&["fmt"]).ok();
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, "concept order { // kept\n  status enum(\"new\", \"paid\")\n}\n");
    assert_eq!(place.run(&["fmt", "--check"]).ok().out, "");
    assert!(place.json(&["schema"])["$defs"]["automation"].is_object());
}
