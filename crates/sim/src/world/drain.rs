//! The end of a run: the faults stop, and within a bounded number of rounds everything must be settled.

use std::time::Duration;

use engine::Redrive;

use super::World;
use crate::oracle::Fate;
use crate::oracle::group::GROUPS;

/// Rounds in which every group must have come to its end.
const ROUNDS_MAX: usize = 20;
/// Turns of the writer in which an operation must come to its end; runs that walk take turns, too.
pub(super) const TURNS_MAX: usize = 64;
/// Pulls of one group in a round.
const PULLS_MAX: usize = 400;

impl World {
    pub(super) fn drain(&mut self) -> Result<(), String> {
        self.note("the faults stop");
        self.disk.heal();
        self.disk.set_capacity(None);
        self.full = false;
        self.clock.drag(0);
        self.planned = None;
        self.settle_operations()?;
        self.restore()?;
        for round in 0.. {
            if round == ROUNDS_MAX {
                return Err(format!("not drained after {ROUNDS_MAX} rounds: {}", self.what_is_left()));
            }
            // Once for long: the clock may have been set back, again and again, while a deferred publish was on its way.
            let long = self.oracle.deferred_until.since(self.now()) + Duration::from_secs(120);
            self.clock.advance(if round == 3 { long } else { Duration::from_secs(7) });
            self.tenant().tick();
            self.finish_effects()?;
            let mut quiet = true;
            for kind in GROUPS {
                // A strict group gives one at a time.
                for _ in 0..PULLS_MAX {
                    let drained = self.drain_group(kind.name);
                    if let Some(why) = self.fatal() {
                        return Err(format!("the process stops on a sound disk: {why}"));
                    }
                    if drained? {
                        break;
                    }
                    quiet = false;
                }
            }
            if quiet && round > 4 && self.what_is_left().is_empty() {
                break;
            }
        }
        self.check_drained()?;
        self.rebuild()?;
        self.check_drained()
    }

    fn settle_operations(&mut self) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            self.pump();
            self.poll_all()?;
        }
        if self.fatal().is_some() {
            return self.crash(false);
        }
        match self.operations.first() {
            Some(operation) => Err(format!("#{} never ends: {:?}", operation.id, operation.asked)),
            None => Ok(()),
        }
    }

    /// True when the group had nothing more to give.
    fn drain_group(&mut self, group: &'static str) -> Result<bool, String> {
        let tenant = self.tenant().clone();
        let redrive = group == "parked";
        if redrive {
            let dead = self.dead_letters(group).ok_or("dead letters cannot be read")?;
            let truth = self.oracle.groups.get_mut(group).ok_or("unknown group")?;
            dead.iter().for_each(|position| truth.begin_again(*position));
        }
        let pulled = self.finish_now(async move {
            tenant.resume(group).await?;
            if redrive {
                tenant.redrive(group, Redrive::All).await?;
            }
            tenant.pull(group, 1_000, Duration::ZERO).await
        });
        let deliveries = pulled.ok_or("a pull never ends")?.map_err(|problem| problem.to_string())?;
        let quiet = deliveries.is_empty();
        for delivery in &deliveries {
            self.oracle.show(&delivery.event)?;
            let truth = &self.oracle.groups[group];
            if truth.acked.contains(&delivery.event.position) {
                let position = delivery.event.position;
                return Err(format!("group {group}: {position} was durably acked and was delivered again"));
            }
        }
        let tokens: Vec<String> = deliveries.iter().map(|delivery| delivery.token.to_string()).collect();
        let tenant = self.tenant().clone();
        let acked = self.finish_now(async move { tenant.ack(group, &tokens, true).await });
        let settled = acked.ok_or("an ack never ends")?.map_err(|problem| problem.to_string())?;
        if !settled.stale.is_empty() {
            return Err(format!("group {group}: fresh tokens are stale"));
        }
        let truth = self.oracle.groups.get_mut(group).ok_or("unknown group")?;
        truth.acked.extend(deliveries.iter().map(|delivery| delivery.event.position));
        Ok(quiet)
    }

    fn what_is_left(&self) -> String {
        let lag = |kind: &crate::oracle::group::Kind| {
            let view = self.tenant().group(kind.name).ok()?;
            (view.lag > 0)
                .then(|| format!("{} lags by {} at floor {}", kind.name, view.lag, view.group.floor))
        };
        let lags = GROUPS.iter().filter_map(lag);
        let runs = self.live_runs().filter(|live| !live.is_empty()).map(|live| format!("{live:?} are live"));
        lags.chain(runs).collect::<Vec<_>>().join(", ")
    }

    /// Every event a group wants was acked, is a dead letter, or has expired; deferred ones have become events.
    fn check_drained(&mut self) -> Result<(), String> {
        self.check_ledger()?;
        self.oracle.acts.check_done()?;
        for kind in GROUPS {
            self.look_at(kind.name)?;
            let dead = self.dead_letters(kind.name).ok_or("dead letters cannot be read")?;
            let truth = &self.oracle.groups[kind.name];
            let head = self.tenant().head() + 1;
            let open = truth.first_open(&self.oracle.sent, &self.oracle.live, &dead, (head, None));
            if let Some(open) = open {
                return Err(format!("group {}: {open} never came to an end", kind.name));
            }
            let lost = truth.redriven.iter().find(|position| {
                let wanted = self.oracle.live.get(position).map(|n| &self.oracle.sent[*n]);
                wanted.is_some_and(|sent| sent.ttl.is_none() && !sent.gone)
                    && !truth.is_answered(**position)
                    && !dead.contains(position)
            });
            if let Some(lost) = lost {
                return Err(format!("group {}: {lost} was redriven and never came", kind.name));
            }
        }
        let standing: std::collections::BTreeSet<usize> = self.oracle.live.values().copied().collect();
        for (n, sent) in self.oracle.sent.iter().enumerate() {
            if sent.fate == Fate::Deferred && !standing.contains(&n) {
                return Err(format!("publish {n} was deferred and never became an event"));
            }
        }
        Ok(())
    }
}
