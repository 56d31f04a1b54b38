//! Tests of the counters: bounded labels, buckets that add up.

use super::*;

#[test]
fn at_most_two_hundred_topics_have_a_name_and_the_rest_is_other() {
    let metrics = Metrics::default();
    for i in 0..1_000 {
        metrics.observe_publish(&format!("t.{i}"), 0.001);
    }
    metrics.observe_publish("t.7", 0.001);
    metrics.dead("t.999");
    let topics = metrics.topics();
    assert_eq!(topics.len(), TOPICS_MAX + 1);
    let count = |name: &str| topics.iter().find(|(n, _)| &**n == name).map(|(_, t)| t.publish.read().count);
    assert_eq!(count("t.7"), Some(2));
    assert_eq!(count(OTHER), Some(800));
    assert_eq!(count("t.500"), None);
    let total: u64 = topics.iter().map(|(_, t)| t.publish.read().count).sum();
    assert_eq!(total, 1_001);
    let dead: u64 = topics.iter().map(|(_, t)| t.dead_letters()).sum();
    assert_eq!(dead, 1);
}

#[test]
fn a_duration_falls_into_the_first_bucket_that_holds_it() {
    let histogram = Histogram::default();
    for seconds in [0.0001, 0.0002, 0.5, 11.0, -1.0] {
        histogram.observe(seconds);
    }
    let reading = histogram.read();
    assert_eq!(reading.cumulative[..2], [2, 3]);
    assert_eq!(reading.cumulative[15], 4);
    assert_eq!(reading.count, 5);
    assert!((reading.sum - 11.5003).abs() < 1e-6, "{}", reading.sum);
}

#[test]
fn acks_and_nacks_are_counted_by_topic_and_group() {
    let metrics = Metrics::default();
    metrics.handled("a.b", "g", true, 0.1);
    metrics.handled("a.b", "g", true, 0.1);
    metrics.handled("a.b", "g", false, 0.1);
    let topics = metrics.topics();
    let groups = topics[0].1.groups();
    assert_eq!((&*groups[0].0, groups[0].1.ok(), groups[0].1.err()), ("g", 2, 1));
    assert_eq!(groups[0].1.seconds.read().count, 3);
}
