//! The text format checked by a small reader of it, and against what `promtool check metrics` warns of.

use std::collections::{HashMap, HashSet};

use engine::metrics::automations::Standing;

use super::*;

fn example() -> String {
    let metrics = Metrics::default();
    metrics.observe_publish("price.changed", 0.0007);
    metrics.observe_publish("odd\"\\topic", 12.0);
    metrics.handled("price.changed", "mail", true, 0.02);
    metrics.handled("price.changed", "mail", false, 0.02);
    metrics.dead("price.changed");
    metrics.synced(0.0003);
    metrics.storage_full(true);
    metrics.attention.given("drop");
    let lag = |group: &str, tenant: Option<&str>, events| Lag {
        group: group.to_owned(),
        tenant: tenant.map(str::to_owned),
        events,
    };
    let mut text = render(&metrics, &[lag("mail", None, 3), lag("mail", Some("other"), 4)]);
    metrics.automations.met("page", model::record::Outcome::Ran, 2);
    metrics.automations.stormed("page");
    metrics.automations.attempted("http", "ok");
    let runs =
        [("queued", 0), ("running", 1), ("waiting", 2), ("completed", 3), ("failed", 4), ("cancelled", 5)];
    let standing = Standing { runs, waits: [("delay", 2)].into(), timers: 2, late_seconds: 0.5 };
    automations::render(
        &mut text,
        &metrics.automations,
        &[(None, standing.clone()), (Some("other".to_owned()), standing)],
    );
    text
}

#[test]
fn every_sample_has_one_family_with_help_and_type_and_no_series_stands_twice() {
    let text = example();
    let (mut types, mut helped, mut seen) = (HashMap::new(), HashSet::new(), HashSet::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            assert!(helped.insert(rest.split(' ').next().unwrap()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(helped.contains(name) && types.insert(name, kind).is_none(), "{line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
            assert!(seen.insert(series), "twice: {series}");
            let name = series.split('{').next().unwrap();
            let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let family = of_histogram.filter(|base| types.get(base) == Some(&"histogram")).unwrap_or(name);
            let kind = types.get(family).unwrap_or_else(|| panic!("no family: {line}"));
            assert_eq!(*kind == "counter", name.ends_with("_total"), "{line}");
        }
    }
    assert!(text.ends_with('\n'));
}

#[test]
fn the_names_of_the_contract_are_there_with_their_labels() {
    let text = example();
    for line in [
        r#"events_publish_count{topic="price.changed"} 1"#,
        r#"events_publish_bucket{topic="price.changed",le="0.0005"} 0"#,
        r#"events_publish_bucket{topic="price.changed",le="0.001"} 1"#,
        r#"events_publish_bucket{topic="price.changed",le="+Inf"} 1"#,
        r#"events_publish_count{topic="odd\"\\topic"} 1"#,
        r#"events_handle_ok_total{topic="price.changed",group="mail"} 1"#,
        r#"events_handle_err_total{topic="price.changed",group="mail"} 1"#,
        r#"events_handle_count{topic="price.changed",group="mail"} 2"#,
        r#"events_dlq_total{topic="price.changed"} 1"#,
        "events_storage_full 1",
        r#"everwhen_group_lag{group="mail"} 3"#,
        r#"everwhen_group_lag{group="mail",tenant="other"} 4"#,
        "everwhen_append_sync_seconds_count 1",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
    }
}

#[test]
fn promtool_finds_nothing_to_say_where_it_is_installed() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("promtool is not installed: not checked by it");
        return;
    };
    child.stdin.take().unwrap().write_all(example().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.trim().is_empty(), "{said}");
}
