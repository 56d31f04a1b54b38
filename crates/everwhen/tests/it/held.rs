//! Two processes and one directory: the second talks to the first, and nothing acknowledged is lost when it is killed.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::Place;

#[test]
fn a_server_says_where_it_is_and_others_find_it() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!((&server.ready["ready"], server.ready["pid"].is_u64()), (&Value::Bool(true), true));
    let file = place.path().join(".everwhen/serve.json");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let holder: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!((&holder["url"], &holder["pid"]), (&server.ready["url"], &server.ready["pid"]));
    assert!(holder["token"].is_string());

    let near = place.run(&["publish", "a", "1"]).ok().out;
    let far = place.run(&["publish", "a", "2", "--server", server.url()]).ok().out;
    assert!(near.trim().parse::<u64>().unwrap() < far.trim().parse::<u64>().unwrap());
    assert_eq!(place.run(&["tail", "--no-follow", "--json"]).ok().lines().len(), 2);
    assert_eq!(
        place
            .run_with_input(&["publish", "--ndjson", "-", "--json"], "{\"topic\":\"b\"}\nx\n")
            .exits(4)
            .lines()
            .len(),
        2
    );
    let error = place.run(&["serve", "--listen", "127.0.0.1:0", "--json"]).exits(6).error();
    assert_eq!(error["code"], "store.locked");

    assert_eq!(server.signal("TERM"), 0);
    assert!(!file.exists());
    assert_eq!(place.run(&["tail", "--no-follow", "--json"]).ok().lines().len(), 3);
}

#[test]
fn sigint_ends_a_server_with_0_and_a_tail_with_130() {
    let place = Place::new();
    let server = place.serve();
    assert_eq!(server.signal("INT"), 0);

    let mut tail = place.command(&["tail", "--after", "0", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    // The tail holds the directory now and lets this publish in.
    loop {
        if place.run(&["publish", "a", "1"]).code == 0 {
            break;
        }
    }
    assert!(lines.next().unwrap().unwrap().contains("\"payload\":1"));
    assert!(Command::new("kill").args(["-s", "INT", &tail.id().to_string()]).status().unwrap().success());
    assert_eq!(tail.wait().unwrap().code(), Some(130));
    assert!(!place.path().join(".everwhen/serve.json").exists());
}

#[test]
fn a_killed_server_leaves_a_directory_that_opens_with_everything_acknowledged() {
    let place = Place::new();
    let server = place.serve();
    let input: String = (0..500).map(|n| format!("{{\"topic\":\"t\",\"payload\":{n}}}\n")).collect();
    place.run_with_input(&["publish", "--ndjson", "-"], &input).ok();
    assert_eq!(server.signal("KILL"), -9);
    assert!(place.path().join(".everwhen/serve.json").exists());
    assert_eq!(place.run(&["tail", "--no-follow", "--json"]).ok().lines().len(), 500);
    place.run(&["publish", "t", "500"]).ok();
    assert!(!place.path().join(".everwhen/serve.json").exists());
    let again = place.serve();
    assert_eq!(place.run(&["tail", "--no-follow", "--json"]).ok().lines().len(), 501);
    assert_eq!(again.signal("TERM"), 0);
}

#[test]
fn many_commands_at_once_wait_for_each_other() {
    let place = Place::new();
    place.run(&["init"]).ok();
    let spawn =
        |n: usize| place.command(&["publish", "t", &n.to_string()]).stdout(Stdio::null()).spawn().unwrap();
    let children: Vec<_> = (0..8).map(spawn).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(place.run(&["tail", "--no-follow", "--json"]).ok().lines().len(), 8);
}

#[test]
fn a_second_server_is_told_who_serves_and_one_that_cannot_listen_leaves_nothing() {
    let place = Place::new();
    let server = place.serve();
    let (url, pid) = (server.url().to_owned(), server.ready["pid"].to_string());
    let address = url.strip_prefix("http://").unwrap();
    for listen in ["127.0.0.1:0", address] {
        let error = place.run(&["serve", "--listen", listen, "--json"]).exits(6).error();
        assert_eq!(error["code"], "store.locked", "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(&url) && message.contains(&pid), "{message}");
    }
    let error = place.run(&["serve", "--listen", address, "--data", "other", "--json"]).exits(6).error();
    assert_eq!(error["code"], "server.address_taken", "{error}");
    assert!(!place.path().join("other").exists());
    assert_eq!(server.signal("TERM"), 0);
}

#[test]
fn a_directory_that_a_command_makes_is_named() {
    let place = Place::new();
    let done = place.run(&["publish", "a", "1"]).ok();
    assert_eq!((done.err.trim(), done.out.trim()), ("created .everwhen", "1"));
    assert_eq!(place.run(&["publish", "a", "1"]).ok().err, "");
}

#[test]
fn two_servers_and_two_places_are_a_contradiction() {
    let place = Place::new();
    let mut command = place.command(&["tail", "--no-follow", "--json"]);
    command.env("EVERWHEN_SERVER", "http://127.0.0.1:1").env("EVERWHEN_DATA", "d");
    assert_eq!(command.output().unwrap().status.code(), Some(2));
    let mut command = place.command(&["publish", "a", "--data", "d"]);
    assert!(command.env("EVERWHEN_SERVER", "http://127.0.0.1:1").output().unwrap().status.success());
}
