//! Negative controls: a promise whose test was never red proves nothing. Each bug planted in the engine or the ledger must
//! be found; a default binary must not know the variable.

use std::process::{Command, Output};

fn run(program: &str, bug: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    let Output { status, stdout, .. } = command.args(arguments).env("EVERWHEN_FAULT", bug).output().unwrap();
    (status.success(), String::from_utf8_lossy(&stdout).into_owned())
}

const SIM: &str = env!("CARGO_BIN_EXE_sim");
const CRASH: &str = env!("CARGO_BIN_EXE_crash");

#[cfg(feature = "faults")]
mod planted {
    use super::{CRASH, SIM, run};

    /// How a loss of what was durable shows itself, depending on what was lost.
    const LOSS: [&str; 11] = [
        "acknowledged at",
        "there is no concept",
        "was shown at",
        "stood at",
        "answered as deferred",
        "does not open",
        "differs from a fold from scratch",
        "verify found",
        "was durably acked and was delivered again",
        "there is no group",
        "there is no event",
    ];

    /// As many as `./x test` tries without a fault.
    const SEEDS: &str = "200";

    /// The simulation finds `bug` within those seeds and says it with one of these words.
    fn is_found(bug: &str, words: &[&str]) {
        let (passed, said) = run(SIM, bug, &["--seeds", SEEDS, "--until-broken"]);
        let broken = said.lines().find(|line| line.contains("breaks a promise")).unwrap_or_default();
        assert!(!passed, "{bug} was not found in {SEEDS} seeds");
        assert!(words.iter().any(|word| broken.contains(word)), "{bug} was found as: {broken}");
    }

    #[test]
    fn the_fault_skip_fsync_is_found() {
        is_found("skip_fsync", &LOSS);
    }

    #[test]
    fn the_fault_rows_at_hand_lost_is_found() {
        let words = ["differs from a fold from scratch", "and is read at", "and is not there", "rests on"];
        is_found("rows_at_hand_lost", &words);
    }

    #[test]
    fn the_fault_retry_fsync_is_found() {
        is_found("retry_fsync", &LOSS);
    }

    #[test]
    fn the_fault_create_without_rename_is_found() {
        is_found("create_without_rename", &["does not open"]);
    }

    #[test]
    fn the_fault_ack_early_is_found() {
        is_found("ack_early", &LOSS);
    }

    #[test]
    fn the_fault_ack_unsynced_is_found() {
        is_found("ack_unsynced", &["was durably acked and was delivered again"]);
    }

    #[test]
    fn the_fault_forget_key_is_found() {
        is_found("forget_key", &["stands twice", "answered as new", "key of publish", "deferred twice"]);
    }

    #[test]
    fn the_fault_floor_past_unacked_is_found() {
        is_found("floor_past_unacked", &["has passed", "came before", "never came to an end"]);
    }

    #[test]
    fn the_fault_lose_dead_letter_is_found() {
        is_found(
            "lose_dead_letter",
            &["has passed", "never came to an end", "redriven and never came", "came before", "not drained"],
        );
    }

    #[test]
    fn the_fault_quarantine_unseen_is_found() {
        is_found("quarantine_unseen", &["was never handed out and is quarantined"]);
    }

    #[test]
    fn the_fault_lose_unsaid_is_found() {
        is_found("lose_unsaid", &["has passed", "never came to an end", "came before"]);
    }

    #[test]
    fn the_fault_erase_ledger_only_is_found() {
        let content = ["was erased and has its content", "was erased and its dead letter has the content"];
        is_found("erase_ledger_only", &content);
    }

    #[test]
    fn the_fault_event_without_change_is_found() {
        is_found("event_without_change", &["says a change that is none", "and is not there"]);
    }

    #[test]
    fn the_fault_ignore_if_match_is_found() {
        is_found("ignore_if_match", &["rests on"]);
    }

    #[test]
    fn the_fault_read_committed_rows_is_found() {
        is_found("read_committed_rows", &["and is read at", "and is not there"]);
    }

    #[test]
    fn the_fault_arm_after_check_is_found() {
        is_found("arm_after_check", &["waits for what is already so", "gave up waiting for what had come"]);
    }

    #[test]
    fn the_fault_charge_before_start_is_found() {
        is_found("charge_before_start", &["cool is held back"]);
    }

    #[test]
    fn the_fault_fire_by_index_id_is_found() {
        is_found("fire_by_index_id", &["ended and was not open", "ended after it"]);
    }

    #[test]
    fn the_fault_claim_before_run_is_found() {
        is_found("claim_before_run", &["is said to run and does not start"]);
    }

    #[test]
    fn the_fault_key_per_life_is_found_by_a_sink_that_remembers_keys() {
        let (passed, said) = run(CRASH, "key_per_life", &["--runs", "8", "--seed", "1"]);
        assert!(!passed && said.contains("came to the sink under the keys"), "{said}");
    }

    #[test]
    fn the_fault_ack_early_is_found_by_kill_9_of_the_real_engine() {
        let (passed, said) = run(CRASH, "ack_early", &["--kill9", "40", "--seed", "1"]);
        assert!(!passed && said.contains("breaks a promise"), "{said}");
    }

    #[test]
    fn the_fault_skip_fsync_is_found_by_a_power_cut() {
        if let Err(why) = sim::power::ability() {
            println!("skipped: {why}");
            return;
        }
        let (passed, said) = run(CRASH, "skip_fsync", &["--power", "20", "--seed", "1"]);
        assert!(!passed && said.contains("breaks a promise"), "{said}");
    }
}

/// Each check above is worth nothing if it is red without the bug.
#[test]
fn without_a_planted_fault_the_same_seeds_pass() {
    let (passed, said) = run(SIM, "no_such_bug", &["--seeds", "20"]);
    assert!(passed, "{said}");
}

#[cfg(not(feature = "faults"))]
#[test]
fn a_default_binary_does_not_know_the_variable() {
    for bug in ["ack_early", "forget_key", "skip_fsync"] {
        let (passed, said) = run(SIM, bug, &["--seeds", "8"]);
        assert!(passed, "{bug}: {said}");
    }
    let (passed, said) = run(CRASH, "ack_early", &["--kill9", "4", "--seed", "1"]);
    assert!(passed, "{said}");
}
