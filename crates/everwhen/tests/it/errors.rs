//! Every page of `docs/errors/` is true: its example is run, gives the code of the page, and the page shows what came out.
//!
//! How an example is written stands in `docs/errors/README.md`. `EVERWHEN_GOLDEN=write` writes what came out into the pages.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use model::Code;
use serde_json::{Map, Value};

use crate::support::{BINARY, Place, Server};

/// Codes that no example can produce on a reader's machine: why not, and the file and name of the test that does.
const BY_TEST: &[(&str, &str, &str, &str)] = &[
    (
        "storage.full",
        "a disk must be full",
        "engine/tests/it/traps.rs",
        "a_full_disk_refuses_publishes_first_and_acks_go_on",
    ),
    ("storage.failed", "a disk must fail", "engine/src/engine.rs", "what_a_disk_answers_has_its_own_code"),
    (
        "storage.read_only",
        "root may write anywhere",
        "engine/src/engine.rs",
        "what_a_disk_answers_has_its_own_code",
    ),
    (
        "engine.closing",
        "the last moment of a server",
        "engine/tests/it/restart.rs",
        "a_closed_engine_takes_nothing_more_and_says_so",
    ),
    (
        "event.gone",
        "a segment must be full and old",
        "engine/tests/it/maintain/retention.rs",
        "a_state_deleted_after_a_trim_is_rebuilt_from_a_snapshot_and_the_tail",
    ),
    (
        "event.refused",
        "a layer is an embedder's code",
        "engine/src/admit/tests/chain.rs",
        "an_own_layer_comes_last_and_may_change_or_refuse_but_not_break_rules",
    ),
    (
        "auth.required",
        "the pages are tried with a server that asks for no tokens",
        "server/tests/it/corners.rs",
        "who_holds_the_directory_is_let_in_and_a_wrong_token_is_told_how_to_ask",
    ),
    (
        "request.timeout",
        "takes long",
        "server/tests/it/corners.rs",
        "an_answer_that_does_not_come_is_not_waited_for_for_ever",
    ),
    (
        "body.timeout",
        "takes long",
        "server/tests/it/corners.rs",
        "a_body_that_does_not_arrive_is_not_waited_for_for_ever",
    ),
    (
        "not_available",
        "only messages over a WebSocket ask for it",
        "server/tests/it/ws.rs",
        "what_comes_with_another_issue_is_not_available",
    ),
    (
        "idempotency.busy",
        "takes two requests at once",
        "server/tests/it/idempotency.rs",
        "a_request_in_progress_is_not_begun_again",
    ),
    (
        "idempotency.done",
        "takes a restart",
        "everwhen/tests/it/once.rs",
        "a_key_holds_over_a_restart_and_what_holds_data_is_not_told_again",
    ),
    (
        "stream.slow",
        "takes more than a socket holds",
        "server/tests/it/stream.rs",
        "a_reader_that_takes_nothing_is_told_and_closed",
    ),
    (
        "task.lost",
        "takes five minutes",
        "engine/tests/it/effects/tasks.rs",
        "ten_lost_workers_fail_the_attempt",
    ),
];

/// Codes that no example and no test gives from outside, and why not.
const NEVER: &[(&str, &str)] = &[
    ("engine.bug", "an impossible state"),
    ("engine.task_died", "a part of the engine has panicked"),
    ("effect.stopped", "no run shows it: the one that asked waits no more"),
];

/// Steps of an example, in order; the last is what comes out.
enum Block {
    File { path: String, text: String },
    Shell(String),
    Http(String),
    Shown(String),
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors")
}

/// The fenced blocks behind `## Example`.
fn blocks(page: &str) -> Vec<Block> {
    let example = page.split_once("\n## Example\n").map_or("", |(_, example)| example);
    let mut blocks = Vec::new();
    let mut lines = example.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let mut text = String::new();
        for line in lines.by_ref().take_while(|line| *line != "```") {
            let _ = writeln!(text, "{line}");
        }
        blocks.push(match (info, info.split_once(' ')) {
            (_, Some((_, path))) => Block::File { path: path.to_owned(), text },
            ("sh", _) => Block::Shell(text),
            ("http", _) => Block::Http(text),
            _ => Block::Shown(text),
        });
    }
    blocks
}

