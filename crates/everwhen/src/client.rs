//! The other end of the HTTP doors: what a command says when a server holds the data directory.

use std::convert::Infallible;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use engine::effect::tls::Tls;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue, IF_MATCH};
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use model::{Code, Problem};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc};

use crate::held;

pub mod lines;

type Sender = SendRequest<BoxBody<Bytes, Infallible>>;

/// A server and who we are to it. One connection is kept and used again.
pub struct Client {
    url: String,
    host: String,
    port: u16,
    prefix: String,
    token: Option<String>,
    /// `None`: the one that the token is of.
    tenant: Option<String>,
    /// Of an https URL.
    tls: Option<Tls>,
    idle: Mutex<Option<Sender>>,
}

/// What is sent: nothing, a whole body with its content type, or lines as they come.
pub enum Sent {
    Nothing,
    Whole(&'static str, Vec<u8>),
    Lines(mpsc::Receiver<Bytes>),
}

impl Client {
    pub fn new(url: &str, token: Option<String>, tenant: &str) -> Result<Client, Problem> {
        let wrong = |what: &str| {
            Problem::new(Code::UsageInvalid, format!("\"{url}\" {what}"))
                .hint("write it like http://127.0.0.1:3837")
        };
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(Tls::new(None)?), 443),
            _ => return Err(wrong("is not an http URL")),
        };
        let host = uri.host().ok_or_else(|| wrong("names no host"))?;
        Ok(Client {
            url: url.trim_end_matches('/').to_owned(),
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(port),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            token,
            tenant: Some(tenant.to_owned()),
            tls,
            idle: Mutex::new(None),
        })
    }

    /// Leaves it to the token which tenant is meant, unless somebody named one.
    pub fn of_the_token(mut self, named: bool) -> Client {
        self.tenant = self.tenant.filter(|_| named || self.token.is_none());
        self
    }

    /// The tenant that is named to the server, if one is.
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the server knows by the token who we are.
    pub fn goes_by_token(&self) -> bool {
        self.token.as_deref().is_some_and(|token| !held::is_local(token))
    }

    /// Over https, trusts the certificates in this file beside the machine's.
    pub fn trusting(mut self, ca: Option<&PathBuf>) -> Result<Client, Problem> {
        if self.tls.is_some() {
            self.tls = Some(Tls::new(ca)?);
        }
        Ok(self)
    }

    /// Asks for JSON and reads it as `T`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        read_json(self.send(Method::GET, path, Sent::Nothing).await?).await
    }

    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Problem> {
        read_json(self.send(Method::POST, path, json_body(body)).await?).await
    }

    /// Puts a document; `true` when that made something new.
    pub async fn put(&self, path: &str, body: &Value) -> Result<(bool, Value), Problem> {
        let response = self.send(Method::PUT, path, json_body(body)).await?;
        let created = response.status() == 201;
        Ok((created, read_json(response).await?))
    }

    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, Problem> {
        read_json(self.send(Method::PATCH, path, json_body(body)).await?).await
    }

    pub async fn delete(&self, path: &str) -> Result<(), Problem> {
        read_all(self.send(Method::DELETE, path, Sent::Nothing).await?).await.map(drop)
    }

    /// The answer as text, whatever it is.
    pub async fn text(&self, path: &str) -> Result<String, Problem> {
        let bytes = read_all(self.send(Method::GET, path, Sent::Nothing).await?).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends a request and returns a good answer; a refusal becomes the problem that it tells.
    pub async fn send(&self, method: Method, path: &str, sent: Sent) -> Result<Response<Incoming>, Problem> {
        self.send_with(method, path, sent, None).await
    }

    /// Posts in another's name; only a server without tokens takes somebody's word for who they are.
    pub async fn post_as<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        actor: &str,
    ) -> Result<T, Problem> {
        let actor = HeaderValue::from_str(actor)
            .map_err(|_| Problem::new(Code::UsageInvalid, format!("\"{actor}\" cannot be an actor")))?;
        let header = (HeaderName::from_static("everwhen-actor"), actor);
        read_json(self.send_with(Method::POST, path, json_body(body), Some(header)).await?).await
    }

    /// As [`Client::send`], if what is written to is at this version.
    pub async fn send_if(
        &self,
        method: Method,
        path: &str,
        sent: Sent,
        version: Option<model::Position>,
    ) -> Result<Response<Incoming>, Problem> {
        let header = version.map(|version| (IF_MATCH, HeaderValue::from(version)));
        self.send_with(method, path, sent, header).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        sent: Sent,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Response<Incoming>, Problem> {
        let mut request = self.request(method, path, sent)?;
        request.headers_mut().extend(header);
        let response = self.exchange(request).await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(refusal(response).await),
        }
    }

    async fn exchange(
        &self,
        request: Request<BoxBody<Bytes, Infallible>>,
    ) -> Result<Response<Incoming>, Problem> {
        let mut sender = self.connection().await?;
        let response = sender.send_request(request).await.map_err(|error| self.unreachable(&error))?;
        // A connection whose answer is still being read is not ready; the next request makes its own.
        *self.idle.lock().await = Some(sender);
        Ok(response)
    }

    /// What `/readyz` says: "not ready" is an answer, though its status is that of a refusal.
    pub async fn ready(&self) -> Result<Value, Problem> {
        let response = self.exchange(self.request(Method::GET, "/readyz", Sent::Nothing)?).await?;
        let status = response.status().as_u16();
        match serde_json::from_slice::<Value>(&read_all(response).await?) {
            Ok(told) if told["ready"].is_boolean() => Ok(told),
            _ => Err(Problem::new(Code::ServerUnreachable, format!("/readyz answered {status}"))),
        }
    }

    /// Carries a message of the Model Context Protocol, and in headers what its newest revision wants there. The answer is a
    /// message too, also when it is a refusal.
    pub async fn mcp(&self, message: &Value, bytes: Vec<u8>) -> Result<Option<Value>, Problem> {
        let mut request = self.request(Method::POST, "/mcp", Sent::Whole("application/json", bytes))?;
        let version = &message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        let mirrored = [
            ("mcp-protocol-version", version),
            ("mcp-method", &message["method"]),
            ("mcp-name", &message["params"]["name"]),
        ];
        for (name, value) in mirrored.into_iter().filter(|_| version.is_string()) {
            if let Some(value) = value.as_str().and_then(|value| HeaderValue::from_str(value).ok()) {
                request.headers_mut().insert(name, value);
            }
        }
        let response = self.exchange(request).await?;
        let is_problem = response
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem"));
        if is_problem {
            return Err(refusal(response).await);
        }
        let bytes = read_all(response).await?;
        Ok(serde_json::from_slice(&bytes).ok())
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        sent: Sent,
    ) -> Result<Request<BoxBody<Bytes, Infallible>>, Problem> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, format!("{}:{}", self.host, self.port));
        if let Some(tenant) = &self.tenant {
            request = request.header("everwhen-tenant", tenant);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match sent {
            Sent::Nothing => Full::new(Bytes::new()).boxed(),
            Sent::Whole(kind, bytes) => {
                request = request.header(CONTENT_TYPE, kind);
                Full::new(Bytes::from(bytes)).boxed()
            }
            Sent::Lines(lines) => {
                request = request.header(CONTENT_TYPE, "application/x-ndjson");
                Piped(lines).boxed()
            }
        };
        request.body(body).map_err(|error| Problem::new(Code::UsageInvalid, format!("not sendable: {error}")))
    }

    async fn connection(&self) -> Result<Sender, Problem> {
        if let Some(sender) = self.idle.lock().await.take()
            && sender.is_ready()
        {
            return Ok(sender);
        }
        let connect = TcpStream::connect((self.host.as_str(), self.port));
        let stream = match tokio::time::timeout(Duration::from_secs(5), connect).await {
            Ok(stream) => stream.map_err(|error| self.unreachable(&error))?,
            Err(_) => return Err(self.unreachable(&"no answer within 5 s")),
        };
        stream.set_nodelay(true).map_err(|error| self.unreachable(&error))?;
        match &self.tls {
            None => self.greeted(stream).await,
            Some(tls) => {
                let secure = tls.connect(&self.host, stream).await;
                let secure = secure.map_err(|failure| self.not_trusted(&failure.problem.to_string()))?;
                self.greeted(secure).await
            }
        }
    }

    async fn greeted(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Sender, Problem> {
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| self.unreachable(&error))?;
        // Ends with the connection; what goes wrong on it is told to the request that waits.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// What is wrong with the server's certificate, and what to do.
    fn not_trusted(&self, why: &str) -> Problem {
        if why.contains("CaUsedAsEndEntity") {
            return self.unreachable(&"its certificate is that of an authority, and no server's").hint(
                "make one with basicConstraints CA:FALSE, signed by your own root, and name the root with --ca \
                 (docs/tls.md shows how)",
            );
        }
        self.unreachable(&why).hint("--ca FILE names the certificates of a private authority that you trust")
    }

    fn unreachable(&self, why: &dyn std::fmt::Display) -> Problem {
        Problem::new(
            Code::ServerUnreachable,
            format!("the server at \"{}\" does not answer: {why}", self.url),
        )
        .hint(self.how_to_reach())
    }

    /// Only on this machine can a server be started from here.
    fn how_to_reach(&self) -> String {
        let address: Result<IpAddr, _> = self.host.parse();
        let here = self.host == "localhost" || address.is_ok_and(|address| address.is_loopback());
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match here {
            true => format!("is it running? start one with: everwhen serve --listen {host}:{}", self.port),
            false => {
                format!("is it running there, and is the address right? try: curl -i {}/livez", self.url)
            }
        }
    }
}

