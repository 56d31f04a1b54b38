//! Keeps web pages away from a server that no token protects: only this machine can reach it, but a browser here would carry any
//! page's requests to it.
//!
//! ```text
//!   a page of evil.example posts to 127.0.0.1        its Origin is another host             403
//!   evil.example resolves to 127.0.0.1 (rebinding)   the Host is a name of the public DNS   403
//!   curl, the command line, a worker                 no Origin, Host is an address or localhost
//! ```
//! Browsers cannot be told to leave either header out. With tokens neither is asked for: a page has none, the cookie of our own is
//! `SameSite=Strict`, and a proxy on this machine may pass on the name it is known by. Only agents' tools ask who sent a page there, too
//! (the MCP specification wants it).

use hyper::header::{HOST, HeaderValue, ORIGIN, UPGRADE};
use hyper::{Method, Request};
use model::{Code, Problem};

/// Refuses what only a foreign page can have sent.
pub fn check<B>(request: &Request<B>) -> Result<(), Problem> {
    let headers = request.headers();
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    if let Some(host) = host.filter(|host| is_foreign(host)) {
        let host = String::from_utf8_lossy(host);
        return Err(Problem::new(Code::AuthDenied, format!("this server is not known as \"{host}\""))
            .hint("ask for it by its address or as localhost; behind a proxy, serve with tokens (without --no-auth)"));
    }
    check_page(request)
}

/// Refuses what a page of another host would change.
pub fn check_page<B>(request: &Request<B>) -> Result<(), Problem> {
    let headers = request.headers();
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    // A page may open a WebSocket anywhere, and what comes then is not asked again.
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && !headers.contains_key(UPGRADE);
    let Some(origin) = headers.get(ORIGIN).filter(|_| !reads) else { return Ok(()) };
    let from = after_scheme(origin.as_bytes());
    if from.is_some_and(|from| same_host(name(from), name(host.unwrap_or_default()))) {
        return Ok(());
    }
    let origin = String::from_utf8_lossy(origin.as_bytes());
    Err(Problem::new(Code::AuthDenied, format!("a page of \"{origin}\" may not change anything here"))
        .hint("only pages of this server itself may; other programs send no \"origin\""))
}

/// Whether this `Host` is not one of ours.
pub fn is_foreign(host: &[u8]) -> bool {
    is_public(name(host))
}

/// `host:port` without the port.
fn name(authority: &[u8]) -> &[u8] {
    match authority.iter().rposition(|b| matches!(b, b':' | b']')) {
        Some(at) if authority[at] == b':' => &authority[..at],
        _ => authority,
    }
}

/// What stands behind `http://`; `None` for `null`, which every sandboxed page says.
fn after_scheme(origin: &[u8]) -> Option<&[u8]> {
    let at = origin.windows(3).position(|three| three == b"://")?;
    Some(&origin[at + 3..])
}

/// Whether anybody could have made the name lead here: a name with a dot that is neither an address nor under
/// `.localhost`. Names without one are given by this machine or its own network.
fn is_public(name: &[u8]) -> bool {
    let name = name.strip_suffix(b".").unwrap_or(name);
    let under_localhost = || name.len() > 10 && name[name.len() - 10..].eq_ignore_ascii_case(b".localhost");
    let address = || name.iter().all(|b| b.is_ascii_digit() || *b == b'.');
    name.contains(&b'.') && !name.starts_with(b"[") && !address() && !under_localhost()
}

fn same_host(a: &[u8], b: &[u8]) -> bool {
    a.eq_ignore_ascii_case(b) || (is_loopback(a) && is_loopback(b))
}

fn is_loopback(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"localhost")
        || name == b"[::1]"
        || name.starts_with(b"127.") && !is_public(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, host: &str, origin: Option<&str>) -> Result<(), Problem> {
        let mut request = Request::builder().method(method).uri("/v1/events").header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        check(&request.body(()).unwrap())
    }

    #[test]
    fn a_host_of_the_public_dns_is_refused_and_any_local_name_is_not() {
        for host in
            ["127.0.0.1:3837", "localhost", "LOCALHOST:1", "[::1]:3837", "a.localhost", "test", "10.0.0.7"]
        {
            ask("GET", host, None).unwrap();
        }
        for host in ["evil.example", "evil.example:3837", "127.0.0.1.evil.example", "localhost.evil.example."]
        {
            assert_eq!(ask("GET", host, None).unwrap_err().code(), Code::AuthDenied, "{host}");
        }
    }

    #[test]
    fn a_page_of_another_host_changes_nothing() {
        for origin in ["http://127.0.0.1:3837", "http://localhost:5173", "http://[::1]"] {
            ask("POST", "127.0.0.1:3837", Some(origin)).unwrap();
        }
        for origin in
            ["http://evil.example", "null", "https://127.0.0.1.evil.example", "http://127.evil.example"]
        {
            for method in ["POST", "PUT", "DELETE", "PATCH"] {
                let refused = ask(method, "127.0.0.1:3837", Some(origin)).unwrap_err();
                assert_eq!(refused.code(), Code::AuthDenied, "{origin}");
            }
            ask("GET", "127.0.0.1:3837", Some(origin)).unwrap();
        }
    }

    #[test]
    fn a_page_of_another_host_opens_no_socket() {
        let open = |origin: &str| {
            let request = Request::builder().uri("/v1/ws").header(HOST, "127.0.0.1:3837");
            check(&request.header(UPGRADE, "websocket").header(ORIGIN, origin).body(()).unwrap())
        };
        open("http://localhost:5173").unwrap();
        assert_eq!(open("http://evil.example").unwrap_err().code(), Code::AuthDenied);
        assert_eq!(open("null").unwrap_err().code(), Code::AuthDenied);
    }
}
