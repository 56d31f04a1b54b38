//! One HTTP request of a run: the name is resolved here, every address checked, and a checked one connected to.
//!
//! ```text
//!  url ─▶ host ─▶ addresses ─▶ guard (all of them) ─▶ connect to one of these ─▶ guard again ─▶ TLS ─▶ request ─▶ answer
//! ```
//! Redirects are answers like any other: whoever wants to follow one makes a new request, which is checked anew. There is no
//! proxy, no cookie, no cache, and no connection is used twice. The calling thread waits, at most `timeout`.

mod request;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request as Sent, Response};
use hyper_util::rt::TokioIo;
use model::{Code, Problem};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::guard::Guard;
use super::tls::Tls;
use super::{Class, Failure};
use request::Target;

/// The longest body of an answer.
pub const ANSWER_MAX: usize = 1 << 20;
/// The longest head of an answer.
const HEAD_MAX: usize = 64 << 10;

/// A request as a run asks for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub method: String,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// For all of it: resolving, connecting, sending, reading.
    pub timeout: Duration,
    /// Sent as `Idempotency-Key`, unless the headers have one.
    pub idempotency_key: Option<String>,
}

impl Request {
    /// Says to whose trace it belongs, unless whoever made it did.
    pub fn trace(&mut self, traceparent: Option<String>) {
        let said = self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
        if let Some(traceparent) = traceparent.filter(|_| !said) {
            self.headers.push(("traceparent".to_owned(), traceparent));
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// What a status other than 2xx means for a step that wants success.
    pub fn failure(&self) -> Option<Failure> {
        let (class, more) = match self.status {
            200..=299 => return None,
            300..=399 => (Class::Permanent, "; redirects are not followed"),
            402 => (Class::Budget, ""),
            408 | 425 | 429 => (Class::Transient, ""),
            400..=499 | 501 | 505 => (Class::Permanent, ""),
            _ => (Class::Transient, ""),
        };
        let what = format!("the server answered {}{more}", self.status);
        let problem = Problem::new(Code::HttpStatus, what).with("status_code", self.status);
        Some(Failure { class, problem, sent: true })
    }
}

type Resolve = Box<dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Whether something could be sent there at all; where it leads is seen when it is connected to.
pub fn check_url(url: &str) -> Result<(), Problem> {
    request::target(url).map(drop).map_err(|failure| failure.problem)
}

/// Whether these may stand in a request.
pub fn check_headers(headers: Vec<(String, String)>) -> Result<(), Problem> {
    let request = Request {
        method: "POST".to_owned(),
        url: "https://example.org/".to_owned(),
        headers,
        body: Vec::new(),
        timeout: Duration::ZERO,
        idempotency_key: None,
    };
    request::prepare(&request).map(drop).map_err(|failure| failure.problem)
}

/// Sends requests for any number of threads.
pub struct Http {
    guard: Guard,
    tls: Tls,
    resolve: Option<Resolve>,
    runtime: Option<Runtime>,
}

impl Http {
    /// Trusts the machine's root certificates, and those in `ca_file`.
    pub fn new(guard: Guard, ca_file: Option<&PathBuf>) -> Result<Http, Problem> {
        let tls = Tls::new(ca_file)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(1).thread_name("ew-http").enable_all().build();
        let runtime = runtime.map_err(|error| {
            Problem::new(Code::Internal, format!("the threads for HTTP cannot be started: {error}"))
        })?;
        Ok(Http { guard, tls, resolve: None, runtime: Some(runtime) })
    }

    /// With another way from names to addresses than the system's.
    pub fn resolving(
        mut self,
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Http {
        self.resolve = Some(Box::new(resolve));
        self
    }

    /// Sends it and waits for the whole answer. Not to be called on a thread that serves async tasks.
    pub fn send(&self, request: &Request) -> Result<Answer, Failure> {
        self.runtime().block_on(self.sent(request))
    }

    /// Where requests are made.
    pub(super) fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("there until it is dropped")
    }

    /// As [`Http::send`], for a task of [`Http::runtime`].
    pub(super) async fn sent(&self, request: &Request) -> Result<Answer, Failure> {
        let (target, message) = request::prepare(request)?;
        let connected = AtomicBool::new(false);
        let ended = tokio::time::timeout(request.timeout, self.exchange(&target, message, &connected)).await;
        let ended = ended.unwrap_or_else(|_| {
            let seconds = request.timeout.as_secs_f64();
            let unit = if seconds == 1.0 { "second" } else { "seconds" };
            Err(failed(format!("\"{}\" did not answer within {seconds} {unit}", target.host)))
        });
        ended.map_err(|failure| Failure { sent: connected.load(Ordering::Relaxed), ..failure })
    }

    async fn exchange(
        &self,
        target: &Target,
        sent: Sent<Full<Bytes>>,
        connected: &AtomicBool,
    ) -> Result<Answer, Failure> {
        let stream = self.connect(target).await?;
        if !target.secure {
            connected.store(true, Ordering::Relaxed);
            return over(stream, target, sent).await;
        }
        let secure = self.tls.connect(&target.host, stream).await?;
        connected.store(true, Ordering::Relaxed);
        over(secure, target, sent).await
    }

    async fn connect(&self, target: &Target) -> Result<TcpStream, Failure> {
        let mut last = None;
        for address in self.addresses(target).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let peer = stream.peer_addr().map_err(|error| unreachable(target, &error))?;
                    self.guard.check(&target.host, peer.ip()).map_err(refused)?;
                    return Ok(stream);
                }
                Err(error) => last = Some(error),
            }
        }
        let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        Err(unreachable(target, &last.unwrap_or_else(none)))
    }

    /// All addresses of the host, each of them checked: one that is not allowed spoils the rest, because a name that points
    /// inside and outside at once is a trap, not a service.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, Failure> {
        let found = match &self.resolve {
            Some(resolve) => resolve(&target.host, target.port),
            None => tokio::net::lookup_host((target.host.as_str(), target.port)).await.map(Iterator::collect),
        };
        let found = found.map_err(|error| unreachable(target, &error))?;
        for address in &found {
            self.guard.check(&target.host, address.ip()).map_err(refused)?;
        }
        Ok(found)
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        // Not waiting: the last owner may be an async task, where a runtime must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// One exchange over a connection that stands.
async fn over<S>(stream: S, target: &Target, sent: Sent<Full<Bytes>>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error: hyper::Error| broken(target, &error);
    let handshake = http1::Builder::new().max_buf_size(HEAD_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(broken)?;
    let answer = async {
        let response = sender.send_request(sent).await.map_err(broken)?;
        read(response, target).await
    };
    beside(answer, connection).await
}

/// Runs `answer` while `connection` is driven; the connection may end first, when the server closes it behind its answer.
async fn beside<T>(answer: impl Future<Output = T>, connection: impl Future) -> T {
    tokio::pin!(answer, connection);
    tokio::select! {
        biased;
        done = &mut answer => return done,
        _ = &mut connection => {}
    }
    answer.await
}

async fn read(response: Response<Incoming>, target: &Target) -> Result<Answer, Failure> {
    let (head, mut body) = response.into_parts();
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = head.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| broken(target, &error))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > ANSWER_MAX {
            let what = format!("the answer of \"{}\" is longer than {ANSWER_MAX} bytes", target.host);
            let problem = Problem::new(Code::HttpAnswer, what).hint("ask for less, page by page");
            return Err(Failure::new(Class::Permanent, problem));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Answer { status: head.status.as_u16(), headers, body: bytes })
}

fn refused(problem: Problem) -> Failure {
    Failure::new(Class::Permanent, problem)
}

fn failed(what: String) -> Failure {
    Failure::new(Class::Transient, Problem::new(Code::HttpFailed, what))
}

fn unreachable(target: &Target, error: &io::Error) -> Failure {
    failed(format!("\"{}\" port {} cannot be reached: {error}", target.host, target.port))
}

/// An answer that is not HTTP stays so; a connection that broke may hold next time.
fn broken(target: &Target, error: &hyper::Error) -> Failure {
    if error.is_parse() {
        let what = format!("the answer of \"{}\" cannot be read: {error}", target.host);
        return Failure::new(Class::Permanent, Problem::new(Code::HttpAnswer, what));
    }
    failed(format!("the connection to \"{}\" broke: {error}", target.host))
}
