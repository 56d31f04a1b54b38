//! Folds a ledger's files into a fresh state beside its owner, to see whether `state.db` is what a rebuild would give.

use std::io::{BufRead, BufReader};
use std::path::Path;

use ledger::Head;
use model::{Code, Position, Problem};

use super::{broken, files, snapshot};
use crate::apply::apply;
use crate::engine::io_problem;
use crate::read;
use crate::sealing::Seals;
use crate::state::{self, State};
use crate::tenant::open::known_format;

pub enum Compared {
    Equal,
    Differs { position: Position, message: String },
}

/// `state.db` as it is now; `None` when there is none, which the next start mends.
pub fn copy(dir: &Path) -> Option<Result<State, Problem>> {
    let path = dir.join("state.db");
    path.exists().then(|| {
        not_newer(&path)?;
        State::copy_of(&path).map_err(broken)
    })
}

fn not_newer(path: &Path) -> Result<(), Problem> {
    match state::is_newer(path).map_err(broken)? {
        true => Err(Problem::new(Code::StoreNewer, "it was written by a newer version")),
        false => Ok(()),
    }
}

/// Whether the next start would get at a state without having a `state.db` to compare with. With `last`, all up to
/// there is folded as that start would fold it.
pub fn opens((dir, seals): (&Path, &Seals), first: Position, last: Option<Position>) -> Result<(), Problem> {
    let path = dir.join("state.db");
    if path.exists() {
        return not_newer(&path);
    }
    folds((dir, seals), first, last)
}

fn folds((dir, seals): (&Path, &Seals), first: Position, last: Option<Position>) -> Result<(), Problem> {
    let Some(mut fresh) = ground(dir, first, last.unwrap_or(Position::MAX))? else {
        let detail = "it is gone, and no snapshot fits the trimmed ledger";
        return Err(Problem::new(Code::StoreCorrupt, detail));
    };
    match last {
        Some(position) => fold_files((dir, seals), &mut fresh, Head { position, ..Head::EMPTY }).map(|_| ()),
        None => Ok(()),
    }
}

/// Folds up to where `known` stands and compares, then folds on to `last`, as the next start will. `first`: the first position
/// the ledger keeps.
pub fn compare(
    (dir, seals): (&Path, &Seals),
    known: &State,
    (first, last): (Position, Position),
) -> Result<Compared, Problem> {
    let differs = |message: &str| {
        Ok(Compared::Differs { position: known.applied.position, message: message.to_owned() })
    };
    let target = known.applied;
    if target == Head::EMPTY {
        return folds((dir, seals), first, Some(last)).map(|()| Compared::Equal);
    }
    let Some(mut fresh) = ground(dir, first, target.position)? else {
        return differs("no snapshot fits the trimmed ledger: the state could not be rebuilt");
    };
    if !fold_files((dir, seals), &mut fresh, target)? {
        return differs("it belongs to another history than the ledger");
    }
    if known.dump_hash().map_err(broken)? != fresh.dump_hash().map_err(broken)? {
        return differs(&difference(known, &fresh)?);
    }
    if last > target.position {
        fold_files((dir, seals), &mut fresh, Head { position: last, ..Head::EMPTY })?;
    }
    Ok(Compared::Equal)
}

/// What a rebuild begins with: nothing, or the newest snapshot whose place in the ledger is still there.
pub(super) fn ground(dir: &Path, first: Position, target: Position) -> Result<Option<State>, Problem> {
    if first == 1 {
        return State::open(None).map(Some).map_err(broken);
    }
    for path in snapshot::newest_first(dir) {
        let Ok(state) = State::copy_of(&path) else { continue };
        let at = state.applied.position;
        let fits = at <= target && at >= first && chain_is(dir, state.applied)?;
        if fits && snapshot::is_sound(dir, &path, &state) {
            return Ok(Some(state));
        }
    }
    Ok(None)
}

/// Whether the ledger's files say that `head` was once the head.
pub(super) fn chain_is(dir: &Path, head: Head) -> Result<bool, Problem> {
    let mut found = false;
    raw_lines(dir, head.position, |text| {
        let (line, _) = read::parse(text)?;
        found |= line.last() == head.position && line.chain == head.chain;
        Ok(line.last() < head.position)
    })?;
    Ok(found)
}

/// Folds the lines after the state's own place up to `target`; whether that is where it came out.
fn fold_files(of: (&Path, &Seals), state: &mut State, target: Head) -> Result<bool, Problem> {
    let from = state.applied.position + 1;
    state.begin().map_err(broken)?;
    lines(of, from, |text| {
        let (line, _) = read::parse(text)?;
        if line.first > target.position {
            return Ok(false);
        }
        read::records(text, from, |place, record| apply(state, place, &record).map_err(broken))?;
        state.applied = Head { position: line.last(), chain: line.chain };
        Ok(line.last() < target.position)
    })?;
    state.commit().map_err(broken)?;
    known_format(state)?;
    Ok(state.applied == target)
}

/// Every line from the one that holds `from` on, until `each` says no.
fn lines(
    (dir, seals): (&Path, &Seals),
    from: Position,
    mut each: impl FnMut(&[u8]) -> Result<bool, Problem>,
) -> Result<(), Problem> {
    raw_lines(dir, from, |text| {
        seals.open(text).map_err(read::problem)?;
        each(text)
    })
}

/// The same, as they stand.
pub(super) fn raw_lines(
    dir: &Path,
    from: Position,
    mut each: impl FnMut(&mut Vec<u8>) -> Result<bool, Problem>,
) -> Result<(), Problem> {
    let mut segments = files::list(&dir.join("ledger"));
    segments.retain(|path| files::ends_with(path, "jsonl"));
    let first_of = |path: &Path| path.file_stem()?.to_str()?.parse::<Position>().ok();
    let begun = segments.partition_point(|path| first_of(path).is_some_and(|first| first <= from));
    for path in &segments[begun.saturating_sub(1)..] {
        let mut file = BufReader::with_capacity(1 << 20, files::open(path)?);
        let mut text = Vec::new();
        while file.read_until(b'\n', &mut text).map_err(|error| io_problem(path, &error))? > 0 {
            if text != b"\n" && read::parse(&text)?.0.last() >= from && !each(&mut text)? {
                return Ok(());
            }
            text.clear();
        }
    }
    Ok(())
}

/// The first place where two dumps part, by its table only: the rows are users' data.
fn difference(known: &State, fresh: &State) -> Result<String, Problem> {
    let text = |state: &State| -> Result<Vec<String>, Problem> {
        let mut lines = Vec::new();
        state.dump(|line| lines.push(line.to_owned())).map_err(broken)?;
        Ok(lines)
    };
    let (known, fresh) = (text(known)?, text(fresh)?);
    let at = known.iter().zip(&fresh).take_while(|(a, b)| a == b).count();
    let table = |lines: &[String]| lines.get(at).and_then(|line| line.split('\t').next().map(str::to_owned));
    let table = table(&known).or_else(|| table(&fresh)).unwrap_or_default();
    Ok(format!("it is not what the ledger folds to: line {} of its dump, table \"{table}\"", at + 1))
}
