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
        self.check_dead(group)?;
        self.note(format_args!("{group}: floor {floor}, {} dead", dead.len()));
        Ok(())
    }
    /// Nothing is quarantined that was never in anybody's hands, and nothing erased is kept among the dead.
    fn check_dead(&mut self, group: &'static str) -> Result<(), String> {
        let page = self.tenant().dead_letters(group, 10_000, None).map_err(|problem| problem.to_string())?;
        let truth = &self.oracle.groups[group];
        for letter in &page.dead_letters {
            let position = letter["position"].as_u64().unwrap_or_default();
            let unseen = !truth.came.contains(&position) && !truth.claimed.contains(&position);
            if letter["reason"] == "quarantined" && unseen {
                return Err(format!("group {group}: {position} was never handed out and is quarantined"));
            }
            let erased = self.oracle.erased.get(&position) == Some(&true);
            if erased && !letter["event"]["payload"].is_null() {
                return Err(format!(
                    "group {group}: {position} was erased and its dead letter has the content"
                ));
            }
        }
        Ok(())
    }
}
