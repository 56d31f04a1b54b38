//! The parent: starts workers, ends them badly at moments drawn from a seed, and has the books compared each time.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::account::Account;
use crate::power::PowerDisk;
use crate::random::Random;
use crate::scratch::Scratch;

/// Rounds on one data directory; then everything is drained, verified and begun anew. Fewer than the ten unclean starts
/// after which what was out alone is quarantined.
pub(super) const ERA: usize = 8;
/// A worker that has not opened or drained by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a worker ends.
enum Means<'a> {
    Kill,
    Power(&'a mut PowerDisk),
}

#[derive(Default)]
pub struct Tally {
    pub rounds: usize,
    pub acked: usize,
}

pub fn kill9(rounds: usize, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    while tally.rounds < rounds {
        let scratch = Scratch::in_memory().map_err(text)?;
        let count = ERA.min(rounds - tally.rounds);
        era(&scratch.path().join("data"), count, &mut Means::Kill, (&mut random, &mut tally))?;
    }
    Ok(tally)
}

pub fn power(rounds: usize, seed: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let mut tally = Tally::default();
    let mut disk = PowerDisk::create().map_err(text)?;
    disk.mount().map_err(text)?;
    while tally.rounds < rounds {
        let data = disk.path().join(format!("data-{}", tally.rounds));
        let count = ERA.min(rounds - tally.rounds);
        era(&data, count, &mut Means::Power(&mut disk), (&mut random, &mut tally))?;
        std::fs::remove_dir_all(&data).map_err(text)?;
    }
    disk.unmount().map_err(text)?;
    Ok(tally)
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn era(
    data: &Path,
    rounds: usize,
    means: &mut Means<'_>,
    (random, tally): (&mut Random, &mut Tally),
) -> Result<(), String> {
    let mut account = Account::default();
    for round in 0..rounds {
        let said = |what: String| format!("round {}: {what}", tally.rounds);
        life(data, round, means, (random, &mut account)).map_err(said)?;
        account.check(data).map_err(said)?;
        tally.rounds += 1;
    }
    let mut worker = Worker::start(data, &["--drain"])?;
    let ended = worker.wait(&mut account);
    ended
        .and_then(|()| account.check(data))
        .and_then(|()| account.check_drained())
        .map_err(|what| format!("after round {}: {what}", tally.rounds))?;
    verify(data)?;
    tally.acked += account.acked.len();
    Ok(())
}

/// The product's own verdict, states and all.
pub(super) fn verify(data: &Path) -> Result<(), String> {
    let report = engine::maintain::verify(data, false, &mut |_, _| ()).map_err(text)?;
    if report.is_ok() { Ok(()) } else { Err(format!("verify: {}", report.to_json())) }
}

fn life(
    data: &Path,
    round: usize,
    means: &mut Means<'_>,
    (random, account): (&mut Random, &mut Account),
) -> Result<(), String> {
    let from = (round * 1_000_000).to_string();
    let again: Vec<String> = account.unanswered().iter().map(ToString::to_string).collect();
    let tenant = format!("t{}", round % 4);
    let again = again.join(",");
    let mut worker = Worker::start(data, &["--from", &from, "--again", &again, "--tenant", &tenant])?;
    account.begin();
    if !random.once_in(4) {
        worker.wait_until_open(account)?;
    }
    let most = if matches!(means, Means::Kill) { 60_000 } else { 200_000 };
    std::thread::sleep(Duration::from_micros(random.between(0, most)));
    match means {
        Means::Kill => worker.kill(account),
        Means::Power(disk) => {
            worker.freeze()?;
            disk.cut().map_err(text)?;
            worker.kill(account)?;
            disk.unmount().map_err(text)?;
            disk.mount().map_err(text)
        }
    }
}

/// A child and what it says. Killed when dropped.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(data: &Path, arguments: &[&str]) -> Result<Worker, String> {
        let program = std::env::current_exe().map_err(text)?;
        let mut command = Command::new(program);
        command.arg("worker").arg("--data").arg(data).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(text)?;
        let pipe = child.stdout.take().ok_or("the worker has no pipe")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            // A line that the kill cut short was never said.
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                if send.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Worker { child, lines })
    }

    fn wait_until_open(&mut self, account: &mut Account) -> Result<(), String> {
        let started = Instant::now();
        while !account.opened {
            let left = PATIENCE.saturating_sub(started.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => account.line(&line)?,
                Err(_) => return Err("the engine does not open".to_owned()),
            }
        }
        Ok(())
    }

    /// Stops it where it stands: what it says from here on would be said after the cut.
    fn freeze(&self) -> Result<(), String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).map_err(text)?;
        waitpid(Some(pid), WaitOptions::UNTRACED).map_err(text)?;
        Ok(())
    }

    /// It had said all it could say when it was killed; the pipe kept it.
    fn kill(mut self, account: &mut Account) -> Result<(), String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Err(format!("the worker ended by itself: {status}"));
        }
        self.child.kill().map_err(text)?;
        self.child.wait().map_err(text)?;
        self.lines.iter().try_for_each(|line| account.line(&line))
    }

    /// Until it ends by itself.
    fn wait(&mut self, account: &mut Account) -> Result<(), String> {
        account.begin();
        let started = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(started.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) => account.line(&line)?,
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(_) => return Err(format!("the worker is not done after {PATIENCE:?}")),
            }
        }
        let status = self.child.wait().map_err(text)?;
        if status.success() { Ok(()) } else { Err(format!("the worker ended with {status}")) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
