//! The figures side by side: medians of the rounds, and ours as a ratio to each peer.

use std::fmt::Write;

use crate::publish::Rate;
use crate::wire::Kind;

type Published = (Kind, usize, Rate);
type Delivered = (Kind, Rate);

pub fn render(kinds: &[Kind], published: &[Published], delivered: &[Delivered], json: bool) -> String {
    if json { lines(kinds, published, delivered) } else { table(kinds, published, delivered) }
}

fn table(kinds: &[Kind], published: &[Published], delivered: &[Delivered]) -> String {
    let loads = loads(published);
    let mut out = String::from("| events/s · p95 ms ");
    loads.iter().for_each(|load| _ = write!(out, "| {load} at once "));
    out.push_str("| delivery at 1,000/s, p50 / p95 ms |\n");
    out.push_str(&"|---".repeat(loads.len() + 2));
    out.push_str("|\n");
    for kind in kinds {
        let cell = |load: &usize| {
            let rate = at(published, *kind, *load);
            format!("{:.0} · {:.2}", rate.per_s, ms(rate.p95_us))
        };
        let cells: Vec<String> = loads.iter().map(cell).collect();
        let late = delivery(delivered, *kind);
        let late = format!("{:.2} / {:.2}", ms(late.p50_us), ms(late.p95_us));
        let _ = writeln!(out, "| {} | {} | {late} |", kind.name(), cells.join(" | "));
    }
    for peer in kinds.iter().filter(|kind| **kind != Kind::Everwhen && kinds.contains(&Kind::Everwhen)) {
        let ratios: Vec<String> = loads.iter().map(|load| ratio(published, *peer, *load)).collect();
        let ours = f64::from(delivery(delivered, Kind::Everwhen).p95_us);
        let late = ours / f64::from(delivery(delivered, *peer).p95_us.max(1));
        let _ = writeln!(out, "| *ours to {}* | {} | p95 {late:.2} × |", peer.name(), ratios.join(" | "));
    }
    out
}

fn lines(kinds: &[Kind], published: &[Published], delivered: &[Delivered]) -> String {
    let mut out = String::new();
    for kind in kinds {
        let name = kind.name();
        for load in loads(published) {
            let Rate { per_s, p50_us, p95_us } = at(published, *kind, load);
            let _ = writeln!(
                out,
                r#"{{"peer":"{name}","publishers":{load},"events_per_s":{per_s:.1},"p50_us":{p50_us},"p95_us":{p95_us}}}"#
            );
        }
        let Rate { p50_us, p95_us, .. } = delivery(delivered, *kind);
        let _ = writeln!(
            out,
            r#"{{"peer":"{name}","delivery_at_per_s":1000,"p50_us":{p50_us},"p95_us":{p95_us}}}"#
        );
    }
    out
}

/// How many published at once, as measured.
fn loads(published: &[Published]) -> Vec<usize> {
    let mut loads: Vec<usize> = published.iter().map(|(_, load, _)| *load).collect();
    loads.dedup();
    loads
}

/// Ours to the peer's. Round by round, and the one in the middle of that: a slow moment of the machine meets both.
fn ratio(published: &[Published], peer: Kind, load: usize) -> String {
    let of = |kind| published.iter().filter(move |(of, at, _)| *of == kind && *at == load);
    let rounds = of(Kind::Everwhen).zip(of(peer)).map(|((.., ours), (.., theirs))| ours.per_s / theirs.per_s);
    let mut rounds: Vec<f64> = rounds.collect();
    rounds.sort_by(f64::total_cmp);
    let at = |place: usize| rounds.get(place).copied().unwrap_or(f64::NAN);
    let last = rounds.len().saturating_sub(1);
    format!("{:.2} × ({:.2} to {:.2})", at(rounds.len() / 2), at(0), at(last))
}

fn ms(micros: u32) -> f64 {
    f64::from(micros) / 1e3
}

/// The round in the middle, by events a second.
fn at(published: &[Published], kind: Kind, load: usize) -> Rate {
    let rounds = published.iter().filter(|(of, publishers, _)| *of == kind && *publishers == load);
    median(rounds.map(|(_, _, rate)| *rate).collect(), |rate| rate.per_s)
}

/// The round in the middle, by p95.
fn delivery(delivered: &[Delivered], kind: Kind) -> Rate {
    let rounds = delivered.iter().filter(|(of, _)| *of == kind).map(|(_, rate)| *rate);
    median(rounds.collect(), |rate| f64::from(rate.p95_us))
}

fn median(mut rounds: Vec<Rate>, by: fn(&Rate) -> f64) -> Rate {
    rounds.sort_by(|a, b| by(a).total_cmp(&by(b)));
    let middle = rounds.len() / 2;
    rounds.get(middle).copied().unwrap_or(Rate { per_s: f64::NAN, p50_us: 0, p95_us: 0 })
}
