//! Requests over https to a server whose certificate a root of our own has signed.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use model::Code;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::effect::Class;
use crate::effect::guard::Guard;
use crate::effect::http::{Http, Request};

fn certificate(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/effect/tests/certificates").join(name)
}

/// Answers every connection with a 200 over TLS; its certificate is for hooks.internal and 127.0.0.1.
fn serve() -> SocketAddr {
    let chain = CertificateDer::pem_file_iter(certificate("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(certificate("server.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain.map(Result::unwrap).collect(), key);
    let config = Arc::new(config.unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, mut session) = (socket.unwrap(), ServerConnection::new(config.clone()).unwrap());
            let mut stream = Stream::new(&mut session, &mut socket);
            // A client that does not believe us hangs up.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
        }
    });
    address
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

fn http(ca_file: Option<&PathBuf>) -> Http {
    Http::new(Guard::parse(["127.0.0.0/8"]).unwrap(), ca_file).unwrap()
}

#[test]
fn a_root_of_our_own_is_trusted_and_an_unknown_one_is_not() {
    let address = serve();
    let root = certificate("root.pem");
    let answer = http(Some(&root)).send(&request(format!("https://{address}/"))).unwrap();
    assert_eq!(answer.body, b"secret");
    let named = http(Some(&root)).resolving(move |_, _| Ok(vec![address]));
    assert_eq!(named.send(&request("https://hooks.internal/".to_owned())).unwrap().status, 200);
    let refused = http(None).send(&request(format!("https://{address}/"))).unwrap_err();
    assert_eq!(
        (refused.class, refused.problem.code(), refused.sent),
        (Class::Permanent, Code::HttpFailed, false)
    );
    assert!(refused.problem.detail().contains("UnknownIssuer"), "{}", refused.problem);
}

#[test]
fn a_certificate_of_another_name_and_a_server_without_tls_are_refused() {
    let address = serve();
    let root = certificate("root.pem");
    let other = http(Some(&root)).resolving(move |_, _| Ok(vec![address]));
    let refused = other.send(&request("https://other.internal/".to_owned())).unwrap_err();
    assert_eq!((refused.class, refused.problem.code()), (Class::Permanent, Code::HttpFailed));
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = plain.local_addr().unwrap();
    std::thread::spawn(move || plain.accept().unwrap().0.write_all(b"HTTP/1.1 200 OK\r\n\r\n"));
    let refused = http(Some(&root)).send(&request(format!("https://{at}/"))).unwrap_err();
    assert_eq!((refused.class, refused.problem.code()), (Class::Transient, Code::HttpFailed));
}

#[test]
fn a_file_without_certificates_is_refused_at_once() {
    for name in ["server.key", "nowhere.pem"] {
        let refused = Http::new(Guard::default(), Some(&certificate(name))).err().unwrap();
        assert_eq!(refused.code(), Code::ConfigInvalid, "{name}");
    }
}
