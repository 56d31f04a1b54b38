//! `everwhen bench`: the figures of the README, measured again by anyone, as a ratio to the bare disk in the same run.

pub mod auth;
pub mod check;
pub mod deliver;
pub mod entity;
pub mod expr;
pub mod gate;
pub mod http;
pub mod measure;
pub mod open;
pub mod publish;
pub mod raw;
pub mod react;
pub mod route;
pub mod run;
pub mod slo;
pub mod soak;
pub mod sqlite;
pub mod subscribers;
pub mod tenants;
pub mod timer;
pub mod wait;

use std::future::Future;
use std::path::{Path, PathBuf};

use model::{Code, Problem};
use serde_json::Value;

use crate::output::Stop;
use crate::session::Session;

/// Measure durable publishing, delivery, rows, routing, automations, opening and memory
///
/// Every run works in a new folder inside the data directory (--data, else the current one) and removes it. `raw` is the
/// same sequence of writes done by bare write + fdatasync into a growing file: judge by the ratio to it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen bench publish
  everwhen bench publish --publishers 256 --json
  everwhen bench publish --http --connections 256
  everwhen bench open --events 1000000
  everwhen bench --slo")]
pub struct Args {
    #[command(subcommand)]
    bench: Option<Bench>,
    /// The four promises of the bus, each with the concurrency it holds at
    #[arg(long)]
    slo: bool,
    /// Do this part of the work of --slo
    #[arg(long, hide = true, default_value_t = 1.0)]
    scale: f64,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Durable publishing, acknowledged after the sync
    #[command(after_long_help = "\
Examples:
  everwhen bench publish
  everwhen bench publish --publishers 256 --json
  everwhen bench publish --http --connections 256 --auth")]
    Publish {
        /// How many publish at once
        #[arg(long, default_value_t = 1, conflicts_with = "http")]
        publishers: usize,
        /// Over HTTP, through a server in this process
        #[arg(long)]
        http: bool,
        /// Connections, each with one request under way
        #[arg(long, default_value_t = 1, requires = "http")]
        connections: usize,
        /// Ask every request for a token
        #[arg(long, requires = "http")]
        auth: bool,
        /// How many events [default: 5000 alone, else 200000]
        #[arg(long)]
        events: Option<u64>,
        /// The length of a payload
        #[arg(long, default_value_t = 512)]
        bytes: usize,
        /// Also measure SQLite behind a group-commit thread
        #[arg(long, conflicts_with = "http")]
        sqlite: bool,
    },
    /// From publish to handler at a steady rate, and draining a backlog
    #[command(after_long_help = "\
Examples:
  everwhen bench deliver --rate 1000
  everwhen bench deliver --http --json")]
    Deliver {
        /// Over HTTP, by pull and ack
        #[arg(long)]
        http: bool,
        /// Events a second
        #[arg(long, default_value_t = 1000)]
        rate: u64,
        /// How many at that rate
        #[arg(long, default_value_t = 5000)]
        events: u64,
        /// How many wait before the drain begins
        #[arg(long, default_value_t = 200_000)]
        backlog: u64,
        /// The length of a payload
        #[arg(long, default_value_t = 512)]
        bytes: usize,
    },
    /// What a token costs a request, in process
    #[command(after_long_help = "Examples:\n  everwhen bench auth --json")]
    Auth {
        /// How many tokens there are
        #[arg(long, default_value_t = 1_000)]
        tokens: usize,
    },
    /// What a quiet tenant feels of a neighbour that floods against its quota
    #[command(
        after_long_help = "Examples:\n  everwhen bench tenants --json\n  everwhen bench tenants --http"
    )]
    Tenants {
        /// Over HTTP, each with a token, instead of in process
        #[arg(long)]
        http: bool,
        /// Events a second of the quiet one
        #[arg(long, default_value_t = 200)]
        rate: u64,
        /// How many of them
        #[arg(long, default_value_t = 4_000)]
        events: u64,
        /// In how many turns with and without the neighbour
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(2..))]
        turns: u64,
        /// How many of the neighbour publish without a pause
        #[arg(long, default_value_t = 16)]
        publishers: usize,
        /// What the neighbour may bring a second
        #[arg(long, default_value_t = 100)]
        quota: u64,
    },
    /// From the text of many declarations to their findings
    #[command(after_long_help = "\
Examples:
  everwhen bench check --declarations 2000")]
    Check {
        /// How many declarations there are
        #[arg(long, default_value_t = 2_000)]
        declarations: usize,
    },
    /// Filters over an event that is already parsed, beside the `cel` crate on the same ones if it was built
    #[command(after_long_help = "\
Examples:
  everwhen bench expr --json
  EVERWHEN_CEL=target/cel/release/everwhen-cel everwhen bench expr")]
    Expr,
    /// Durable writes of rows, point reads, and a query by index
    #[command(after_long_help = "\