fn json_body(body: &Value) -> Sent {
    Sent::Whole("application/json", body.to_string().into_bytes())
}

/// Reads a whole answer as JSON.
pub async fn read_json<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, Problem> {
    let bytes = read_all(response).await?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Problem::new(Code::Internal, format!("the server's answer is not understood: {error}"))
    })
}

pub async fn read_all(response: Response<Incoming>) -> Result<Bytes, Problem> {
    let cut = |error: hyper::Error| {
        Problem::new(Code::ServerUnreachable, format!("the answer was cut off: {error}"))
    };
    Ok(response.into_body().collect().await.map_err(cut)?.to_bytes())
}

/// The problem that an answer other than 2xx tells; without a document of ours the status decides.
async fn refusal(response: Response<Incoming>) -> Problem {
    let status = response.status().as_u16();
    let bytes = match read_all(response).await {
        Ok(bytes) => bytes,
        Err(problem) => return problem,
    };
    let by_status = match status {
        401 => Code::AuthRequired,
        403 => Code::AuthDenied,
        404 | 410 => Code::NotFound,
        409 | 412 => Code::IfMatchFailed,
        429 => Code::QuotaExceeded,
        400..=499 => Code::RequestInvalid,
        502..=504 => Code::ServerUnreachable,
        _ => Code::Internal,
    };
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(document)) => {
            let known = Code::ALL.iter().any(|code| document.get("code").is_some_and(|c| c == code.as_str()));
            let told = Problem::from_json(&document);
            match (known, told.detail()) {
                (true, _) => told,
                (false, "") => Problem::new(by_status, format!("the server answered {status}")),
                (false, detail) => Problem::new(by_status, detail),
            }
        }
        _ => Problem::new(by_status, format!("the server answered {status}")),
    }
}

