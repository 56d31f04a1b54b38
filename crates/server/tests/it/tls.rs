//! The doors over TLS, and a certificate that changes while they are open.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::harness::{Server, TempDir};

/// For hooks.internal and 127.0.0.1, signed by a root of our own.
fn certificate(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../engine/src/effect/tests/certificates").join(name)
}

/// What a server answers to `GET /livez`, and how many certificates it showed.
fn asked(server: &Server) -> std::io::Result<(String, usize)> {
    exchanged(server, "GET /livez HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
}

fn exchanged(server: &Server, request: &str) -> std::io::Result<(String, usize)> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(
        CertificateDer::pem_file_iter(certificate("root.pem")).unwrap().map(Result::unwrap),
    );
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let mut session = ClientConnection::new(config, ServerName::try_from("127.0.0.1").unwrap()).unwrap();
    let mut socket = TcpStream::connect(server.address).unwrap();
    let mut stream = Stream::new(&mut session, &mut socket);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    // Some servers end without saying so; what came before counts.
    let _ = stream.read_to_string(&mut answer);
    Ok((answer, session.peer_certificates().map_or(0, <[_]>::len)))
}

#[test]
fn requests_are_answered_over_tls_and_a_new_certificate_counts_from_the_next_connection_on() {
    let dir = TempDir::new();
    std::fs::create_dir_all(&dir.0).unwrap();
    let (chain, key) = (dir.0.join("chain.pem"), dir.0.join("key.pem"));
    std::fs::copy(certificate("server.pem"), &chain).unwrap();
    std::fs::copy(certificate("server.key"), &key).unwrap();
    let server = Server::secure(&chain, &key);
    let (answer, shown) = asked(&server).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(shown, 1);
    // One that cannot be used leaves the one before in force.
    std::fs::write(&chain, "no certificate").unwrap();
    assert_eq!(asked(&server).unwrap().1, 1);
    let both = [certificate("server.pem"), certificate("root.pem")]
        .map(|path| std::fs::read(path).unwrap())
        .concat();
    std::fs::write(&chain, both).unwrap();
    assert_eq!(asked(&server).unwrap().1, 2);
}

#[test]
fn who_asks_without_tls_is_told_so_in_words() {
    let server = Server::secure(&certificate("server.pem"), &certificate("server.key"));
    let refused = server.get("/livez").refused(400, "request.invalid");
    assert!(refused["hint"].as_str().unwrap().contains("https://"), "{refused}");
}

#[test]
fn the_cookie_of_the_page_is_only_for_tls() {
    let server = Server::secure(&certificate("server.pem"), &certificate("server.key"));
    let form = "token=ew_viewer_0123456789";
    let head = "host: 127.0.0.1\r\ncontent-type: application/x-www-form-urlencoded\r\nconnection: close";
    let length = form.len();
    let request = format!("POST /ui/sign-in HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{form}");
    let (answer, _) = exchanged(&server, &request).unwrap();
    let cookie = answer.lines().find(|line| line.starts_with("set-cookie:")).unwrap_or(&answer);
    assert!(cookie.ends_with("; Secure"), "{cookie}");
}
