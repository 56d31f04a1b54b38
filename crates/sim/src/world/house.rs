//! The housekeeper: snapshots, trims that wait for nobody or for everybody, and erasures.

use model::Position;

use super::World;
use super::finish::is_misfortune;
use crate::scan::scan;

impl World {
    /// A snapshot, or a trim with the snapshots it needs.
    pub(super) fn keep_house(&mut self) -> Result<(), String> {
        let trims = !self.random.once_in(3);
        if self.planned.is_none() && self.calm {
            // What is trimmed could not be folded into the oracle's state any more.
            let tenant = self.tenant().clone();
            let _ = self.finish_now(async move { tenant.ack("plain", &[], true).await });
            self.catch_up()?;
        } else if trims {
            return Ok(());
        }
        let done = match trims {
            true => engine::maintain::retention::run(self.tenant()).map(|_| ()),
            false => engine::maintain::snapshot::take(self.tenant()).map(|_| ()),
        };
        let first = self.tenant().first();
        if trims && self.temper.ruthless {
            self.mourn()?;
        }
        let (what, said) =
            (if trims { "trim" } else { "snapshot" }, done.as_ref().err().map(|p| p.code().as_str()));
        self.note(format_args!("{what} -> {said:?}, the first kept is {first}"));
        match done {
            Err(problem) if !is_misfortune(&problem) => Err(format!("{what}: {problem}")),
            _ => Ok(()),
        }
    }

    /// What a trim took from groups that were behind, they were told in the same commit.
    fn mourn(&mut self) -> Result<(), String> {
        let found = scan(&self.disk, &self.dir.join("ledger"))?;
        for one in &found {
            if let model::record::Record::Event(event) = &one.record {
                crate::oracle::group::learn_loss(&mut self.oracle.groups, event);
            }
        }
        let first = self.tenant().first();
        self.hands.iter_mut().filter(|hand| hand.position < first).for_each(|hand| hand.loose = true);
        self.operations.iter_mut().for_each(|operation| operation.disturbed = true);
        Ok(())
    }

    /// The content of some events is taken out of everything.
    pub(super) fn erase(&mut self) -> Result<(), String> {
        let first = self.tenant().first();
        let kept: Vec<(Position, usize)> = self.oracle.live.range(first..).map(|(at, n)| (*at, *n)).collect();
        if kept.is_empty() || self.full {
            return Ok(());
        }
        let count = self.random.between(1, 3);
        let some: Vec<(Position, usize)> = (0..count).map(|_| *self.random.pick(&kept)).collect();
        for (position, n) in &some {
            self.oracle.erased.entry(*position).or_insert(false);
            self.oracle.sent[*n].gone = true;
            self.hands
                .iter_mut()
                .filter(|hand| hand.position == *position)
                .for_each(|hand| hand.loose = true);
        }
        self.operations.iter_mut().for_each(|operation| operation.disturbed = true);
        let positions: Vec<Position> = some.iter().map(|(position, _)| *position).collect();
        let done = self.tenant().erase_blocking(&positions);
        self.note(format_args!("erase {positions:?} -> {:?}", done.as_ref().map_err(|p| p.code().as_str())));
        match done {
            Ok(_) => {
                positions.iter().for_each(|position| _ = self.oracle.erased.insert(*position, true));
                Ok(())
            }
            Err(problem) if is_misfortune(&problem) => Ok(()),
            Err(problem) => Err(format!("erase {positions:?}: {problem}")),
        }
    }
}
