//! Rows from the command line, near and through a server.

use serde_json::json;

use crate::support::Place;

const DOMAIN: &str = r#"
concept system {
  status enum("ok", "down")! @default("ok")
  owner string
}

query system systemsByStatus {
  args { status string! }
  filter payload.status == args.status
}

mutation system createSystem {
  args { id string!  owner string }
  insert { accept { owner } }
}
"#;

fn tour(place: &Place) {
    place.write("health.ew", DOMAIN);
    place.run(&["plan", "health.ew", "--exit-code"]).exits(1);
    let applied = place.json(&["apply", "health.ew"]);
    assert_eq!(applied["added"].as_array().unwrap().len(), 3, "{applied}");
    assert!(place.run(&["plan", "health.ew", "--exit-code"]).ok().out.contains("no changes"));
    let made = place.json(&["entity", "put", "system", "api", r#"{"owner":"ann"}"#]);
    assert_eq!(made["fields"], json!({"owner": "ann", "status": "ok"}));
    let down = place.json(&["entity", "patch", "system", "api", r#"{"status":"down"}"#]);
    assert_eq!(place.json(&["entity", "get", "system", "api"])["version"], down["version"]);
    let lately = ["--in-state-since", "status", "--transitions", "status", "--window", "1h"];
    let told = place.json(&[&["entity", "get", "system", "api"], lately.as_slice()].concat());
    assert_eq!((&told["in_state_since"], &told["transitions"]), (&down["updated_at"], &json!(1)));
    let then = made["version"].to_string();
    assert_eq!(place.json(&["entity", "get", "system", "api", "--as-of", &then])["fields"]["status"], "ok");
    let rows = "{\"id\":\"web\",\"status\":\"down\"}\n{\"id\":\"bad\",\"status\":3}\n";
    let imported = place.run_with_input(&["entity", "import", "system", "--json"], rows).exits(4);
    assert_eq!(imported.json(), json!({"imported": 1, "unchanged": 0, "refused": 1}));
    assert_eq!(place.run(&["entity", "list", "system", "--json"]).ok().lines().len(), 2);
    let count = |more: &[&str]| {
        let found = place.json(&[&["query", "systemsByStatus", "status=down"], more].concat());
        found["rows"].as_array().unwrap().len()
    };
    assert_eq!(count(&[]), 2);
    assert_eq!(count(&["--as-of", &then]), 0, "it was not down then");
    assert_eq!(count(&["--as-of", &down["version"].to_string(), "--explain"]), 1);
    let rows = "{\"id\":\"there\",\"status\":\"down\"}\n";
    place.run_with_input(&["entity", "import", "system", "--space", "elsewhere"], rows).ok();
    assert_eq!((count(&["--space", "elsewhere"]), count(&["--space", "default"])), (1, 2));
    place.run(&["entity", "rm", "system", "there", "--space", "elsewhere"]).ok();
    let version = down["version"].to_string();
    place.run(&["entity", "patch", "system", "api", r#"{"owner":"eve"}"#, "--if-match", &then]).exits(4);
    place.run(&["entity", "rm", "system", "api", "--if-match", &then]).exits(4);
    place.run(&["entity", "put", "system", "api", r#"{"status":"down"}"#, "--if-match", &version]).ok();
    place.run(&["entity", "get", "system", "api", "--min-position", &version]).ok();
    place.run(&["entity", "get", "system", "api", "--min-position", "99999"]).exits(6);
    assert_eq!(place.json(&["mutate", "createSystem", "id=db", "owner=bob"])["fields"]["owner"], "bob");
    assert!(place.run(&["entity", "history", "system", "api"]).ok().out.contains("updated"));
    place.run(&["entity", "rm", "system", "api"]).ok();
    place.run(&["entity", "get", "system", "api"]).exits(3);
    place.run(&["entity", "put", "system", "x", r#"{"status":"odd"}"#]).exits(4);
}

#[test]
fn a_workspace_is_applied_and_its_rows_are_kept_in_a_directory() {
    tour(&Place::new());
}

#[test]
fn a_workspace_is_applied_and_its_rows_are_kept_through_a_server() {
    let place = Place::new();
    let server = place.serve();
    tour(&place);
    drop(server);
}

const EDITS: &str = r#"
concept note {
  text string
}

mutation note takes {
  args { id string!  text string }
  update { accept { text } }
}

mutation note writes {
  args { id string!  text string }
  update { args.text }
}
"#;

#[test]
fn an_argument_that_is_written_as_a_field_and_left_out_removes_it_and_an_accepted_one_does_not() {
    let place = Place::new();
    place.write("n.ew", EDITS);
    place.run(&["apply", "n.ew"]).ok();
    place.run(&["entity", "put", "note", "a", r#"{"text":"here"}"#]).ok();
    assert_eq!(place.json(&["mutate", "takes", "id=a"])["fields"], json!({"text": "here"}));
    assert_eq!(place.json(&["mutate", "writes", "id=a"])["fields"], json!({}));
}
