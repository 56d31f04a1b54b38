//! `everwhen completions`: what a shell needs to complete our commands.

use clap_complete::{Shell, generate};

use crate::cli;
use crate::output::Stop;
use crate::session::Session;

/// Print completions for a shell
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen completions bash > ~/.local/share/bash-completion/completions/everwhen
  everwhen completions zsh > ~/.zfunc/_everwhen")]
pub struct Args {
    /// Which shell
    shell: Shell,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let mut script = Vec::new();
    generate(args.shell, &mut cli::tree(), "everwhen", &mut script);
    session.out.line(String::from_utf8_lossy(&script).trim_end())?;
    session.out.flush()
}
