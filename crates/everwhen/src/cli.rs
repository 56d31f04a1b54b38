//! The command line as a tree of types: every flag of contracts §1, and help that shows what to type.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use model::{Code, Problem};

use crate::bench;
use crate::commands::{
    apply, audit, automations, backtest, backup, call, check, clock, completions, db, dead_letters, doctor,
    drain, entity, erase, events, explain, export, fmt, groups, hooks, import, init, man, mcp, profiles,
    publish, push, query, replay, restore, runs, salvage, schema, secret, serve, simulate, space,
    subscriptions, tail, tasks, tenants, test, tokens, r#try, verify,
};
use model::suggest::distance;

/// A durable event ledger that acts.
#[derive(Parser)]
#[command(name = "everwhen", version, about, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Flags that every command takes.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = "Everywhere")]
pub struct Global {
    /// The data directory [env: EVERWHEN_DATA] [default: ./.everwhen]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// A running server instead of a directory, e.g. http://127.0.0.1:3837 [env: EVERWHEN_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// A server with its token and tenant, as `everwhen profiles` keeps them [env: EVERWHEN_PROFILE]
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub profile: Option<String>,
    /// The token to show to the server [env: EVERWHEN_TOKEN]
    #[arg(long, global = true, value_name = "T", hide_short_help = true)]
    pub token: Option<String>,
    /// Certificates in PEM that https trusts beside the machine's [env: EVERWHEN_CA]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub ca: Option<PathBuf>,
    /// Whose ledger [env: EVERWHEN_TENANT] [default: main]
    #[arg(long, global = true, value_name = "NAME", hide_short_help = true)]
    pub tenant: Option<String>,
    /// The settings file [default: ./everwhen.toml]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true)]
    pub config: Option<PathBuf>,
    /// Results as JSON on stdout, failures as JSON on stderr
    #[arg(long, global = true)]
    pub json: bool,
    /// No remarks and no progress on stderr
    #[arg(long, global = true, hide_short_help = true)]
    pub quiet: bool,
}

#[derive(Subcommand)]
pub enum Command {
    Init(init::Args),
    Serve(serve::Args),
    Publish(publish::Args),
    Tail(tail::Args),
    Events(events::Args),
    Groups(groups::Args),
    Plan(apply::PlanArgs),
    Apply(apply::Args),
    Entity(entity::Args),
    Query(query::QueryArgs),
    Mutate(query::MutateArgs),
    Automations(automations::Args),
    Runs(runs::Args),
    Waits(automations::WaitsArgs),
    Tasks(tasks::Args),
    Subscriptions(subscriptions::Args),
    Hooks(hooks::Args),
    Push(push::Args),
    Tokens(tokens::Args),
    Tenants(tenants::Args),
    Mcp(mcp::Args),
    Secret(secret::Args),
    Space(space::Args),
    Audit(audit::Args),
    Explain(explain::Args),
    Call(call::Args),
    Backtest(backtest::Args),
    Clock(clock::Args),
    Simulate(simulate::Args),
    DeadLetters(dead_letters::Args),
    Replay(replay::Args),
    Drain(drain::Args),
    Verify(verify::Args),
    Salvage(salvage::Args),
    Erase(erase::Args),
    Export(export::Args),
    Import(import::Args),
    Backup(backup::Args),
    Restore(restore::Args),
    Doctor(doctor::Args),
    Db(db::Args),
    Bench(bench::Args),
    Try(r#try::Args),
    Check(check::Args),
    Test(test::Args),
    Fmt(fmt::Args),
    Schema(schema::Args),
    Profiles(profiles::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Command {
    /// The commands that work on this machine's files only; for them `--server` is a mistake.
    pub fn local_only(&self) -> Option<&'static str> {
        match self {
            Command::Init(_) => Some("init"),
            Command::Serve(_) => Some("serve"),
            Command::Salvage(_) => Some("salvage"),
            Command::Restore(_) => Some("restore"),
            Command::Db(_) => Some("db"),
            Command::Bench(_) => Some("bench"),
            Command::Try(_) => Some("try"),
            Command::Check(_) => Some("check"),
            Command::Test(_) => Some("test"),
            Command::Fmt(_) => Some("fmt"),
            Command::Schema(_) => Some("schema"),
            Command::Completions(_) => Some("completions"),
            Command::Man(_) => Some("man"),
            Command::Profiles(_) => Some("profiles"),
            _ => None,
        }
    }
}

/// What `everwhen` alone prints.
pub const GUIDE: &str = "\
Everwhen is a durable event ledger that acts. One binary, one data directory.

  everwhen serve                                    hold ./.everwhen and answer on http://127.0.0.1:3837
  everwhen publish order.created '{\"id\": 7}'        append an event; prints its position once it is on disk
  everwhen tail 'order.*' --after 0                 read events from the beginning and follow
  everwhen groups put billing --pattern 'order.*'   a durable consumer: pull, ack, retries, dead letters
  everwhen drain billing --exec ./bill.sh           hand each event to a command, in order
  everwhen check shop && everwhen apply shop        declare concepts, queries and mutations; plan shows, fmt lays out
  everwhen entity put shop:item 7 '{\"price\": 9}'    keep rows of what is declared; query and mutate by name
  everwhen try expr '1 + 2'                         expressions, filters, patterns and JSONPaths, without storing
  everwhen schema                                   the JSON Schema of declarations in YAML
  everwhen verify                                   check every byte of the ledger
  everwhen doctor                                   is this machine, and this directory, well?

Commands work on the directory itself, or through the server that holds it; the first that writes makes it.
`everwhen --help` lists all commands, `everwhen COMMAND --help` shows examples.";

/// Examples stand before the flags, of which every command has many.
const LAYOUT: &str = "{before-help}{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n{all-args}";

/// The command tree with its help laid out.
pub fn tree() -> clap::Command {
    fn laid_out(command: clap::Command) -> clap::Command {
        command.help_template(LAYOUT).mut_subcommands(laid_out)
    }
    laid_out(Cli::command())
}

/// The command line of this process.
pub fn read() -> Result<Cli, clap::Error> {
    let mut tree = tree();
    let mut matches = tree.try_get_matches_from_mut(std::env::args_os())?;
    Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut tree))
}

