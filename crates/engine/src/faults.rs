//! Planted bugs, so that each promise has a test that was once seen red. A default binary has none of this.
//!
//! `ack_early`: answered before it is written. `ack_unsynced`: a synced ack that is not. `forget_key`: a repeated key is
//! a new event. `floor_past_unacked`: the floor follows the newest delivery. `lose_dead_letter`: settled, and nowhere.
//! `quarantine_unseen`: ten crashes bury whatever may have been out. `lose_unsaid`: a trim that tells no group what it
//! lost. `erase_ledger_only`: what groups hold in memory keeps its content. `event_without_change`: an event of a row that
//! did not change. `ignore_if_match`: a row is written over whatever it was. `read_committed_rows`: reads of rows do not
//! see what was answered since the last COMMIT. `arm_after_check`: a wait does not ask whether what it waits for is so already.
//! `charge_before_start`: a gate that limits starts counts what did not start. `fire_by_index_id`: a timer fires though its
//! wait has ended. `claim_before_run`: an occurrence is said to run in another commit than its run, which a crash loses.
//! `key_per_life`: an effect that is tried again after a crash has another idempotency key.
//! `rows_at_hand_lost`: rows that deciding keeps at hand are forgotten before they are in the table.
//! `mask_raw_only`: what comes back is searched for secrets as they are, and for no other form of them.

/// Whether `EVERWHEN_FAULT` names this bug. Always false without the cargo feature `faults`.
#[cfg(feature = "faults")]
#[expect(clippy::disallowed_methods, reason = "read once, and only in binaries built to be broken")]
pub fn planted(bug: &str) -> bool {
    static BUG: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    BUG.get_or_init(|| std::env::var("EVERWHEN_FAULT").ok()).as_deref() == Some(bug)
}

#[cfg(not(feature = "faults"))]
pub fn planted(_bug: &str) -> bool {
    false
}
