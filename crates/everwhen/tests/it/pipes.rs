//! Output that nobody reads to its end.

use std::io::{BufRead, BufReader, Read};

use std::fs::File;
use std::process::{Command, Stdio};

use crate::support::Place;

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let place = Place::new();
    let input: String = (0..3_000).map(|n| format!("{{\"topic\":\"t\",\"payload\":{n}}}\n")).collect();
    place.run_with_input(&["publish", "--ndjson", "-"], &input).ok();
    for args in [&["tail", "--after", "0"][..], &["tail", "--no-follow"], &["export"]] {
        let mut child = place.command(args).spawn().unwrap();
        let mut reader = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        drop(reader);
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_stderr_that_cannot_be_written_changes_nothing_about_the_answer() {
    let place = Place::new();
    for (args, code) in
        [(&["publish", "a", "nonsense"][..], 4), (&["events", "get", "9"], 3), (&["publish", "a"], 0)]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = place.command(args).stderr(Stdio::from(full)).status().unwrap();
        assert_eq!(ended.code(), Some(code), "{args:?}");
    }
}

#[test]
fn piped_logs_have_no_colours() {
    let place = Place::new();
    let args = ["serve", "--listen", "127.0.0.1:0", "--no-auth"];
    let mut child = place.command(&args).env("EVERWHEN_LOG", "debug").spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("listening on "), "{ready}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!log.is_empty() && !log.contains('\u{1b}'), "{log}");
}

#[test]
fn lines_are_stored_also_when_nobody_reads_the_answers() {
    let place = Place::new();
    let input: String = (0..3_000).map(|n| format!("{{\"topic\":\"t\",\"payload\":{n}}}\n")).collect();
    let file = place.write("lines", &input);
    let server = [None, Some(place.serve())];
    for (round, _server) in (1..).zip(server) {
        let mut child = place.command(&["publish", "--ndjson", file.to_str().unwrap()]).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(place.run(&["tail", "--no-follow"]).ok().out.lines().count(), 3_000 * round);
    }
}
