//! `everwhen man`: the manual pages, made of what `--help` says.

use std::io::Write;
use std::path::PathBuf;

use clap_mangen::Man;
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
    /// Write a page for each command, with what it does in turn, and everwhen(1) into this directory
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
    Man::new(command.clone()).render(&mut page).map_err(unwritten)?;
    session.out.line(String::from_utf8_lossy(&page).trim_end())?;
    session.out.flush()
}

fn write_all(dir: &PathBuf, session: &Session) -> Result<(), Stop> {
    std::fs::create_dir_all(dir).map_err(unwritten)?;
    let tree = built();
    let mut page = Vec::new();
    Man::new(tree.clone()).render(&mut page).map_err(unwritten)?;
    std::fs::write(dir.join("everwhen.1"), page).map_err(unwritten)?;
    for command in tree.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("everwhen-{}", command.get_name());
        let page = page_of(&command.clone().display_name(&name)).map_err(unwritten)?;
        std::fs::write(dir.join(format!("{name}.1")), page).map_err(unwritten)?;
    }
    session.out.result(&json!({ "to": dir }), || format!("wrote the pages into {}", dir.display()))
}

/// One page for a command and everything below it.
fn page_of(command: &clap::Command) -> std::io::Result<Vec<u8>> {
    let (man, mut page) = (Man::new(command.clone()), Vec::new());
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    below(command, &mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_after_long_help().is_some() {
        man.render_extra_section(&mut page)?;
    }
    Ok(page)
}

/// The commands below one, each a section, without the flags that all have.
fn below(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        let own = sub.clone().mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg });
        let (man, mut part) = (Man::new(own), Vec::new());
        man.render_synopsis_section(&mut part)?;
        man.render_description_section(&mut part)?;
        man.render_options_section(&mut part)?;
        if sub.get_after_long_help().is_some() {
            man.render_extra_section(&mut part)?;
        }
        let title = sub.get_bin_name().unwrap_or(sub.get_name()).to_uppercase();
        writeln!(page, ".SH {title}")?;
        page.write_all(String::from_utf8_lossy(&part).replace(".SH ", ".SS ").as_bytes())?;
        below(sub, page)?;
    }
    Ok(())
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
