//! A person's answer: the first one that fits wins, and who may give it is written in the question.

use model::definition::{Field, approval};
use model::{Code, Problem};
use serde_json::{Map, Value};

use super::{Refusal, done, known};
use crate::command::Answer;
use crate::draft::Draft;
use crate::entity::check::{Fill, check};
use crate::entity::mutation::arguments;
use crate::route;
use crate::run::WaitKind;

pub(super) fn answer(
    draft: &mut Draft<'_>,
    run: &str,
    number: u32,
    value: Value,
    actor: &str,
) -> Result<Answer, Refusal> {
    let position = known(draft, run)?;
    let live = draft.state.run(position)?;
    let wait = live.as_ref().and_then(|live| live.wait(number));
    if wait.is_none() && live.as_ref().is_some_and(|live| (1..=live.walk.waited).contains(&number)) {
        let detail = format!("\"{run}.{number}\" is not open any more, its run went on");
        return Err(Problem::new(Code::WaitAnswered, detail).into());
    }
    let Some(WaitKind::Ask { to, options, form, approve, .. }) = wait.map(|wait| &wait.kind) else {
        return Err(Problem::new(Code::NotFound, format!("\"{run}.{number}\" is no open question"))
            .hint("`everwhen waits list --kind ask` shows what is open")
            .into());
    };
    if wait.is_some_and(|wait| wait.ended.is_some()) {
        return Err(
            Problem::new(Code::WaitAnswered, format!("\"{run}.{number}\" was answered before")).into()
        );
    }
    if !may_answer(to, actor) {
        return Err(Problem::new(Code::AuthDenied, format!("{actor} was not asked"))
            .hint(format!(
                "asked was: {to}; `--as` says who answers only where no token is shown, else the token does"
            ))
            .into());
    }
    is_option(options, &value)?;
    if *approve && options.is_empty() && approval(&value).is_none() {
        let detail = format!("{value} neither approves nor rejects");
        let hint = "true or false, yes or no, approve or reject; with a form {\"approved\": true, …}";
        return Err(Problem::new(Code::AnswerRefused, detail).hint(hint).at("/value").into());
    }
    fills_in(form, *approve, &value)?;
    route::answer_wait(draft, (position, number), actor, value)?;
    Ok(done(draft))
}

fn may_answer(to: &Value, actor: &str) -> bool {
    let name = actor.split_once(':').map_or(actor, |(_, name)| name);
    match to {
        Value::Null => true,
        Value::String(who) => who == actor || who == name || who == "*",
        Value::Array(several) => several.iter().any(|who| may_answer(who, actor)),
        _ => false,
    }
}

fn is_option(options: &[Value], value: &Value) -> Result<(), Problem> {
    if options.is_empty() || options.contains(value) {
        return Ok(());
    }
    let detail = format!("{value} is none of the answers that may be given");
    let hint = options.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    Err(Problem::new(Code::AnswerRefused, detail).hint(hint).at("/value"))
}

/// Whether an answer has what the form asks for. Who rejects need not fill in anything.
fn fills_in(form: &[Field], approve: bool, value: &Value) -> Result<(), Problem> {
    let rejects = approve && approval(value) == Some(false);
    if form.is_empty() || rejects && !value.is_object() {
        return Ok(());
    }
    let asked = || form.iter().map(|field| field.name.as_str()).collect::<Vec<_>>().join(", ");
    let bare = Map::new();
    let Some(filled) = value.as_object().or(approve.then_some(&bare)) else {
        let detail = format!("{value} is not what the form asks for, an object");
        return Err(Problem::new(Code::AnswerRefused, detail)
            .hint(format!("fill in {}", asked()))
            .at("/value"));
    };
    let mut filled = filled.clone();
    if approve {
        filled.remove("approved");
    }
    let form: Vec<Field> =
        form.iter().map(|field| Field { required: field.required && !rejects, ..field.clone() }).collect();
    check(&arguments("form", &form)?, filled, Fill::All).map(drop).map_err(|problem| {
        Problem::new(Code::AnswerRefused, problem.detail())
            .hint(format!("the form asks for {}", asked()))
            .at(problem.pointer().unwrap_or_default())
            .within("/value")
    })
}
