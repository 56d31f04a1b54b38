//! `everwhen serve`: hold a data directory and open the HTTP doors, until told to stop.

mod workspace;

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use engine::authority::{Role, Terms};
use engine::clock::ToldClock;
use engine::{Caller, Engine, Options, telemetry};
use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value, json};
use server::Tls;

use crate::config::shown::{Shown, as_file};
use crate::config::{Config, reference};
use crate::held::Holder;
use crate::output::Stop;
use crate::reach::host::{self, Doors, Host};
use crate::session::Session;
use crate::signals;
use workspace::Workspace;

/// After a signal, open requests, handlers and the last batch have this long in all.
const DRAIN: Duration = Duration::from_secs(9);

/// Hold the data directory and answer over HTTP
///
/// Prints one line when ready. SIGTERM and SIGINT stop accepting, finish what is under way and exit with 0. Logs go to
/// stderr; EVERWHEN_LOG sets their level (error, warn, info, debug). Traces go to the collector that
/// OTEL_EXPORTER_OTLP_ENDPOINT names.
///
/// A workspace is checked and applied before the doors open, as by `everwhen apply`; when it has errors they are printed
/// and nothing is served. With --watch it is applied again when it is saved; a version with errors is said and the one
/// before stays in force.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen serve
  everwhen serve examples/cognition --watch
  everwhen serve examples/cognition --clock 2026-01-01T00:00:00Z
  everwhen serve --data /var/lib/everwhen --listen 127.0.0.1:0 --json")]
pub struct Args {
    /// Where to listen [default: 127.0.0.1:3837]; port 0 picks one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Ask nobody for a token: whoever can connect may do everything. On loopback addresses only
    #[arg(long)]
    no_auth: bool,
    /// Answer over TLS with this certificate chain, in PEM; read again when it changes
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Apply the workspace again whenever it is saved
    #[arg(long, requires = "workspace")]
    watch: bool,
    /// Time stands still at this instant until POST /v1/clock moves it; everything due by then is done before that answers
    #[arg(long, value_name = "INSTANT", value_parser = instant)]
    clock: Option<Timestamp>,
    /// Print every setting and where it came from (flag, variable, file and line, default), and serve nothing
    #[arg(long)]
    print_config: bool,
    /// With --print-config: print what every key of everwhen.toml takes and means, as a page in Markdown
    #[arg(long, requires = "print_config")]
    reference: bool,
    /// Declarations to put into force: a folder of domains, or a file
    #[arg(value_name = "WORKSPACE")]
    workspace: Option<PathBuf>,
}

pub async fn run(args: Args, session: &Session) -> Result<(), Stop> {
    if args.reference {
        session.out.line(reference::page().trim_end())?;
        return session.out.flush();
    }
    if args.print_config {
        return print_config(&args, session);
    }
    let mut signals = signals::watch()?;
    let config = session.config()?;
    let data = session.data()?;
    let listen = args.listen.unwrap_or(config.listen);
    check_address(&listen, args.no_auth)?;
    let [cert, key] = config.tls;
    let tls = tls(args.tls_cert.or(cert), args.tls_key.or(key))?;
    let workspace = args.workspace.map(|path| Workspace::open(path, session)).transpose()?;

    // First the address, so that one that is taken leaves no new directory behind.
    let listener = host::listen(&listen).await.map_err(|problem| held(&data).unwrap_or(problem))?;
    let new = !data.join("tenants").exists();
    let telemetry = telemetry();
    let mut options = Options { settings: config.settings, create: true, telemetry, ..Options::default() };
    if let Some(at) = args.clock {
        options.clock = Arc::new(ToldClock::at(at));
    }
    let engine = Engine::open_with(&data, options).map_err(|problem| match problem.code() {
        Code::StoreLocked => held(&data).unwrap_or(problem),
        _ => problem,
    })?;
    session.keep(&engine);
    if new {
        session.out.note(&format!("created {}", data.display()));
    }
    Holder::forget(&data);
    let default_tenant = session.served_tenant()?;
    let tenant = engine.tenant(&default_tenant);
    if let Err(problem) = &tenant {
        // Others may be sound; requests for this one are refused with the same words.
        tracing::error!(tenant = default_tenant, %problem, "the default tenant does not open");
    }
    let watched = match workspace {
        Some((workspace, definitions)) => {
            if let Err(problem) = workspace::apply(&workspace, definitions, &tenant?, session).await {
                session.close().await?;
                return Err(problem.into());
            }
            args.watch.then(|| (workspace, engine.clone(), default_tenant.clone()))
        }
        None => None,
    };

    let first = if args.no_auth { None } else { first_token(&engine).await? };
    let doors = Doors { no_auth: args.no_auth, default_tenant, tls };
    let mut host = Host::start(engine, data.clone(), listener, doors).await?;
    let mut ready = json!({ "ready": true, "url": host.url(), "pid": std::process::id(), "data": data });
    if let Some(token) = first {
        session.out.note(&format!("the owner's token, shown this once: {token}"));
        ready["owner_token"] = token.into();
    }
    if args.no_auth {
        warn_of_no_auth(session);
    }
    session.out.result(&ready, || format!("listening on {}", host.url()))?;

    tokio::select! {
        _ = signals.recv() => {}
        problem = host.failed() => return Err(problem.into()),
        () = watch(watched, session) => {}
    }
    session.out.note("stopping");
    stop(host, session).await
}