/// A place where an example runs; a server once there was a request.
struct Stage {
    place: Place,
    server: Option<Server>,
}

impl Stage {
    /// Does all steps; gives what the last one answered, for people and for programs.
    fn run(&mut self, blocks: &[Block]) -> (String, String) {
        let last =
            blocks.iter().rposition(|block| matches!(block, Block::Shell(_) | Block::Http(_))).unwrap();
        for block in &blocks[..last] {
            match block {
                Block::File { path, text } => drop(self.place.write(path, text)),
                Block::Shell(text) => text.lines().for_each(|line| self.must(line)),
                Block::Http(text) => drop(self.requests(text)),
                Block::Shown(_) => {}
            }
        }
        match &blocks[last] {
            Block::Shell(text) => self.commands(text),
            Block::Http(text) => self.requests(text),
            _ => Default::default(),
        }
    }

    /// All lines but the last must succeed. The last is run twice, the second time with `--json`.
    fn commands(&self, text: &str) -> (String, String) {
        let lines: Vec<&str> = text.lines().collect();
        let (last, before) = lines.split_last().unwrap();
        before.iter().for_each(|line| self.must(line));
        let json = if last.contains("--jsonl") { (*last).to_owned() } else { format!("{last} --json") };
        (self.shell(last).1, self.shell(&json).1)
    }

    fn must(&self, line: &str) {
        let (ok, out) = self.shell(line);
        assert!(ok, "{line}\n{out}");
    }

    fn requests(&mut self, text: &str) -> (String, String) {
        let answer = text.split("###\n").map(|request| self.request(request)).last().unwrap_or_default();
        (answer.clone(), answer)
    }

    fn shell(&self, line: &str) -> (bool, String) {
        let bin = Path::new(BINARY).parent().unwrap().display().to_string();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(line).current_dir(self.place.path());
        shell.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap_or_default()));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("EVERWHEN_")) {
            shell.env_remove(name);
        }
        shell.env("ADDRESS", self.address().unwrap_or_default());
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), self.plain(&String::from_utf8_lossy(&text)))
    }

    fn address(&self) -> Option<String> {
        Some(self.server.as_ref()?.url().trim_start_matches("http://").to_owned())
    }

    /// Without what is different each time: where the directory is, and process and port of the server.
    fn plain(&self, text: &str) -> String {
        let here = self.place.path().canonicalize().unwrap();
        let mut text = text.replace(&format!("{}/", here.display()), "");
        if let Some(address) = self.address() {
            text = text.replace(&address, "127.0.0.1:3837");
        }
        if let Some(server) = &self.server {
            let pid = server.ready["pid"].to_string();
            text = text
                .replace(&format!("process {pid}"), "process 4711")
                .replace(&format!("kill {pid}"), "kill 4711");
        }
        always_the_same(&text)
    }

    /// `METHOD /path`, headers, a blank line and a body; gives the status and the document.
    fn request(&mut self, text: &str) -> String {
        let server = self.server.get_or_insert_with(|| self.place.serve());
        let (head, body) = text.trim_end().split_once("\n\n").unwrap_or((text.trim_end(), ""));
        let (line, headers) = head.split_once('\n').unwrap_or((head, ""));
        let mut sent = format!("{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        if !headers.contains("content-type") {
            sent += "content-type: application/json\r\n";
        }
        headers.lines().for_each(|header| sent += &format!("{header}\r\n"));
        let _ = write!(sent, "content-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let status = reply.split(' ').nth(1).unwrap_or_default().to_owned();
        let body = reply.split_once("\r\n\r\n").unwrap().1;
        let document = serde_json::from_str::<Map<String, Value>>(body).unwrap_or_default();
        format!("{status}\n{}", pretty(document))
    }
}

