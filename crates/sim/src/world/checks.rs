//! What must hold at any moment, not only after a crash: floors, dead letters, counts.

use super::World;
use crate::oracle::group::GROUPS;

impl World {
    pub(super) fn look_around(&mut self) -> Result<(), String> {
        if self.planned.is_some() || !self.operations.is_empty() {
            return Ok(());
        }
        let group = self.random.pick(&GROUPS).name;
        self.look_at(group)
    }

    /// No floor has passed an event that is still open.
    pub(super) fn look_at(&mut self, group: &'static str) -> Result<(), String> {
        let Ok(view) = self.tenant().group(group) else { return Ok(()) };
        let dead = self.dead_letters(group).ok_or("dead letters cannot be read")?;
        let truth = &self.oracle.groups[group];
        let floor = view.group.floor;
        if view.group.dead_letters != dead.len() as u64 {
            let (count, listed) = (view.group.dead_letters, dead.len());
            return Err(format!("group {group} counts {count} dead letters and lists {listed}"));
        }
        let (sent, live) = (&self.oracle.sent, &self.oracle.live);
        if let Some(open) = truth.first_open(sent, live, &dead, (floor + 1, None)) {
            return Err(format!("group {group}: the floor {floor} has passed {open}, which is open"));
        }
        if let Some(twice) = dead.iter().find(|position| truth.acked.contains(position)) {
            return Err(format!("group {group}: {twice} was acked and is a dead letter"));
        }
        self.note(format_args!("{group}: floor {floor}, {} dead", dead.len()));
        Ok(())
    }
}
