//! Moving a clock that stands still otherwise: from one due instant to the next, each done with before the next comes.

use std::time::Duration;

use model::{Code, Problem, Timestamp};

use super::Engine;
use crate::clock::{Clock, ManualClock, Move};
use crate::deliver::lock;
use crate::tenant::Tenant;

/// Rounds of work at one instant after which it is said to run in circles.
const ROUNDS_MAX: usize = 10_000;
/// Instants that one move serves, each a commit of its own.
const INSTANTS_MAX: usize = 50_000;
/// Farther ahead nothing is tried.
const MOVE_MAX: Duration = Duration::from_secs(36_525 * 86_400);

impl Engine {
    /// Whether its clock stands still until it is moved.
    pub fn is_told_the_time(&self) -> bool {
        self.0.around.clock.told().is_some()
    }

    /// Moves the engine's time and answers once everything that is due by then is done, but for what is under way outside.
    /// Without a move it is a barrier. Refused under the machine's clock.
    pub fn move_clock(&self, by: Move) -> Result<Timestamp, Problem> {
        let Some(clock) = self.0.around.clock.told() else { return Err(not_told()) };
        let _alone = lock(&self.0.moving);
        let to = target(clock, by)?;
        self.do_what_is_due(clock)?;
        let mut instants = 0;
        while let Some(next) = self.next_instant(clock).filter(|next| *next <= to) {
            if instants == INSTANTS_MAX {
                return Err(too_far(clock.now(), to));
            }
            instants += 1;
            clock.advance(next.since(clock.now()));
            self.do_what_is_due(clock)?;
        }
        clock.advance(to.since(clock.now()));
        self.do_what_is_due(clock)?;
        Ok(clock.now())
    }

    /// When the next thing is due, in tenants that are open and in those that are not.
    fn next_instant(&self, clock: &ManualClock) -> Option<Timestamp> {
        let (now, boot) = clock.read();
        let open = self.open_tenants();
        let open = open.iter().filter_map(Tenant::due_for_sure).map(|due| now.plus(due.saturating_sub(boot)));
        let closed: Vec<Timestamp> = lock(&self.0.closed_tenants).values().filter_map(|c| c.due()).collect();
        open.chain(closed).min()
    }

    fn do_what_is_due(&self, clock: &ManualClock) -> Result<(), Problem> {
        for _ in 0..ROUNDS_MAX {
            self.open_due();
            let mut ends = true;
            for tenant in self.open_tenants() {
                // Also when nothing seems due: somebody else may be at it, and is waited for.
                tenant.tick();
                tenant.work_beside();
                ends &= tenant.work_off();
            }
            if !ends {
                break;
            }
            if self.next_instant(clock).is_none_or(|next| next > clock.now()) {
                return Ok(());
            }
        }
        Err(Problem::new(Code::QuotaExceeded, format!("at {} the work never ends", clock.now()))
            .hint("an automation probably starts itself again and again"))
    }
}

/// It stands where it came to; everything up to there is done.
fn too_far(now: Timestamp, to: Timestamp) -> Problem {
    let detail =
        format!("the clock is at {now}: on the way to {to} more than {INSTANTS_MAX} instants are due");
    Problem::new(Code::QuotaExceeded, detail)
        .hint("move it again, and it goes on from there")
        .with("now", now.to_string())
}

fn target(clock: &ManualClock, by: Move) -> Result<Timestamp, Problem> {
    let now = clock.now();
    let to = match by {
        Move::By(by) => now.plus(by),
        Move::To(to) => to,
    };
    let wrong = |detail: String| Problem::new(Code::RequestInvalid, detail).with("now", now.to_string());
    if to < now {
        return Err(wrong(format!("the clock is at {now} and never goes back to {to}")).at("/to"));
    }
    if to.since(now) > MOVE_MAX {
        let hint = "at most 36525d, a hundred years; a number without a unit counts seconds";
        return Err(wrong(format!("{to} is too far for one move from {now}")).hint(hint));
    }
    Ok(to)
}

fn not_told() -> Problem {
    Problem::new(Code::ClockReal, "the clock of this server is the machine's, which nobody moves")
}
