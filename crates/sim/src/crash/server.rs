//! A real `everwhen serve` as a child that is killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::rounds::text;

/// The child. Killed when dropped.
pub(super) struct Server {
    child: Child,
    pub(super) url: String,
    /// Kept open: a server that cannot say something must not stumble over it.
    _said: BufReader<ChildStdout>,
}

impl Server {
    pub(super) fn start(data: &Path) -> Result<Server, String> {
        let mut command = Command::new(binary()?);
        // What runs ask for outside comes to the parent.
        command.env("EVERWHEN_EFFECTS_ALLOW", "127.0.0.1");
        command.args(["serve", "--no-auth", "--json", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(text)?;
        let mut said = BufReader::new(child.stdout.take().ok_or("the server has no pipe")?);
        let mut line = String::new();
        said.read_line(&mut line).map_err(text)?;
        let ready: Value = serde_json::from_str(&line).unwrap_or_default();
        match ready["url"].as_str() {
            Some(url) => Ok(Server { url: url.to_owned(), child, _said: said }),
            None => {
                let status = child.wait().map_err(text)?;
                Err(format!("the server does not start ({status}): {line:?}"))
            }
        }
    }

    pub(super) fn kill(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the server ended by itself: {status}"));
        }
        self.child.kill().map_err(text)?;
        self.child.wait().map(|_| ()).map_err(text)
    }

    pub(super) fn stop(&mut self) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(text)?;
        let status = self.child.wait().map_err(text)?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `everwhen` lies where this program lies.
fn binary() -> Result<PathBuf, String> {
    let path = std::env::current_exe().map_err(text)?.with_file_name("everwhen");
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("\"{}\" is not built; `cargo build -p everwhen`", path.display()))
    }
}
