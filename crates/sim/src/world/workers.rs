//! Workers of the groups: they pull, answer in any order or not at all, and an administrator moves the groups about.

use std::time::Duration;

use engine::Redrive;
use model::group::Start;
use model::{Position, Problem};

use super::World;
use super::finish::is_misfortune;
use super::operation::{Answer, Asked};
use crate::oracle::group::{GROUPS, GroupTruth};

/// A delivery that a worker holds.
pub struct Hand {
    pub group: &'static str,
    pub token: String,
    pub position: Position,
    pub key: Option<u64>,
    /// On the boot clock: whoever sets the wall clock gives nobody more time or less.
    pub deadline: Duration,
    /// Its deadline is no longer what the worker thinks.
    pub loose: bool,
}

impl World {
    pub(super) fn put_groups(&mut self) -> Result<(), String> {
        for kind in GROUPS {
            let tenant = self.tenant().clone();
            let body = kind.definition(2, self.temper.rows);
            let put = self.finish_now(async move { tenant.put_group(kind.name, &body).await });
            let (_, view) = put.ok_or("a group was not put")?.map_err(|problem| problem.to_string())?;
            let mut truth = GroupTruth::new(kind);
            truth.begin_at(view.group.since, 0);
            self.oracle.groups.insert(kind.name, truth);
        }
        Ok(())
    }

    pub(super) fn start_pull(&mut self) -> Result<(), String> {
        let group = self.random.pick(&GROUPS).name;
        let max = if self.random.once_in(3) { 50 } else { self.random.between(1, 4) as usize };
        let tenant = self.tenant().clone();
        self.start(Asked::Pull(group), async move {
            Answer::Pulled(tenant.pull(group, max, Duration::ZERO).await)
        })
    }

    /// Takes some deliveries of one group out of the workers' hands and answers for them.
    pub(super) fn answer_hands(&mut self) -> Result<(), String> {
        if self.hands.is_empty() {
            return self.start_pull();
        }
        let index = self.random.below(self.hands.len());
        let group = self.hands[index].group;
        let mut chosen = vec![self.hands.swap_remove(index)];
        while chosen.len() < 6
            && let Some(next) = self.hands.iter().position(|hand| hand.group == group)
            && !self.random.once_in(3)
        {
            chosen.push(self.hands.swap_remove(next));
        }
        self.disturb(group);
        match self.random.weighted(&[10, 6, 5, 2, 2, 2]) {
            0 => self.ack(group, chosen, true),
            1 => self.ack(group, chosen, false),
            2 => self.nack(group, chosen),
            3 => self.reject(group, chosen),
            4 => self.extend(group, chosen),
            _ => {
                self.note(format_args!("a worker of {group} forgets {}", chosen.len()));
                Ok(())
            }
        }
    }

    /// Pulls under way no longer tell what is true at their end.
    fn disturb(&mut self, group: &str) {
        let concerned = self.operations.iter_mut().filter(|operation| operation.group() == Some(group));
        concerned.for_each(|operation| operation.disturbed = true);
    }

    fn ack(&mut self, group: &'static str, hands: Vec<Hand>, sync: bool) -> Result<(), String> {
        let held: Vec<(String, Position)> =
            hands.into_iter().map(|hand| (hand.token, hand.position)).collect();
        let tokens: Vec<String> = held.iter().map(|(token, _)| token.clone()).collect();
        let truth = self.oracle.groups.get_mut(group).ok_or("unknown group")?;
        truth.asking.extend(held.iter().map(|(_, position)| *position));
        let tenant = self.tenant().clone();
        self.start(Asked::Ack { group, held, sync }, async move {
            Answer::Settled(tenant.ack(group, &tokens, sync).await)
        })
    }

    fn nack(&mut self, group: &'static str, hands: Vec<Hand>) -> Result<(), String> {
        let (tokens, positions) = split(hands);
        let delay = self.random.once_in(3).then(|| Duration::from_millis(self.random.between(0, 3_000)));
        self.note(format_args!("nack {group} {positions:?}"));
        let tenant = self.tenant().clone();
        self.start(Asked::Other { group, what: "nack" }, async move {
            Answer::Settled(tenant.nack(group, &tokens, delay, Some("no".to_owned())).await)
        })
    }

    fn reject(&mut self, group: &'static str, hands: Vec<Hand>) -> Result<(), String> {
        let (tokens, positions) = split(hands);
        self.note(format_args!("reject {group} {positions:?}"));
        let tenant = self.tenant().clone();
        self.start(Asked::Other { group, what: "reject" }, async move {
            Answer::Settled(tenant.reject(group, &tokens, None).await)
        })
    }

    fn extend(&mut self, group: &'static str, mut hands: Vec<Hand>) -> Result<(), String> {
        let tokens: Vec<String> = hands.iter().map(|hand| hand.token.clone()).collect();
        hands.iter_mut().for_each(|hand| hand.loose = true);
        self.hands.append(&mut hands);
        let tenant = self.tenant().clone();
        self.start(Asked::Other { group, what: "extend" }, async move {
            Answer::Settled(tenant.extend(group, &tokens, Duration::from_secs(9)).await)
        })
    }

