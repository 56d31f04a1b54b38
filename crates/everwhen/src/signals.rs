//! SIGINT and SIGTERM as values, so that a command can end well instead of being cut.

use model::{Code, Problem};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The two signals that ask us to end.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

pub fn watch() -> Result<Signals, Problem> {
    let listen = |kind| {
        signal(kind)
            .map_err(|error| Problem::new(Code::Internal, format!("signals cannot be watched: {error}")))
    };
    Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
}

impl Signals {
    /// Waits for the first and returns the exit code that shells expect of it.
    pub async fn recv(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
        }
    }
}
