//! Lifecycle events as groups take them: out of the records of the ledger, whenever somebody pulls.
//!
//! Nothing is offered to such a group, it only learns that there is something to read. A record gives at most one event,
//! at its own position: that a run started, and how it ended. Of steps only triggers and live followers hear.

use std::sync::Arc;

use ledger::Reader;
use model::event::{Band, Event};
use model::record::{RunEnded, RunRecord, RunStarted};
use model::{Position, Problem, Timestamp};

use super::{About, STARTED, ending, how_it_ended, named};
use crate::apply::Place;
use crate::read;
use crate::run::{act_behind_start, act_told, band_of, band_of_input};

/// Events and views in `from..=to`, in order of position, a chunk of the ledger; and how far that looked.
pub fn events(
    reader: &mut dyn Reader,
    (from, to): (Position, Position),
) -> Result<(Vec<Arc<Event>>, Position), Problem> {
    let mut bytes = Vec::new();
    let end = reader.read(from, read::CHUNK, &mut bytes).map_err(read::problem)?;
    let mut found = Vec::new();
    read::events(&bytes, (from, to), |event| found.push(event))?;
    read::run_records(&bytes, (from, to), |place, record| {
        found.extend(view(reader, place, &record)?.map(Arc::new));
        Ok(())
    })?;
    found.sort_by_key(|event| event.position);
    Ok((found, end.next.saturating_sub(1).clamp(from, to)))
}

/// The event at a position, or what is told of the run whose record stands there.
pub fn event_at(reader: &mut dyn Reader, position: Position) -> Result<Option<Arc<Event>>, Problem> {
    if let Some(event) = read::event_at(reader, position)? {
        return Ok(Some(event));
    }
    match read::run_record_at(reader, position)? {
        Some((record, time)) => Ok(view(reader, Place { position, time }, &record)?.map(Arc::new)),
        None => Ok(None),
    }
}

fn view(reader: &mut dyn Reader, place: Place, record: &RunRecord) -> Result<Option<Event>, Problem> {
    let at = (place.position, place.time);
    match record {
        RunRecord::Started(started) => {
            let about = about(reader, started)?;
            let more = serde_json::json!({ "triggeredBy": triggered_by(reader, started)? });
            Ok(Some(about.event(STARTED, &about.payload(more), at)))
        }
        RunRecord::Ended(ended) => match start_of(reader, ended)? {
            Some((started, began)) => {
                let about = about(reader, &started)?;
                let about = About { band: about.band.max(ended.band), ..about };
                let more = how_it_ended(ended, began, place.time);
                Ok(Some(about.event(ending(ended.status), &about.payload(more), at)))
            }
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// `None`: it was trimmed.
fn start_of(
    reader: &mut dyn Reader,
    ended: &RunEnded,
) -> Result<Option<(Box<RunStarted>, Timestamp)>, Problem> {
    match read::run_record_at(reader, ended.run) {
        Ok(Some((RunRecord::Started(started), at))) => Ok(Some((started, at))),
        Ok(_) => Ok(None),
        Err(problem) if problem.code() == model::Code::EventGone => Ok(None),
        Err(problem) => Err(problem),
    }
}

fn triggered_by(reader: &mut dyn Reader, started: &RunStarted) -> Result<String, Problem> {
    let topic = match &started.synthetic {
        _ if started.topic.is_some() => started.topic.clone(),
        Some(event) => event["topic"].as_str().map(str::to_owned),
        None if started.event == 0 => None,
        None => read::event_at(reader, started.event)?.map(|event| event.envelope.topic.clone()),
    };
    let caller = match started.caller.map(|(caller, _)| read::run_record_at(reader, caller)).transpose()? {
        Some(Some((RunRecord::Started(caller), _))) => Some(format!("automation:{}", caller.automation)),
        _ => started.invoked_by.clone(),
    };
    Ok(named(&started.occurrence.kind, topic.as_deref(), caller.as_deref()))
}

fn about<'a>(reader: &mut dyn Reader, started: &'a RunStarted) -> Result<About<'a>, Problem> {
    let (began, told) = match &started.synthetic {
        Some(event) => (band_of(event), None),
        None => began_by(reader, started.event)?,
    };
    let band = began.max(band_of_input(&started.occurrence.kind, &started.input));
    let RunStarted { id, automation, trigger, space, event, depth, .. } = started;
    let act = act_behind_start(started).or(told);
    Ok(About { id, automation, trigger, space, event: *event, depth: *depth, band, act })
}

/// The band of an event, and the act that it tells of. When it is trimmed neither is known any more, and the band is taken for
/// the highest.
fn began_by(reader: &mut dyn Reader, event: Position) -> Result<(Band, Option<String>), Problem> {
    match event {
        0 => Ok(Default::default()),
        _ => match read::event_at(reader, event) {
            Ok(event) => Ok(event.map(|event| (event.envelope.band, act_told(&event))).unwrap_or_default()),
            Err(problem) if problem.code() == model::Code::EventGone => Ok((Band::Black, None)),
            Err(problem) => Err(problem),
        },
    }
}
