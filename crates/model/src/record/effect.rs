//! Records about effects: handed to a worker, out at a crash, answered too late, tried anew (rules R11).
//!
//! ```text
//!  effects.handed      d {"of":[[run,wait],…]}       written before the hand-out; synced when one is `once`
//!  effects.crashed     d {}                          whatever was handed and is open may have been out
//!  effect.late         d {"run","wait","how"}        body {"value"}, left out when null
//!  effect.redriven     d {"run","wait"}              out of quarantine
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::run::{How, WaitBody};
use super::{At, DecodeError, to_text};
use crate::Position;

#[derive(Clone, Debug, PartialEq)]
pub enum EffectRecord {
    Handed {
        of: Vec<(Position, u32)>,
    },
    Crashed,
    /// An answer to what nobody waits for any more.
    Late {
        run: Position,
        wait: u32,
        how: How,
        value: Value,
    },
    Redriven {
        run: Position,
        wait: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct HandedData {
    of: Vec<(Position, u32)>,
}

#[derive(Serialize, Deserialize)]
struct LateData {
    run: Position,
    wait: u32,
    how: How,
}

#[derive(Serialize, Deserialize)]
struct RedrivenData {
    run: Position,
    wait: u32,
}

impl EffectRecord {
    pub(super) fn kind(&self) -> &'static str {
        match self {
            EffectRecord::Handed { .. } => "effects.handed",
            EffectRecord::Crashed => "effects.crashed",
            EffectRecord::Late { .. } => "effect.late",
            EffectRecord::Redriven { .. } => "effect.redriven",
        }
    }

    pub(super) fn data(&self) -> String {
        match self {
            EffectRecord::Handed { of } => to_text(&HandedData { of: of.clone() }),
            EffectRecord::Crashed => "{}".to_owned(),
            EffectRecord::Late { run, wait, how, .. } => {
                to_text(&LateData { run: *run, wait: *wait, how: *how })
            }
            EffectRecord::Redriven { run, wait } => to_text(&RedrivenData { run: *run, wait: *wait }),
        }
    }

    pub(super) fn body(&self) -> Option<Arc<str>> {
        let EffectRecord::Late { value, .. } = self else { return None };
        (!value.is_null()).then(|| to_text(&WaitBody { value: std::borrow::Cow::Borrowed(value) }).into())
    }

    /// `None`: the kind is none of these.
    pub(super) fn decode(at: &At<'_>) -> Result<Option<EffectRecord>, DecodeError> {
        Ok(Some(match at.kind {
            "effects.handed" => {
                let HandedData { of } = serde_json::from_str(at.data)?;
                EffectRecord::Handed { of }
            }
            "effects.crashed" => EffectRecord::Crashed,
            "effect.late" => {
                let LateData { run, wait, how } = serde_json::from_str(at.data)?;
                let WaitBody { value } = super::run::body(at)?;
                EffectRecord::Late { run, wait, how, value: value.into_owned() }
            }
            "effect.redriven" => {
                let RedrivenData { run, wait } = serde_json::from_str(at.data)?;
                EffectRecord::Redriven { run, wait }
            }
            _ => return Ok(None),
        }))
    }
}
