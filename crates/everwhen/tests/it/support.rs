//! A directory, the binary in it, and what came out.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_everwhen");

/// A fresh directory, gone when the test is.
pub struct Place(PathBuf);

static COUNT: AtomicU64 = AtomicU64::new(0);

impl Place {
    pub fn new() -> Place {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("everwhen-it-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary in this directory, without what the tester's own environment says.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(args)
            .current_dir(&self.0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars_os() {
            if ["EVERWHEN_", "OTEL_"].iter().any(|ours| name.to_string_lossy().starts_with(ours)) {
                command.env_remove(name);
            }
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Done {
        Done::from(args, self.command(args).output().unwrap())
    }

    /// Runs a command that must succeed, with `--json`, and reads its one document.
    pub fn json(&self, args: &[&str]) -> Value {
        self.run(&[args, &["--json"]].concat()).ok().json()
    }

    pub fn run_with_input(&self, args: &[&str], input: &str) -> Done {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let text = input.to_owned();
        let feed = std::thread::spawn(move || {
            let _ = stdin.write_all(text.as_bytes());
        });
        let output = child.wait_with_output().unwrap();
        feed.join().unwrap();
        Done::from(args, output)
    }

    pub fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    pub fn serve_with(&self, more: &[&str]) -> Server {
        self.serve_asking(&[&["--no-auth"], more].concat())
    }

    /// A server that asks for tokens.
    pub fn serve_asking(&self, more: &[&str]) -> Server {
        self.serve_under(&[], more)
    }

    /// A server with variables of its own.
    pub fn serve_under(&self, env: &[(&str, &str)], more: &[&str]) -> Server {
        let anywhere = ["--listen", "127.0.0.1:0"];
        let listen = if more.contains(&"--listen") { &[][..] } else { &anywhere };
        let args = [&["serve", "--json"], listen, more].concat();
        let log = std::fs::File::create(self.0.join("serve.log")).unwrap();
        let mut child = self.command(&args).envs(env.iter().copied()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = self.0.join("serve.log");
        let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not ready: {}", read(&log)));
        Server { child, ready, log }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a command ended.
#[derive(Debug)]
pub struct Done {
    pub what: String,
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Done {
    fn from(args: &[&str], output: Output) -> Done {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Done { what: args.join(" "), code, out: text(&output.stdout), err: text(&output.stderr) }
    }

    pub fn ok(self) -> Done {
        self.exits(0)
    }

    pub fn exits(self, code: i32) -> Done {
        assert_eq!(self.code, code, "everwhen {}\nstdout: {}\nstderr: {}", self.what, self.out, self.err);
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub fn lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{self:?}")))
            .collect()
    }

    /// The one line of JSON on stderr, with an empty stdout.
    pub fn error(&self) -> Value {
        assert_eq!(self.out, "", "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        serde_json::from_str::<Value>(&self.err).unwrap_or_else(|_| panic!("{self:?}"))["error"].take()
    }
}

/// A running `everwhen serve`; killed if the test leaves it running.
pub struct Server {
    child: Child,
    pub ready: Value,
    log: PathBuf,
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}

impl Server {
    pub fn url(&self) -> &str {
        self.ready["url"].as_str().unwrap()
    }

    /// Sends a signal by name and returns the exit code, or minus the signal that ended it.
    pub fn signal(mut self, name: &str) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        if status.code().is_some_and(|code| code != 0) {
            println!("the server said:\n{}", read(&self.log));
        }
        status.code().unwrap_or_else(|| -status.signal().unwrap_or(0))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The packs that the repository comes with.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}
