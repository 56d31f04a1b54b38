//! `everwhen man`: the manual pages, made of what `--help` says.

use std::path::PathBuf;

use model::{Code, Problem};
use serde_json::json;

use crate::cli;
use crate::output::Stop;
use crate::session::Session;

/// Print the manual page of a command, or write all of them
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen man groups put | man -l -
  everwhen man --to /usr/local/share/man/man1")]
pub struct Args {
    /// The command, as it is typed
    #[arg(value_name = "COMMAND", conflicts_with = "to")]
    command: Vec<String>,
    /// Write the page of every command into this directory
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    match &args.to {
        Some(dir) => write_all(dir, session),
        None => print(&args.command, session),
    }
}

fn print(words: &[String], session: &Session) -> Result<(), Stop> {
    let tree = built();
    let mut command = &tree;
    for word in words {
        command = command.find_subcommand(word).ok_or_else(|| {
            Problem::new(Code::UsageInvalid, format!("there is no command \"{}\"", words.join(" ")))
                .hint("everwhen --help lists all commands")
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page).map_err(unwritten)?;
    session.out.line(String::from_utf8_lossy(&page).trim_end())?;
    session.out.flush()
}

fn write_all(dir: &PathBuf, session: &Session) -> Result<(), Stop> {
    std::fs::create_dir_all(dir).map_err(unwritten)?;
    clap_mangen::generate_to(built(), dir).map_err(unwritten)?;
    session.out.result(&json!({ "to": dir }), || format!("wrote the pages into {}", dir.display()))
}

/// With what commands inherit from the ones above them.
fn built() -> clap::Command {
    let mut tree = cli::tree();
    tree.build();
    tree
}

fn unwritten(error: std::io::Error) -> Problem {
    Problem::new(Code::UsageInvalid, format!("the pages cannot be written: {error}"))
        .hint("name a directory that you may write to")
}
