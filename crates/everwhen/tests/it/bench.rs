//! What `everwhen bench` reports: the fields of contracts §6, whatever the figures are on this machine.

use serde_json::Value;

use crate::support::Place;

const RATE: &[&str] = &["events_per_s", "p50_us", "p95_us", "p99_us", "fsyncs"];

fn bench(args: &[&str]) -> Value {
    let place = Place::new();
    let report = place.json(&[&["bench"], args, &["--data", "data"]].concat());
    let left: Vec<_> = std::fs::read_dir(place.path().join("data")).unwrap().flatten().collect();
    assert!(left.is_empty(), "a benchmark leaves nothing behind: {left:?}");
    for field in ["cores", "fs", "commit"] {
        assert!(!report["machine"][field].is_null(), "no machine.{field} in {report}");
    }
    report
}

fn has_numbers(report: &Value, fields: &[&str]) {
    for field in fields {
        assert!(report[field].is_number(), "no number \"{field}\" in {report}");
    }
}

fn is_a_publish_report(report: &Value) {
    assert_eq!(report["bench"], "publish");
    has_numbers(report, &[RATE, &["seconds", "events", "bytes_written"]].concat());
    has_numbers(&report["raw"], RATE);
    has_numbers(&report["raw_zeroed"], RATE);
    has_numbers(&report["ratio"], &["events_per_s", "p50"]);
    assert_eq!(report["raw"]["fsyncs"], report["fsyncs"], "raw repeats what the ledger did: {report}");
}

#[test]
fn publishing_is_reported_beside_the_same_writes_done_bare() {
    let report = bench(&["publish", "--publishers", "4", "--events", "200", "--bytes", "512", "--sqlite"]);
    is_a_publish_report(&report);
    assert_eq!(report["args"], serde_json::json!({"publishers": 4, "events": 200, "bytes": 512}));
    assert!(report["bytes_written"].as_u64().unwrap() > 200 * 512);
    has_numbers(&report["sqlite"], RATE);
}

#[test]
fn publishing_over_http_is_the_same_report() {
    for auth in [false, true] {
        let more: &[&str] = if auth { &["--auth"] } else { &[] };
        let load = ["publish", "--http", "--connections", "4", "--events", "200"];
        let report = bench(&[&load[..], more].concat());
        assert_eq!(report["args"]["auth"], auth);
        is_a_publish_report(&report);
        assert_eq!(report["args"]["connections"], 4);
        assert_eq!(report["args"]["http"], true);
        assert_eq!(report["events"], 200);
    }
}

#[test]
fn delivery_is_reported_with_its_drain_in_process_and_over_http() {
    for http in [&[][..], &["--http"]] {
        let load = ["deliver", "--events", "100", "--backlog", "3000"];
        let report = bench(&[&load[..], http].concat());
        assert_eq!(report["bench"], "deliver");
        has_numbers(&report, &[RATE, &["drain_events_per_s"]].concat());
        has_numbers(&report["raw"], RATE);
    }
}

#[test]
fn routing_and_opening_have_their_own_fields() {
    let route = bench(&["route", "--patterns", "2000"]);
    has_numbers(&route, &["topics_per_s", "cost_ratio"]);
    let empty = bench(&["open", "--events", "0"]);
    has_numbers(&empty, &["open_ms", "rss_mib"]);
    assert_eq!(empty["args"]["events"], 0);
}

#[test]
fn expressions_are_measured_beside_the_cel_crate_when_it_is_there() {
    let place = Place::new();
    let alone = place.json(&["bench", "expr", "--data", "data"]);
    has_numbers(&alone, &["two_clause_ns", "ten_node_ns"]);
    assert_eq!(alone["args"]["event_bytes"], 512);
    assert!(alone["cel"].is_null(), "{alone}");

    let program = place.path().join("cel");
    let script = "#!/bin/sh\ngrep -q ten_node.*two_clause || exit 9\necho '{\"two_clause_ns\":9}'\n";
    std::fs::write(&program, script).unwrap();
    let run = || {
        let mut command = place.command(&["bench", "expr", "--json", "--data", "data"]);
        command.env("EVERWHEN_CEL", &program).output().unwrap()
    };
    assert_eq!(run().status.code(), Some(2), "it cannot be run yet");
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let report: Value = serde_json::from_slice(&run().stdout).unwrap();
    assert_eq!(report["cel"]["two_clause_ns"], 9, "{report}");
}

#[test]
fn rows_are_reported_beside_publishing_with_the_cost_of_reads() {
    let report = bench(&["entity", "--writers", "16", "--writes", "400", "--rows", "8000"]);
    assert_eq!(report["bench"], "entity");
    has_numbers(&report, &["writes_per_s", "publish_events_per_s", "get_us", "query_us", "ratio"]);
    // Ten rows of 8,000 cost about what ten rows of 800 do; a scan would cost ten times as much.
    let (all, tenth) =
        (report["query_us"].as_f64().unwrap(), report["query_us_at_a_tenth"].as_f64().unwrap());
    assert!(all < 4.0 * tenth + 200.0, "{report}");
}

#[test]
fn automations_have_their_own_four() {
    let run = bench(&["run", "--publishers", "16", "--events", "300", "--rate", "1000", "--steady", "20"]);
    has_numbers(&run, &[RATE, &["runs_per_s", "bytes_written"]].concat());
    has_numbers(&run["ratio"], &["steady_p50"]);
    let wait = bench(&["wait", "--waits", "400", "--changes", "50", "--rate", "500", "--idle", "1"]);
    has_numbers(&wait, &["waits", "bytes_per_wait", "idle_cpu_percent", "wake_p99_us", "reopen_ms"]);
    assert_eq!(wait["waits"], 400);
    let timer = bench(&["timer", "--timers", "200", "--rate", "100", "--seconds", "1"]);
    has_numbers(&timer, &["firings_per_s", "late_p99_us"]);
    assert_eq!(timer["armed"], 300);
    let gate = bench(&["gate", "--automations", "100", "--events", "10"]);
    has_numbers(&gate, &["evaluations_per_s"]);
}

#[test]
fn a_token_costs_little_and_a_neighbour_is_held_to_its_quota() {
    let auth = bench(&["auth", "--tokens", "20"]);
    has_numbers(&auth, &["auth_us"]);
    let tenants =
        bench(&["tenants", "--rate", "500", "--events", "100", "--publishers", "4", "--quota", "20"]);
    has_numbers(&tenants["beside"], &["p50_us", "p95_us", "p99_us"]);
    has_numbers(&tenants, &["p99_ratio"]);
    assert!(tenants["neighbour"]["refused"].as_u64().unwrap() > 0, "{tenants}");
}

#[test]
fn a_soak_says_how_memory_grows() {
    let report = bench(&["soak", "--seconds", "1", "--publishers", "2", "--rate", "200"]);
    has_numbers(&report, &["rss_mib", "rss_mib_per_minute", "events_per_s"]);
}

#[test]
fn the_four_promises_come_with_the_concurrency_they_hold_at() {
    let report = bench(&["--slo", "--scale", "0.01"]);
    let lines = report["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 4, "{report}");
    for line in lines {
        has_numbers(line, &["target", "measured", "concurrency"]);
        assert!(line["pass"].is_boolean() && line["holds_at"].is_array(), "{line}");
    }
    assert!(report["pass"].is_boolean());
}

#[test]
fn a_benchmark_that_is_none_is_a_usage_error() {
    let place = Place::new();
    for args in [&["bench"][..], &["bench", "--slo", "route"], &["bench", "publish", "--connections", "2"]] {
        place.run(args).exits(2);
    }
}
