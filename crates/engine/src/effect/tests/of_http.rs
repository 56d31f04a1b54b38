//! Requests to a server that a test writes, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use model::Code;

use crate::effect::guard::Guard;
use crate::effect::http::{ANSWER_MAX, Answer, Http, Request, check_url};
use crate::effect::{Class, Failure};

/// Answers one connection with what `answer` writes and gives back what it read of the request.
fn serve(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let request = read_request(&mut stream);
        answer(&mut stream);
        request
    });
    (address, served)
}

fn read_request(stream: &mut TcpStream) -> String {
    let (mut all, mut some) = (Vec::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut some).unwrap();
        all.extend_from_slice(&some[..read]);
        let text = String::from_utf8_lossy(&all).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if read == 0 || body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            return text;
        }
    }
}

/// Whatever is written after the client has gone is of no matter.
fn write(stream: &mut TcpStream, text: &str) {
    let _ = stream.write_all(text.as_bytes());
}

fn request(url: String) -> Request {
    Request {
        method: "GET".to_owned(),
        url,
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Duration::from_secs(20),
        idempotency_key: None,
    }
}

fn local() -> Http {
    Http::new(Guard::parse(["127.0.0.0/8"]).unwrap(), None).unwrap()
}

fn failed(ended: Result<Answer, Failure>) -> (Class, Code) {
    let failure = ended.unwrap_err();
    (failure.class, failure.problem.code())
}

/// A listener that must not be connected to.
struct Canary(TcpListener);

