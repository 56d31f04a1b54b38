//! Tokens that never were any: told to wait after some, without locking out anybody else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use serde_json::json;

use crate::harness::Server;
use crate::rights::{LOCAL, asked, server, token};

/// One request from another address of this machine.
fn from(server: &Server, address: &str, bearer: &str) -> u16 {
    let local: SocketAddr = format!("{address}:0").parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stream: TcpStream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(local).unwrap();
        socket.connect(server.address).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    let request = format!(
        "GET /v1/groups HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {bearer}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn who_guesses_is_told_to_wait_and_a_good_token_is_let_in_from_anywhere() {
    let server = server();
    let (good, _) = token(&server, "main", json!({"role": "viewer"}));
    let (revoked, id) = token(&server, "main", json!({"role": "viewer"}));
    asked(&server, LOCAL, "DELETE", &format!("/v1/tokens/{id}"), "").gone();
    for _ in 0..100 {
        // What was a token once is no guess.
        asked(&server, &revoked, "GET", "/v1/groups", "").refused(401, "auth.required");
        server.send("GET", "/v1/groups", &[], "").refused(401, "auth.required");
    }
    let guesses: Vec<_> =
        (0..40).map(|n| asked(&server, &format!("ew_guess_{n}"), "GET", "/v1/groups", "")).collect();
    assert!(guesses[..30].iter().all(|reply| reply.status == 401));
    let last = guesses.last().unwrap();
    last.refused(429, "quota.exceeded");
    let wait: u64 = last.headers["retry-after"].parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(from(&server, "127.0.0.2", "ew_guess"), 401, "another address has its own");
    assert_eq!(from(&server, "127.0.0.2", &good), 200);
    asked(&server, &good, "GET", "/v1/groups", "").ok(200);
}
