//! The binary `everwhen`: reads the command line, runs one command, and ends with the exit code that says how it went.

// The edge: configuration, clocks, files and tasks of the process itself begin here.
#![allow(clippy::disallowed_methods)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

use model::{Code, Problem};
use tokio::runtime::Runtime;

mod bench;
mod cli;
mod client;
mod commands;
mod config;
mod held;
mod logs;
mod output;
mod profiles;
mod reach;
mod scenario;
mod session;
mod signals;

use cli::{Cli, Command};
use output::{Output, Stop};
use session::Session;

/// What is allocated on a caller's thread is mostly freed on the writer's; the system's allocator is slow at that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    engine::pages::hold_back();
    if let Err(problem) = cli::all_text(std::env::args_os().skip(1)) {
        return not_done(&problem);
    }
    let Cli { global, command } = match cli::read() {
        Ok(cli) => cli,
        Err(error) => return not_understood(&error),
    };
    let session = Session::new(global);
    let Some(command) = command else {
        return exit(&session, session.out.line(cli::GUIDE).and_then(|()| session.out.flush()));
    };
    remember_panics();
    let ended = catch_unwind(AssertUnwindSafe(|| run(command, &session)));
    exit(&session, ended.unwrap_or_else(|_| Err(our_bug().into())))
}

fn run(command: Command, session: &Session) -> Result<(), Stop> {
    if let (Some(name), Some(_)) = (command.local_only(), &session.flags.server) {
        let detail = format!("\"{name}\" works on this machine, not through --server");
        let hint = match name {
            "init" | "serve" | "salvage" | "restore" | "db" | "bench" => "name the directory with --data",
            _ => "leave --server out",
        };
        return Err(Problem::new(Code::UsageInvalid, detail).hint(hint).into());
    }
    logs::start(matches!(command, Command::Serve(_)), session.out.json);
    let Some(command) = commands::run_plain(command, session)? else { return Ok(()) };
    let runtime = runtime()?;
    let ended = runtime.block_on(run_and_close(command, session));
    // A thread that still waits for stdin must not hold the process.
    runtime.shutdown_background();
    ended
}

/// Runs a command until it ends or a signal comes; either way the engine it opened is closed.
async fn run_and_close(command: Command, session: &Session) -> Result<(), Stop> {
    if matches!(command, Command::Serve(_)) {
        return commands::run(command, session).await;
    }
    let mut signals = signals::watch()?;
    let ended = tokio::select! {
        ended = commands::run(command, session) => ended,
        code = signals.recv() => Err(Stop::Code(code)),
    };
    // An answer of "no" is one to what was done.
    let done = matches!(ended, Ok(()) | Err(Stop::Code(1)));
    if let (true, Some(engine)) = (done, session.engine()) {
        reach::audit::write_down(&engine, &session.tenant()?, &cli::called()).await?;
    }
    let closed = session.close().await.map_err(Stop::from);
    ended.and(closed)
}

/// The threads that commands run on.
pub fn runtime() -> Result<Runtime, Problem> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder
        .enable_all()
        .build()
        .map_err(|error| Problem::new(Code::Internal, format!("no threads can be started: {error}")))
}

fn exit(session: &Session, ended: Result<(), Stop>) -> ExitCode {
    match ended {
        Ok(()) | Err(Stop::Pipe) => ExitCode::SUCCESS,
        Err(Stop::Code(code)) => ExitCode::from(code),
        Err(Stop::Problem(problem)) => {
            session.out.fail(&problem);
            ExitCode::from(problem.code().exit())
        }
    }
}

/// Help and version are answers; anything else that clap says is a mistake in the command line.
fn not_understood(error: &clap::Error) -> ExitCode {
    if cli::is_help(error) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if !asks_for_json() && error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // `everwhen groups` alone asks what there is.
        let _ = error.print();
        return ExitCode::from(Code::UsageInvalid.exit());
    }
    not_done(&cli::usage(error, &cli::words()))
}

/// A mistake in the command line is told before its flags are read.
fn not_done(problem: &Problem) -> ExitCode {
    Output::new(asks_for_json(), false).fail(problem);
    ExitCode::from(problem.code().exit())
}

fn asks_for_json() -> bool {
    std::env::args_os().any(|word| word == "--json")
}

/// Where and why the last panic was, for the report; panics in tasks are caught elsewhere and only logged.
static PANIC: Mutex<Option<String>> = Mutex::new(None);

fn remember_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!(" at {}:{}", at.file(), at.line())).unwrap_or_default();
        let what = info.payload_as_str().unwrap_or("a panic without words");
        tracing::error!("panic{place}: {what}");
        if let Ok(mut last) = PANIC.lock() {
            *last = Some(format!("{what}{place}"));
        }
    }));
}

fn our_bug() -> Problem {
    let what = PANIC.lock().ok().and_then(|mut last| last.take()).unwrap_or_else(|| "a panic".to_owned());
    Problem::new(Code::Internal, format!("this is our bug: {what}"))
        .hint("nothing that was acknowledged is lost; please report it with the command you ran")
}
