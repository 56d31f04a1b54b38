//! `crash --kill9 N --serve N --runs N --power N [--seed S]`: ends the real engine badly N times and says whether anything was lost.

#![expect(clippy::disallowed_methods, reason = "a harness: the seed comes from the clock unless it is given")]

use std::path::PathBuf;
use std::process::ExitCode;

use sim::crash::rounds::{self, Tally};
use sim::crash::worker::{self, Orders};
use sim::crash::{runs, serve};
use sim::power;

const USAGE: &str = "crash [--kill9 N] [--serve N] [--runs N] [--power N] [--seed S]";

struct Arguments {
    kill9: usize,
    serve: usize,
    runs: usize,
    power: usize,
    seed: u64,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "worker").is_some() {
        return work(words);
    }
    match arguments(words) {
        Some(arguments) => run(&arguments),
        None => {
            eprintln!("error: usage: {USAGE}");
            ExitCode::from(2)
        }
    }
}

fn arguments(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?.as_nanos() as u64;
    let mut parsed = Arguments { kill9: 0, serve: 0, runs: 0, power: 0, seed: seed % 1_000_000 };
    while let Some(word) = words.next() {
        let number = words.next()?.parse::<u64>().ok()?;
        match word.as_str() {
            "--kill9" => parsed.kill9 = number as usize,
            "--serve" => parsed.serve = number as usize,
            "--runs" => parsed.runs = number as usize,
            "--power" => parsed.power = number as usize,
            "--seed" => parsed.seed = number,
            _ => return None,
        }
    }
    if parsed.kill9 + parsed.serve + parsed.runs + parsed.power == 0 {
        (parsed.kill9, parsed.serve, parsed.runs, parsed.power) = (40, 8, 8, 10);
    }
    Some(parsed)
}

fn run(arguments: &Arguments) -> ExitCode {
    let Arguments { kill9, serve, runs, power, seed } = *arguments;
    println!("seed {seed}");
    let mut failed = 0;
    if kill9 > 0 {
        failed += report("kill9", rounds::kill9(kill9, seed), seed);
    }
    if serve > 0 {
        failed += report("serve", serve::kill9(serve, seed), seed);
    }
    if runs > 0 {
        failed += report("runs", runs::kill9(runs, seed), seed);
    }
    if power > 0 {
        failed += match power::ability() {
            Ok(()) => report("power", rounds::power(power, seed), seed),
            // Asked for by name on a machine that must have it: a skip would hide that nothing was proven.
            Err(why) if std::env::var("EVERWHEN_STRICT").is_ok_and(|strict| strict == "power") => {
                report("power", Err(why), seed)
            }
            Err(why) => {
                println!("power: skipped: {why}");
                0
            }
        };
    }
    let passed = [kill9, serve, runs, power].iter().filter(|rounds| **rounds > 0).count() - failed;
    println!("{passed} passed, {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}

fn report(name: &str, result: Result<Tally, String>, seed: u64) -> usize {
    match result {
        Ok(Tally { rounds, acked }) => {
            println!("{name}: {rounds} crashes, {acked} acknowledged publishes, 0 lost");
            0
        }
        Err(what) => {
            println!("{name} breaks a promise: {what}");
            println!("again (moments vary): ./x crash --{name} N --seed {seed}");
            1
        }
    }
}

fn work(mut words: impl Iterator<Item = String>) -> ExitCode {
    let mut orders =
        Orders { data: PathBuf::new(), from: 0, again: Vec::new(), drain: false, tenant: "t0".to_owned() };
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        match word.as_str() {
            "--data" => orders.data = value().into(),
            "--from" => orders.from = value().parse().unwrap_or(0),
            "--again" => orders.again = value().split(',').filter_map(|n| n.parse().ok()).collect(),
            "--tenant" => orders.tenant = value(),
            "--drain" => orders.drain = true,
            _ => return ExitCode::from(2),
        }
    }
    match worker::run(orders) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("worker: {problem}");
            ExitCode::FAILURE
        }
    }
}
