//! The gates of a trigger and the modes of an automation, from annotations or YAML.

use model::Code;
use model::definition::{
    Batch, Debounce, Dedup, Edge, Filter, Limit, Mode, ModeKind, Rate, Refire, Storm, Window,
};

use super::Pairs;
use crate::declare::doc::{Doc, Kind, Read, get, only};
use crate::declare::finding::{fault, suggest};
use crate::declare::print::print;
use crate::declare::tree::{Length, Trigger};
use crate::expr::ast::Node;
use crate::expr::fault::Fault;

type Key = Option<model::definition::Expr>;

/// Sets the gate `name` of a trigger.
pub(crate) fn gate(trigger: &mut Trigger, name: &str, doc: &Doc, faults: &mut Vec<Fault>) -> Read<()> {
    let keys = &mut trigger.keys;
    match name {
        "filter" => match &doc.kind {
            Kind::Map(_) => {
                let form = doc.literal()?;
                if let Err(problem) = crate::filter::Filter::parse(&form) {
                    let mut wrong = fault(problem.code(), doc.span, problem.detail());
                    wrong.hint = problem.hint_text().map(str::to_owned);
                    return Err(wrong);
                }
                trigger.made.filter = Some(Filter::Form(form));
            }
            _ => {
                let node = doc.expr()?;
                trigger.made.filter = Some(Filter::Expr(text(&node)));
                trigger.filter = Some(node);
            }
        },
        "window" => trigger.made.window = Some(window(doc, keys, faults)?),
        "batch" => trigger.made.batch = Some(batch(doc, keys, faults)?),
        "debounce" => trigger.made.debounce = Some(debounce(doc, keys, faults)?),
        "throttle" => trigger.made.throttle = Some(limit(doc, keys, faults)?),
        "cooldown" => trigger.made.cooldown = Some(limit(doc, keys, faults)?),
        "rate" => trigger.made.rate = Some(rate(doc, keys, faults)?),
        _ => {
            trigger.made.dwell = Some(match doc.length()? {
                Length::Fixed(duration) => model::definition::Length::Fixed(duration),
                Length::Computed(node) => {
                    let expr = text(&node);
                    keys.push(node);
                    model::definition::Length::Computed(expr)
                }
            });
        }
    }
    Ok(())
}

fn text(node: &Node) -> model::definition::Expr {
    model::definition::Expr(print(node))
}

fn key(pairs: &Pairs, name: &str, keys: &mut Vec<Node>) -> Read<Key> {
    let Some(doc) = get(pairs, name) else { return Ok(None) };
    let node = doc.expr()?;
    let expr = text(&node);
    keys.push(node);
    Ok(Some(expr))
}

