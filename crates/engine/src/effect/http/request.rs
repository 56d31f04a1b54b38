//! What a run asked for, checked and turned into what is sent.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{HeaderMap, Method, Request as Sent, Uri};
use model::{Code, Problem};

use super::Request;
use crate::effect::{Class, Failure};

const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Headers that belong to the connection, and so to us.
const OURS: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where it goes.
pub(super) struct Target {
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) secure: bool,
}

pub(super) fn prepare(request: &Request) -> Result<(Target, Sent<Full<Bytes>>), Failure> {
    let (uri, target) = target(&request.url)?;
    let method: Method = request
        .method
        .to_ascii_uppercase()
        .parse()
        .map_err(|_| invalid(format!("{:?} is no method", request.method)))?;
    if method == Method::CONNECT {
        return Err(invalid("CONNECT opens a tunnel, which nothing checks".to_owned()));
    }
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let body = Full::new(Bytes::from(request.body.clone()));
    let mut sent =
        Sent::builder().method(method).uri(path).body(body).map_err(|error| invalid(error.to_string()))?;
    *sent.headers_mut() = headers(request, &uri)?;
    Ok((target, sent))
}

pub(super) fn target(url: &str) -> Result<(Uri, Target), Failure> {
    let wrong = |what: &str| invalid(format!("the URL {url:?} {what}"));
    let uri: Uri = url.parse().map_err(|_| wrong("cannot be read"))?;
    let secure = match uri.scheme_str() {
        Some("http") => false,
        Some("https") => true,
        _ => return Err(wrong("does not begin with https:// or http://")),
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(wrong("has a user in it; send an \"authorization\" header"));
    }
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    if host.is_empty() {
        return Err(wrong("names no host"));
    }
    if uri.port_u16().is_none() && uri.authority().is_some_and(|authority| has_port(authority.as_str())) {
        return Err(wrong("has a port that is no number up to 65535"));
    }
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    Ok((uri, Target { host, port, secure }))
}

/// Whether something stands behind the colon after the host.
fn has_port(authority: &str) -> bool {
    authority.rsplit_once(']').map_or(authority, |(_, after)| after).contains(':')
}

fn headers(request: &Request, uri: &Uri) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    for (name, value) in &request.headers {
        let known: HeaderName =
            name.parse().map_err(|_| invalid(format!("{name:?} is no name of a header")))?;
        if OURS.contains(&known.as_str()) || known.as_str().starts_with("proxy-") {
            return Err(invalid(format!(
                "the header {name:?} belongs to the connection and is not for a request to say"
            )));
        }
        let value = HeaderValue::from_str(value).map_err(|_| {
            invalid(format!("the header {name:?} has a line break or another control character"))
        })?;
        headers.append(known, value);
    }
    if let Some(key) = request.idempotency_key.as_ref().filter(|_| !headers.contains_key(IDEMPOTENCY_KEY)) {
        let key =
            HeaderValue::from_str(key).map_err(|_| invalid("the idempotency key is no header".to_owned()))?;
        headers.insert(IDEMPOTENCY_KEY, key);
    }
    let agent = HeaderValue::from_static(concat!("everwhen/", env!("CARGO_PKG_VERSION")));
    headers.entry(USER_AGENT).or_insert(agent);
    let host = uri.authority().map_or("", |authority| authority.as_str());
    headers
        .insert(HOST, HeaderValue::from_str(host).map_err(|_| invalid("the host is no header".to_owned()))?);
    Ok(headers)
}

fn invalid(what: String) -> Failure {
    Failure::new(Class::Permanent, Problem::new(Code::HttpInvalid, what))
}
