//! Hostile URLs: however an address inside is written, named, hidden or moved, nothing connects to it.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use model::Code;

use crate::effect::guard::Guard;
use crate::effect::http::{Http, Request};

/// Hosts that a system's resolver reads as addresses without asking anybody.
const WRITTEN: &str = "127.0.0.1 127.1 127.0.1 127.0.0.1. 127.1. 127.255.255.254 127.127.127.127 2130706433 2130706433.
    0x7f000001 0X7F000001 0x7f.0.0.1 0x7f.1 0x7f.0x0.0x0.0x1 0177.0.0.1 0177.1 017700000001 00177.00.00.01
    0177.0.0x0.1 127.000.000.001 127.0x1 0 0x0 00 0.0.0.0 0.0.0.0. 0.1 0.0.1 4294967295 0xffffffff 255.255.255.255
    10.0.0.1 10.1 0xa.1 012.1 167772161 10.255.255.255 172.16.0.1 172.31.255.255 2886729729 192.168.0.1 192.168.1
    3232235777 100.64.0.1 100.127.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.51.100.1
    203.0.113.1 224.0.0.1 239.255.255.250 240.0.0.1 169.254.169.254 169.254.43518 2852039166 0xa9fea9fe
    0251.0376.0251.0376 0xa9.0xfe.0xa9.0xfe 169.254.170.2 100.100.100.200 168.63.129.16
    [::] [::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0001] [::127.0.0.1] [::7f00:1]
    [::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:7F00:1] [0:0:0:0:0:ffff:127.0.0.1] [::ffff:10.0.0.1]
    [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::7f00:1]
    [64:ff9b::a9fe:a9fe] [64:ff9b:1::7f00:1] [2002:7f00:1::] [2002:7f00:0001::1] [2002:a9fe:a9fe::1]
    [2002:c0a8:101::1] [2001::7f00:1] [2001:0:4136:e378:8000:63bf:80ff:fffe] [2001:db8::1] [3fff::1] [100::1]
    [5f00::1] [fc00::1] [fd00::1] [fd00:ec2::254] [fe80::1] [febf::1] [fec0::1] [ff01::1] [ff02::1] [ff0e::1]
    localhost LOCALHOST localhost.";

/// Names that a resolver of the attacker's leads inside.
const NAMED: &str = "localtest.me lvh.me 127.0.0.1.nip.io 7f000001.rbndr.us foo.localhost metadata.google.internal
    instance-data ip6-localhost kubernetes.default.svc xn--lclhst-cua.example ⓛocalhost ①②⑦.⓪.⓪.① 127。0。0。1 127．0．0．1
    ｌｏｃａｌｈｏｓｔ loc%61lhost 127.0.0.1%00 127.0.0.1%2f.example.org example.org.127.0.0.1.nip.io";

/// Whole URLs; `PORT` is the canary's.
const WHOLE: &str = "http://user@127.0.0.1:PORT/|http://user:pw@127.0.0.1:PORT/|http://example.org@127.0.0.1:PORT/
    http://127.0.0.1:PORT@127.0.0.1:PORT/|http://example.org:80@127.0.0.1:PORT/|http://@127.0.0.1:PORT/
    http://127.0.0.1:PORT\\@127.0.0.1:PORT/|http://127.0.0.1\\.example.org:PORT/|http://127.0.0.1:PORT#@example.org/
    http://[127.0.0.1]:PORT/|http://[::1:PORT/|http://::1:PORT/|http://[::1]PORT/|http://[::1%25lo]:PORT/|http://[fe80::1%25lo]:PORT/
    http://127.0.0.1:0PORT/|http://127.0.0.1:PORT:80/|http://127.0.0.1:99999/|http:///127.0.0.1:PORT/|http:/127.0.0.1:PORT/
    http:127.0.0.1:PORT/|//127.0.0.1:PORT/|127.0.0.1:PORT|HTTP://127.0.0.1:PORT/|hTTp://127.0.0.1:PORT/|https://127.0.0.1:PORT/
    ftp://127.0.0.1:PORT/|file:///etc/passwd|gopher://127.0.0.1:PORT/_GET|dict://127.0.0.1:PORT/|ldap://127.0.0.1:PORT/
    ws://127.0.0.1:PORT/|unix:///run/docker.sock|http+unix://%2frun%2fdocker.sock/|data:text/plain,x|javascript:alert(1)
    jar:http://127.0.0.1:PORT/!/|http://127.0.0.1:PORT/?x=http://example.org|http://127.0.0.1:PORT/../..//example.org";