impl Canary {
    fn new() -> Canary {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Canary(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    fn untouched(&self) -> bool {
        matches!(self.0.accept(), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

#[test]
fn a_request_arrives_with_its_key_and_the_answer_comes_back() {
    let (address, served) = serve(|stream| {
        write(stream, "HTTP/1.1 201 Created\r\nX-Id: 7\r\nContent-Length: 4\r\n\r\ndone");
    });
    let asked = Request {
        method: "post".to_owned(),
        headers: vec![("X-Trace".to_owned(), "abc".to_owned())],
        body: b"{\"n\":1}".to_vec(),
        idempotency_key: Some("run_1/step".to_owned()),
        ..request(format!("http://{address}/hooks/a?b=c#part"))
    };
    let answer = local().send(&asked).unwrap();
    assert_eq!((answer.status, answer.body.as_slice()), (201, b"done".as_slice()));
    assert!(answer.headers.contains(&("x-id".to_owned(), "7".to_owned())));
    assert_eq!(answer.failure(), None);
    let seen = served.join().unwrap().to_lowercase();
    assert!(seen.starts_with("post /hooks/a?b=c http/1.1\r\n"), "{seen}");
    for line in ["x-trace: abc", "idempotency-key: run_1/step", "user-agent: everwhen/", "content-length: 7"]
    {
        assert!(seen.contains(&format!("\r\n{line}")), "{line} is missing in {seen}");
    }
    assert!(seen.contains(&format!("\r\nhost: {address}\r\n")) && seen.ends_with("\r\n\r\n{\"n\":1}"));
}

#[test]
fn nothing_inside_is_connected_to_however_it_is_written() {
    let (http, canary) = (Http::new(Guard::default(), None).unwrap(), Canary::new());
    let hosts = [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
    ];
    for host in hosts {
        let failure = http.send(&request(format!("http://{host}:{}/", canary.port()))).unwrap_err();
        assert_ne!(
            failure.problem.code(),
            Code::HttpInvalid,
            "{host} was not even tried: {}",
            failure.problem
        );
        assert!(canary.untouched(), "{host} was connected to");
    }
    let plain = http.send(&request(format!("http://127.0.0.1:{}/", canary.port())));
    let failure = plain.unwrap_err();
    assert_eq!((failure.class, failure.problem.code()), (Class::Permanent, Code::HttpRefused));
    assert_eq!(failure.problem.detail(), "\"127.0.0.1\" is at 127.0.0.1, which is loopback");
}

#[test]
fn a_name_is_resolved_once_and_one_bad_address_spoils_it() {
    let asked = Arc::new(AtomicUsize::new(0));
    let canary = Canary::new();
    let (counter, port) = (asked.clone(), canary.port());
    // Outside at the first look, inside at the second: only who looks twice is caught.
    let both = Http::new(Guard::default(), None).unwrap().resolving(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(vec!["93.184.216.34:80".parse().unwrap(), SocketAddr::from(([127, 0, 0, 1], port))])
    });
    assert_eq!(
        failed(both.send(&request("http://rebind.example/".to_owned()))),
        (Class::Permanent, Code::HttpRefused)
    );
    assert!(canary.untouched());
    let (address, served) = serve(|stream| write(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let counter = asked.clone();
    let named = Http::new(Guard::parse(["hooks.internal"]).unwrap(), None).unwrap().resolving(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        Ok(vec![address])
    });
    named.send(&request("http://hooks.internal/x".to_owned())).unwrap();
    assert!(served.join().unwrap().contains("host: hooks.internal\r\n"));
    assert_eq!(asked.load(Ordering::SeqCst), 2, "once for each request");
}

#[test]
fn redirects_are_answers_and_not_followed() {
    let canary = Canary::new();
    let to = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{}/\r\nContent-Length: 0\r\n\r\n",
        canary.port()
    );
    let (address, served) = serve(move |stream| write(stream, &to));
    let answer = local().send(&request(format!("http://{address}/"))).unwrap();
    served.join().unwrap();
    assert_eq!(answer.status, 302);
    assert_eq!(answer.failure().unwrap().class, Class::Permanent);
    assert!(canary.untouched());
}

#[test]
fn an_answer_that_does_not_end_or_is_too_long_is_given_up() {
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    let (address, _served) = serve(move |stream| {
        write(stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..=ANSWER_MAX / 0x10000 {
            write(stream, &chunk);
        }
    });
    assert_eq!(
        failed(local().send(&request(format!("http://{address}/")))),
        (Class::Permanent, Code::HttpAnswer)
    );
    let (address, _served) =
        serve(|stream| write(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"));
    assert_eq!(
        failed(local().send(&request(format!("http://{address}/")))),
        (Class::Transient, Code::HttpFailed)
    );
    let (address, _served) = serve(|stream| write(stream, "not HTTP at all\r\n\r\n"));
    assert_eq!(
        failed(local().send(&request(format!("http://{address}/")))),
        (Class::Permanent, Code::HttpAnswer)
    );
}

#[test]
fn silence_and_closed_ports_are_worth_another_try() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap();
    let asked = Request { timeout: Duration::from_millis(50), ..request(format!("http://{address}/")) };
    assert_eq!(failed(local().send(&asked)), (Class::Transient, Code::HttpFailed));
    drop(silent);
    assert_eq!(
        failed(local().send(&request(format!("http://{address}/")))),
        (Class::Transient, Code::HttpFailed)
    );
}

#[test]
fn the_status_says_whether_to_try_again() {
    let class = |status| Answer { status, headers: Vec::new(), body: Vec::new() }.failure().map(|f| f.class);
    for status in [200, 204, 299] {
        assert_eq!(class(status), None);
    }
    for status in [408, 425, 429, 500, 502, 503, 504] {
        assert_eq!(class(status), Some(Class::Transient), "{status}");
    }
    for status in [301, 304, 400, 401, 404, 409, 422, 501] {
        assert_eq!(class(status), Some(Class::Permanent), "{status}");
    }
}

#[test]
fn a_request_that_cannot_be_sent_is_refused_before_anything_is_resolved() {
    let http = Http::new(Guard::default(), None).unwrap().resolving(|_, _| panic!("it was resolved"));
    let urls =
        ["ftp://a/", "a/b", "", "http://", "http://user:pw@example.org/", "http://a b/", "http://a\r\nb/"];
    for url in urls {
        assert_eq!(
            failed(http.send(&request(url.to_owned()))),
            (Class::Permanent, Code::HttpInvalid),
            "{url:?}"
        );
    }
    let ports = [
        "http://a:70000/",
        "http://a:x/",
        "http://a:-1/",
        "http://a:/",
        "http://[::1]:70000/",
        "https://a:443x/",
    ];
    for url in ports {
        assert_eq!(
            failed(http.send(&request(url.to_owned()))),
            (Class::Permanent, Code::HttpInvalid),
            "{url}"
        );
    }
    for url in ["http://a:1/", "http://a:65535/", "http://[::1]/", "http://[::1]:8080/", "https://a"] {
        assert!(check_url(url).is_ok(), "{url}");
    }
    let headers = [
        ("Host", "x"),
        ("Content-Length", "1"),
        ("Proxy-Authorization", "x"),
        ("a b", "x"),
        ("a", "x\r\ny: z"),
    ];
    for (name, value) in headers {
        let headers = vec![(name.to_owned(), value.to_owned())];
        let asked = Request { headers, ..request("http://example.org/".to_owned()) };
        assert_eq!(failed(http.send(&asked)), (Class::Permanent, Code::HttpInvalid), "{name}");
    }
    let asked = Request { method: "CONNECT".to_owned(), ..request("http://example.org/".to_owned()) };
    assert_eq!(failed(http.send(&asked)), (Class::Permanent, Code::HttpInvalid));
}
