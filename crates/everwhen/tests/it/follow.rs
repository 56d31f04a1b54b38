//! Following a server that goes away and comes back.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Command};

use serde_json::Value;

use crate::support::{Place, Server};

/// A `tail` that runs.
struct Tail {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Tail {
    fn start(place: &Place, args: &[&str]) -> Tail {
        let mut child = place.command(&[&["tail"], args].concat()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Tail { child, lines }
    }

    /// The payload of the next event.
    #[track_caller]
    fn next(&mut self) -> Value {
        let line = match self.lines.next() {
            Some(line) => line.unwrap(),
            None => panic!("it ended: {}", self.said()),
        };
        serde_json::from_str::<Value>(&line).unwrap()["payload"].take()
    }

    fn said(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn interrupt(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "INT", &pid]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        (code, self.said())
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The same address again, on the same data.
fn at(server: &Server) -> String {
    server.url().trim_start_matches("http://").to_owned()
}

#[test]
fn a_tail_goes_on_where_it_was_when_its_server_is_back() {
    for (signal, ended) in [("TERM", 0), ("KILL", -9)] {
        let place = Place::new();
        let server = place.serve();
        let (url, address) = (server.url().to_owned(), at(&server));
        let before = place.json(&["publish", "a.b", "1"])["position"].as_u64().unwrap();
        place.run(&["publish", "a.b", "2"]).ok();
        let after = before.to_string();
        // Another directory: it is the server that is followed.
        let elsewhere = Place::new();
        let mut tail = Tail::start(&elsewhere, &["a.*", "--after", &after, "--json", "--server", &url]);
        assert_eq!(tail.next(), 2);

        assert_eq!(server.signal(signal), ended);
        place.run(&["publish", "a.b", "3"]).ok();
        let server = place.serve_with(&["--listen", &address]);
        place.run(&["publish", "a.b", "4"]).ok();
        assert_eq!((tail.next(), tail.next()), (3.into(), 4.into()), "no gap and no repeat");
        place.run(&["publish", "a.b", "5"]).ok();
        assert_eq!(tail.next(), 5);

        // While nobody answers, it can be ended.
        assert_eq!(server.signal("KILL"), -9);
        let (code, said) = tail.interrupt();
        assert_eq!(code, Some(130), "{said}");
        assert!(said.contains("to go on after position"), "{said}");
    }
}

/// Answers one request and hangs up; what was asked for is returned.
fn answer(listener: &TcpListener, head: &str, body: &str) -> String {
    let (mut stream, _) = listener.accept().unwrap();
    let mut asked = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut asked).unwrap();
    write!(stream, "HTTP/1.1 {head}\r\nconnection: close\r\n\r\n{body}").unwrap();
    asked
}

#[test]
fn a_tail_that_has_seen_nothing_goes_on_from_where_it_began() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let place = Place::new();
    let mut tail = Tail::start(&place, &["a.*", "--json", "--server", &url]);
    let stream = "200 OK\r\ncontent-type: text/event-stream";
    let ready = "retry: 1\n\nevent: ready\ndata: {\"position\":41}\n\n: ping\n\n";
    let mut asked = vec![answer(&listener, stream, ready)];
    asked.push(answer(&listener, "503 Service Unavailable", ""));
    // The second event is cut off inside, and comes again.
    let event =
        |position, end| format!("id: {position}\nevent: event\ndata: {{\"payload\":{position}}}{end}");
    let cut = format!("retry: 1\n{}{}", event(43, "\n\n"), event(45, "\n"));
    asked.push(answer(&listener, stream, &cut));
    asked.push(answer(&listener, "429 Too Many Requests", ""));
    asked.push(answer(&listener, stream, &event(45, "\n\n")));
    assert_eq!((tail.next(), tail.next()), (43.into(), 45.into()));
    let gone = "{\"code\":\"event.gone\",\"detail\":\"position 45 is gone\",\"first\":60}";
    asked.push(answer(&listener, "410 Gone", gone));
    assert_eq!(tail.child.wait().unwrap().code(), Some(3));
    let said = tail.said();
    assert!(said.ends_with("\"message\":\"position 45 is gone\"}}\n"), "{said}");
    let after = |asked: &String| asked.split("after=").nth(1).map(|rest| rest[..2].to_owned());
    let after: Vec<Option<String>> = asked.iter().map(after).collect();
    let wanted = [None, Some("41"), Some("41"), Some("43"), Some("43"), Some("45")];
    assert_eq!(after, wanted.map(|after| after.map(str::to_owned)));
}

#[test]
fn a_tail_of_a_directory_finds_the_next_server_of_it() {
    let place = Place::new();
    let server = place.serve();
    place.run(&["publish", "a.b", "1"]).ok();
    let mut tail = Tail::start(&place, &["a.*", "--after", "0", "--json"]);
    assert_eq!(tail.next(), 1);
    assert_eq!(server.signal("TERM"), 0);
    // Another port and another token; and the directory is free for it.
    let _server = place.serve();
    place.run(&["publish", "a.b", "2"]).ok();
    assert_eq!(tail.next(), 2);
}

#[test]
fn what_does_not_pass_ends_a_tail() {
    let place = Place::new();
    let server = place.serve_asking(&[]);
    let address = at(&server);
    let made = place.json(&["tokens", "create", "--role", "viewer"]);
    let (token, id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    place.run(&["publish", "a.b", "1"]).ok();
    let elsewhere = Place::new();
    let args = ["--after", "0", "--json", "--token", token, "--server", server.url()];
    let mut tails = [Tail::start(&elsewhere, &args), Tail::start(&elsewhere, &args)];
    for tail in &mut tails {
        assert_eq!(tail.next(), 1);
    }
    let [mut here, mut away] = tails;
    // One hears that its token is gone, the other finds out when it comes back.
    let pause = |signal: &str| {
        let pid = away.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    };
    pause("STOP");
    place.run(&["tokens", "revoke", id]).ok();
    assert_eq!(here.child.wait().unwrap().code(), Some(5), "{}", here.said());
    assert_eq!(server.signal("KILL"), -9);
    let _server = place.serve_asking(&["--listen", &address]);
    pause("CONT");
    assert_eq!(away.child.wait().unwrap().code(), Some(5), "{}", away.said());
    // A server that was never reached is not waited for, and what is bounded does not wait.
    for more in [&[][..], &["--no-follow"]] {
        elsewhere.run(&[&["tail", "--server", "http://127.0.0.1:1"], more].concat()).exits(6);
    }
}
