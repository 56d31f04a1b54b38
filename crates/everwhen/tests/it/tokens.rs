//! `everwhen tokens`, and a server that asks for them.

use crate::support::Place;

#[test]
fn the_first_start_makes_an_owner_who_gives_out_the_rest() {
    let place = Place::new();
    let server = place.serve_asking(&[]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    assert!(owner.starts_with("ew_owner_"), "{owner}");
    let far = |token: &str, args: &[&str]| {
        place.run(&[args, &["--server", server.url(), "--token", token, "--json"]].concat())
    };
    let made =
        far(&owner, &["tokens", "create", "--role", "publisher", "--name", "sensors"]).ok().lines().remove(0);
    let publisher = made["token"].as_str().unwrap().to_owned();
    far(&publisher, &["publish", "a.b", "{}"]).ok();
    assert_eq!(
        far(&publisher, &["groups", "put", "g", "--pattern", "#"]).exits(5).error()["code"],
        "auth.denied"
    );
    assert_eq!(far("ew_x", &["tokens", "list"]).exits(5).error()["code"], "auth.required");
    let listed = far(&owner, &["tokens", "list"]).ok().lines();
    assert_eq!((listed.len(), &listed[1]["name"]), (2, &"sensors".into()));
    far(&owner, &["tokens", "revoke", made["id"].as_str().unwrap()]).ok();
    far(&publisher, &["publish", "a.b", "{}"]).exits(5);
    // Who can read the directory needs no token.
    place.run(&["publish", "a.c", "{}"]).ok();
    drop(server);
    let again = place.serve_asking(&[]);
    assert!(again.ready.get("owner_token").is_none(), "only once");
    place.run(&["tokens", "list", "--server", again.url(), "--token", &owner]).ok();
}

#[test]
fn an_owner_is_made_also_when_others_were_before_and_a_token_that_is_shown_counts() {
    let place = Place::new();
    let made = place
        .run(&["tokens", "create", "--role", "publisher", "--space", "a", "--json"])
        .ok()
        .lines()
        .remove(0);
    assert_eq!(made["spaces"], serde_json::json!(["a"]), "{made}");
    let server = place.serve_asking(&[]);
    assert!(server.ready["owner_token"].as_str().unwrap().starts_with("ew_owner_"));
    let publisher = made["token"].as_str().unwrap();
    // The directory can be read, and still the token is what counts.
    place.run(&["publish", "a.b", "{}", "--token", publisher]).ok();
    let refused =
        place.run(&["publish", "a.b", "{}", "--space", "b", "--token", publisher, "--json"]).exits(5);
    assert_eq!(refused.error()["code"], "auth.denied");
    let listed = place.run(&["tokens", "list"]).ok().out;
    assert!(listed.contains("spaces a") && listed.contains("used 2"), "{listed}");
    let event = place.run(&["events", "list", "--topic", "a.b", "--json"]).ok().lines().remove(0);
    assert_eq!(event["space"], "a", "who has one space means it");
}

#[test]
fn tenants_are_made_suspended_and_removed_near_and_far() {
    let place = Place::new();
    let made = place.run(&["tenants", "create", "acme", "--json"]).ok().lines().remove(0);
    assert!(made["owner_token"].as_str().unwrap().starts_with("ew_owner_"), "{made}");
    place.run(&["publish", "a.b", "{}", "--tenant", "acme"]).ok();
    place.run(&["tenants", "suspend", "acme"]).ok();
    let refused = place.run(&["events", "list", "--tenant", "acme", "--json"]).exits(5);
    assert_eq!(refused.error()["code"], "tenant.suspended");
    let server = place.serve();
    let far = |args: &[&str]| place.run(&[args, &["--server", server.url(), "--json"]].concat());
    assert_eq!(far(&["tenants", "show", "acme"]).ok().lines()[0]["suspended"], true);
    assert_eq!(far(&["tenants", "resume", "acme"]).ok().lines()[0]["suspended"], false);
    assert_eq!(far(&["events", "list", "--topic", "a.b", "--tenant", "acme"]).ok().lines().len(), 1);
    far(&["tenants", "rm", "acme"]).ok();
    let names: Vec<_> = far(&["tenants", "list"]).ok().lines().iter().map(|t| t["name"].clone()).collect();
    assert_eq!(names, ["main"]);
    assert_eq!(far(&["tenants", "show", "acme"]).exits(3).error()["code"], "not_found");
}

#[test]
fn a_server_without_tokens_says_what_that_means() {
    use std::io::{BufRead, BufReader, Read};
    for (more, says) in [(&["--no-auth"][..], true), (&["--no-auth", "--json"], true), (&[], false)] {
        let place = Place::new();
        let mut serving =
            place.command(&[&["serve", "--listen", "127.0.0.1:0"], more].concat()).spawn().unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(serving.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert!(line.contains("http://127.0.0.1:"), "{line}");
        serving.kill().unwrap();
        serving.wait().unwrap();
        let mut told = String::new();
        serving.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert_eq!(
            told.contains("--no-auth: whoever reaches this port from this machine may do everything"),
            says,
            "{told}"
        );
    }
}

#[test]
fn what_is_meant_for_one_tenant_is_never_done_in_another() {
    let place = Place::new();
    let server = place.serve_asking(&[]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    let made = place.json(&["tenants", "create", "acme"]);
    let theirs = made["owner_token"].as_str().unwrap().to_owned();
    let far = |token: &str, args: &[&str]| {
        place.run(&[args, &["--server", server.url(), "--token", token, "--json"]].concat())
    };
    let refused = far(&owner, &["publish", "a.b", "{}", "--tenant", "acme"]).exits(5).error();
    assert_eq!(refused["code"], "auth.denied");
    for name in ["main", "acme"] {
        assert!(refused["message"].as_str().unwrap().contains(name), "{refused}");
    }
    assert!(far(&owner, &["events", "list"]).ok().lines().is_empty(), "it is not in main");
    // Without a name the tenant is the token's.
    far(&theirs, &["publish", "a.b", "{}"]).ok();
    far(&theirs, &["publish", "a.b", "{}", "--tenant", "acme"]).ok();
    assert_eq!(far(&theirs, &["events", "list", "--topic", "a.b"]).ok().lines().len(), 2);
    assert_eq!(far(&theirs, &["tenants", "list"]).ok().lines().len(), 1);
    let by_variable = |tenant: &str| {
        let args = ["publish", "a.b", "{}", "--server", server.url(), "--token", &owner];
        place.command(&args).env("EVERWHEN_TENANT", tenant).output().unwrap().status.code()
    };
    assert_eq!((by_variable("acme"), by_variable("main")), (Some(5), Some(0)));
}

#[test]
fn a_tenant_that_begins_through_a_server_is_mentioned_as_one_that_begins_in_a_directory() {
    let place = Place::new();
    let server = place.serve();
    for (more, place_of) in [(&["--server", server.url()][..], "far"), (&[], "near")] {
        let tenant = format!("typo-{place_of}");
        let publish = || place.run(&[&["publish", "a.b", "{}", "--tenant", &tenant], more].concat()).ok();
        let first = publish().err;
        assert!(first.contains(&format!("a tenant \"{tenant}\" begins at http://")), "{first}");
        assert_eq!(publish().err, "", "only once");
    }
    assert_eq!(place.run(&["publish", "a.b", "{}"]).ok().err, "");
}

#[test]
fn the_command_that_answers_a_question_names_nobody_to_who_goes_by_a_token() {
    let place = Place::new();
    place.write(
        "asks.yaml",
        "automation: asks\ntriggers: [{manual: true}]\nactions:\n  - ask: {question: ok?, to: ann, options: [1]}\n",
    );
    place.run(&["apply", "asks.yaml"]).ok();
    let server = place.serve_asking(&[]);
    let owner = server.ready["owner_token"].as_str().unwrap().to_owned();
    place.run(&["runs", "start", "asks"]).ok();
    let run = place.json(&["runs", "list"])["id"].as_str().unwrap().to_owned();
    for args in [&["waits", "list"][..], &["runs", "show", &run], &["explain", "run", &run]] {
        let near = place.run(args).ok().out;
        assert!(near.contains(&format!("answer: everwhen waits answer {run}.1 --as user:ann 1\n")), "{near}");
        let far = place.run(&[args, &["--server", server.url(), "--token", &owner]].concat()).ok().out;
        assert!(far.contains(&format!("answer: everwhen waits answer {run}.1 1\n")), "{far}");
    }
}
