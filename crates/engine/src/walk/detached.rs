//! A query that is declared `detached`: asked for here, answered off the loop over all that is recorded by then (rules R5).

use model::Code;
use model::definition::{Call, Query};
use serde_json::json;

use super::{Flow, Result, Walk, failure};
use crate::declared;
use crate::route::occurrence;
use crate::run::{Block, Request};

impl Walk<'_, '_> {
    /// The answer is a wait like that for an effect: it survives a crash, and is then asked for again.
    pub(super) fn detached(
        &mut self,
        query: &Query,
        call: &Call,
        at: &mut Block,
        path: &str,
    ) -> Result<Flow> {
        if let Some(answer) = self.answer_of(at) {
            return answer;
        }
        if self.atomic > 0 || self.logic > 0 {
            let what = format!("query \"{}\" is detached: nothing inside `atomic` or logic waits", call.name);
            return Err(failure(Code::DefinitionInvalid, what));
        }
        let args = declared::call_args(&query.name, &query.args, self.args(call)?)?;
        let space = (self.env.space != occurrence::SYSTEM).then_some(self.env.space.as_str());
        let request = Request {
            kind: declared::DETACHED.to_owned(),
            with: json!({"query": call.name, "args": args, "space": space, "actor": self.actor(), "now": self.env.now}),
            ..Request::default()
        };
        self.ask_outside(request, at, path)
    }
}
