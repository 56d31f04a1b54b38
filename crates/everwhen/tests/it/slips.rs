//! Slips of the hand: a name mistyped, a secret on the command line, a removal without a question.

use serde_json::json;

use crate::support::Place;

#[test]
fn a_tenant_that_is_not_there_is_made_only_by_what_brings_something_to_it() {
    let place = Place::new();
    place.run(&["publish", "a.b", "{}"]).ok();
    for command in [
        &["tokens", "create", "--role", "viewer"][..],
        &["hooks", "set", "h", "--scheme", "hmac", "--secret", "whatever-it-is"],
        &["events", "list"],
    ] {
        let args = [command, &["--tenant", "acmee", "--json"]].concat();
        assert_eq!(place.run(&args).exits(3).error()["code"], "tenant.not_found", "{command:?}");
    }
    assert!(!place.path().join(".everwhen/tenants/acmee").exists());
    let made = place.command(&["publish", "a.b", "{}", "--tenant", "acme"]).output().unwrap();
    assert!(made.status.success());
    assert!(String::from_utf8_lossy(&made.stderr).contains("a tenant \"acme\" begins"), "{made:?}");
    place.run(&["tokens", "create", "--role", "viewer", "--tenant", "acme"]).ok();
    place.run(&["tenants", "rm", "acme", "--yes"]).ok();
    assert!(!place.path().join(".everwhen/tenants/acme").exists());
}

#[test]
fn the_secret_of_a_hook_comes_from_a_file_or_from_stdin() {
    let place = Place::new();
    place.write("secret.txt", "whatever-it-is");
    let set = ["hooks", "set", "h", "--scheme", "hmac"];
    place.run(&[&set[..], &["--secret-file", "secret.txt"]].concat()).ok();
    for from in [["--secret", "-"], ["--secret-file", "-"]] {
        place.run_with_input(&[&set[..], &from].concat(), "whatever-it-is\n").ok();
    }
    place.run(&[&set[..], &["--secret", "x", "--secret-file", "secret.txt"]].concat()).exits(2);
    place.run(&[&set[..], &["--secret-file", "nowhere"]].concat()).exits(2);
    let hook = place.json(&["hooks", "list"]);
    assert_eq!((&hook["name"], hook.get("secret")), (&json!("h"), None), "{hook}");
}

#[test]
fn a_backup_through_the_server_that_holds_the_directory_goes_where_it_is_told() {
    let place = Place::new();
    let server = place.serve_asking(&[]);
    place.run(&["publish", "a.b", "{}"]).ok();
    place.run(&["backup", "--to", "copy"]).ok();
    assert!(place.path().join("copy/backup.json").exists());
    let token = server.ready["owner_token"].as_str().unwrap();
    let far = |to: &str| {
        let args = ["--server", server.url(), "--token", token, "backup", "--json", "--to", to];
        let mut command = place.command(&args);
        command.env_remove("EVERWHEN_DATA").output().unwrap()
    };
    let refused = far("/tmp/elsewhere");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("backups go into"), "{refused:?}");
    assert_eq!(refused.status.code(), Some(2));
    let made = far("monday");
    assert!(made.status.success(), "{made:?}");
    assert!(place.path().join(".everwhen/backups/monday/backup.json").exists());
    place.run(&["verify"]).ok();
}

#[test]
fn a_refused_topic_makes_no_directory_and_a_null_payload_is_not_called_erased() {
    let place = Place::new();
    place.run(&["publish", "bad topic", "--data", "new"]).exits(4);
    assert!(!place.path().join("new").exists());
    place.run(&["publish", "n", "null"]).ok();
    assert!(place.run(&["tail", "n", "--no-follow"]).ok().out.ends_with(" n null\n"));
}

#[test]
fn every_failure_says_what_to_do_next() {
    let place = Place::new();
    let done = place.run_with_input(&["import"], "x\n").exits(4);
    assert!(done.err.contains("help: "), "{done:?}");
    place.write("everwhen.toml", "not toml [");
    let done = place.run(&["events", "list"]).exits(2);
    assert!(done.err.contains("help: "), "{done:?}");
}
