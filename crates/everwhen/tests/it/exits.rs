//! Exit codes and the shape of failures (contracts §1), as one table.

use crate::support::Place;

#[test]
fn every_failure_has_its_exit_code_and_one_line_of_json() {
    let place = Place::new();
    place.run(&["publish", "a.b", "{}"]).ok();
    std::fs::write(place.path().join("file"), "").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let table: &[(&[&str], i32, &str)] = &[
        (&["nonsense"], 2, "usage.invalid"),
        (&["publish"], 2, "usage.invalid"),
        (&["publish", "a", "{}", "--priority", "11"], 2, "usage.invalid"),
        (&["publish", "a", "{}", "--band", "pink"], 2, "usage.invalid"),
        (&["publish", "a", "@no-such-file"], 2, "usage.invalid"),
        (&["publish", "{\"topic\":\"a\"}"], 2, "usage.invalid"),
        (&["publish", " [1]"], 2, "usage.invalid"),
        (&["tail", "--after", "-1"], 2, "usage.invalid"),
        (&["events", "list", "--before", "-1"], 2, "usage.invalid"),
        (&["publish", "--ndjson", "."], 2, "usage.invalid"),
        (&["verify", "--tenant", "nobody"], 3, "not_found"),
        (&["tail", "--no-follow", "--data", "x", "--server", "http://127.0.0.1:1"], 2, "usage.invalid"),
        (&["salvage", "--to", "x", "--server", "http://127.0.0.1:1"], 2, "usage.invalid"),
        (&["init", "--server", "http://127.0.0.1:1"], 2, "usage.invalid"),
        (&["events", "list", "--since", "yesterday"], 2, "usage.invalid"),
        (&["serve", "--listen", "0.0.0.0:0", "--no-auth"], 2, "usage.invalid"),
        (&["tail", "--no-follow", "--config", "no-such.toml"], 2, "config.invalid"),
        (&["events", "get", "999"], 3, "event.not_found"),
        (&["events", "get", "no-such-id"], 3, "event.not_found"),
        (&["groups", "get", "nobody"], 3, "group.not_found"),
        (&["drain", "nobody", "--exec", "true"], 3, "group.not_found"),
        (&["tail", "--no-follow", "--data", "nowhere"], 3, "store.not_found"),
        (&["verify", "--data", "nowhere"], 3, "store.not_found"),
        (&["tail", "--no-follow", "--tenant", "nobody"], 3, "tenant.not_found"),
        (&["tokens", "create", "--role", "viewer", "--tenant", "nobody"], 3, "tenant.not_found"),
        (&["publish", "a..b", "{}"], 4, "event.topic_invalid"),
        (&["publish", "engine.x", "{}"], 4, "event.topic_reserved"),
        (&["publish", "a", "{\"n\":1,\"n\":2}"], 4, "json.duplicate_key"),
        (&["publish", "a", "{\"n\":"], 4, "json.invalid"),
        (&["publish", "a", "{}", "--time", "yesterday"], 2, "usage.invalid"),
        (&["tail", "a..b", "--no-follow"], 4, "pattern.invalid"),
        (&["tail", "--filter", "event.", "--no-follow"], 4, "filter.invalid"),
        (&["tail", "--filter", "{\"field\":\"a\",\"near\":1}", "--no-follow"], 4, "filter.invalid"),
        (&["groups", "put", "G", "--pattern", "#"], 4, "group.invalid"),
        (&["groups", "put", "g", "--pattern", "#", "--ordering", "key"], 4, "group.invalid"),
        (&["tail", "--no-follow", "--server", "http://127.0.0.1:1"], 6, "server.unreachable"),
        (&["publish", "a", "{}", "--data", "file"], 2, "usage.invalid"),
        (&["serve", "--data", "file/below"], 2, "usage.invalid"),
        (&["serve", "--listen", &address], 6, "server.address_taken"),
    ];
    for (args, code, name) in table {
        let done = place.run(&[*args, &["--json"]].concat()).exits(*code);
        let error = done.error();
        assert_eq!(error["code"], *name, "{done:?}");
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{done:?}");
    }
}