fn window(doc: &Doc, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Window> {
    let pairs = doc.map("count and minutes")?;
    only(pairs, "window", &["count", "minutes", "within", "refire", "partition_by"], faults);
    let lacks = |what: &str| doc.wrong(&format!("window with \"{what}\""));
    let within = match (get(pairs, "minutes"), get(pairs, "within")) {
        (Some(doc), _) => {
            let minutes = doc.float("a number of minutes")?;
            std::time::Duration::try_from_secs_f64(minutes * 60.0)
                .map_err(|_| doc.wrong("a number of minutes above 0"))?
        }
        (None, Some(within)) => within.duration()?,
        (None, None) => return Err(lacks("minutes")),
    };
    let refire = match get(pairs, "refire") {
        None => Refire::Every,
        Some(refire) => match refire.text("every or once")?.text.as_str() {
            "every" => Refire::Every,
            "once" => Refire::Once,
            _ => return Err(refire.wrong("every or once")),
        },
    };
    let count = get(pairs, "count").ok_or_else(|| lacks("count"))?.count("how many events")?;
    if count == 0 || within.is_zero() {
        return Err(doc.wrong("a window of at least one event and some time"));
    }
    Ok(Window { count, within, refire, partition_by: key(pairs, "partition_by", keys)? })
}

fn batch(doc: &Doc, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Batch> {
    let pairs = doc.map("count and for")?;
    only(pairs, "batch", &["count", "for", "key"], faults);
    let count = get(pairs, "count").map(|count| count.at_least_one("how many events")).transpose()?;
    let within = get(pairs, "for").map(Doc::gate_time).transpose()?;
    if count.is_none() && within.is_none() {
        return Err(doc.wrong("batch with \"count\" or \"for\""));
    }
    Ok(Batch { count, within, key: key(pairs, "key", keys)? })
}

fn debounce(doc: &Doc, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Debounce> {
    let Kind::Map(pairs) = &doc.kind else {
        return Ok(Debounce { quiet: doc.gate_time()?, max_wait: None, edge: Edge::Trailing, key: None });
    };
    only(pairs, "debounce", &["for", "max_wait", "edge", "key"], faults);
    let quiet = get(pairs, "for").ok_or_else(|| doc.wrong("debounce with \"for\""))?.gate_time()?;
    let edge = match get(pairs, "edge") {
        None => Edge::Trailing,
        Some(edge) => match edge.text("trailing or leading")?.text.as_str() {
            "trailing" => Edge::Trailing,
            "leading" => Edge::Leading,
            _ => return Err(edge.wrong("trailing or leading")),
        },
    };
    let max_wait = get(pairs, "max_wait").map(Doc::gate_time).transpose()?;
    Ok(Debounce { quiet, max_wait, edge, key: key(pairs, "key", keys)? })
}

fn limit(doc: &Doc, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Limit> {
    let Kind::Map(pairs) = &doc.kind else { return Ok(Limit { time: doc.gate_time()?, key: None }) };
    only(pairs, "this gate", &["for", "key"], faults);
    let time = get(pairs, "for").ok_or_else(|| doc.wrong("\"for\" and \"key\""))?.gate_time()?;
    Ok(Limit { time, key: key(pairs, "key", keys)? })
}

/// `10/m`, `100/30s`, or `{count, per, key}`.
fn rate(doc: &Doc, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Rate> {
    if let Kind::Map(pairs) = &doc.kind {
        only(pairs, "rate", &["count", "per", "key"], faults);
        let lacks = || doc.wrong("rate with \"count\" and \"per\"");
        let count = get(pairs, "count").ok_or_else(lacks)?.at_least_one("how many")?;
        let per = get(pairs, "per").ok_or_else(lacks)?.gate_time()?;
        if per.is_zero() {
            return Err(doc.wrong("rate with \"per\" above 0"));
        }
        return Ok(Rate { count, per, key: key(pairs, "key", keys)? });
    }
    let wrong = || doc.wrong("a rate, such as \"10/m\"");
    let word = doc.text("a rate, such as \"10/m\"")?;
    let (count, per) = word.text.split_once('/').ok_or_else(wrong)?;
    let count = count.trim().parse().ok().filter(|count| *count > 0).ok_or_else(wrong)?;
    let per = per.trim();
    let one = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
    let per = model::time::parse_duration(&one).filter(|per| !per.is_zero()).ok_or_else(wrong)?;
    Ok(Rate { count, per, key: None })
}

/// An expression, or `{key, within}`.
pub(crate) fn dedup(doc: &Doc, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Dedup> {
    if let Kind::Map(pairs) = &doc.kind {
        only(pairs, "dedup", &["key", "within"], faults);
        let found = key(pairs, "key", keys)?.ok_or_else(|| doc.wrong("dedup with \"key\""))?;
        return Ok(Dedup { key: found, within: get(pairs, "within").map(Doc::duration).transpose()? });
    }
    let node = doc.expr()?;
    let expr = text(&node);
    keys.push(node);
    Ok(Dedup { key: expr, within: None })
}

/// `mode`, with `key` and `max` beside it.
pub(crate) fn mode(name: &Doc, beside: &Pairs, keys: &mut Vec<Node>, faults: &mut Vec<Fault>) -> Read<Mode> {
    const MODES: [&str; 4] = ["single", "restart", "queued", "parallel"];
    // One that is wrong does not hide that another is.
    let max = get(beside, "max").map(|max| max.at_least_one("how many runs")).transpose();
    let max = max.map_err(|fault| faults.push(fault)).unwrap_or_default();
    let key = key(beside, "key", keys).map_err(|fault| faults.push(fault)).unwrap_or_default();
    let word = name.text("a mode")?;
    let kind = match word.text.as_str() {
        "single" => ModeKind::Single,
        "restart" => ModeKind::Restart,
        "queued" => ModeKind::Queued,
        "parallel" => ModeKind::Parallel,
        other => {
            let what = format!("there is no mode {other:?}");
            return Err(suggest(fault(Code::DefinitionInvalid, word.span, what), other, MODES));
        }
    };
    Ok(Mode { kind, key, max })
}

pub(crate) fn storm(doc: &Doc, faults: &mut Vec<Fault>) -> Read<Storm> {
    let pairs = doc.map("per_minute and pause")?;
    only(pairs, "storm", &["per_minute", "pause"], faults);
    let per_minute =
        get(pairs, "per_minute").map(|n| n.at_least_one("how many runs")).transpose()?.unwrap_or(20);
    Ok(Storm { per_minute, pause: get(pairs, "pause").map(Doc::yes_or_no).transpose()?.unwrap_or(false) })
}
