//! A folder of files, as a map from path to text, into checked definitions and findings; no file is touched here.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::definition::Definition;
use model::{Code, Timestamp};

use super::check::{self, Rows, Source};
use super::finding::{Finding, Severity, fault};
use super::{parse, yaml};
use crate::expr::Span;
use crate::expr::fault::Fault;

/// Longest file, in bytes.
const FILE_BYTES_MAX: usize = 4 << 20;

/// What a workspace says.
#[derive(Debug, Default)]
pub struct Checked {
    /// By kind and name. Complete only when there is no error among the findings.
    pub definitions: Vec<Definition>,
    /// By file and place.
    pub findings: Vec<Finding>,
    /// Instants that are named, and the warning that each deserves once it has passed.
    once: Vec<(Timestamp, Finding)>,
}

impl Checked {
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// With the warnings that hold at `now`, which no text knows by itself.
    pub fn at(mut self, now: Timestamp) -> Checked {
        let past = std::mem::take(&mut self.once).into_iter().filter(|(instant, _)| *instant < now);
        self.findings.extend(past.map(|(_, finding)| finding));
        self
    }
}

/// Whether a file of this name is read as part of a workspace. A leading `_` leaves it out.
pub fn is_source(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let known = [".ew", ".memql", ".yaml", ".yml", ".json"];
    !name.starts_with(['_', '.']) && known.iter().any(|ending| name.ends_with(ending))
}

/// Checks the files of a workspace, `path → text`, paths relative to its root and split by `/`.
pub fn check_workspace(files: &BTreeMap<String, String>) -> Checked {
    check_with_rows(files, &BTreeMap::new())
}

/// The same, knowing how many rows concepts have, by id: a query without an index over many is a warning.
pub fn check_with_rows(files: &BTreeMap<String, String>, rows: &Rows) -> Checked {
    check_all(files, rows, &[])
}

/// Checks files that may also name what others have put into force.
pub fn check_beside(files: &BTreeMap<String, String>, known: &[Arc<Definition>]) -> Checked {
    check_all(files, &BTreeMap::new(), known)
}

fn check_all(files: &BTreeMap<String, String>, rows: &Rows, known: &[Arc<Definition>]) -> Checked {
    let mut sources = Vec::new();
    let mut found: Vec<(usize, Severity, Fault)> = Vec::new();
    for (at, (path, text)) in files.iter().enumerate() {
        let (file, faults) = read(path, text);
        found.extend(faults.into_iter().map(|fault| (at, Severity::Error, fault)));
        let (domain, module) = place(path);
        sources.push(Source { path: path.clone(), domain, module, file });
    }
    let outcome = check::check(&sources, rows, known);
    found.extend(outcome.found);
    let texts: Vec<&String> = files.values().collect();
    let finding = |at: usize, severity, fault| Finding::new(&sources[at].path, texts[at], severity, fault);
    let mut findings: Vec<Finding> =
        found.into_iter().map(|(at, severity, fault)| finding(at, severity, fault)).collect();
    let once = outcome.once.into_iter();
    let once = once.map(|(at, instant, fault)| (instant, finding(at, Severity::Warning, fault))).collect();
    findings.sort_by(|a, b| {
        let key =
            |f: &Finding| (f.file.clone(), f.line, f.col, f.severity, f.code.as_str(), f.message.clone());
        key(a).cmp(&key(b))
    });
    findings.dedup();
    Checked { definitions: outcome.made, findings, once }
}

/// Every document of a YAML or JSON text that is no definition, such as a scenario, as a plain value.
pub fn read_values(path: &str, text: &str) -> Result<Vec<serde_json::Value>, Finding> {
    yaml::values(text).map_err(|fault| Finding::new(path, text, Severity::Error, fault))
}

fn read(path: &str, text: &str) -> (super::tree::File, Vec<Fault>) {
    if text.len() > FILE_BYTES_MAX {
        let what = format!("the file is longer than {FILE_BYTES_MAX} bytes");
        return (Default::default(), vec![fault(Code::ExprLimit, Span::default(), what)]);
    }
    if path.ends_with(".ew") || path.ends_with(".memql") { parse::parse(text) } else { yaml::read(text) }
}

/// `cognition/concepts.ew` is of the domain `cognition` and the module `cognition.concepts`.
fn place(path: &str) -> (String, String) {
    let stem = path.rsplit_once('.').map_or(path, |(stem, _)| stem);
    let parts: Vec<&str> = stem.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let domain = match parts.as_slice() {
        [.., folder, _] => (*folder).to_owned(),
        [file] if !KINDS.contains(file) => (*file).to_owned(),
        _ => "main".to_owned(),
    };
    (domain, parts.join("."))
}

/// The files of a domain; by themselves they name no domain.
const KINDS: [&str; 6] = ["concepts", "queries", "mutations", "shapes", "logic", "automations"];
