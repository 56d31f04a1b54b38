//! The benchmarks over HTTP: a server in this process on a port of its own, and clients on threads of their own.

mod connection;
pub mod deliver;
pub mod tenants;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use engine::authority::{Role, Terms};
use engine::{Caller, Engine, Options, Tenant};
use model::Problem;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use self::connection::{Connection, authorized, post};
use super::failed;
use super::measure::{Latencies, Rate};
use super::publish::Load;
use super::raw::{CountingDisk, Writes};

/// What `everwhen serve` would run, on the same kind of runtime, over a disk that counts.
pub struct Served {
    pub address: SocketAddr,
    pub writes: Writes,
    /// What a request must show, where it must.
    token: Option<String>,
    engine: Engine,
    runtime: Runtime,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), Problem>>,
}

impl Served {
    pub fn start(dir: &Path) -> Result<Served, Problem> {
        Served::with(dir, false)
    }

    /// As [`Served::start`], and every request is asked for a token.
    pub fn asking(dir: &Path) -> Result<Served, Problem> {
        Served::with(dir, true)
    }

    fn with(dir: &Path, auth: bool) -> Result<Served, Problem> {
        let runtime = crate::runtime()?;
        let writes = Writes::default();
        let disk = Arc::new(CountingDisk { writes: writes.clone() });
        let engine = Engine::open_with(dir.join("data"), Options { disk, ..Options::default() })?;
        let bound = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = bound.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let default_tenant = engine::DEFAULT_TENANT.to_owned();
        let options = server::Options { listener, token: None, no_auth: !auth, default_tenant, tls: None };
        let token = if auth {
            Some(runtime.block_on(async { token(&engine, &engine.main()?).await })?)
        } else {
            None
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(server::serve(engine.clone(), options, async move {
            let _ = stopped.await;
        }));
        Ok(Served { address, writes, token, engine, runtime, stop, serving })
    }

    /// Ends as `serve` does on a signal: requests first, then the engine.
    pub fn stop(self) -> Result<(), Problem> {
        let _ = self.stop.send(());
        self.runtime.block_on(async {
            self.serving.await.map_err(failed)??;
            self.engine.close().await
        })
    }
}

/// A token that may publish, as the owner of a server would give it to a program.
async fn token(engine: &Engine, tenant: &Tenant) -> Result<String, Problem> {
    let terms = Terms { name: "bench".to_owned(), ..Terms::of(Role::Editor) };
    Ok(engine.authority().create(tenant, &Caller::local(), terms).await?.0)
}

/// `load.publishers` connections, each with one publish under way, until `load.events` are answered.
pub fn publish(served: &Served, load: Load) -> Result<Rate, Problem> {
    let address = served.address;
    let request: Arc<[u8]> =
        authorized(post("/v1/events", &event(load.bytes)), served.token.as_deref()).into();
    let threads = client_threads().min(load.publishers);
    let left = Arc::new(AtomicU64::new(load.events));
    // Nobody begins before every connection is open.
    let ready = Arc::new(Barrier::new(threads + 1));
    let clients: Vec<_> = (0..threads)
        .map(|thread| {
            let connections = (load.publishers + thread) / threads;
            let (request, left, ready) = (request.clone(), left.clone(), ready.clone());
            std::thread::spawn(move || on_one_thread(client(address, connections, request, left, ready)))
        })
        .collect();
    ready.wait();
    let started = Instant::now();
    let mut latencies = Latencies::with_capacity(load.events as usize);
    for client in clients {
        latencies.extend(client.join().map_err(|_| failed("a client panicked"))??);
    }
    Ok(Rate { seconds: started.elapsed(), events: load.events, latencies, fsyncs: 0 })
}

/// Half the cores for the clients: leaner than a pool that steals from itself, and the server keeps the other half.
fn client_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| (usize::from(cores) / 2).max(1))
}

pub fn on_one_thread<T>(future: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(failed)?.block_on(future)
}

async fn client(
    address: SocketAddr,
    connections: usize,
    request: Arc<[u8]>,
    left: Arc<AtomicU64>,
    ready: Arc<Barrier>,
) -> Result<Latencies, Problem> {
    let opened = open_all(address, connections).await;
    ready.wait();
    let mut tasks = tokio::task::JoinSet::new();
    for connection in opened? {
        tasks.spawn(publish_on(connection, request.clone(), left.clone()));
    }
    let mut latencies = Latencies::default();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.map_err(failed)??);
    }
    Ok(latencies)
}

async fn open_all(address: SocketAddr, connections: usize) -> Result<Vec<Connection>, Problem> {
    let mut opened = Vec::with_capacity(connections);
    for _ in 0..connections {
        opened.push(Connection::open(address).await.map_err(failed)?);
    }
    Ok(opened)
}

async fn publish_on(
    mut connection: Connection,
    request: Arc<[u8]>,
    left: Arc<AtomicU64>,
) -> Result<Latencies, Problem> {
    let mut latencies = Latencies::default();
    let take = |n: u64| n.checked_sub(1);
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
        let begun = Instant::now();
        connection.exchange(&request).await.map_err(failed)?;
        latencies.add(begun.elapsed());
    }
    Ok(latencies)
}

/// The event of [`super::publish::draft`] as a client writes it.
fn event(bytes: usize) -> String {
    let draft = super::publish::draft(bytes);
    format!(r#"{{"topic":{},"payload":{}}}"#, json!(draft.topic), draft.payload.get())
}
