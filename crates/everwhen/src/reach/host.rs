//! A long local command lets others in: it holds the directory, so it answers for it until it ends.

use std::net::SocketAddr;
use std::path::PathBuf;

use engine::Engine;
use model::{Code, Problem};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::Reach;
use crate::held::{Holder, new_token};

/// A server on a port of this machine, for as long as this value lives and until [`Host::stop`].
pub struct Host {
    url: String,
    data: PathBuf,
    stop: Option<watch::Sender<()>>,
    task: JoinHandle<Result<(), Problem>>,
}

impl Host {
    /// Says in `serve.json` where it listens, and serves until stopped.
    pub async fn start(
        engine: Engine,
        data: PathBuf,
        listener: TcpListener,
        options: Doors,
    ) -> Result<Host, Problem> {
        let address = |listener: &TcpListener| listener.local_addr().map_err(|error| unheard("it", &error));
        let Doors { no_auth, default_tenant, tls } = options;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{}", address(&listener)?);
        // Commands on this machine need no certificate: they come in by a port of their own, with the token of `serve.json`.
        let beside = match tls {
            Some(_) => Some(listen("127.0.0.1:0").await?),
            None => None,
        };
        let near = match &beside {
            Some(beside) => format!("http://{}", address(beside)?),
            None => url.clone(),
        };
        let holder = Holder { url: near, pid: std::process::id(), token: new_token() };
        holder.write(&data)?;
        let (stop, stopped) = watch::channel(());
        let token = Some(holder.token);
        let ended = |mut stopped: watch::Receiver<()>| async move {
            let _ = stopped.changed().await;
        };
        let local = beside.map(|listener| {
            let (token, default_tenant) = (token.clone(), default_tenant.clone());
            let options = server::Options { listener, token, no_auth: false, default_tenant, tls: None };
            server::serve(engine.clone(), options, ended(stopped.clone()))
        });
        let options = server::Options { listener, token, no_auth, default_tenant, tls };
        let public = server::serve(engine, options, ended(stopped));
        let task = tokio::spawn(async move {
            match local {
                Some(local) => tokio::try_join!(local, public).map(drop),
                None => public.await,
            }
        });
        Ok(Host { url, data, stop: Some(stop), task })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends when the server does, which by itself it never should.
    pub async fn failed(&mut self) -> Problem {
        match (&mut self.task).await {
            Ok(Err(problem)) => problem,
            Ok(Ok(())) => Problem::new(Code::TaskDied, "the server stopped by itself"),
            Err(error) => Problem::new(Code::TaskDied, format!("the server died: {error}")),
        }
    }

    /// Stops accepting, lets open requests end, and takes back `serve.json`.
    pub async fn stop(mut self) -> Result<(), Problem> {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let ended = (&mut self.task).await;
        ended.unwrap_or_else(|error| Err(Problem::new(Code::TaskDied, format!("the server died: {error}"))))
    }
}

/// Takes an address, before anything else is touched.
pub async fn listen(address: &str) -> Result<TcpListener, Problem> {
    bound(address).await.map_err(|error| unheard(address, &error))
}

/// So many may knock before the first of them is let in; the runtime's own 128 are soon gone when all clients come back at once, and
/// who finds none free tries again after a second.
const KNOCKING_MAX: u32 = 4_096;

/// The first address of a name that can be taken.
async fn bound(address: &str) -> std::io::Result<TcpListener> {
    let mut last = std::io::Error::new(std::io::ErrorKind::InvalidInput, "the name leads to no address");
    for address in tokio::net::lookup_host(address).await? {
        match bound_to(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn bound_to(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As the runtime does: a port is free again as soon as nobody listens.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(KNOCKING_MAX)
}

fn unheard(address: &str, error: &std::io::Error) -> Problem {
    let detail = format!("cannot listen on \"{address}\": {error}");
    match error.kind() {
        std::io::ErrorKind::AddrInUse => Problem::new(Code::ServerAddressTaken, detail).hint(
            "stop the program that listens there, or choose another address with --listen; port 0 picks a free one",
        ),
        _ => Problem::new(Code::UsageInvalid, detail)
            .hint("choose another with --listen; port 0 picks a free one"),
    }
}

/// However a command ends, nobody is sent to a door that is shut. The lock is still held here.
impl Drop for Host {
    fn drop(&mut self) {
        Holder::forget(&self.data);
    }
}

/// How the doors are open.
pub struct Doors {
    pub no_auth: bool,
    pub default_tenant: String,
    pub tls: Option<server::Tls>,
}

impl Reach {
    /// Lets other commands in while this one runs; nothing to do when a server already does.
    pub async fn share(&self) -> Result<Option<Host>, Problem> {
        let Reach::Local(local) = self else { return Ok(None) };
        let doors = Doors { no_auth: true, default_tenant: "main".to_owned(), tls: None };
        let listener = listen("127.0.0.1:0").await?;
        Host::start(local.engine.clone(), local.data.clone(), listener, doors).await.map(Some)
    }
}