Examples:
  everwhen bench entity
  everwhen bench entity --writers 256 --rows 100000 --json")]
    Entity {
        /// How many write at once
        #[arg(long, default_value_t = 256)]
        writers: usize,
        /// How many writes are timed
        #[arg(long, default_value_t = 100_000)]
        writes: u64,
        /// How many rows there are when reads are timed
        #[arg(long, default_value_t = 1_000_000)]
        rows: u64,
        /// The length of a row that is timed
        #[arg(long, default_value_t = 128)]
        bytes: usize,
    },
    /// From a topic to the patterns it meets
    #[command(after_long_help = "\
Examples:
  everwhen bench route --patterns 100000")]
    Route {
        /// How many patterns there are
        #[arg(long, default_value_t = 100_000)]
        patterns: usize,
    },
    /// From an event to a run that wrote a row, published and completed
    #[command(after_long_help = "\
Examples:
  everwhen bench run
  everwhen bench run --publishers 256 --events 100000 --json")]
    Run {
        /// How many publish at once
        #[arg(long, default_value_t = 256)]
        publishers: usize,
        /// How many events, each of which starts a run
        #[arg(long, default_value_t = 100_000)]
        events: u64,
        /// Events a second in the steady part
        #[arg(long, default_value_t = 100)]
        rate: u64,
        /// How many in the steady part
        #[arg(long, default_value_t = 1_000)]
        steady: u64,
    },
    /// Many runs that wait for a row: their weight, their idle cost, how soon a change wakes one
    #[command(after_long_help = "\
Examples:
  everwhen bench wait --waits 50000
  everwhen bench wait --waits 1000000 --json")]
    Wait {
        /// How many wait
        #[arg(long, default_value_t = 1_000_000)]
        waits: u64,
        /// Changes a second
        #[arg(long, default_value_t = 1_000)]
        rate: u64,
        /// How many changes, twice: with 10,000 waits and with all
        #[arg(long, default_value_t = 5_000)]
        changes: u64,
        /// Seconds to do nothing in
        #[arg(long, default_value_t = 5)]
        idle: u64,
    },
    /// Many runs that wait for an instant, while others come due
    #[command(after_long_help = "\
Examples:
  everwhen bench timer --timers 1000000 --rate 10000")]
    Timer {
        /// How many are armed for tomorrow
        #[arg(long, default_value_t = 1_000_000)]
        timers: u64,
        /// How many come due a second
        #[arg(long, default_value_t = 10_000)]
        rate: u64,
        /// For how long
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// Many automations on one topic, each with its own filter
    #[command(after_long_help = "\
Examples:
  everwhen bench gate --automations 10000")]
    Gate {
        /// How many automations there are
        #[arg(long, default_value_t = 10_000)]
        automations: u64,
        /// How many events they all look at
        #[arg(long, default_value_t = 500)]
        events: u64,
    },
    /// Many WebSockets: what an idle one weighs, and how soon one event reaches those that listen
    #[command(after_long_help = "\
Examples:
  everwhen bench subscribers
  everwhen bench subscribers --subscribers 2000 --json")]
    Subscribers {
        /// How many are connected
        #[arg(long, default_value_t = 10_000)]
        subscribers: usize,
        /// How many of them listen to what is published
        #[arg(long, default_value_t = 1_000)]
        live: usize,
        /// How many events are published, one after the other
        #[arg(long, default_value_t = 50)]
        events: usize,
    },
    /// Opening after a clean stop
    #[command(after_long_help = "\
Examples:
  everwhen bench open --events 1000000")]
    Open {
        /// How many events are there
        #[arg(long, default_value_t = 1_000_000)]
        events: u64,
        /// Open what is in --data now, and say how long that took
        #[arg(long, hide = true)]
        opened: bool,
    },
    /// Memory while publishing without a pause
    #[command(after_long_help = "\
Examples:
  everwhen bench soak --seconds 60 --publishers 16")]
    Soak {
        /// How long
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// How many publish at once
        #[arg(long, default_value_t = 16)]
        publishers: usize,
        /// Events a second; 0 is as fast as the disk allows
        #[arg(long, default_value_t = 0)]
        rate: u64,
        /// The length of a payload
        #[arg(long, default_value_t = 512)]
        bytes: usize,
    },
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    if let Some(Bench::Open { opened: true, .. }) = args.bench {
        let measured = open::opened(&session.data()?)?;
        return session.out.result(&measured, || measured.to_string());
    }
    let usage = |words: &str| {
        let problem = Problem::new(Code::UsageInvalid, words);
        Err(problem
            .hint(
                "name one of publish, deliver, entity, auth, tenants, check, expr, route, run, wait, timer, gate, subscribers, open and soak, or give --slo alone",
            )
            .into())
    };
    match (&args.bench, args.slo) {
        (Some(bench), false) => {
            let report = measured(bench, &Place::new(session)?, session)?;
            session.out.result(&report, || pretty(&report))
        }
        (None, true) => {
            let report = slo::run(&Place::new(session)?.0, args.scale)?;
            session.out.result(&report, || slo::table(&report))
        }
        (None, false) => usage("there is no benchmark to run"),
        (Some(_), true) => usage("--slo is a benchmark of its own"),
    }
}

