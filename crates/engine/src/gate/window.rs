//! So many events within a time: counted by event time over `(t−w, t]`, each event once.

use model::definition::Refire;
use model::record::Outcome;
use serde_json::json;

use super::{Gate, Memory, Occurrence, Passed, Result, key_of, setting};

/// Members are kept as `[position, milliseconds]`.
pub(super) fn ask(memory: &Memory<'_>, of: &Occurrence<'_>, passed: &mut Passed) -> Result<()> {
    let Some(window) = of.trigger.and_then(|trigger| trigger.definition.window.as_ref()) else {
        return Ok(());
    };
    let key = key_of(memory, of, window.partition_by.as_ref());
    let (now, length) = (of.time.millis(), window.within.as_millis() as i64);
    let kept = memory.get(of, Gate::Window, &key)?.unwrap_or_default();
    let mut members: Vec<(u64, i64)> = serde_json::from_value(kept).unwrap_or_default();
    // An event that comes late counts in the windows it belongs to; only what no window can reach goes.
    let newest = members.iter().map(|member| member.1).max().unwrap_or(now).max(now);
    members.retain(|member| member.1 > newest - length && member.0 != of.position);
    let within = |members: &[(u64, i64)]| {
        members.iter().filter(|member| member.1 > now - length && member.1 <= now).count()
    };
    let before = within(&members);
    members.push((of.position, now));
    let count = before + 1;
    let most = window.count as usize * 2 + 64;
    if members.len() > most {
        members.sort_by_key(|member| member.1);
        members.drain(..members.len() - most);
    }
    let wanted = window.count as usize;
    let fires = match window.refire {
        Refire::Every => count >= wanted,
        Refire::Once => before < wanted && count >= wanted,
    };
    passed.values.insert("window".to_owned(), json!({"count": count, "of": wanted, "key": key}));
    passed.set.push(setting(of, Gate::Window, &key, Some(json!(members))));
    if !fires {
        passed.stop(Gate::Window, Outcome::Skipped, "window");
    }
    Ok(())
}
