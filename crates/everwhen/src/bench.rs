//! `everwhen bench`: the figures of the README, measured again by anyone, as a ratio to the bare disk in the same run.

pub mod deliver;
pub mod measure;
pub mod open;
pub mod publish;
pub mod raw;
pub mod route;
pub mod sqlite;

use std::future::Future;
use std::path::PathBuf;

use model::{Code, Problem};
use serde_json::Value;

use crate::output::Stop;
use crate::session::Session;

/// Measure durable publishing, delivery, routing and opening
///
/// Every run works in a new folder inside the data directory (--data, else the current one) and removes it. `raw` is the
/// same sequence of writes done by bare write + fdatasync into a growing file: judge by the ratio to it.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen bench publish
  everwhen bench publish --publishers 256 --json
  everwhen bench open --events 1000000")]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(clap::Subcommand)]
enum Bench {
    /// Durable publishing, acknowledged after the sync
    Publish {
        #[arg(long, default_value_t = 1)]
        publishers: usize,
        /// How many events [default: 5000 alone, else 200000]
        #[arg(long)]
        events: Option<u64>,
        #[arg(long, default_value_t = 512)]
        bytes: usize,
        /// Also measure SQLite behind a group-commit thread
        #[arg(long)]
        sqlite: bool,
    },
    /// From publish to handler at a steady rate, and draining a backlog
    Deliver {
        #[arg(long, default_value_t = 1000)]
        rate: u64,
        #[arg(long, default_value_t = 5000)]
        events: u64,
        #[arg(long, default_value_t = 200_000)]
        backlog: u64,
        #[arg(long, default_value_t = 512)]
        bytes: usize,
    },
    /// From a topic to the patterns it meets
    Route {
        #[arg(long, default_value_t = 100_000)]
        patterns: usize,
    },
    /// Opening after a clean stop
    Open {
        #[arg(long, default_value_t = 1_000_000)]
        events: u64,
        /// Open what is in --data now, and say how long that took
        #[arg(long, hide = true)]
        opened: bool,
    },
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    if let Bench::Open { opened: true, .. } = args.bench {
        let measured = open::opened(&session.data()?)?;
        return session.out.result(&measured, || measured.to_string());
    }
    let place = Place::new(session)?;
    let report = match args.bench {
        Bench::Publish { publishers, events, bytes, sqlite } => {
            let events = events.unwrap_or(if publishers == 1 { 5_000 } else { 200_000 });
            publish::run(&place.0, publish::Load { publishers: publishers.max(1), events, bytes }, sqlite)?
        }
        Bench::Deliver { rate, events, backlog, bytes } => {
            deliver::run(&place.0, deliver::Load { rate: rate.max(1), events, backlog, bytes })?
        }
        Bench::Route { patterns } => route::run(&place.0, patterns)?,
        Bench::Open { events, .. } => {
            let bar = session.out.progress("fill", events);
            let report = open::run(&place.0, events, &mut |done| bar.set_position(done))?;
            bar.finish_and_clear();
            report
        }
    };
    session.out.result(&report, || pretty(&report))
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
        Ok(Place(dir))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn failed(error: impl std::fmt::Display) -> Problem {
    Problem::new(Code::StorageFailed, format!("the benchmark could not run: {error}"))
}

/// Runs a future on a runtime of its own, as an embedder with two workers would.
fn block_on<T>(future: impl Future<Output = Result<T, Problem>>) -> Result<T, Problem> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(failed)?.block_on(future)
}
