//! The workspace that `serve` is given: checked and applied before the first request, and again whenever it is saved.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use engine::{Engine, Plan, Tenant};
use lang::declare::{Finding, check_workspace};
use model::definition::Definition;
use model::{Code, Problem};
use serde_json::json;

use crate::commands::sources::{self, Sources};
use crate::output::Stop;
use crate::session::Session;

/// How often a watched workspace is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Who manages the definitions: the same as of `everwhen apply` without a name.
const MANAGER: &str = "default";

/// The workspace as it was last looked at.
pub struct Workspace {
    path: PathBuf,
    seen: Seen,
}

/// What changes when a file is saved, without reading it: when it was written, how long it is, which file it is.
type Seen = BTreeMap<PathBuf, (Option<SystemTime>, u64, u64)>;

impl Workspace {
    /// Reads and checks; ends the command with every finding when there is an error.
    pub fn open(path: PathBuf, session: &Session) -> Result<(Workspace, Vec<Definition>), Stop> {
        // Looked at before it is read: what is saved in between is seen by the next look.
        let seen = look(&path);
        match checked(&path, session)? {
            Some((definitions, _)) => Ok((Workspace { path, seen }, definitions)),
            None => Err(Stop::Code(1)),
        }
    }

    /// Applies what is saved, for ever. What does not check or is refused changes nothing, and is said.
    pub async fn watch(mut self, engine: &Engine, tenant: &str, session: &Session) {
        let mut look_again = tokio::time::interval(LOOK);
        let mut before = self.seen.clone();
        loop {
            look_again.tick().await;
            let now = look(&self.path);
            // A save may be several writes, and between them half a file: nothing counts before it has come to rest.
            let rests = now == before;
            before = now;
            if rests && before != self.seen {
                self.seen.clone_from(&before);
                self.reload(engine.tenant(tenant), session).await;
            }
        }
    }

    async fn reload(&self, tenant: Result<Tenant, Problem>, session: &Session) {
        let applied = match checked(&self.path, session) {
            Ok(Some((definitions, sources))) => {
                match sources.check_not_empty(&definitions, std::slice::from_ref(&self.path)).and(tenant) {
                    Ok(tenant) => tenant.apply(MANAGER, definitions).await,
                    Err(problem) => Err(problem),
                }
            }
            Ok(None) => Err(Problem::new(Code::DefinitionInvalid, "the declarations have errors")),
            Err(Stop::Problem(problem)) => Err(problem),
            Err(Stop::Code(_) | Stop::Pipe) => return,
        };
        match applied {
            Ok(plan) => said(&plan, &self.path, session),
            Err(problem) => {
                let detail = format!(
                    "\"{}\" was not reloaded, the version before stays in force: {}",
                    self.path.display(),
                    problem.detail()
                );
                let hint = problem.hint_text().unwrap_or("mend it and save again").to_owned();
                session.out.fail(&Problem::new(problem.code(), detail).hint(hint));
            }
        }
    }
}

/// Puts the definitions into force before anybody can ask.
pub async fn apply(
    workspace: &Workspace,
    definitions: Vec<Definition>,
    tenant: &Tenant,
    session: &Session,
) -> Result<(), Problem> {
    let plan = tenant.apply(MANAGER, definitions).await?;
    said(&plan, &workspace.path, session);
    Ok(())
}

/// The definitions, or `None` when a finding is an error. Findings go to stderr in the form of `check`: stdout belongs to
/// the line that says the server is ready.
fn checked(path: &Path, session: &Session) -> Result<Option<(Vec<Definition>, Sources)>, Stop> {
    let sources = sources::read(&[path.to_owned()])?;
    let Sources { files, paths, .. } = &sources;
    let checked = check_workspace(files);
    for finding in &checked.findings {
        let text = &files[&finding.file];
        let shown = Finding { file: paths[&finding.file].display().to_string(), ..finding.clone() };
        let line = if session.out.json { shown.to_json().to_string() } else { shown.render(text) };
        session.out.say(line.trim_end());
    }
    Ok((!checked.has_errors()).then_some((checked.definitions, sources)))
}

fn said(plan: &Plan, path: &Path, session: &Session) {
    let (added, changed, removed) = (plan.added.len(), plan.changed.len(), plan.removed.len());
    if session.out.json {
        let mut line = plan.to_json();
        line["workspace"] = json!(path);
        session.out.say(&line.to_string());
    } else {
        let (path, position) = (path.display(), plan.position);
        session.out.note(&format!(
            "applied \"{path}\": {added} added, {changed} changed, {removed} removed, at position {position}"
        ));
    }
}

/// The files of the workspace; what cannot be read is not there.
fn look(path: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut open = vec![path.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(found) = std::fs::metadata(&path) else { continue };
        if found.is_dir() {
            let below = std::fs::read_dir(&path).into_iter().flatten().filter_map(Result::ok);
            open.extend(below.map(|entry| entry.path()).filter(|path| sources::is_read(path)));
        } else {
            use std::os::unix::fs::MetadataExt;
            seen.insert(path, (found.modified().ok(), found.len(), found.ino()));
        }
    }
    seen
}
