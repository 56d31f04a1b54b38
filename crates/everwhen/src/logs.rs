//! What the process says about itself while it runs: lines on stderr, as text or as JSON.

use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;

/// stderr whose errors are nobody's: a full log disk or a reader that left must not end a server.
struct Unfailing;

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server tells what it does; another command only what a person must know, and with `--json` nothing, because
/// there stderr holds one error or none. `EVERWHEN_LOG` says otherwise.
pub fn start(serving: bool, json: bool) {
    let default = match (serving, json) {
        (true, _) => "info",
        (false, false) => "warn",
        (false, true) => "off",
    };
    let said = std::env::var("EVERWHEN_LOG").ok().filter(|said| !said.is_empty());
    let wrong = said.as_deref().filter(|said| !is_filter(said));
    let filter = EnvFilter::new(said.as_deref().filter(|_| wrong.is_none()).unwrap_or(default));
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unfailing)
        .log_internal_errors(false)
        .with_target(false)
        .with_ansi(colour);
    // A second start in one process, as in tests, keeps the first.
    let _ = match json {
        true => lines.json().try_init(),
        false => lines.compact().try_init(),
    };
    if let Some(wrong) = wrong {
        tracing::warn!(
            "EVERWHEN_LOG={wrong} is no level and is passed over; one of off, error, warn, info, debug, trace"
        );
    }
}

/// A level, or one for each part (`engine=debug,warn`). A word alone would be taken for the name of a part, and log nothing.
fn is_filter(said: &str) -> bool {
    let is_level = |text: &str| text.parse::<tracing::level_filters::LevelFilter>().is_ok();
    let has_level = |one: &str| is_level(one.rsplit('=').next().unwrap_or_default().trim());
    said.split(',').all(has_level) && EnvFilter::try_new(said).is_ok()
}
