//! What a scenario declares, as a checked workspace: its files, its shorthand concepts and its inline automations.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lang::declare::{Finding, Severity, check_workspace};
use model::Problem;
use model::definition::Definition;
use serde_json::{Map, Value};

use super::Given;
use super::read::wrong;
use crate::commands::sources;

/// Where what has no file of its own stands for the language.
const CONCEPTS: &str = "scenario/concepts.ew";
const INLINE: &str = "scenario.json";

impl Given {
    pub fn definitions(&self, folder: &Path) -> Result<Vec<Definition>, Problem> {
        let paths: Vec<PathBuf> = self.files.iter().map(|file| folder.join(file)).collect();
        let mut sources = sources::read(&paths).map_err(|problem| wrong(problem.detail()))?;
        if !self.concepts.is_empty() {
            sources.files.insert(CONCEPTS.to_owned(), declared(&self.concepts)?);
        }
        if !self.automations.is_empty() {
            // A line each: the line of a finding says which it is about.
            let lines: Vec<String> = self.automations.iter().map(Value::to_string).collect();
            sources.files.insert(INLINE.to_owned(), format!("[\n{}\n]", lines.join(",\n")));
        }
        let checked = check_workspace(&sources.files);
        match checked.findings.iter().find(|finding| finding.severity == Severity::Error) {
            Some(finding) => Err(self.unfit(finding, &sources.paths)),
            None => Ok(checked.definitions),
        }
    }

    fn unfit(&self, finding: &Finding, paths: &BTreeMap<String, PathBuf>) -> Problem {
        let place = match (paths.get(&finding.file), finding.file.as_str()) {
            (Some(path), _) => format!("{}:{}:{}", path.display(), finding.line, finding.col),
            (None, CONCEPTS) => "given.concepts".to_owned(),
            (None, _) => self.inline(finding.line),
        };
        let problem = wrong(format!("{place}: {} [{}]", finding.message, finding.code.as_str()));
        match &finding.suggestion {
            Some(hint) => problem.hint(hint),
            None => problem,
        }
    }

    /// The automation that stands in this line of what they are written as; the first is in the second.
    fn inline(&self, line: usize) -> String {
        let name = line.checked_sub(2).and_then(|at| self.automations.get(at)?["automation"].as_str());
        name.map_or("given.automations".to_owned(), |name| format!("given.automations \"{name}\""))
    }
}

/// `.ew` for `{"v1:ha:entity": {state: any}}`; fields that are not named are allowed, too.
fn declared(concepts: &Map<String, Value>) -> Result<String, Problem> {
    let mut text = String::new();
    for (id, fields) in concepts {
        let parts: Vec<&str> = id.split(':').collect();
        let [version, namespace, name] = parts.as_slice() else { return Err(no_concept(id)) };
        let version = version.strip_prefix('v').ok_or_else(|| no_concept(id))?;
        text.push_str(&format!(
            "@namespace(\"{namespace}\")\n@version(\"{version}.0.0\")\n@open\nconcept {name} {{\n"
        ));
        for (field, kind) in fields.as_object().into_iter().flatten() {
            text.push_str(&format!("  {field} {}\n", kind.as_str().unwrap_or("any")));
        }
        text.push_str("}\n\n");
    }
    Ok(text)
}

fn no_concept(id: &str) -> Problem {
    wrong(format!("\"{id}\" names no concept"))
        .hint("write version, namespace and name, such as v1:health:system")
}