/// The words of this process's command line without the binary's own name. Never `std::env::args`, which panics at
/// a word that is not UTF-8.
pub fn words() -> Vec<String> {
    std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

/// A word that is not UTF-8 is refused before anything is done, a path too: answers are JSON, which cannot say it.
pub fn all_text(words: impl Iterator<Item = OsString>) -> Result<(), Problem> {
    match words.enumerate().find(|(_, word)| word.to_str().is_none()) {
        None => Ok(()),
        Some((index, word)) => {
            Err(Problem::new(Code::UsageInvalid, format!("argument {} is not UTF-8: {word:?}", index + 1))
                .hint("write names and values in UTF-8; a file with such a name has to be renamed"))
        }
    }
}

/// What clap could not understand, as a problem: one line of what is wrong, one of what to type.
pub fn usage(error: &clap::Error, words: &[String]) -> Problem {
    let rendered = error.render().to_string();
    let first = rendered.lines().take_while(|line| !line.trim().is_empty());
    let message = first.map(str::trim).collect::<Vec<_>>().join(" ");
    let message = message.trim_start_matches("error: ").to_owned();
    let tip = rendered.lines().find_map(|line| line.trim().strip_prefix("tip: ")).map(str::to_owned);
    let usage = rendered.lines().find_map(|line| line.strip_prefix("Usage: "));
    let hint = misspelt(error, words)
        .or(tip)
        .or_else(|| suggestion(error))
        .or_else(|| usage.map(|usage| format!("usage: {usage}")));
    Problem::new(Code::UsageInvalid, message).hint(hint.unwrap_or_else(|| see_help(words)))
}

/// The flag that was most likely meant. clap looks only at words that begin alike, and else proposes to pass the flag
/// on as a value, which nobody means.
fn misspelt(error: &clap::Error, words: &[String]) -> Option<String> {
    let ContextValue::String(given) = error.get(ContextKind::InvalidArg)? else { return None };
    let given = given.strip_prefix("--").filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let tree = tree();
    let (command, path) = meant(&tree, words);
    let flags = command.get_arguments().chain(tree.get_arguments()).filter_map(clap::Arg::get_long);
    let near = flags.map(|flag| (distance(given, flag), flag)).min().filter(|(edits, _)| *edits <= 2);
    Some(match near {
        Some((_, flag)) => format!("did you mean \"--{flag}\"?"),
        None => format!("{path} --help lists the flags"),
    })
}

/// The command that the words lead to, and how it is called.
fn meant<'a>(tree: &'a clap::Command, words: &[String]) -> (&'a clap::Command, String) {
    let (mut command, mut path) = (tree, "everwhen".to_owned());
    for word in words {
        if let Some(inner) = command.find_subcommand(word) {
            path = format!("{path} {}", inner.get_name());
            command = inner;
        }
    }
    (command, path)
}

/// What this process was called for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Without its own name: `groups put`.
    pub command: String,
    /// The first word that is no flag, for most commands the name of what they are about.
    pub subject: Option<String>,
}

pub fn called() -> Called {
    let matches = tree().try_get_matches_from(std::env::args_os());
    matches.map(|matches| named(&matches)).unwrap_or_default()
}

/// The commands that were matched, and not words that are called like one: a directory may be called "groups".
fn named(mut matches: &clap::ArgMatches) -> Called {
    let tree = tree();
    let (mut words, mut command) = (Vec::new(), Some(&tree));
    while let Some((word, inner)) = matches.subcommand() {
        words.push(word);
        command = command.and_then(|command| command.find_subcommand(word));
        matches = inner;
    }
    let mut subject = command.and_then(|command| command.get_positionals().next()).map(clap::Arg::get_id);
    // The one command that administers or only reads, as it is asked.
    let into = clap::Id::from("into");
    if words == ["replay"] && matches.contains_id("into") {
        words.push("--into");
        subject = Some(&into);
    }
    let given = subject.and_then(|subject| matches.get_raw(subject.as_str())?.next());
    Called { command: words.join(" "), subject: given.map(|given| given.to_string_lossy().into_owned()) }
}

/// The help page of the command that was meant.
fn see_help(words: &[String]) -> String {
    match meant(&tree(), words).1.as_str() {
        "everwhen" => "everwhen --help lists all commands".to_owned(),
        path => format!("{path} --help shows examples"),
    }
}

fn suggestion(error: &clap::Error) -> Option<String> {
    let context = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    context.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(text) => Some(format!("did you mean \"{text}\"?")),
        ContextValue::Strings(texts) => texts.first().map(|text| format!("did you mean \"{text}\"?")),
        _ => None,
    })
}

/// Whether clap only wants to show help or the version.
pub fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

#[cfg(test)]
mod tests;