#[test]
fn a_failure_is_told_to_people_in_two_lines() {
    let place = Place::new();
    let done = place.run(&["publish", "a", "hello"]).exits(4);
    let lines: Vec<&str> = done.err.lines().collect();
    assert!(lines[0].starts_with("error: "), "{done:?}");
    assert!(lines[1].starts_with("help: "), "{done:?}");
    assert_eq!((lines.len(), done.out.as_str()), (2, ""), "{done:?}");
}

#[test]
fn alone_it_prints_a_guide_and_help_and_version_go_to_stdout() {
    let place = Place::new();
    assert!(place.run(&[]).ok().out.contains("everwhen publish"));
    assert!(place.run(&["--version"]).ok().out.starts_with("everwhen "));
    for args in [&["publish", "--help"], &["help", "publish"]] {
        let help = place.run(args).ok().out;
        let (examples, flags) = (help.find("Examples:").unwrap(), help.find("--data").unwrap());
        assert!(examples < flags, "{help}");
    }
    let guide = place.run(&[]).ok().out;
    for word in ["plan", "apply", "entity", "query", "mutate", "check", "fmt", "schema", "try expr"] {
        assert!(guide.contains(word), "{word}");
    }
    assert!(!place.run(&["try", "expr", "--help"]).ok().out.contains('\\'));
    assert!(place.run(&["completions", "bash"]).ok().out.contains("everwhen"));
}

#[test]
fn a_newer_or_damaged_directory_ends_with_7() {
    let place = Place::new();
    for n in 0..3 {
        place.run(&["publish", "a.b", &n.to_string()]).ok();
    }
    let ledger = place.path().join(".everwhen/tenants/main/ledger/00000000000000000001.jsonl");
    let text = std::fs::read_to_string(&ledger).unwrap();
    std::fs::write(&ledger, text.replacen("\"payload\":0", "\"payload\":7", 1)).unwrap();
    let report = place.run(&["verify", "--json"]).exits(7).json();
    assert_eq!(report["ok"], false, "{report}");
    assert_eq!(report["tenants"][0]["problems"][0]["kind"], "body", "{report}");

    std::fs::write(&ledger, text.replacen("{\"p\":1,", "{\"p\":5,", 1)).unwrap();
    let error = place.run(&["publish", "a.b", "--json"]).exits(7).error();
    assert_eq!(error["code"], "store.corrupt");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("/tenants/main/"), "the damaged tenant is named: {message}");
}

#[test]
fn a_refused_publish_makes_no_directory() {
    let place = Place::new();
    place.write("long.json", &format!("\"{}\"", "x".repeat(1 << 20)));
    let table: &[(&[&str], &str)] = &[
        (&["publish", "a b"], "event.topic_invalid"),
        (&["publish", "engine.x"], "event.topic_reserved"),
        (&["publish", "a", "@long.json"], "body.too_large"),
        (&["publish", "a", "--space", "_s"], "event.invalid"),
        (&["publish", "a", "--tenant", "../x"], "request.invalid"),
        (&["groups", "put", "g", "--pattern", "#", "--tenant", "../x"], "request.invalid"),
    ];
    for (args, code) in table {
        let exit = if *code == "request.invalid" { 2 } else { 4 };
        let done = place.run(args).exits(exit);
        assert_eq!(done.err.lines().count(), 2, "{done:?}");
        assert_eq!(place.run(&[*args, &["--json"]].concat()).exits(exit).error()["code"], *code);
        assert!(!place.path().join(".everwhen").exists(), "{done:?}");
    }
    place.run(&["publish", "a"]).ok();
    let done = place.run(&["publish", "engine.x", "--tenant", "other"]).exits(4);
    assert_eq!(done.err.lines().count(), 2, "{done:?}");
}