/// Listens where nobody may come, over both versions of IP.
struct Canary {
    listeners: Vec<TcpListener>,
    port: u16,
}

impl Canary {
    fn new() -> Canary {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = four.local_addr().unwrap().port();
        // A machine without IPv6 has no such loopback to reach either.
        let listeners: Vec<_> =
            [Some(four), TcpListener::bind(("::1", port)).ok()].into_iter().flatten().collect();
        listeners.iter().for_each(|listener| listener.set_nonblocking(true).unwrap());
        Canary { listeners, port }
    }

    fn hits(&self) -> usize {
        let waits = |listener: &&TcpListener| !matches!(listener.accept(), Err(error) if error.kind() == ErrorKind::WouldBlock);
        self.listeners.iter().filter(waits).count()
    }
}

fn request(url: String) -> Request {
    Request {
        method: "POST".to_owned(),
        url,
        headers: Vec::new(),
        body: Vec::new(),
        timeout: Duration::from_secs(10),
        idempotency_key: None,
    }
}

fn hosts(list: &str) -> Vec<&str> {
    list.split_whitespace().collect()
}

#[test]
fn hostile_urls_reach_no_canary() {
    let canary = Canary::new();
    let port = canary.port;
    let led = Http::new(Guard::default(), None)
        .unwrap()
        .resolving(move |_, _| Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))]));
    let system = Http::new(Guard::default(), None).unwrap();
    let whole: Vec<String> = WHOLE
        .split(['|', '\n'])
        .map(|url| url.trim().replace("PORT", &port.to_string()))
        .filter(|url| !url.is_empty())
        .collect();
    let at = |host: &str| format!("http://{host}:{port}/");
    let named: Vec<String> = hosts(NAMED).into_iter().map(at).collect();
    let written: Vec<String> = hosts(WRITTEN).into_iter().map(at).collect();
    assert!(whole.len() + named.len() + written.len() >= 120, "120 are promised");
    for url in written.iter().chain(&named).chain(&whole) {
        let failure = led.send(&request(url.clone())).expect_err(url);
        assert_eq!(canary.hits(), 0, "{url} reached the canary");
        assert!(
            matches!(failure.problem.code(), Code::HttpRefused | Code::HttpInvalid),
            "{url}: {failure:?}"
        );
    }
    for url in &written {
        system.send(&request(url.clone())).expect_err(url);
        assert_eq!(canary.hits(), 0, "{url} reached the canary");
    }
}

#[test]
fn a_redirect_inside_is_not_followed() {
    let canary = Canary::new();
    let outside = TcpListener::bind("127.0.0.2:0").unwrap();
    let address = outside.local_addr().unwrap();
    for status in [301, 302, 303, 307, 308] {
        let (http, listener) =
            (Http::new(Guard::parse(["127.0.0.2"]).unwrap(), None).unwrap(), outside.try_clone().unwrap());
        let to = format!("http://127.0.0.1:{}/", canary.port);
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = format!("HTTP/1.1 {status} Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
        });
        let answer = http.send(&request(format!("http://{address}/"))).unwrap();
        served.join().unwrap();
        assert_eq!((answer.status, canary.hits()), (status, 0));
        assert!(answer.failure().is_some(), "it counts as failed");
    }
}

#[test]
fn a_name_that_moves_inside_after_it_was_looked_up_leads_nowhere() {
    let canary = Canary::new();
    let (asked, port) = (Arc::new(AtomicUsize::new(0)), canary.port);
    let counter = asked.clone();
    // Nobody listens at the first address; whoever looks the name up again is led inside.
    let http = Http::new(Guard::parse(["127.0.0.3"]).unwrap(), None).unwrap().resolving(move |_, _| {
        Ok(vec![match counter.fetch_add(1, Ordering::SeqCst) {
            0 => SocketAddr::from(([127, 0, 0, 3], port)),
            _ => SocketAddr::from(([127, 0, 0, 1], port)),
        }])
    });
    let url = "http://rebind.example/".to_owned();
    assert_eq!(http.send(&request(url.clone())).unwrap_err().problem.code(), Code::HttpFailed);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one request, one look");
    assert_eq!(http.send(&request(url)).unwrap_err().problem.code(), Code::HttpRefused);
    assert_eq!(canary.hits(), 0);
}