    pub(super) fn administrate(&mut self) -> Result<(), String> {
        let kind = *self.random.pick(&GROUPS);
        let group = kind.name;
        self.disturb(group);
        match self.random.weighted(&[3, 2, 4, 3, 2, 1, 2, 4, 2]) {
            0 => self.redrive(group),
            1 => {
                self.note(format_args!("pause {group}"));
                self.ask(|tenant| async move { tenant.pause(group).await.map(|_| ()) })
            }
            2 => {
                self.note(format_args!("resume {group}"));
                self.ask(|tenant| async move { tenant.resume(group).await.map(|_| ()) })
            }
            3 => {
                self.note(format_args!("drain pass {group}"));
                self.ask(|tenant| async move { tenant.drain_pass(group).await.map(|_| ()) })
            }
            4 => {
                let retries = self.random.between(0, 2);
                self.note(format_args!("put {group} with {retries} retries"));
                self.loosen(group);
                let body = kind.definition(retries, self.temper.rows);
                self.ask(|tenant| async move { tenant.put_group(group, &body).await.map(|_| ()) })
            }
            5 => self.seek(group),
            6 => self.try_stale(),
            7 => self.keep_house(),
            _ => self.erase(),
        }
    }

    /// What workers of the group hold may be void now.
    pub(super) fn loosen(&mut self, group: &str) {
        self.hands.iter_mut().filter(|hand| hand.group == group).for_each(|hand| hand.loose = true);
    }

    pub(super) fn redrive(&mut self, group: &'static str) -> Result<(), String> {
        let Some(dead) = self.dead_letters(group) else { return Ok(()) };
        let some: Vec<Position> = dead.into_iter().filter(|_| !self.random.once_in(3)).collect();
        if some.is_empty() {
            return Ok(());
        }
        self.note(format_args!("redrive {group} {some:?}"));
        let truth = self.oracle.groups.get_mut(group).ok_or("unknown group")?;
        some.iter().for_each(|position| truth.begin_again(*position));
        self.ask(|tenant| async move { tenant.redrive(group, Redrive::Positions(some)).await.map(|_| ()) })
    }

    fn seek(&mut self, group: &'static str) -> Result<(), String> {
        let (head, first) = (self.tenant().head(), self.tenant().first());
        let (to, base) = match self.random.below(3) {
            0 => (Start::Beginning, first - 1),
            1 => (Start::Now, head),
            _ => {
                let position = self.random.between(first, head.max(first));
                (Start::Position(position), position - 1)
            }
        };
        self.note(format_args!("seek {group} {to:?}"));
        // What was answered before may be void from here on; what is not is learnt from the answer or from the ledger.
        let operations = std::mem::take(&mut self.operations);
        let (ended, others) = operations.into_iter().partition(|operation| operation.group() == Some(group));
        self.operations = others;
        let ended: Vec<super::Operation> = ended;
        ended.into_iter().for_each(|operation| self.abandon(operation));
        self.hands.retain(|hand| hand.group != group);
        let tenant = self.tenant().clone();
        let answer = self.finish_now(async move { tenant.seek(group, to).await });
        let dead = self.dead_letters(group).unwrap_or_default();
        let truth = self.oracle.groups.get_mut(group).ok_or("unknown group")?;
        match answer {
            Some(Ok(_)) if dead.last().is_some_and(|last| *last > base) => {
                return Err(format!(
                    "group {group}: a dead letter above {base} comes again and is still listed"
                ));
            }
            Some(Ok(view)) => truth.begin_at(view.group.since, base),
            Some(Err(problem)) if !is_misfortune(&problem) => return Err(format!("seek {group}: {problem}")),
            // Whether it took place is to be read in the ledger.
            _ => return self.crash(false),
        }
        Ok(())
    }

    fn try_stale(&mut self) -> Result<(), String> {
        if self.stale.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.stale.len());
        let (group, token) = self.stale.swap_remove(index);
        self.note(format_args!("an old token of {group}"));
        let tenant = self.tenant().clone();
        self.start(
            Asked::Stale { group },
            async move { Answer::Settled(tenant.ack(group, &[token], true).await) },
        )
    }

    /// An administrator's wish, carried out at once.
    fn ask<F: Future<Output = Result<(), Problem>>>(
        &mut self,
        wish: impl FnOnce(engine::Tenant) -> F,
    ) -> Result<(), String> {
        let future = wish(self.tenant().clone());
        match self.finish_now(future) {
            Some(Err(problem)) if !is_misfortune(&problem) => Err(problem.to_string()),
            _ => Ok(()),
        }
    }
}

fn split(hands: Vec<Hand>) -> (Vec<String>, Vec<Position>) {
    hands.into_iter().map(|hand| (hand.token, hand.position)).unzip()
}