fn measured(bench: &Bench, place: &Place, session: &Session) -> Result<Value, Problem> {
    let dir = &place.0;
    match *bench {
        Bench::Publish { publishers, http, connections, auth, events, bytes, sqlite } => {
            let publishers = if http { connections } else { publishers }.max(1);
            let events = events.unwrap_or(if publishers == 1 { 5_000 } else { 200_000 });
            let load = publish::Load { publishers, events, bytes };
            if http { publish::run_http(dir, load, auth) } else { publish::run(dir, load, sqlite) }
        }
        Bench::Deliver { http, rate, events, backlog, bytes } => {
            let load = deliver::Load { rate: rate.max(1), events, backlog, bytes };
            if http { deliver::run_http(dir, load) } else { deliver::run(dir, load) }
        }
        Bench::Auth { tokens } => block_on(auth::run(dir, tokens)),
        Bench::Tenants { http, rate, events, turns, publishers, quota } => {
            let load = tenants::Load { rate, events, turns, publishers, quota };
            if http { http::tenants::run(dir, load) } else { tenants::run(dir, load) }
        }
        Bench::Check { declarations } => check::run(dir, declarations),
        Bench::Expr => expr::run(dir),
        Bench::Entity { writers, writes, rows, bytes } => {
            let bar = session.out.progress("fill", rows);
            let load = entity::Load { writers, writes: writes.max(entity::OF_A_SHELF), rows, bytes };
            let report = entity::run(dir, load, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            report
        }
        Bench::Route { patterns } => route::run(dir, patterns),
        Bench::Run { publishers, events, rate, steady } => {
            run::run(dir, run::Load { publishers, events: events.max(1), rate, steady: steady.max(1) })
        }
        Bench::Wait { .. } | Bench::Timer { .. } => waiting(bench, dir, session),
        Bench::Gate { automations, events } => {
            gate::run(dir, gate::Load { automations: automations.max(1), events: events.max(1) })
        }
        Bench::Open { events, .. } => {
            let bar = session.out.progress("fill", events);
            let report = open::run(dir, events, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            report
        }
        Bench::Subscribers { subscribers, live, events } => {
            let bar = session.out.progress("connect", subscribers as u64);
            let load = subscribers::Load { subscribers, live: live.min(subscribers), events: events.max(1) };
            let report = subscribers::run(dir, load, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            report
        }
        Bench::Soak { seconds, publishers, rate, bytes } => {
            soak::run(dir, soak::Load { seconds, publishers: publishers.max(1), rate, bytes })
        }
    }
}

/// Those that fill a tenant with runs first.
fn waiting(bench: &Bench, dir: &Path, session: &Session) -> Result<Value, Problem> {
    match *bench {
        Bench::Wait { waits, rate, changes, idle } => {
            let changes = changes.clamp(1, waits.max(2) / 2);
            let idle = std::time::Duration::from_secs(idle.max(1));
            let bar = session.out.progress("fill", waits);
            let load = wait::Load { waits: waits.max(2 * changes), rate, changes, idle };
            let report = wait::run(dir, load, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            report
        }
        Bench::Timer { timers, rate, seconds } => {
            let bar = session.out.progress("fill", timers);
            let load = timer::Load { timers, rate: rate.max(1), seconds: seconds.max(1) };
            let report = timer::run(dir, load, &mut |done| bar.set_position(done));
            bar.finish_and_clear();
            report
        }
        _ => Err(failed("it does not wait")),
    }
}

fn pretty(report: &Value) -> String {
    serde_json::to_string_pretty(report).unwrap_or_default()
}

/// A folder of its own on the disk to be measured, gone afterwards.
struct Place(PathBuf);

impl Place {
    fn new(session: &Session) -> Result<Place, Problem> {
        let parent = session.data()?;
        let dir = parent.join(format!("bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(failed)?;
        let doomed = dir.clone();
        std::thread::spawn(move || remove_on_signal(&doomed));
        Ok(Place(dir))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A ledger of ten million events is nothing to leave behind because somebody lost patience.
fn remove_on_signal(dir: &Path) {
    let code = http::on_one_thread(async { Ok(crate::signals::watch()?.recv().await) });
    if let Ok(code) = code {
        let _ = std::fs::remove_dir_all(dir);
        std::process::exit(code.into());
    }
}

fn failed(error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::StorageFailed, format!("the benchmark could not run: {error}"))
}

/// Runs a future on a runtime of its own, as an embedder with two workers would.
fn block_on<T>(future: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    runtime()?.block_on(future)
}

fn runtime() -> Result<tokio::runtime::Runtime, Problem> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)
}
