//! Decides a call of logic from outside: what it writes is one commit, or nothing when it fails.

use model::{Code, Problem};
use serde_json::{Map, Value};

use super::Refusal;
use crate::admit::Caller;
use crate::command::Answer;
use crate::draft::Draft;
use crate::route::{self, occurrence};
use crate::walk::{self, Failure, Stopped};

pub fn decide(
    draft: &mut Draft<'_>,
    name: &str,
    args: Map<String, Value>,
    caller: Caller,
    space: Option<String>,
) -> Result<Answer, Refusal> {
    // A call of what is not there, or with the wrong arguments, is refused as such, not as a failure of the logic.
    let catalog = draft.state.catalog.clone();
    let (logic, _) = catalog.logic(name)?;
    let args = crate::declared::call_args(&logic.name, &logic.args, args)?;
    let mark = draft.mark()?;
    let space = space.unwrap_or_else(|| occurrence::SYSTEM.to_owned());
    match walk::call_logic(draft, &logic.name, args, caller, space) {
        Ok(output) => {
            draft.keep(mark)?;
            route::all(draft)?;
            Ok(Answer::Output(output))
        }
        Err(Stopped::Failure(failure)) => {
            draft.rewind(mark)?;
            Err(failed(&logic.name, &failure).into())
        }
        Err(Stopped::Fault(fault)) => Err(Refusal::Fault(fault)),
    }
}

fn failed(name: &str, failure: &Failure) -> Problem {
    let code = Code::ALL.iter().copied().find(|code| code.as_str() == failure.code);
    // A `fail` of its own, and what a caller could take for a wrong name, are its failure.
    let own = |code: &Code| matches!(code, Code::NotFound | Code::RunFailed);
    let code = code.filter(|code| !own(code)).unwrap_or(Code::LogicFailed);
    Problem::new(code, format!("logic \"{name}\": {}", failure.message)).hint("nothing that it did stands")
}