/// Runs have other ids and other times each time.
fn always_the_same(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let run = rest.strip_prefix("run_").and_then(|id| id.get(..26)).filter(|id| is_ulid(id));
        if run.is_some() {
            out.push_str("run_01J8Z3V4K5M6N7P8Q9R0S1T2V3");
            rest = &rest[30..];
        } else if let Some(length) = instant(rest) {
            out.push_str("2026-01-31T09:30:00Z");
            rest = &rest[length..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

fn is_ulid(id: &str) -> bool {
    id.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase())
}

/// How long the instant is that a text of our days begins with.
fn instant(text: &str) -> Option<usize> {
    let end = text.find('Z').filter(|end| (19..=29).contains(end))?;
    let is_one =
        text.starts_with("20") && text[..end].bytes().all(|b| b.is_ascii_digit() || b"-T:.".contains(&b));
    is_one.then_some(end + 1)
}

/// In the order in which a person reads it, and without the request's own id.
fn pretty(mut document: Map<String, Value>) -> String {
    document.remove("request_id");
    let first = ["type", "title", "status", "code", "detail", "hint", "pointer"];
    let rest: Vec<String> = document.keys().filter(|key| !first.contains(&key.as_str())).cloned().collect();
    let known = first.iter().map(|key| (*key).to_owned()).chain(rest);
    let lines: Vec<String> = known
        .filter_map(|key| Some(format!("  {}: {}", Value::from(key.as_str()), document.get(&key)?)))
        .collect();
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

/// What is wrong with the page of a code; writes it anew instead when told to.
fn judge(code: &str) -> Option<String> {
    let path = dir().join(format!("{code}.md"));
    let page = std::fs::read_to_string(&path).unwrap();
    let blocks = blocks(&page);
    let Some(Block::Shown(shown)) = blocks.last() else { return Some(format!("{code}: shows no answer")) };
    if blocks.len() == 1 {
        return Some(format!("{code}: its example cannot be run"));
    }
    let mut stage = Stage { place: Place::new(), server: None };
    let (people, programs) = stage.run(&blocks);
    let named = [format!("\"code\":\"{code}\""), format!("\"code\": \"{code}\"")];
    if !named.iter().any(|named| programs.contains(named)) {
        return Some(format!("{code}: its example gives\n{programs}"));
    }
    if std::env::var("EVERWHEN_GOLDEN").is_ok_and(|how| how == "write") {
        let start = page.rfind("```text\n").unwrap() + "```text\n".len();
        std::fs::write(&path, format!("{}{people}```\n", &page[..start])).unwrap();
    } else if *shown != people {
        return Some(format!("{code}: the page shows\n{shown}and the example gives\n{people}"));
    }
    None
}

fn by_example() -> Vec<&'static str> {
    let never = |code: &&str| NEVER.iter().any(|(known, _)| known == code);
    let other = |code: &&str| BY_TEST.iter().any(|(known, ..)| known == code) || never(code);
    Code::ALL.iter().map(|code| code.as_str()).filter(|code| !other(code)).collect()
}

#[test]
fn the_example_of_every_page_gives_its_code_and_what_the_page_shows() {
    let codes = by_example();
    let only = std::env::var("EVERWHEN_CODE").unwrap_or_default();
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let mine: Vec<&str> = codes.iter().skip(worker).step_by(4).copied().collect();
                let only = &only;
                scope.spawn(move || {
                    mine.into_iter()
                        .filter(|code| code.contains(only.as_str()))
                        .filter_map(judge)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn what_no_example_gives_has_a_test_that_does() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (code, why, file, what) in BY_TEST {
        assert!(Code::ALL.iter().any(|known| known.as_str() == *code), "{code} is no code");
        let text = std::fs::read_to_string(crates.join(file)).unwrap_or_default();
        assert!(text.contains(&format!("fn {what}()")), "{code} ({why}): {file} has no test {what:?}");
    }
}

#[test]
fn the_list_of_errors_names_every_code_with_its_status_and_title() {
    let list = std::fs::read_to_string(dir().join("README.md")).unwrap();
    for code in Code::ALL {
        let line = format!("| [{code}]({code}.md) | {} | {} |\n", code.status(), code.title());
        assert!(list.contains(&line), "README.md lacks\n{line}");
    }
}

#[test]
fn no_hint_leads_to_nothing_but_its_own_page() {
    for page in std::fs::read_dir(dir()).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&page).unwrap();
        assert!(!text.contains("see docs/errors/"), "{}: a hint is the next thing to type", page.display());
    }
}
