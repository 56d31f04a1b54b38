//! Slips of the hand: a name mistyped, a secret on the command line, a removal without a question.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

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
fn the_line_break_at_the_end_of_a_file_is_not_part_of_a_hooks_secret() {
    let place = Place::new();
    let server = place.serve();
    let body = r#"{"foo":"bar"}"#;
    let signature = "sha256=4864d2759938a15468b5df9ade20bf161da9b4f737ea61794142f3484236bda3";
    let address = server.url().trim_start_matches("http://");
    for (name, text) in [("bare", "mysecret"), ("unix", "mysecret\n"), ("dos", "mysecret\r\n")] {
        place.write("secret.txt", text);
        place.run(&["hooks", "set", name, "--scheme", "github", "--secret-file", "secret.txt"]).ok();
        let mut socket = TcpStream::connect(address).unwrap();
        let request = format!(
            "POST /hooks/main/{name} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             x-github-event: push\r\nx-github-delivery: {name}\r\nx-hub-signature-256: {signature}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 202 "), "{name}: {answer}");
    }
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

#[test]
fn a_word_that_is_not_utf8_is_told_and_nothing_is_done() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let table: &[(&[&str], &[u8])] = &[
        (&["publish"], b"\xff"),
        (&["publish", "a.b"], b"\"\xff\""),
        (&["init"], b"\xff"),
        (&["apply"], b"\xff"),
        (&["publish", "a.b", "--data"], b"\xff"),
        (&["tail", "--no-follow"], b"--token=\xff"),
        (&[], b"\xff"),
    ];
    for (args, word) in table {
        let args = [&["--json"], *args].concat();
        let output = place.command(&args).arg(OsStr::from_bytes(word)).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), err.lines().count()), (Some(2), 1), "{args:?}: {err}");
        let error = &serde_json::from_str::<serde_json::Value>(&err).unwrap()["error"];
        assert_eq!(error["code"], "usage.invalid", "{args:?}: {err}");
        let message = error["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("argument {} is not UTF-8", args.len() + 1)), "{message}");
        assert!(message.contains("\\xFF"), "{message}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_binary_whose_own_name_is_not_utf8_works() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    for (args, code) in [(&["groups", "put", "g", "--pattern", "#"][..], 0), (&["nonsense"], 2)] {
        let output = place.command(args).arg0(OsStr::from_bytes(b"\xff")).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

#[test]
fn lines_that_are_all_refused_make_no_directory() {
    let place = Place::new();
    let publish = ["publish", "--ndjson", "-", "--json"];
    let done = place.run_with_input(&publish, "{\"topic\":\"a b\"}\n\nnot json\n").exits(4);
    let lines: Vec<_> = done.lines().iter().map(|answer| answer["error"]["line"].clone()).collect();
    assert_eq!(lines, [json!(1), json!(3)], "{done:?}");
    assert!(done.err.contains("2 lines were refused"), "{done:?}");
    place.run_with_input(&publish, "").ok();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);

    let input = "\n{\"topic\":\"a b\"}\n{\"topic\":\"a\"}\nno\n{\"topic\":\"b\"}\n";
    let answers = place.run_with_input(&publish, input).exits(4).lines();
    let lines: Vec<_> = answers.iter().map(|answer| answer["error"]["line"].clone()).collect();
    assert_eq!(lines, [json!(2), json!(null), json!(4), json!(null)], "{answers:?}");
    let stored = place.run(&["tail", "--no-follow", "--after", "0", "--json"]).ok().lines();
    let topics: Vec<_> = stored.iter().map(|event| event["topic"].clone()).collect();
    assert_eq!(topics, [json!("a"), json!("b")], "{stored:?}");
}

const NIGHTLY: &str = "automation: nightly\ntriggers: [{manual: true}]\nactions: []\n";

#[test]
fn a_subscription_that_replaces_another_says_so() {
    let place = Place::new();
    place.write("nightly.yaml", NIGHTLY);
    place.run(&["apply", "nightly.yaml"]).ok();
    let add = ["subscriptions", "add", "s", "--pattern", "a.*", "--automation", "nightly"];
    assert_eq!(place.run(&add).ok().out, "added s\n");
    assert_eq!(place.run(&add).ok().out, "replaced s\n");
    let _server = place.serve();
    assert_eq!(place.json(&add)["replaced"], true);
    place.run(&["subscriptions", "rm", "s"]).ok();
    assert_eq!(place.json(&add)["replaced"], false);
}

#[test]
fn a_payload_without_a_topic_is_told_where_the_topic_goes() {
    let place = Place::new();
    let done = place.run(&["publish", r#"{"topic":"a.b"}"#]).exits(2);
    assert!(done.err.contains("the topic is missing"), "{done:?}");
    assert!(done.err.contains("everwhen publish TOPIC") && done.err.contains("--ndjson -"), "{done:?}");
    assert!(!place.path().join(".everwhen").exists());
    place.run(&["publish", "{a", "{}"]).ok();
}

#[test]
fn a_mistyped_automation_is_told_the_nearest() {
    let place = Place::new();
    place.write("nightly.yaml", NIGHTLY);
    place.run(&["apply", "nightly.yaml"]).ok();
    for args in [
        &["explain", "automation", "nihgtly"][..],
        &["automations", "get", "nihgtly"],
        &["runs", "start", "nihgtly"],
    ] {
        let done = place.run(args).exits(3);
        assert!(done.err.contains("help: did you mean \"nightly\"?"), "{done:?}");
    }
    let far = place.run(&["explain", "automation", "other"]).exits(3);
    assert!(far.err.contains("everwhen automations list"), "{far:?}");
}

#[test]
fn agents_get_no_directory_out_of_a_name_with_a_typo() {
    let place = Place::new();
    let refused = place.run(&["mcp", "--data", "nowhere"]).exits(3);
    assert!(refused.err.contains("make it: everwhen init --data nowhere"), "{}", refused.err);
    assert!(!place.path().join("nowhere").exists());
    place.run(&["init", "--data", "here"]).ok();
    let ping = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
    let answered = place.run_with_input(&["mcp", "--data", "here"], ping).ok();
    assert_eq!(answered.lines(), [serde_json::json!({"jsonrpc": "2.0", "id": 1, "result": {}})]);
}
