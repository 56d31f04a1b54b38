//! The language under bad input: texts of a kept corpus, mutated from a seed, never panic and never hang.
//!
//! `fuzz/corpus/<target>/` holds the texts; what once broke something is kept there and tried first, unchanged. `./x fuzz
//! --seconds N` goes on for that long and takes another seed; a failure prints the seed and the input.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use lang::declare::{check_workspace, format};
use lang::expr::{Expr, Refs, Scope, Template, Val};
use lang::filter::Filter;
use lang::jsonpath::JsonPath;
use lang::mapper::Mapper;
use lang::try_expr::ROOTS;
use model::Timestamp;
use serde_json::{Value, json};

use crate::chance::{Chance, mutated};

/// Inputs per target in a plain run of the tests.
const INPUTS: u64 = 600;
/// An input that takes longer has hung, whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a text is given to.
type Target = (&'static str, fn(&str));

const TARGETS: [Target; 7] = [
    ("expr", expr),
    ("template", template),
    ("filter", filter),
    ("jsonpath", jsonpath),
    ("mapper", mapper),
    ("ew", |text| declarations("a.ew", text)),
    ("yaml", |text| declarations("a.yaml", text)),
];

fn event() -> Value {
    json!({
        "id": "e1", "topic": "a.b", "time": "2026-01-01T00:00:00Z", "subject": {"kind": "item", "id": "7"},
        "payload": {"n": 5, "name": "xü", "price": 9.5, "flag": true, "nil": null, "items": [
            {"n": 1, "price": 1.5, "kind": "a"}, {"n": 2, "price": 20, "kind": "b"}]},
    })
}

/// One value for every root: the event where there is one, nothing elsewhere, and a fixed now.
fn with_roots(try_it: impl FnOnce(&Scope<'_>, &[Val<'_>])) {
    let event = event();
    let value = |root: &&str| match *root {
        "event" | "trigger" => Val::of(&event),
        "now" => Val::instant(Timestamp::EPOCH),
        _ => Val::Null,
    };
    let roots: Vec<Val<'_>> = ROOTS.iter().map(value).collect();
    try_it(&Scope::of(&ROOTS), &roots);
}

fn expr(text: &str) {
    with_roots(|scope, roots| {
        let Ok(expr) = Expr::compile(text, scope) else { return };
        let _ = expr.eval(roots).and_then(|value| value.to_json());
        let _ = expr.test(roots);
    });
    Refs::of(text);
}

fn template(text: &str) {
    with_roots(|scope, roots| {
        let _ =
            Template::compile(text, scope).map(|template| template.eval(roots).map(|value| value.to_json()));
    });
}

fn filter(text: &str) {
    let _ = Filter::parse_text(text).and_then(|filter| filter.test(&event()));
    let Ok(value) = serde_json::from_str(text) else { return };
    let _ = Filter::parse(&value).and_then(|filter| filter.test(&event()));
}

fn jsonpath(text: &str) {
    let _ = JsonPath::parse_bounded(text).map(|path| path.located(&event()).len());
}

fn mapper(text: &str) {
    let Ok(value) = serde_json::from_str(text) else { return };
    let _ = Mapper::parse(&value).and_then(|mapper| mapper.apply(&event()));
}

fn declarations(name: &str, text: &str) {
    let checked = check_workspace(&BTreeMap::from([(name.to_owned(), text.to_owned())]));
    for finding in &checked.findings {
        finding.render(text);
    }
    if let Ok(once) = format(text) {
        assert_eq!(format(&once).unwrap(), once, "formatting again changes it");
    }
}

fn corpus(target: &str) -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
}

/// The corpus as it is, then one mutation per seed.
fn inputs(target: &'static str, first_seed: u64) -> impl Iterator<Item = (u64, String)> {
    let texts = corpus(target);
    assert!(!texts.is_empty(), "no corpus for {target}");
    let kept = texts.clone().into_iter().map(|text| (0, text));
    let made = (first_seed..).map(move |seed| {
        let mut chance = Chance::new(seed);
        let other = texts[chance.below(texts.len())].clone();
        (seed, mutated(&texts[chance.below(texts.len())], &other, &mut chance))
    });
    kept.chain(made)
}

/// Runs a target aside and watches it: an input that does not come back is named.
fn watched(
    target: &'static str,
    run: fn(&str),
    inputs: impl Iterator<Item = (u64, String)> + Send + 'static,
) {
    let (say, hear) = mpsc::channel();
    let worker = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for (seed, text) in inputs {
            let _ = say.send((seed, text.clone()));
            run(&text);
        }
    });
    let worker = worker.unwrap();
    let mut last = (0, String::new());
    loop {
        match hear.recv_timeout(PATIENCE) {
            Ok(input) => last = input,
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => panic!("{target} hangs, seed {}:\n{}", last.0, last.1),
        }
    }
    assert!(
        worker.join().is_ok(),
        "{target} panics, seed {}; keep this in fuzz/corpus/{target}:\n{}",
        last.0,
        last.1
    );
}

#[test]
fn no_text_makes_the_language_panic_or_hang() {
    let seconds = std::env::var("EVERWHEN_FUZZ_SECONDS").ok().and_then(|text| text.parse::<u64>().ok());
    let seed = std::env::var("EVERWHEN_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for (target, run) in TARGETS {
        match seconds {
            None => watched(target, run, inputs(target, seed).take(INPUTS as usize)),
            Some(seconds) => {
                let end = Instant::now() + Duration::from_secs(seconds.div_ceil(TARGETS.len() as u64));
                watched(target, run, inputs(target, seed).take_while(move |_| Instant::now() < end));
            }
        }
    }
}