/// With --json stderr is read line by line as JSON, and so is this.
fn warn_of_no_auth(session: &Session) {
    let said = "--no-auth: whoever reaches this port from this machine may do everything";
    if session.out.json { tracing::warn!("{said}") } else { session.out.note(said) }
}

fn print_config(args: &Args, session: &Session) -> Result<(), Stop> {
    session.config()?;
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let (data, cert, key) = (path(&session.flags.data), path(&args.tls_cert), path(&args.tls_key));
    let flags = [
        ("listen", args.listen.as_deref()),
        ("data", data.as_deref()),
        ("tls.cert", cert.as_deref()),
        ("tls.key", key.as_deref()),
    ];
    let shown = Config::show(session.flags.config.as_deref(), &|name| std::env::var(name).ok(), &flags)?;
    let each = |one: &Shown| {
        let mut told = json!({ "from": one.from });
        if !one.typed.is_null() {
            told["value"] = one.typed.clone();
        }
        (one.key.clone(), told)
    };
    let settings: Map<String, Value> = shown.iter().map(each).collect();
    session.out.result(&Value::Object(settings), || as_file(&shown).trim().to_owned())
}

/// What the variables of OpenTelemetry ask for; what is wrong with them is said, and serving goes on.
fn telemetry() -> Option<telemetry::Settings> {
    let (settings, wrong) = telemetry::Settings::read(&|name| std::env::var(name).ok());
    wrong.iter().for_each(|wrong| tracing::warn!("{wrong}"));
    if let Some(settings) = &settings {
        tracing::info!(endpoint = settings.endpoint, "spans are sent");
    }
    settings
}

fn tls(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Result<Option<Tls>, Problem> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => Tls::new(certificate, key).map(Some),
        (None, None) => Ok(None),
        _ => Err(Problem::new(Code::ConfigInvalid, "TLS needs a certificate and its key")
            .hint("give both: --tls-cert and --tls-key, or [tls] cert and key")),
    }
}

/// Who starts a directory that nobody was ever given as its owner becomes that.
async fn first_token(engine: &Engine) -> Result<Option<String>, Problem> {
    // A house that does not open has its owner; others serve, and that one is mended first.
    let Ok(main) = engine.main() else { return Ok(None) };
    if engine.authority().list(&main)?.iter().any(|token| token["role"] == Role::Owner.as_str()) {
        return Ok(None);
    }
    let terms = Terms { name: "owner".to_owned(), ..Terms::of(Role::Owner) };
    let (text, _) = engine.authority().create(&main, &Caller::local(), terms).await?;
    Ok(Some(text))
}

fn instant(text: &str) -> Result<Timestamp, String> {
    Timestamp::parse(text).map_err(|problem| format!("{problem}; write it like 2026-01-01T00:00:00Z"))
}

/// Who serves this directory already, when somebody does.
fn held(data: &Path) -> Option<Problem> {
    let Holder { pid, url, .. } = Holder::alive(data)?;
    let detail = format!("\"{}\" is served already, by process {pid} at {url}", data.display());
    Some(
        Problem::new(Code::StoreLocked, detail)
            .hint(format!("use that one (commands find it by themselves), or stop it first: kill {pid}")),
    )
}

/// Never ends, also when there is nothing to watch.
async fn watch(watched: Option<(Workspace, Engine, String)>, session: &Session) {
    match watched {
        Some((workspace, engine, tenant)) => workspace.watch(&engine, &tenant, session).await,
        None => std::future::pending().await,
    }
}

/// A drain that hangs does not hold the process: what is acked is on disk, and the next start recovers the rest.
async fn stop(host: Host, session: &Session) -> Result<(), Stop> {
    let drain = async {
        host.stop().await?;
        session.close().await
    };
    match tokio::time::timeout(DRAIN, drain).await {
        Ok(ended) => Ok(ended?),
        Err(_) => {
            tracing::warn!("the drain took longer than {DRAIN:?} and was cut");
            Err(Stop::Code(0))
        }
    }
}

/// Without tokens only those on this machine may connect.
fn check_address(listen: &str, no_auth: bool) -> Result<(), Problem> {
    let wrong = |why: &dyn std::fmt::Display| {
        Problem::new(Code::UsageInvalid, format!("\"{listen}\" is not an address to listen on: {why}"))
            .hint("write it like 127.0.0.1:3837")
    };
    let addresses: Vec<_> = listen.to_socket_addrs().map_err(|error| wrong(&error))?.collect();
    if no_auth && addresses.iter().any(|address| !address.ip().is_loopback()) {
        let detail =
            format!("\"{listen}\" is not a loopback address, and with --no-auth everybody would be let in");
        return Err(Problem::new(Code::UsageInvalid, detail)
            .hint("leave --no-auth out, so that tokens are asked for, or listen on 127.0.0.1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_tokens_nobody_listens_where_others_could_connect() {
        assert!(check_address("127.0.0.1:0", true).is_ok());
        assert!(check_address("[::1]:0", true).is_ok());
        assert!(check_address("0.0.0.0:0", false).is_ok());
        for address in ["0.0.0.0:0", "[::]:0", "nowhere", ""] {
            assert_eq!(check_address(address, true).unwrap_err().code(), Code::UsageInvalid, "{address}");
        }
    }
}
