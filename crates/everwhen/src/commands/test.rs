//! `everwhen test`: plays scenarios on a simulated disk and a virtual clock, and says which do not end as they should.

use std::path::{Path, PathBuf};

use lang::declare::read_values;
use model::{Code, Problem};

use super::sources;
use crate::output::{Stop, counted};
use crate::scenario::{self, Played, Scenario, report};
use crate::session::Session;

/// Play scenarios: given definitions and rows, steps on a virtual clock, and what must then be true
///
/// A scenario is a YAML or JSON file that begins with "scenario: <name>". Nothing real is touched: each one gets its own
/// ledger on a simulated disk, hours pass in milliseconds, and what steps do outside is written down and answered as the
/// scenario says. Ends with 0 when all passed, 1 when some failed, 4 when a file is wrong.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  everwhen test
  everwhen test tests/paging.yaml
  everwhen test --kill-at-waits            each scenario again, with a power cut wherever a run waits
  everwhen test --junit report.xml
  everwhen test --json | jq 'select(.passed | not)'

A scenario:
  scenario: pages after five minutes
  given:
    files: [automations.yaml]
    entities: {v1:health:system/api: {status: ok}}
  steps:
    - set: {v1:health:system/api: {status: down}}
    - advance: 5m
    - expect: {emitted: {topic: page.#, total: 1}}")]
pub struct Args {
    /// Scenarios, or folders in which every one is found
    #[arg(default_value = ".", value_name = "FILES")]
    paths: Vec<PathBuf>,
    /// Play each scenario again, with a kill after each step that leaves a run waiting
    #[arg(long)]
    kill_at_waits: bool,
    /// Write the results as JUnit XML, for build servers
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

pub fn run(args: &Args, session: &Session) -> Result<(), Stop> {
    let scenarios = find(&args.paths)?;
    if scenarios.is_empty() {
        let asked: Vec<String> = args.paths.iter().map(|path| format!("\"{}\"", path.display())).collect();
        return Err(wrong(format!("there is no scenario in {}", asked.join(", ")))
            .hint("a scenario begins with scenario: <name>; `everwhen test --help` shows one")
            .into());
    }
    let mut results = Vec::new();
    for scenario in &scenarios {
        let result = report::Result { scenario, played: played(scenario, args.kill_at_waits)? };
        match session.out.json {
            true => session.out.line(&result.to_json().to_string())?,
            false => session.out.line(&result.words())?,
        }
        results.push(result);
    }
    session.out.flush()?;
    if let Some(file) = &args.junit {
        std::fs::write(file, report::junit(&results)).map_err(|error| unwritable(file, &error))?;
    }
    let failed = results.iter().filter(|result| !result.played.passed()).count();
    session.out.note(&format!(
        "{}: {} passed, {failed} failed",
        counted(results.len(), "scenario"),
        results.len() - failed
    ));
    if failed > 0 { Err(Stop::Code(1)) } else { Ok(()) }
}

fn played(scenario: &Scenario, kill_at_waits: bool) -> Result<Played, Problem> {
    let plain = scenario::play(scenario, false)?;
    if kill_at_waits && plain.passed() { scenario::play(scenario, true) } else { Ok(plain) }
}

/// Every scenario in these files and folders, all of them sound.
fn find(paths: &[PathBuf]) -> Result<Vec<Scenario>, Problem> {
    let mut scenarios = Vec::new();
    for path in paths {
        let sources = sources::read(std::slice::from_ref(path)).map_err(|problem| wrong(problem.detail()))?;
        for (key, text) in &sources.files {
            let file = &sources.paths[key];
            let is_named = path.is_file();
            if is_named || text.contains("scenario") && !key.ends_with(".ew") {
                scenarios.extend(in_file(file, text, is_named)?);
            }
        }
    }
    scenarios.iter().try_for_each(|scenario: &Scenario| {
        let place = format!("{}, \"{}\": ", scenario.file.display(), scenario.name);
        scenario.check().map_err(|problem| scenario::placed(&place, problem))
    })?;
    Ok(scenarios)
}

/// A file holds one scenario, a list of them, or several documents; one that was named holds at least one.
fn in_file(file: &Path, text: &str, is_named: bool) -> Result<Vec<Scenario>, Problem> {
    let documents = match read_values(&file.display().to_string(), text) {
        Ok(documents) => documents,
        // In a folder there may be anything; what means to be a scenario must not be passed over in silence.
        Err(_) if !is_named && !means_to_be(text) => return Ok(Vec::new()),
        Err(finding) => return Err(wrong(finding.render(text).trim_end())),
    };
    let mut scenarios = Vec::new();
    for document in documents {
        let several = match document {
            serde_json::Value::Array(items) => items,
            one => vec![one],
        };
        for one in several.iter().filter(|one| scenario::is_scenario(one)) {
            scenarios.push(scenario::read(file, one)?);
        }
    }
    match scenarios.is_empty() && is_named {
        true => Err(wrong(format!("\"{}\" holds no scenario", file.display()))
            .hint("a scenario begins with scenario: <name>; `everwhen test --help` shows one")),
        false => Ok(scenarios),
    }
}

fn means_to_be(text: &str) -> bool {
    text.lines().any(|line| line.trim_start_matches(['-', ' ', '{', '"']).starts_with("scenario"))
}

fn wrong(what: impl Into<String>) -> Problem {
    Problem::new(Code::ScenarioInvalid, what)
}

fn unwritable(file: &Path, error: &std::io::Error) -> Problem {
    Problem::new(Code::UsageInvalid, format!("cannot write \"{}\": {error}", file.display()))
}
