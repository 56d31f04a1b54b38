//! `everwhen-cel bench`: the `cel` crate on the expressions of `everwhen bench expr`, which runs this beside its own.
//! `everwhen-cel oracle`: expressions made by chance, from a seed, to which both must give the same answer.

mod bench;
mod generate;
mod oracle;

use std::process::ExitCode;

const USAGE: &str = "everwhen-cel bench <CASE.json | everwhen-cel oracle [--cases N] [--seed S]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match args.as_slice() {
        ["bench"] => bench::run(),
        ["oracle", flags @ ..] => numbers(flags).and_then(|(cases, seed)| oracle::run(cases, seed)),
        _ => Err(format!("usage: {USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// `--cases N` and `--seed S`, in any order.
fn numbers(flags: &[&str]) -> Result<(u64, u64), String> {
    let (mut cases, mut seed) = (20_000, 1);
    for flag in flags.chunks(2) {
        let place = match flag {
            ["--cases", _] => &mut cases,
            ["--seed", _] => &mut seed,
            _ => return Err(format!("usage: {USAGE}")),
        };
        *place = flag[1].parse().map_err(|_| format!("{:?} is not a number", flag[1]))?;
    }
    Ok((cases, seed))
}
