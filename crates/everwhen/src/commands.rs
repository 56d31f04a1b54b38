//! One file per command: its flags, its help, and what it does with a [`Reach`](crate::reach::Reach).

use crate::cli::Command;
use crate::output::Stop;
use crate::session::Session;

pub mod apply;
pub mod audit;
pub mod automations;
pub mod backtest;
pub mod backup;
pub mod call;
pub mod check;
pub mod clock;
pub mod completions;
pub mod db;
pub mod dead_letters;
pub mod doctor;
pub mod drain;
pub mod entity;
pub mod erase;
pub mod events;
pub mod explain;
pub mod export;
pub mod fmt;
pub mod groups;
pub mod hooks;
pub mod import;
pub mod init;
pub mod man;
pub mod mcp;
pub mod profiles;
pub mod publish;
pub mod push;
pub mod query;
pub mod replay;
pub mod restore;
pub mod runs;
pub mod salvage;
pub mod schema;
pub mod secret;
pub mod serve;
pub mod simulate;
pub mod space;
pub mod subscriptions;
pub mod tail;
pub mod tasks;
pub mod tenants;
pub mod test;
pub mod tokens;
pub mod r#try;
pub mod verify;

mod show;
pub mod sources;
mod stdin;

/// Runs a command that needs no runtime; gives back the others.
pub fn run_plain(command: Command, session: &Session) -> Result<Option<Command>, Stop> {
    match command {
        Command::Init(args) => init::run(&args, session).map(|()| None),
        Command::Try(args) => r#try::run(&args, session).map(|()| None),
        Command::Check(args) => check::run(&args, session).map(|()| None),
        Command::Test(args) => test::run(&args, session).map(|()| None),
        Command::Fmt(args) => fmt::run(&args, session).map(|()| None),
        Command::Schema(args) => schema::run(&args, session).map(|()| None),
        Command::Completions(args) => completions::run(&args, session).map(|()| None),
        Command::Man(args) => man::run(&args, session).map(|()| None),
        Command::Profiles(args) => profiles::run(args, session).map(|()| None),
        Command::Db(args) => db::run(&args, session).map(|()| None),
        Command::Bench(args) => crate::bench::run(&args, session).map(|()| None),
        other => Ok(Some(other)),
    }
}

pub async fn run(command: Command, session: &Session) -> Result<(), Stop> {
    match command {
        Command::Serve(args) => serve::run(args, session).await,
        Command::Publish(args) => publish::run(args, session).await,
        Command::Tail(args) => tail::run(args, session).await,
        Command::Events(args) => events::run(args, session).await,
        Command::Plan(args) => apply::plan(args, session).await,
        Command::Apply(args) => apply::run(args, session).await,
        Command::Entity(args) => entity::run(args, session).await,
        Command::Query(args) => query::run(args, session).await,
        Command::Mutate(args) => query::mutate(args, session).await,
        Command::Automations(args) => automations::run(args, session).await,
        Command::Runs(args) => runs::run(args, session).await,
        Command::Waits(args) => automations::waits(args, session).await,
        Command::Subscriptions(args) => subscriptions::run(args, session).await,
        Command::Hooks(args) => hooks::run(args, session).await,
        Command::Mcp(args) => mcp::run(args, session).await,
        Command::Push(args) => push::run(args, session).await,
        Command::Tasks(args) => tasks::run(args, session).await,
        Command::Tokens(args) => tokens::run(args, session).await,
        Command::Tenants(args) => tenants::run(args, session).await,
        Command::Audit(args) => audit::run(args, session).await,
        Command::Secret(args) => secret::run(args, session).await,
        Command::Space(args) => space::run(args, session).await,
        Command::Explain(args) => explain::run(args, session).await,
        Command::Simulate(args) => simulate::run(args, session).await,
        Command::Call(args) => call::run(args, session).await,
        Command::Backtest(args) => backtest::run(args, session).await,
        Command::Clock(args) => clock::run(args, session).await,
        Command::Groups(args) => groups::run(args, session).await,
        Command::DeadLetters(args) => dead_letters::run(args, session).await,
        Command::Replay(args) => replay::run(args, session).await,
        Command::Drain(args) => drain::run(args, session).await,
        Command::Verify(args) => verify::run(args, session).await,
        Command::Salvage(args) => salvage::run(args, session).await,
        Command::Erase(args) => erase::run(args, session).await,
        Command::Export(args) => export::run(args, session).await,
        Command::Import(args) => import::run(args, session).await,
        Command::Backup(args) => backup::run(args, session).await,
        Command::Restore(args) => restore::run(args, session).await,
        Command::Doctor(args) => doctor::run(args, session).await,
        Command::Init(_)
        | Command::Try(_)
        | Command::Check(_)
        | Command::Test(_)
        | Command::Fmt(_)
        | Command::Schema(_)
        | Command::Completions(_)
        | Command::Man(_)
        | Command::Profiles(_)
        | Command::Db(_)
        | Command::Bench(_) => Ok(()),
    }
}
