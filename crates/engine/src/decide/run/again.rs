//! Decides whether a run that has ended goes on or begins anew. Only its mode is asked: a person wants it; and of a new one, whether
//! the day has room for it.

use model::definition::{Mode, ModeKind};
use model::record::{Outcome, RunMoved, RunRecord, Status};
use model::{Code, Problem};

use super::Refusal;
use crate::command::{Again, Answer};
use crate::draft::Draft;
use crate::route::start;

/// Running at the same time, unless the automation says otherwise.
const MAX: u32 = 10;

pub fn decide(draft: &mut Draft<'_>, again: Again) -> Result<Answer, Refusal> {
    let Again { mut started, walked, pinned } = again;
    if draft.state.runs.position_of(&started.id).is_some() {
        return Err(not_resumable(format!("\"{}\" is in progress", started.id)).into());
    }
    let automation = if pinned {
        draft.state.recall(&started.automation, &started.hash)?;
        draft.state.version(&started.automation, &started.hash).ok_or_else(|| gone(&started.hash))?
    } else {
        draft.state.catalog.automations.named(&started.automation)?.clone()
    };
    free(draft, &automation.definition.mode, (started.automation.clone(), started.key.clone()))?;
    let is_new = started.id.is_empty();
    if is_new && !draft.state.daily.has_room(draft.now, 0) {
        let reason = Some("budget".to_owned());
        return Ok(Answer::Started { run: None, outcome: Outcome::Refused, reason });
    }
    if is_new {
        started.id = start::blank(draft, &automation, "", "").id;
    }
    started.hash.clone_from(&automation.hash);
    let id = started.id.clone();
    let run = start::start(draft, started, &[])?;
    if let Some(walked) = walked {
        let state = serde_json::to_value(walked).unwrap_or_default();
        draft.push_run(RunRecord::Moved(RunMoved {
            run,
            status: Status::Running,
            state,
            steps: Vec::new(),
        }))?;
    }
    Ok(Answer::Started { run: Some(id), outcome: Outcome::Ran, reason: None })
}

/// Nobody is sent away or queued behind for the sake of a run that has had its turn.
fn free(draft: &Draft<'_>, mode: &Mode, stage: (String, String)) -> Result<(), Problem> {
    let live = draft.state.runs.stage.get(&stage).map_or(0, std::collections::BTreeSet::len);
    let most = match mode.kind {
        ModeKind::Parallel => mode.max.unwrap_or(MAX) as usize,
        ModeKind::Single | ModeKind::Restart | ModeKind::Queued => 1,
    };
    if live < most {
        return Ok(());
    }
    Err(Problem::new(Code::RunRefused, format!("{live} runs of \"{}\" are in progress", stage.0))
        .hint("wait for them, or cancel them first")
        .with("outcome", "skipped")
        .with("reason", "busy"))
}

fn gone(hash: &str) -> Problem {
    let version = hash.get(..12).unwrap_or(hash);
    not_resumable(format!("version {version}, under which it failed, is no longer kept"))
        .hint("`everwhen runs retry` begins it anew under the version that is declared now; `rerun --from-step` goes on there")
}

fn not_resumable(detail: String) -> Problem {
    Problem::new(Code::RunNotResumable, detail)
}
