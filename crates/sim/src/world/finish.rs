//! Moves operations on, one poll at a time, and tells the oracle how they ended.

use std::collections::BTreeSet;
use std::time::Duration;

use engine::clock::Clock;
use engine::{Delivery, Settled};
use model::{Code, Position, Problem};

use super::World;
use super::drain::TURNS_MAX;
use super::operation::{Answer, Asked, Operation, poll};
use super::workers::Hand;
use crate::oracle::group::Order;
use crate::oracle::k_of;

/// A refusal that a broken disk or a stopping process explains.
pub fn is_misfortune(problem: &Problem) -> bool {
    matches!(
        problem.code(),
        Code::ShuttingDown | Code::StorageFull | Code::StorageFailed | Code::StorageReadOnly
    )
}

impl World {
    pub(super) fn poll_one(&mut self) -> Result<(), String> {
        if self.operations.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.operations.len());
        self.poll_at(index)
    }

    pub(super) fn poll_all(&mut self) -> Result<(), String> {
        for index in (0..self.operations.len()).rev() {
            self.poll_at(index)?;
        }
        Ok(())
    }

    pub(super) fn poll_at(&mut self, index: usize) -> Result<(), String> {
        let Some(answer) = self.operations[index].poll() else { return Ok(()) };
        let operation = self.operations.swap_remove(index);
        self.finish(operation, answer)
    }

    /// A client goes away in the middle of its operation.
    pub(super) fn drop_one(&mut self) -> Result<(), String> {
        if self.operations.is_empty() {
            return Ok(());
        }
        let index = self.random.below(self.operations.len());
        let operation = self.operations.swap_remove(index);
        self.note(format_args!("#{} is dropped: {:?}", operation.id, operation.asked));
        self.abandon(operation);
        Ok(())
    }

    /// No answer will come.
    pub(super) fn abandon(&mut self, operation: Operation) {
        match &operation.asked {
            Asked::Publish(numbers) => self.oracle.unanswered(numbers),
            Asked::Write { id, deletes: true, .. } => _ = self.oracle.rows.maybe_gone.insert(id),
            Asked::Pull(group) => {
                self.oracle.groups.get_mut(group).expect("a group of ours").unheard = true;
            }
            Asked::Ack { group, held, .. } => {
                let truth = self.oracle.groups.get_mut(group).expect("a group of ours");
                for (_, position) in held {
                    truth.asked(*position);
                    truth.maybe.insert(*position);
                }
            }
            _ => {}
        }
    }

    /// Drives a future of an administrator to its end; `None` if the process stopped first.
    pub(super) fn finish_now<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        for _ in 0..TURNS_MAX {
            if let std::task::Poll::Ready(value) = poll(future.as_mut()) {
                return Some(value);
            }
            self.pump();
        }
        None
    }

    fn finish(&mut self, operation: Operation, answer: Answer) -> Result<(), String> {
        let Operation { id, disturbed, .. } = operation;
        match (operation.asked, answer) {
            (Asked::Publish(numbers), Answer::Published(answer)) => {
                let said = match &answer {
                    Ok(outcomes) => {
                        format!("{:?}", outcomes.iter().map(|o| o.position()).collect::<Vec<_>>())
                    }
                    Err(problem) => problem.code().as_str().to_owned(),
                };
                self.note(format_args!("#{id} publish {numbers:?} -> {said}"));
                let first = self.tenant().first();
                self.oracle.answered(&numbers, answer, first)
            }
            (Asked::Write { id, expected, deletes }, Answer::Written(answer)) => {
                self.written(id, (expected, deletes), *answer)
            }
            (Asked::Pull(group), Answer::Pulled(Ok(deliveries))) => self.pulled(group, deliveries, disturbed),
            (Asked::Ack { group, held, sync }, Answer::Settled(answer)) => {
                self.acked(group, held, sync, answer)
            }
            (Asked::Stale { group }, Answer::Settled(Ok(settled))) if settled.done > 0 => {
                Err(format!("group {group} took a token of an earlier life"))
            }
            (asked, Answer::Pulled(Err(problem)) | Answer::Settled(Err(problem))) => {
                self.note(format_args!("#{id} {asked:?} -> {}", problem.code().as_str()));
                if is_misfortune(&problem) { Ok(()) } else { Err(format!("{asked:?}: {problem}")) }
            }
            (asked, _) => {
                self.note(format_args!("#{id} {asked:?} done"));
                Ok(())
            }
        }
    }

    fn acked(
        &mut self,
        group: &'static str,
        held: Vec<(String, Position)>,
        sync: bool,
        answer: Result<Settled, Problem>,
    ) -> Result<(), String> {
        let said = answer.as_ref().map(|settled| settled.done).map_err(|problem| problem.code().as_str());
        let positions: Vec<Position> = held.iter().map(|(_, position)| *position).collect();
        self.note(format_args!("ack {group} {positions:?} sync={sync} -> {said:?}"));
        let truth = self.oracle.groups.get_mut(group).expect("a group of ours");
        positions.iter().for_each(|position| truth.asked(*position));
        match answer {
            Ok(settled) => {
                let good = held.into_iter().filter(|(token, _)| !settled.stale.contains(token));
                let positions = good.map(|(_, position)| position);
                if sync {
                    truth.acked.extend(positions)
                } else {
                    truth.soft.extend(positions)
                }
                Ok(())
            }
            Err(problem) => {
                truth.maybe.extend(positions);
                if is_misfortune(&problem) { Ok(()) } else { Err(format!("ack {group}: {problem}")) }
            }
        }
    }

    fn pulled(
        &mut self,
        group: &'static str,
        deliveries: Vec<Delivery>,
        disturbed: bool,
    ) -> Result<(), String> {
        let positions: Vec<Position> = deliveries.iter().map(|delivery| delivery.event.position).collect();
        self.note(format_args!(
            "pull {group} -> {positions:?}{}",
            if disturbed { " (disturbed)" } else { "" }
        ));
        self.summary.deliveries += deliveries.len();
        if deliveries.is_empty() {
            return Ok(());
        }
        let truth = self.oracle.groups.get_mut(group).ok_or("unknown group")?;
        truth.came.extend(&positions);
        let Some(dead) = self.dead_letters(group) else { return Ok(()) };
        for delivery in deliveries {
            self.check_delivery(group, &delivery, (&dead, disturbed))?;
            let (token, position) = (delivery.token.to_string(), delivery.event.position);
            // A step below a second is no step to the engine, so a deadline is known to a second only.
            let left = delivery.deadline.since(self.now()).saturating_sub(Duration::from_secs(1));
            let (deadline, key) = (self.clock.boot() + left, k_of(&delivery.event));
            let loose = disturbed || self.oracle.erased.contains_key(&position);
            self.hands.push(Hand { group, token, position, key, deadline, loose });
        }
        Ok(())
    }

    fn check_delivery(
        &mut self,
        group: &'static str,
        delivery: &Delivery,
        (dead, disturbed): (&BTreeSet<Position>, bool),
    ) -> Result<(), String> {
        let position = delivery.event.position;
        let shown = match disturbed {
            true => self.oracle.show_late(&delivery.event)?,
            false => self.oracle.show(&delivery.event)?,
        };
        let Some(n) = shown else {
            return Err(format!("group {group} was given the engine's own event at {position}"));
        };
        let truth = &self.oracle.groups[group];
        if !truth.wants(&self.oracle.sent[n]) {
            return Err(format!("group {group} was given publish {n}, which it does not want"));
        }
        if disturbed {
            return Ok(());
        }
        truth.may_come(position, dead)?;
        // A redriven dead letter begins again at attempt 1; a crash is an attempt that is nobody's failure.
        if u64::from(delivery.attempt) > truth.retries.max(2) + 1 + u64::from(truth.crashes) {
            return Err(format!("group {group}: {position} came for the {}th time", delivery.attempt));
        }
        self.check_order(group, position, self.oracle.sent[n].k, dead)
    }

    fn check_order(
        &self,
        group: &'static str,
        position: Position,
        k: u64,
        dead: &BTreeSet<Position>,
    ) -> Result<(), String> {
        let truth = &self.oracle.groups[group];
        let key = match truth.kind.ordering {
            Order::None => return Ok(()),
            // Its key is gone with its content.
            Order::Key if self.oracle.erased.contains_key(&position) => return Ok(()),
            Order::Key => Some(k),
            Order::Strict => None,
        };
        let now = self.clock.boot();
        let same = |hand: &&Hand| hand.group == group && key.is_none_or(|key| hand.key == Some(key));
        let other = self.hands.iter().filter(same).find(|hand| !hand.loose && hand.deadline > now);
        if let Some(hand) = other {
            return Err(format!("group {group}: {position} came while {} is in flight", hand.position));
        }
        let (sent, live) = (&self.oracle.sent, &self.oracle.live);
        match truth.first_open(sent, live, dead, (position, key)) {
            Some(earlier) if !truth.redriven.contains(&position) => {
                Err(format!("group {group}: {position} came before {earlier}"))
            }
            _ => Ok(()),
        }
    }

    /// The group's dead letters; `None` while the disk is broken.
    pub(super) fn dead_letters(&self, group: &str) -> Option<BTreeSet<Position>> {
        let page = self.tenant().dead_letters(group, 10_000, None).ok()?;
        Some(page.dead_letters.iter().filter_map(|letter| letter["position"].as_u64()).collect())
    }
}
