//! From lines of the ledger back to records and events: the fold at start, the backlog of groups, searches, streams.

use std::sync::Arc;

use ledger::{BodyRef, Error, Head, Line, Reader, RecordRef};
use model::event::Event;
use model::record::{At, ChangedData, DecodeError, Record, RunRecord, WaitEnded, decode_event};
use model::{Code, Position, Problem, Timestamp};

use crate::apply::{Place, apply};
use crate::state::State;
use crate::writer::Fatal;

/// How much is read at a time.
pub const CHUNK: usize = 256 * 1024;

/// Any failure of the ledger, as a user sees it.
pub fn problem(error: Error) -> Problem {
    let text = error.to_string();
    match error {
        Error::Gone { first } => gone(first),
        Error::Full => Problem::new(Code::StorageFull, text).hint("free space on the data directory's disk"),
        Error::ReadOnly => Problem::new(Code::StorageReadOnly, text).hint("remount the disk writable"),
        Error::Missing { .. } => Problem::new(Code::StoreNotFound, text).hint("`everwhen init` makes one"),
        Error::Exists { .. } => {
            Problem::new(Code::StoreExists, text).hint("name a directory that does not exist yet")
        }
        Error::Corrupt { .. } | Error::Unreadable { .. } => Problem::new(Code::StoreCorrupt, text),
        Error::Io { path, source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Problem::new(Code::StorageReadOnly, text).hint(crate::engine::who_may(&path))
        }
        _ => Problem::new(Code::StorageFailed, text)
            .hint("check the disk and the permissions of the data directory"),
    }
}

pub fn gone(first: Position) -> Problem {
    Problem::new(Code::EventGone, format!("positions below {first} were trimmed"))
        .hint(format!("the first position kept is {first}"))
        .with("first", first)
}

fn at<'a>(record: &RecordRef<'a>, recorded_at: Timestamp) -> At<'a> {
    let body = match &record.body {
        Some(BodyRef::Json(json)) => Some(json.get()),
        Some(BodyRef::Erased) | None => None,
    };
    At {
        position: record.position,
        recorded_at,
        kind: record.kind,
        version: record.version,
        data: record.data.get(),
        body,
    }
}

fn undecodable(error: DecodeError, position: Position) -> Problem {
    match error {
        DecodeError::Unknown(kind, version) => Problem::new(
            Code::StoreNewer,
            format!("the record at position {position} is of kind \"{kind}\" version {version}, which this version does not know"),
        )
        .hint("use the everwhen version that wrote it"),
        DecodeError::Malformed(what) => {
            Problem::new(Code::StoreCorrupt, format!("the record at position {position} cannot be read: {what}"))
        }
    }
}

pub fn parse(line: &[u8]) -> Result<(Line<'_>, Timestamp), Problem> {
    let line = ledger::parse(line).map_err(|bad| {
        Problem::new(Code::StoreCorrupt, format!("a line of the ledger cannot be read: {bad}"))
    })?;
    let time = Timestamp::parse(line.time)?;
    Ok((line, time))
}

/// Every record of `bytes` at or after `from`, decoded, in order.
pub fn records(
    bytes: &[u8],
    from: Position,
    mut each: impl FnMut(Place, Record) -> Result<(), Problem>,
) -> Result<(), Problem> {
    records_by_commit(bytes, from, |_, place, record| each(place, record))
}

/// As [`records`], each with the first position of the commit that it is part of.
pub fn records_by_commit(
    bytes: &[u8],
    from: Position,
    mut each: impl FnMut(Position, Place, Record) -> Result<(), Problem>,
) -> Result<(), Problem> {
    commits(bytes, |line, time| {
        for record in line.records().filter(|record| record.position >= from) {
            let decoded = Record::decode(at(record, time)).map_err(|e| undecodable(e, record.position))?;
            each(line.first, Place { position: record.position, time }, decoded)?;
        }
        Ok(())
    })
    .map(drop)
}

