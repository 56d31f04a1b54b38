//! What goes to a worker next, and what must not: ordering, room, expiry, suspects.

use model::group::{OnExpired, Ordering};
use model::record::DeadReason;
use model::{Position, Timestamp};

use super::{Delivery, Dispatcher, Most, Stand, Taken};
use crate::authority::Sight;
use crate::command::Why;
use crate::deliver::token::Token;
use crate::faults::planted;
use crate::state::group::CRASHES_MAX;

impl Dispatcher {
    /// Hands out up to `max` events.
    pub fn take(&mut self, max: usize, now: Timestamp) -> Taken {
        self.take_seen(Most::events(max), now, &Sight::default())
    }

    /// As [`Dispatcher::take`], for one who takes only what they see. The rest stays ready; under a strict order it keeps what
    /// comes after it back.
    pub fn take_seen(&mut self, most: Most, now: Timestamp, sight: &Sight) -> Taken {
        let (mut taken, mut bytes) = (Taken::default(), 0);
        if self.group.paused || self.group.halted_on != 0 || self.alone != 0 {
            return taken;
        }
        self.wake_delayed(now);
        let room =
            (self.group.definition.max_inflight as usize).saturating_sub(self.in_flight() + self.in_limbo);
        while taken.deliveries.len() < most.events.min(room) {
            let Some(position) = self.next_ready(sight) else { break };
            match self.verdict(position, now) {
                None if self.group.is_suspect(position) => {
                    taken.deliveries.extend(self.hand_out_alone(position, now));
                    break;
                }
                None => {
                    bytes += self.slots.get(&position).map_or(0, |slot| slot.event.size());
                    taken.is_cut = bytes > most.bytes && !taken.deliveries.is_empty();
                    if taken.is_cut {
                        break;
                    }
                    taken.deliveries.push(self.hand_out(position, now));
                }
                Some(None) => self.settle(position),
                Some(Some(reason)) => taken.dying.extend(self.doom(position, Why::Dead(reason))),
            }
        }
        taken
    }

    fn next_ready(&self, sight: &Sight) -> Option<Position> {
        let seen = |position: &Position| {
            sight.sees_all() || self.slots.get(position).is_some_and(|slot| sight.sees_event(&slot.event))
        };
        let (_, position) = self.ready.iter().find(|(_, position)| seen(position)).copied()?;
        match self.group.definition.ordering {
            Ordering::Strict if self.slots.keys().next() != Some(&position) => None,
            // A redriven event is the first, but what came after it may be out.
            Ordering::Strict if self.in_flight() + self.in_limbo > 0 => None,
            _ => Some(position),
        }
    }

    /// `Some` when the event is not to be delivered: dropped, or dead for a reason.
    fn verdict(&self, position: Position, now: Timestamp) -> Option<Option<DeadReason>> {
        let slot = self.slots.get(&position)?;
        if self.is_expired(&slot.event, now) {
            return Some(match self.group.definition.on_expired {
                OnExpired::Drop => None,
                OnExpired::DeadLetter => Some(DeadReason::Expired),
            });
        }
        let convicted = match planted("quarantine_unseen") {
            true => self.group.crashes_of(position) >= CRASHES_MAX,
            false => self.group.convicted.contains(&position),
        };
        convicted.then_some(Some(DeadReason::Quarantined))
    }

    /// A suspect waits until nothing else is in flight, and nothing else goes out while it is: should the process die
    /// now, it is known why.
    fn hand_out_alone(&mut self, position: Position, now: Timestamp) -> Option<Delivery> {
        if self.in_flight() + self.in_limbo > 0 {
            return None;
        }
        let delivery = self.hand_out(position, now);
        self.alone = position;
        Some(delivery)
    }

    fn hand_out(&mut self, position: Position, now: Timestamp) -> Delivery {
        self.serial += 1;
        let (serial, deadline) = (self.serial, now.plus(self.group.definition.ack_deadline));
        self.set(position, Stand::InFlight { serial, deadline });
        self.delivered_to = self.delivered_to.max(position);
        let slot = self.slots.get_mut(&position).expect("what is ready has a slot");
        slot.handed_out_at = now;
        Delivery {
            token: Token { epoch: self.epoch, position, serial },
            attempt: slot.failures + self.group.crashes_of(position) + 1,
            deadline,
            event: slot.event.clone(),
        }
    }

    /// Takes back what could not be handed over: no attempt was made.
    pub fn take_back(&mut self, deliveries: &[Delivery]) {
        for delivery in deliveries {
            if self.flight(delivery.token, Timestamp::EPOCH).is_some() {
                self.free(delivery.event.position);
            }
        }
    }
}
