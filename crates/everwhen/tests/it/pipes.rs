//! Output that nobody reads to its end.

use std::io::{BufRead, BufReader, Read};

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
