//! So many events within a time: counted by event time over `(t−w, t]`, each event once.
//!
//! Kept as `{"members":[[position, milliseconds]…],"spent":bool}`, in the order in which they came. What no window of an
//! event in order can need stays for those that come late; only too many go, the first ones first.

use model::definition::{Refire, Window};
use model::record::Outcome;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Gate, Memory, Occurrence, Passed, Result, key_of, setting};

/// Members that are kept beside those that the count needs.
const SPARE: usize = 32;

#[derive(Default, Deserialize, Serialize)]
struct Kept {
    members: Vec<(u64, i64)>,
    /// `once`: it has fired, and fires again when the count has been below what is wanted.
    spent: bool,
}

pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(window) = window_of(of) else { return Ok(()) };
    let key = key_of(memory, of, window.partition_by.as_ref());
    let (now, length) = (of.time.millis(), window.within.as_millis() as i64);
    let within = |member: &&(u64, i64)| member.1 > now - length && member.1 <= now;
    let wanted = window.count as usize;
    let kept = memory.get(of, Gate::Window, &key)?.unwrap_or_default();
    let mut kept = read(kept, |members| members.iter().filter(within).count() >= wanted);
    kept.members.retain(|member| member.0 != of.position);
    let before = kept.members.iter().filter(within).count();
    kept.spent &= before >= wanted;
    kept.members.push((of.position, now));
    let over = kept.members.len().saturating_sub(wanted * 2 + SPARE);
    kept.members.drain(..over);
    let count = before + 1;
    let fires = count >= wanted && !(window.refire == Refire::Once && kept.spent);
    passed.values.insert("window".to_owned(), json!({"count": count, "of": wanted, "key": key}));
    passed.set.push(setting(of, Gate::Window, &key, Some(json!(kept))));
    if !fires {
        passed.stop(Gate::Window, Outcome::Skipped, "window");
    }
    Ok(())
}

/// A run starts, or is sure to: what fires once has fired.
pub(super) fn charge(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(window) = window_of(of).filter(|window| window.refire == Refire::Once) else { return Ok(()) };
    let key = key_of(memory, of, window.partition_by.as_ref());
    let asked = passed.set.iter().position(|set| set.gate == Gate::Window.as_str());
    let value = match asked {
        Some(at) => passed.set.remove(at).value,
        None => memory.get(of, Gate::Window, &key)?,
    };
    let kept = Kept { spent: true, ..read(value.unwrap_or_default(), |_| true) };
    passed.set.push(setting(of, Gate::Window, &key, Some(json!(kept))));
    Ok(())
}

fn window_of<'a>(of: &'a Occurrence<'_>) -> Option<&'a Window> {
    of.trigger?.definition.window.as_ref()
}

/// A bare list is of before `spent` was kept: one that had counted enough had fired.
fn read(kept: Value, has_fired: impl Fn(&[(u64, i64)]) -> bool) -> Kept {
    if !kept.is_array() {
        return serde_json::from_value(kept).unwrap_or_default();
    }
    let members: Vec<(u64, i64)> = serde_json::from_value(kept).unwrap_or_default();
    Kept { spent: has_fired(&members), members }
}
