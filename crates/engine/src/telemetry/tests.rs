//! Contexts, variables and what is said of a span.

use model::Timestamp;

use super::span::request;
use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

fn read(said: &[(&str, &str)]) -> (Option<Settings>, Vec<String>) {
    let said: Vec<(String, String)> = said.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    Settings::read(&move |name| said.iter().find(|(of, _)| of == name).map(|(_, value)| value.clone()))
}

#[test]
fn a_traceparent_reads_back_and_other_texts_are_none() {
    for flags in ["00", "01"] {
        let text = format!("00-{TRACE}-00f067aa0ba902b7-{flags}");
        assert_eq!(Context::parse(&text).unwrap().to_string(), text);
    }
    assert!(Context::parse(&format!("cc-{TRACE}-00f067aa0ba902b7-01-later")).unwrap().sampled);
    let zeros = "0".repeat(32);
    let bad = [
        String::new(),
        "00".to_owned(),
        format!("00-{TRACE}-00f067aa0ba902b7"),
        format!("00-{TRACE}-00f067aa0ba902b7-01-later"),
        format!("00-{TRACE}-00f067aa0ba902b7-0"),
        format!("00-{TRACE}-0000000000000000-01"),
        format!("00-{zeros}-00f067aa0ba902b7-01"),
        format!("ff-{TRACE}-00f067aa0ba902b7-01"),
        format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()),
        format!("00-{TRACE}-00f067aa0ba902bé-01"),
    ];
    for text in bad {
        assert_eq!(Context::parse(&text), None, "{text}");
    }
}

#[test]
fn derived_spans_are_the_same_for_the_same_words_and_differ_for_others() {
    let context = Context::parse(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
    let run = context.child(&["run", "run_1"]);
    assert_eq!(run, context.child(&["run", "run_1"]));
    assert_eq!((run.trace, run.sampled), (context.trace, true));
    assert_ne!(run.span, context.child(&["run", "run_2"]).span);
    assert_ne!(run.span, context.child(&["runrun_1"]).span);
}

#[test]
fn nothing_is_told_unless_a_variable_asks_for_it() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/");
    assert!(read(&[]).0.is_none());
    assert!(read(&[("OTEL_SERVICE_NAME", "x")]).0.is_none());
    assert!(read(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]).0.is_none());
    assert!(read(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).0.is_none());
    let (none, wrong) = read(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
    assert!(none.is_none() && wrong.len() == 1, "{wrong:?}");
    let (some, wrong) = read(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")]);
    assert!(some.is_some() && wrong.len() == 1 && wrong[0].contains("http/json"), "{wrong:?}");
    let (some, wrong) = read(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]);
    assert!(some.is_some() && wrong.is_empty(), "{wrong:?}");
    let (none, wrong) = read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere")]);
    assert!(none.is_none() && wrong.len() == 1, "{wrong:?}");
    assert_eq!(read(&[endpoint]).0.unwrap().endpoint, "http://127.0.0.1:4318/v1/traces");
    let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:9/spans");
    assert_eq!(read(&[endpoint, own]).0.unwrap().endpoint, own.1);
    let asked = read(&[("OTEL_TRACES_EXPORTER", "otlp")]).0.unwrap();
    assert_eq!(asked.endpoint, "http://localhost:4318/v1/traces");
}

#[test]
fn variables_are_read_as_the_specification_says_and_what_is_wrong_is_left_aside() {
    let (settings, wrong) = read(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=test"),
        ("OTEL_SERVICE_NAME", "mine"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "many"),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
    ]);
    let settings = settings.unwrap();
    assert_eq!(settings.headers, [("api-key".into(), "a b".into()), ("x".into(), "1".into())]);
    let named: Vec<_> = settings.resource.iter().filter(|(name, _)| name == "service.name").collect();
    assert_eq!(named, [&("service.name".to_owned(), "mine".to_owned())]);
    assert_eq!(settings.sampler, Sampler { by_parent: true, share: 0.25 });
    assert_eq!((settings.queue, settings.delay), (2_048, Duration::from_millis(20)));
    assert_eq!(wrong.len(), 1, "{wrong:?}");
}

#[test]
fn a_share_of_traces_is_told_and_who_began_one_decides_for_it() {
    let half = Sampler { by_parent: true, share: 0.5 };
    let roots: Vec<Context> = (0..2_000).map(|n: u32| Context::root(&["event", &n.to_string()])).collect();
    let told = roots.iter().filter(|root| half.begins(&root.trace)).count();
    assert!((900..1_100).contains(&told), "{told}");
    let sampled = Context { sampled: true, ..roots[0] };
    let off = Sampler { by_parent: true, share: 0.0 };
    assert!(off.samples(&sampled) && !off.begins(&sampled.trace));
    assert!(!Sampler { by_parent: false, share: 0.0 }.samples(&sampled));
}

#[test]
fn a_span_is_said_as_otlp_says_it_and_only_codes_tell_what_went_wrong() {
    let before = Context::parse(&format!("00-{TRACE}-00f067aa0ba902b7-01")).unwrap();
    let mut span = Span::below("step", &before, before.child(&["x"])).tag("attempts", 3_u64);
    span.error = Some("the key hunter2 was refused".to_owned());
    (span.began, span.ended) = (Timestamp::from_millis(5), Timestamp::from_millis(4));
    let text = request(&[span], &[("service.name".to_owned(), "mine".to_owned())]);
    assert!(!text.contains("hunter2"), "{text}");
    let said: serde_json::Value = serde_json::from_str(&text).unwrap();
    let span = &said["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], TRACE);
    assert_eq!(span["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(span["startTimeUnixNano"], "5000000");
    assert_eq!(span["endTimeUnixNano"], "5000000");
    assert_eq!(span["attributes"][0]["value"]["intValue"], "3");
    assert_eq!(span["status"]["message"], "failed");
}
