//! The lists of rules in the configuration, `[[schema]]`, `[[redact]]`, `[[attention]]`, checked where they are written.

use engine::settings::{AttentionRule, Detector, Rate, RedactRule, SchemaRule, Settings, Verdict};
use lang::filter::Filter;
use model::Problem;
use model::topic::Pattern;
use serde_json::Value;

use super::written::{Said, Table};

pub fn read(top: &Table<'_>, settings: &mut Settings) -> Result<(), Problem> {
    settings.schemas = top.tables("schema")?.iter().map(schema).collect::<Result<_, _>>()?;
    settings.redactions = top.tables("redact")?.iter().map(redact).collect::<Result<_, _>>()?;
    settings.attention = top.tables("attention")?.iter().map(attention).collect::<Result<_, _>>()?;
    Ok(())
}

fn topic(table: &Table<'_>) -> Result<Pattern, Problem> {
    let said = table.need("topic")?;
    Pattern::parse(&said.text()?).map_err(|problem| said.refused(&problem))
}

fn schema(table: &Table<'_>) -> Result<SchemaRule, Problem> {
    let (topic, said) = (topic(table)?, table.need("file")?);
    let file = said.text()?;
    let name = table.get("name").map_or(Ok(file.clone()), |name| name.text())?;
    let path = table.source.beside(&file);
    let unreadable = |why: String| {
        said.wrong(format!("a readable JSON Schema ({why})")).hint(format!(
            "it is looked for at \"{}\": names are relative to the settings file",
            path.display()
        ))
    };
    let text = std::fs::read_to_string(&path).map_err(|error| unreadable(error.to_string()))?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
    Ok(SchemaRule { topic, name, schema })
}

fn redact(table: &Table<'_>) -> Result<RedactRule, Problem> {
    let paths = |key| table.get(key).map_or(Ok(Vec::new()), |said| paths(&said));
    let detectors = match table.get("detectors") {
        Some(said) => said.texts()?.iter().map(|word| detector(&said, word)).collect::<Result<_, _>>()?,
        None => Vec::new(),
    };
    let topic = topic(table)?;
    if ["drop", "mask", "hash", "detectors"].iter().all(|key| table.get(key).is_none()) {
        return Err(table.lacks("one of \"drop\", \"mask\", \"hash\" or \"detectors\""));
    }
    Ok(RedactRule { topic, drop: paths("drop")?, mask: paths("mask")?, hash: paths("hash")?, detectors })
}

fn paths(said: &Said<'_>) -> Result<Vec<String>, Problem> {
    let texts = said.texts()?;
    for text in &texts {
        engine::admit::check_redacted(text).map_err(|problem| said.refused(&problem))?;
    }
    Ok(texts)
}

fn detector(said: &Said<'_>, word: &str) -> Result<Detector, Problem> {
    Detector::parse(word).ok_or_else(|| said.wrong("a list out of email, phone, card, token"))
}

fn attention(table: &Table<'_>) -> Result<AttentionRule, Problem> {
    let filter = table.get("filter").map(|said| filter(&said)).transpose()?;
    let rate = table.get("rate").map(|said| rate(&said)).transpose()?;
    Ok(AttentionRule { topic: topic(table)?, filter, rate, verdict: verdict(table)? })
}

fn filter(said: &Said<'_>) -> Result<Value, Problem> {
    let value = said.json()?;
    Filter::parse(&value).map_err(|problem| said.refused(&problem))?;
    Ok(value)
}

fn rate(said: &Said<'_>) -> Result<Rate, Problem> {
    let rate = Rate::parse(&said.text()?).filter(|rate| rate.events > 0);
    rate.ok_or_else(|| said.wrong("a rate above nothing, such as \"100/s\" or \"10/m\""))
}

fn verdict(table: &Table<'_>) -> Result<Verdict, Problem> {
    let said = table.need("verdict")?;
    let beside = |key: &'static str| {
        table.get(key).ok_or_else(|| said.wrong(format!("given together with \"{key}\"")))
    };
    match said.text()?.as_str() {
        "admit" => Ok(Verdict::Admit),
        "drop" => Ok(Verdict::Drop),
        "defer" => Ok(Verdict::Defer { until: beside("until")?.duration()? }),
        "boost" => Ok(Verdict::Boost { by: beside("by")?.number(1, 9)? as u8 }),
        _ => Err(said.wrong("admit, defer, boost or drop")),
    }
}
