//! `sim --seeds N [--seed S] [--steps N]`: runs seeds through the simulation and says which one breaks a promise.

use std::process::ExitCode;

use sim::world::{Broken, Summary, run};

struct Arguments {
    first: u64,
    seeds: u64,
    steps: usize,
    aloud: bool,
    /// Stop at the first seed that breaks a promise.
    until_broken: bool,
}

const USAGE: &str = "sim [--seeds N] [--seed S] [--steps N] [--aloud] [--until-broken]";

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments { first: 1, seeds: 100, steps: 500, aloud: false, until_broken: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|text| text.parse::<u64>().ok()).ok_or(USAGE);
        match word.as_str() {
            "--seeds" => parsed.seeds = number()?,
            "--seed" => (parsed.first, parsed.seeds) = (number()?, 1),
            "--steps" => parsed.steps = number()? as usize,
            "--aloud" => parsed.aloud = true,
            "--until-broken" => parsed.until_broken = true,
            _ => return Err(USAGE.to_owned()),
        }
    }
    Ok(parsed)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(usage) => {
            eprintln!("error: usage: {usage}");
            return ExitCode::from(2);
        }
    };
    // A panic of the engine is a broken promise and reported as one.
    std::panic::set_hook(Box::new(|_| ()));
    let Arguments { first, seeds, steps, aloud, until_broken } = arguments;
    let mut total = Summary::default();
    let mut failed = 0;
    for seed in first..first + seeds {
        match run(seed, steps, aloud) {
            Ok(summary) => add(&mut total, &summary),
            Err(broken) => {
                failed += 1;
                report(seed, steps, &broken);
                if until_broken {
                    break;
                }
            }
        }
    }
    let Summary { events, deliveries, crashes, faults, .. } = total;
    println!("{seeds} seeds: {events} events, {deliveries} deliveries, {crashes} crashes, {faults} faults");
    println!("{} passed, {failed} failed", seeds - failed);
    ExitCode::from(u8::from(failed > 0))
}

fn add(total: &mut Summary, one: &Summary) {
    total.events += one.events;
    total.deliveries += one.deliveries;
    total.crashes += one.crashes;
    total.faults += one.faults;
}

fn report(seed: u64, steps: usize, broken: &Broken) {
    for line in &broken.lines {
        println!("  | {line}");
    }
    println!("seed {seed} breaks a promise: {}", broken.what);
    println!("again: ./x sim --seed {seed} --steps {steps} --aloud");
}
