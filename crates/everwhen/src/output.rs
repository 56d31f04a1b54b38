//! What a command says and where: results on stdout, everything for people on stderr, one line of JSON when asked.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::Problem;
use serde_json::{Value, json};

/// Why a command ends before its natural end.
#[derive(Debug)]
pub enum Stop {
    /// Something is wrong; printed as `error:` and `help:`.
    Problem(Problem),
    /// The answer is "no" and has been printed; only the exit code is left to give.
    Code(u8),
    /// Whoever read our output went away (`everwhen tail | head`): nobody is left to tell.
    Pipe,
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Stop {
        Stop::Problem(problem)
    }
}

/// Where results and remarks go.
pub struct Output {
    pub json: bool,
    pub quiet: bool,
    color: bool,
    stdout: Mutex<BufWriter<io::Stdout>>,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Output {
        let color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Output { json, quiet, color, stdout: Mutex::new(BufWriter::new(io::stdout())) }
    }

    /// A line of results, kept back until [`Output::flush`] so that long lists are one write.
    pub fn line(&self, text: &str) -> Result<(), Stop> {
        let mut out = self.stdout();
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(reader_left)
    }

    pub fn flush(&self) -> Result<(), Stop> {
        self.stdout().flush().map_err(reader_left)
    }

    /// The one result of a command: the document with `--json`, else the words.
    pub fn result(&self, value: &Value, words: impl FnOnce() -> String) -> Result<(), Stop> {
        match self.json {
            true => self.line(&value.to_string())?,
            false => self.line(&words())?,
        }
        self.flush()
    }

    /// A remark for a person, never a result: what was done, what to type next.
    pub fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            self.say(text);
        }
    }

    /// A remark about something that went otherwise than hoped: scripts read past it, so it is said to them, too.
    pub fn warn(&self, text: &str) {
        if !self.quiet {
            self.say(&format!("{} {text}", self.paint("33;1", "warning:")));
        }
    }

    /// A failure as contracts §1 prints it.
    pub fn fail(&self, problem: &Problem) {
        if self.json {
            self.say(&json!({ "error": error_json(problem) }).to_string());
            return;
        }
        self.say(&format!("{} {}", self.paint("31;1", "error:"), problem.detail()));
        self.say(&format!("{} {}", self.paint("36;1", "help:"), problem.advice()));
    }

    /// A line on stderr. A full disk or a closed pipe there must not end the process, as `eprintln!` would.
    pub fn say(&self, text: &str) {
        let _ = writeln!(io::stderr(), "{text}");
    }

    /// A bar for long work: drawn on stderr, only for a person at a terminal.
    pub fn progress(&self, what: &'static str, total: u64) -> ProgressBar {
        let hidden = self.quiet || self.json || !io::stderr().is_terminal();
        let target =
            if hidden { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(8) };
        let template = if total == 0 {
            "{msg} {human_pos} {elapsed}"
        } else {
            "{msg} {bar:30} {human_pos}/{human_len} {eta}"
        };
        let bar = ProgressBar::with_draw_target((total > 0).then_some(total), target);
        bar.set_style(
            ProgressStyle::with_template(template).expect("the template is a constant that parses"),
        );
        bar.set_message(what);
        if !hidden && total == 0 {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }

    pub fn paint(&self, style: &str, text: &str) -> String {
        if self.color { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn stdout(&self) -> MutexGuard<'_, BufWriter<io::Stdout>> {
        self.stdout.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// `{"code","message","hint"}` plus the problem's own fields.
pub fn error_json(problem: &Problem) -> Value {
    let mut error = json!({ "code": problem.code().as_str(), "message": problem.detail() });
    error["hint"] = json!(problem.advice());
    if let Some(pointer) = problem.pointer() {
        error["pointer"] = json!(pointer);
    }
    for (name, value) in problem.extra().iter().filter(|(name, _)| *name != "request_id") {
        error[name] = value.clone();
    }
    error
}

/// A result that cannot be written is a reader that left, or a full disk behind a redirection.
fn reader_left(error: io::Error) -> Stop {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Stop::Pipe,
        io::ErrorKind::StorageFull => {
            Problem::new(model::Code::StorageFull, "the output cannot be written: the disk is full").into()
        }
        _ => {
            Problem::new(model::Code::StorageFailed, format!("the output cannot be written: {error}")).into()
        }
    }
}

/// `1 run`, `2 runs`.
pub fn counted(number: usize, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}

/// Rows in columns as wide as their widest cell; the first row is the heading.
pub fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = *width)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["name".into(), "lag".into()], vec!["a-long-name".into(), "7".into()]];
        assert_eq!(columns(&rows), "name         lag\na-long-name  7");
    }

    #[test]
    fn an_error_carries_its_own_fields_but_no_request_id() {
        let problem = Problem::new(model::Code::EventGone, "gone").with("first", 9).with("request_id", "r");
        assert_eq!(
            error_json(&problem),
            json!({
                "code": "event.gone", "message": "gone", "first": 9, "hint": "begin at `first`, or leave --after out"
            })
        );
    }
}