/// Every line of `bytes`; they must follow on each other. Answers with the position behind the last, 0 without lines.
fn commits(
    bytes: &[u8],
    mut each: impl FnMut(&Line<'_>, Timestamp) -> Result<(), Problem>,
) -> Result<Position, Problem> {
    let mut next = 0;
    for text in ledger::lines(bytes) {
        let (line, time) = parse(text)?;
        if next != 0 && line.first != next {
            return Err(misplaced(next, line.first));
        }
        next = line.last().saturating_add(1);
        each(&line, time)?;
    }
    Ok(next)
}

/// Where one position was due, the ledger says another.
pub fn misplaced(due: Position, found: Position) -> Problem {
    let detail = format!("position {due} was due in the ledger where a line says {found}");
    Problem::new(Code::StoreCorrupt, detail)
}

/// Every event of `bytes` in `from..=to`, in order; records of other kinds are not decoded. Answers with the position
/// behind the last line.
pub fn events(
    bytes: &[u8],
    (from, to): (Position, Position),
    mut each: impl FnMut(Arc<Event>),
) -> Result<Position, Problem> {
    commits(bytes, |line, time| {
        for record in line.records() {
            if record.kind == "event" && record.position >= from && record.position <= to {
                let event = decode_event(&at(record, time)).map_err(|e| undecodable(e, record.position))?;
                each(Arc::new(event));
            }
        }
        Ok(())
    })
}

/// Folds everything after the state's applied position. The state's chain must be the ledger's.
pub fn fold_tail(
    reader: &mut dyn Reader,
    state: &mut State,
    mut progress: impl FnMut(Position),
) -> Result<(), Problem> {
    let mut bytes = Vec::new();
    let mut next = state.applied.position + 1;
    loop {
        let end = reader.read(next, CHUNK, &mut bytes).map_err(problem)?;
        if end.next == next {
            return Ok(());
        }
        fold_chunk(&bytes, next, state)?;
        next = end.next;
        // What is read is durable, so a long fold may commit on its way.
        if state.open_rows > 8_192 && !state.is_held() {
            state.commit().map_err(|fault| Fatal::from(fault).0)?;
        }
        progress(next - 1);
    }
}

fn fold_chunk(bytes: &[u8], from: Position, state: &mut State) -> Result<(), Problem> {
    let broken = |fault: crate::state::Fault| Fatal::from(fault).0;
    state.begin().map_err(broken)?;
    records(bytes, from, |place, record| apply(state, place, &record).map_err(broken))?;
    if let Some(text) = ledger::lines(bytes).last() {
        let (line, _) = parse(text)?;
        state.applied = Head { position: line.last(), chain: line.chain };
    }
    Ok(())
}

/// Every record of a run in `from..=to`, in order; others are not decoded.
pub fn run_records(
    bytes: &[u8],
    (from, to): (Position, Position),
    mut each: impl FnMut(Place, RunRecord) -> Result<(), Problem>,
) -> Result<(), Problem> {
    commits(bytes, |line, time| {
        let within = |record: &&RecordRef<'_>| record.position >= from && record.position <= to;
        for record in line.records().filter(|record| record.kind.starts_with("run.")).filter(within) {
            let decoded = Record::decode(at(record, time)).map_err(|e| undecodable(e, record.position))?;
            if let Record::Run(run) = decoded {
                each(Place { position: record.position, time }, run)?;
            }
        }
        Ok(())
    })
    .map(drop)
}

/// The record of a run at exactly this position, and when it was written.
pub fn run_record_at(
    reader: &mut dyn Reader,
    position: Position,
) -> Result<Option<(RunRecord, Timestamp)>, Problem> {
    let mut bytes = Vec::new();
    reader.read(position, 1, &mut bytes).map_err(problem)?;
    let mut found = None;
    run_records(&bytes, (position, position), |place, record| {
        found = Some((record, place.time));
        Ok(())
    })?;
    Ok(found)
}

/// What the commit of an event says of waits that it ended.
pub fn waits_ended_by(reader: &mut dyn Reader, position: Position) -> Result<Vec<WaitEnded>, Problem> {
    let mut bytes = Vec::new();
    reader.read(position, 1, &mut bytes).map_err(problem)?;
    let mut found = Vec::new();
    records(&bytes, position, |_, record| {
        if let Record::Run(RunRecord::WaitEnded(ended)) = record
            && ended.event == Some(position)
        {
            found.push(ended);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The event at exactly this position, if the record there is one.
pub fn event_at(reader: &mut dyn Reader, position: Position) -> Result<Option<Arc<Event>>, Problem> {
    let mut bytes = Vec::new();
    reader.read(position, 1, &mut bytes).map_err(problem)?;
    let mut found = None;
    events(&bytes, (position, position), |event| found = Some(event))?;
    Ok(found)
}

/// What the `entity.changed` at this position says of its row, if the record there is one.
pub fn changed_at(bytes: &[u8], position: Position) -> Result<Option<ChangedData>, Problem> {
    for text in ledger::lines(bytes) {
        let (line, _) = parse(text)?;
        let found =
            line.records().find(|record| record.position == position && record.kind == "entity.changed");
        if let Some(record) = found {
            let data = serde_json::from_str(record.data.get());
            return data.map(Some).map_err(|err| undecodable(err.into(), position));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use ledger::{Batch, Chain, NewBody, NewRecord};
    use model::event::{Content, Envelope};

    use super::*;

    /// A line with one event at `position`.
    fn line(position: Position) -> Vec<u8> {
        let envelope = Envelope { id: format!("e{position}"), topic: "a".to_owned(), ..Envelope::default() };
        let data = serde_json::to_vec(&envelope).unwrap();
        let body = Content::new("1", None).body().map(|body| NewBody::new([0; 16], body.clone()));
        let before = Head { position: position - 1, chain: Chain::ZERO };
        let mut batch = Batch::new(before, 0, Timestamp::EPOCH);
        batch.commit(&[NewRecord { kind: "event", version: 1, data, body }]);
        batch.bytes().to_vec()
    }

    #[test]
    fn lines_that_do_not_follow_on_each_other_are_damage_and_no_gap() {
        let read = |bytes: &[u8]| {
            let mut seen = Vec::new();
            let end = events(bytes, (1, 9), |event| seen.push(event.position));
            (seen, end)
        };
        let (seen, end) = read(&[line(4), line(5)].concat());
        assert_eq!((seen, end.unwrap()), (vec![4, 5], 6));
        for bytes in [[line(4), line(6)].concat(), [line(4), line(4)].concat()] {
            assert_eq!(read(&bytes).1.unwrap_err().code(), Code::StoreCorrupt);
        }
    }
}
