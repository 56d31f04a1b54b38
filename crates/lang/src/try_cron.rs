//! `everwhen try cron` (contracts §5): does it fire then, when does it fire next, can it be read.
//!
//! ```text
//!  {"expr": "0 7 * * *", "tz": "Europe/Berlin", "at": "…"}                       {"fires": true}
//!  {"expr": …, "tz": …, "from": "…", "inclusive": false, "count": 1}             {"next": ["…+01:00"]}
//!  {"expr": …, "fields": 5}                                                      {"valid": true}
//! ```
//! Only the last asks whether it ever fires; the others answer `false` and `[]` when it does not.

use model::{Code, Problem, Timestamp};
use serde_json::{Map, Value};

use crate::cron::{Cron, Zone};
use crate::try_lines::text;

const COUNT_MAX: u64 = 10_000;

pub fn answer(case: &Map<String, Value>) -> Result<Map<String, Value>, Problem> {
    let expr = text(case, "expr")?;
    let zone = match given(case, "tz") {
        Some(_) => Zone::parse(text(case, "tz")?)?,
        None => Zone::utc(),
    };
    let wrong = |what: &str| Problem::new(Code::RequestInvalid, what);
    let fields = given(case, "fields")
        .map(|fields| fields.as_u64().ok_or_else(|| wrong("\"fields\" is not a number")))
        .transpose()?;
    if given(case, "inclusive").is_some_and(|inclusive| !inclusive.is_boolean()) {
        return Err(wrong("\"inclusive\" is not true or false"));
    }
    let one = |name: &str, value: Value| Ok(Map::from_iter([(name.to_owned(), value)]));
    if given(case, "at").is_some() {
        let fires = Cron::read(expr)?.fires_at(instant(case, "at")?, &zone);
        return one("fires", fires.into());
    }
    if given(case, "from").is_some() {
        return one("next", next(case, &Cron::read(expr)?, &zone)?.into());
    }
    let cron = Cron::parse(expr)?;
    if let Some(fields) = fields {
        let has = cron.text().split_whitespace().count() as u64;
        if has != fields && !cron.text().starts_with('@') {
            let what = format!("the expression has {has} fields, not {fields}");
            return Err(Problem::new(Code::CronInvalid, what));
        }
    }
    one("valid", true.into())
}

fn next(case: &Map<String, Value>, cron: &Cron, zone: &Zone) -> Result<Vec<String>, Problem> {
    let from = instant(case, "from")?;
    let count = match given(case, "count") {
        None => 1,
        Some(count) => count.as_u64().filter(|count| *count <= COUNT_MAX).ok_or_else(|| {
            Problem::new(Code::RequestInvalid, format!("\"count\" is not a number up to {COUNT_MAX}"))
        })?,
    };
    let inclusive = given(case, "inclusive") == Some(&Value::Bool(true));
    let all = cron.firings(from, zone).filter(|at| inclusive || *at > from);
    Ok(all.take(count as usize).map(|at| zone.show(at)).collect())
}

fn given<'a>(case: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    case.get(name).filter(|value| !value.is_null())
}

fn instant(case: &Map<String, Value>, name: &str) -> Result<Timestamp, Problem> {
    Timestamp::parse(text(case, name)?)
        .map_err(|problem| Problem::new(Code::RequestInvalid, format!("{name:?}: {}", problem.detail())))
}