#[test]
fn what_may_not_be_looked_into_or_made_is_unavailable() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let place = Place::new();
    place.run(&["publish", "a"]).ok();
    let data = place.path().join(".everwhen");
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o000)).unwrap();
    for args in [
        &["events", "list"][..],
        &["export"],
        &["tail", "--no-follow"],
        &["groups", "list"],
        &["publish", "a"],
        &["verify"],
    ] {
        // Named, so that nobody's profiles are looked for.
        let mut command = place.command(&[args, &["--json", "--data", ".everwhen"]].concat());
        // For root nothing is forbidden: then it is somebody else who asks.
        if std::fs::read_dir(&data).is_ok() {
            command.uid(65_534).gid(65_534);
        }
        // Where that one cannot even reach the binary, there is nothing to see.
        let Ok(output) = command.output() else { break };
        assert_eq!(output.status.code(), Some(6), "{args:?}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("storage.read_only"), "{output:?}");
    }
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o700)).unwrap();
    if cfg!(target_os = "linux") {
        for args in [&["publish", "a", "--data", "/proc/x"][..], &["backup", "--to", "/proc/x"]] {
            let done = place.run(&[args, &["--json"]].concat()).exits(6);
            assert_eq!(done.error()["code"], "storage.read_only");
        }
    }
}

#[test]
fn a_command_group_alone_shows_its_help() {
    let place = Place::new();
    for group in ["groups", "dead-letters", "try"] {
        let done = place.run(&[group]).exits(2);
        assert!(done.err.contains(&format!("Usage: everwhen {group}")), "{done:?}");
        assert!(!done.err.contains("error:"), "{done:?}");
        let error = place.run(&[group, "--json"]).exits(2).error();
        assert_eq!(error["code"], "usage.invalid");
    }
}

#[test]
fn a_payload_with_a_key_twice_is_told_how_to_mend_it() {
    let place = Place::new();
    let error = place.run(&["publish", "a", r#"{"n":1,"n":2}"#, "--json"]).exits(4).error();
    assert_eq!(
        (&error["code"], &error["hint"]),
        (&"json.duplicate_key".into(), &"keep one of the two".into())
    );
}

#[test]
fn a_push_that_is_not_taken_is_an_answer_of_no() {
    let place = Place::new();
    let _server = place.serve();
    place.run(&["push", "add", "p", "--url", "http://127.0.0.1:1/", "--pattern", "a.#"]).ok();
    let told = place.run(&["push", "test", "p", "--json"]).exits(1);
    assert_eq!(told.json()["ok"], false, "{told:?}");
    place.run(&["push", "test", "p"]).exits(1);
}

#[test]
fn a_server_whose_certificate_is_an_authoritys_own_is_told_what_to_do() {
    let place = Place::new();
    let file = |name: &str| format!("{}/tests/it/certificates/{name}", env!("CARGO_MANIFEST_DIR"));
    let (certificate, key) = (file("authority.pem"), file("authority.key"));
    let server = place.serve_with(&["--tls-cert", &certificate, "--tls-key", &key]);
    let args = ["events", "list", "--server", server.url(), "--ca", &certificate, "--json"];
    let error = place.run(&args).exits(6).error();
    let (message, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
    assert!(message.contains("authority") && !message.contains("Other("), "{message}");
    assert!(hint.contains("CA:FALSE") && hint.contains("docs/tls.md"), "{hint}");
}

#[test]
fn a_directory_that_may_not_be_written_is_named_with_whose_it_is_and_who_asks() {
    let place = Place::new();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    let of = |path: &std::path::Path| std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(path).unwrap());
    // Root may everything, so that somebody else asks.
    let (owner, uid) = (of(&data), if of(&data) == 0 { 65_534 } else { of(&data) });
    for args in [&["serve", "--no-auth", "--listen", "127.0.0.1:0"][..], &["publish", "a.b"], &["init"]] {
        let mut command = place.command(&[args, &["--data", data.to_str().unwrap(), "--json"]].concat());
        if owner == 0 {
            std::os::unix::process::CommandExt::uid(&mut command, uid);
        }
        if args == ["init"] {
            place.write("everwhen.toml", "");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(6), "{args:?}: {said}");
        let error: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!(error["error"]["code"], "storage.read_only", "{said}");
        let hint = error["error"]["hint"].as_str().unwrap();
        let path = data.display();
        let told =
            format!("this process runs as uid {uid}, and \"{path}\" belongs to uid {owner} with mode 555");
        assert!(hint.contains(&told) && hint.contains(&format!("chown -R {uid} {path}")), "{hint}");
    }
}
