//! `/metrics`: the engine's counters in Prometheus' text format, written by hand (contracts §13).

use std::fmt::{Display, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use engine::DEFAULT_TENANT;
use engine::authority::Permission;
use engine::metrics::{BUCKETS, Handled, Histogram, Metrics, Topic};
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use model::{Code, Problem};

use crate::problem::Answer;
use crate::{Doors, aside, origin, rights};

mod automations;
#[cfg(test)]
mod tests;

/// A group's name, its tenant unless that is the default one, and how many events it has before it.
struct Lag {
    group: String,
    tenant: Option<String>,
    events: u64,
}

/// Open on loopback; elsewhere, also for who came through a proxy by a public name, it needs a token of the house that may read:
/// topics and groups of all tenants stand there.
pub async fn metrics(State(doors): State<Arc<Doors>>, request: Request) -> Answer {
    let (head, _) = request.into_parts();
    let host = head.headers.get(HOST).map(HeaderValue::as_bytes);
    let near = doors.local && !host.is_some_and(origin::is_foreign);
    if !near
        && let Some(grant) = rights::grant(&head, &doors)?
        && !(grant.may(Permission::Read) && grant.tenant == DEFAULT_TENANT && grant.sight.is_whole())
    {
        return Err(Problem::new(Code::NotFound, "there is nothing here").into());
    }
    let text = aside::blocking(move || {
        let mut text = render(&doors.engine.metrics(), &lags(&doors));
        automations::render(&mut text, &doors.engine.metrics().automations, &automations::standing(&doors));
        Ok(text)
    });
    let text = text.await?;
    let mut response = Response::new(Body::from(text));
    let text_format = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text_format);
    Ok(response)
}

fn lags(doors: &Doors) -> Vec<Lag> {
    let mut lags = Vec::new();
    // A closed tenant is not opened to be asked: nobody pulls from it, so its lag stands still.
    for tenant in doors.engine.open_tenants() {
        let other = (tenant.name() != doors.default_tenant).then(|| tenant.name().to_owned());
        let lag = |group: &engine::GroupView| Lag {
            group: group.group.name.clone(),
            tenant: other.clone(),
            events: group.lag,
        };
        lags.extend(tenant.groups_in_short().iter().map(lag));
    }
    lags
}

fn render(metrics: &Metrics, lags: &[Lag]) -> String {
    let topics = metrics.topics();
    let mut out = String::new();
    per_topic(&mut out, &topics);
    per_group(&mut out, &topics);
    family(
        &mut out,
        "events_storage_full",
        "gauge",
        "1 while publishing is refused because the disk is full.",
    );
    sample(&mut out, "events_storage_full", &[], u8::from(metrics.is_storage_full()));
    let name = "everwhen_attention_total";
    family(
        &mut out,
        name,
        "counter",
        "Publishes that an attention rule admitted, deferred, boosted or dropped.",
    );
    for (verdict, times) in metrics.attention.read() {
        sample(&mut out, name, &[("verdict", verdict)], times);
    }
    family(&mut out, "everwhen_group_lag", "gauge", "Events a group has not settled yet.");
    for Lag { group, tenant, events } in lags {
        let mut labels = vec![("group", group.as_str())];
        labels.extend(tenant.as_deref().map(|tenant| ("tenant", tenant)));
        sample(&mut out, "everwhen_group_lag", &labels, events);
    }
    let name = "everwhen_query_seconds";
    family(&mut out, name, "histogram", "Seconds to answer a declared query.");
    for (query, seconds) in metrics.queries() {
        histogram(&mut out, name, &[("query", &query)], &seconds);
    }
    let name = "everwhen_spans_dropped_total";
    family(&mut out, name, "counter", "Spans that no collector took.");
    sample(&mut out, name, &[], metrics.spans_lost());
    let name = "everwhen_append_sync_seconds";
    family(&mut out, name, "histogram", "Time to append one batch and sync it to disk.");
    histogram(&mut out, name, &[], metrics.append_sync());
    out
}

fn per_topic(out: &mut String, topics: &[(Arc<str>, Arc<Topic>)]) {
    family(out, "events_publish", "histogram", "Seconds from a publish to its answer, synced to disk.");
    for (name, topic) in topics.iter().filter(|(_, topic)| topic.publish.read().count > 0) {
        histogram(out, "events_publish", &[("topic", name)], &topic.publish);
    }
    family(out, "events_dlq_total", "counter", "Events that became dead letters.");
    for (name, topic) in topics {
        sample(out, "events_dlq_total", &[("topic", name)], topic.dead_letters());
    }
}

fn per_group(out: &mut String, topics: &[(Arc<str>, Arc<Topic>)]) {
    let mut all: Vec<(Arc<str>, Arc<str>, Arc<Handled>)> = Vec::new();
    for (topic, counted) in topics {
        all.extend(counted.groups().into_iter().map(|(group, handled)| (topic.clone(), group, handled)));
    }
    family(out, "events_handle_ok_total", "counter", "Deliveries that were acked.");
    for (topic, group, handled) in &all {
        sample(out, "events_handle_ok_total", &[("topic", topic), ("group", group)], handled.ok());
    }
    family(out, "events_handle_err_total", "counter", "Deliveries that failed, timed out or were rejected.");
    for (topic, group, handled) in &all {
        sample(out, "events_handle_err_total", &[("topic", topic), ("group", group)], handled.err());
    }
    family(out, "events_handle", "histogram", "Seconds from the hand-out of a delivery to its end.");
    for (topic, group, handled) in &all {
        histogram(out, "events_handle", &[("topic", topic), ("group", group)], &handled.seconds);
    }
}

// Writing to a String cannot fail, so the results of `write!` below are not looked at.

fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

fn histogram(out: &mut String, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
    let reading = histogram.read();
    let bucket = format!("{name}_bucket");
    let ends = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (end, count) in ends.zip(reading.cumulative.into_iter().chain([reading.count])) {
        let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", end.as_str())]).collect();
        sample(out, &bucket, &labels, count);
    }
    sample(out, &format!("{name}_sum"), labels, reading.sum);
    sample(out, &format!("{name}_count"), labels, reading.count);
}

fn sample(out: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    out.push_str(name);
    for (i, (label, text)) in labels.iter().enumerate() {
        let _ = write!(out, "{}{label}=\"", if i == 0 { '{' } else { ',' });
        for c in text.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    if !labels.is_empty() {
        out.push('}');
    }
    let _ = writeln!(out, " {value}");
}