/// A request body fed by another task, line by line.
struct Piped(mpsc::Receiver<Bytes>);

impl Body for Piped {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A path's `?name=value&…` out of what was given.
pub fn query(parts: &[(&str, Option<&str>)]) -> String {
    let given: Vec<String> = parts
        .iter()
        .filter_map(|(name, value)| value.map(|value| format!("{name}={}", escape(value))))
        .collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// Percent-encodes everything that is not plain in a path or a query.
pub fn escape(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_holds_what_was_given_and_nothing_raw() {
        let text = query(&[("topic", Some("a.#")), ("space", None), ("filter", Some("x > 1 && y"))]);
        assert_eq!(text, "?topic=a.%23&filter=x%20%3E%201%20%26%26%20y");
        assert_eq!(query(&[("a", None)]), "");
    }

    #[test]
    fn a_bad_url_is_named() {
        for url in ["", "nonsense", "ftp://h", "http://"] {
            let problem = Client::new(url, None, "main").err().unwrap();
            assert_eq!(problem.code(), Code::UsageInvalid, "{url}");
        }
        let client = Client::new("http://[::1]:7/base/", None, "main").unwrap();
        assert_eq!((client.host.as_str(), client.port, client.prefix.as_str()), ("::1", 7, "/base"));
    }
}
