//! A server that lives as long as a test.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use engine::Engine;
use engine::clock::ToldClock;
use model::Timestamp;
use server::{Options, Patience};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{Client, Reply};

/// Threads that run the server's tasks.
const WORKERS: usize = 2;

/// A commit that is held until this is dropped.
pub struct Hold {
    held: mpsc::Receiver<()>,
    _release: mpsc::Sender<()>,
    _leave: mpsc::Sender<()>,
}

impl Hold {
    /// Ready once somebody is held.
    pub fn begun(&self) {
        self.held.recv().unwrap();
    }

    /// Holds on for so long.
    pub fn last(&self, time: Duration) {
        assert!(self.held.recv_timeout(time).is_err(), "there is one to be held");
    }
}

/// Says that it was called, and comes back when it may.
struct Holds(Mutex<(mpsc::Sender<()>, mpsc::Receiver<()>)>);

impl Wake for Holds {
    fn wake(self: Arc<Self>) {
        let ends = self.0.lock().unwrap();
        ends.0.send(()).unwrap();
        let _ = ends.1.recv();
    }
}

/// A directory that goes away with the test.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("everwhen-server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        TempDir(std::env::temp_dir().join(name))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub engine: Engine,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<()>>,
    runtime: Runtime,
    pub dir: TempDir,
}

impl Server {
    pub fn start() -> Server {
        Server::start_with(Patience::default(), None)
    }

    /// Its time stands still until it is moved.
    pub fn told(now: &str) -> Server {
        let clock = Arc::new(ToldClock::at(Timestamp::parse(now).unwrap()));
        Server::start_on(Patience::default(), None, engine::Options { clock, ..Default::default() })
    }

    /// As [`Server::told`], and it asks for tokens.
    pub fn told_asking(now: &str, token: &str) -> Server {
        let clock = Arc::new(ToldClock::at(Timestamp::parse(now).unwrap()));
        Server::start_on(Patience::default(), Some(token), engine::Options { clock, ..Default::default() })
    }

    /// With other settings than the defaults.
    pub fn start_with_settings(change: impl FnOnce(&mut engine::Settings)) -> Server {
        let mut options = engine::Options::default();
        change(&mut options.settings);
        Server::start_on(Patience::default(), None, options)
    }

    pub fn start_with(patience: Patience, token: Option<&str>) -> Server {
        Server::start_on(patience, token, engine::Options::default())
    }

    /// With other settings of the engine.
    pub fn set(settings: engine::settings::Settings, token: Option<&str>) -> Server {
        Server::start_on(Patience::default(), token, engine::Options { settings, ..Default::default() })
    }

    /// Over TLS, with the certificate and key in these files.
    pub fn secure(certificate: &std::path::Path, key: &std::path::Path) -> Server {
        let tls = server::Tls::new(certificate.to_owned(), key.to_owned()).unwrap();
        Server::start_with_all(Patience::default(), None, engine::Options::default(), Some(tls))
    }

    fn start_on(patience: Patience, token: Option<&str>, options: engine::Options) -> Server {
        Server::start_with_all(patience, token, options, None)
    }

    fn start_with_all(
        patience: Patience,
        token: Option<&str>,
        options: engine::Options,
        tls: Option<server::Tls>,
    ) -> Server {
        Server::start_in(TempDir::new(), patience, token, options, tls)
    }

    /// Stops, and starts again over the same directory.
    pub fn again(mut self) -> Server {
        let dir = std::mem::replace(&mut self.dir, TempDir(PathBuf::new()));
        // Whoever holds the engine holds the directory.
        drop(self);
        Server::start_in(dir, Patience::default(), None, engine::Options::default(), None)
    }

    fn start_in(
        dir: TempDir,
        patience: Patience,
        token: Option<&str>,
        options: engine::Options,
        tls: Option<server::Tls>,
    ) -> Server {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
        let inside = runtime.enter();
        let engine = Engine::open_with(&dir.0, options).unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let options = Options {
            listener,
            token: token.map(str::to_owned),
            no_auth: token.is_none(),
            default_tenant: "main".to_owned(),
            tls,
        };
        let serving = {
            let engine = engine.clone();
            runtime.spawn(async move {
                let stopped = async {
                    let _ = stopped.await;
                };
                server::serve_with(engine, options, patience, stopped).await.unwrap();
            })
        };
        drop(inside);
        Server { address, engine, stop: Some(stop), serving: Some(serving), runtime, dir }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request on a connection of its own.
    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: impl AsRef<[u8]>) -> Reply {
        self.client().send(method, path, headers, body)
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "")
    }

    pub fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send("POST", path, &["content-type: application/json"], body)
    }

    pub fn put(&self, path: &str, body: impl AsRef<[u8]>) -> Reply {
        self.send("PUT", path, &["content-type: application/json"], body)
    }

    /// Puts one file into force.
    pub fn apply(&self, file: &str, text: &str) {
        let body = serde_json::json!({"files": {file: text}}).to_string();
        self.post("/v1/apply", body).ok(200);
    }

    /// Publishes one event and gives its position.
    pub fn publish(&self, topic: &str, payload: &str) -> u64 {
        let reply = self.post("/v1/events", format!(r#"{{"topic":"{topic}","payload":{payload}}}"#));
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["position"].as_u64().unwrap()
    }

    /// No task of the server does anything until this is dropped.
    pub fn hold_tasks(&self) -> Vec<mpsc::Sender<()>> {
        let hold = || {
            let ((release, released), (hold, holds)) = (mpsc::channel::<()>(), mpsc::channel());
            self.runtime.spawn(async move {
                hold.send(()).unwrap();
                let _ = released.recv();
            });
            holds.recv().unwrap();
            release
        };
        (0..WORKERS).map(|_| hold()).collect()
    }

    /// Whoever commits next in `main` is held in it: it calls one who does not let it go.
    pub fn hold_next_commit(&self) -> Hold {
        let ((release, released), (hold, held)) = (mpsc::channel(), mpsc::channel());
        let ((leave, left), (sit, sits)) = (mpsc::channel::<()>(), mpsc::channel());
        let tenant = self.engine.main().unwrap();
        std::thread::spawn(move || {
            let mut follower = tenant.follow(engine::Follow::default()).unwrap();
            let mut called = pin!(follower.next(1));
            let waker = Waker::from(Arc::new(Holds(Mutex::new((hold, released)))));
            assert!(called.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            sit.send(()).unwrap();
            let _ = left.recv();
        });
        sits.recv().unwrap();
        Hold { held, _release: release, _leave: leave }
    }

    /// The writer of `main` comes to nothing more until this is dropped.
    pub fn hold_writer(&self) -> Hold {
        let hold = self.hold_next_commit();
        let (engine, runtime) = (self.engine.clone(), self.runtime.handle().clone());
        std::thread::spawn(move || {
            let draft = engine::Draft::new("held.writer", &());
            let tenant = engine.main().unwrap();
            runtime.block_on(tenant.publish(&engine::Caller::local(), draft)).unwrap();
        });
        hold.begun();
        hold
    }

    /// Tells the server to stop, without waiting for it.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until the server has returned.
    pub fn join(&mut self) {
        if let Some(serving) = self.serving.take() {
            self.runtime.block_on(serving).unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if !std::thread::panicking() {
            self.join();
            self.runtime.block_on(self.engine.close()).unwrap();
        }
    }
}
