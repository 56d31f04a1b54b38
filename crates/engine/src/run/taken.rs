//! Which events the `wait_for` steps of a run took: an event is taken once by a step, in whatever round of a loop it stands.

use model::Position;
use serde_json::{Value, json};

use super::Walked;

/// Events that are remembered for each step. Of a step that took more, those behind the oldest of these are gone.
const TAKEN_MAX: usize = 256;

impl Walked {
    /// Up to where the step at this path looks no more, and what it took behind that.
    pub fn taken_by(&self, path: &str) -> (Position, Vec<Position>) {
        match self.taken.get(&written(path)) {
            Some(Value::Array(all)) => {
                let mut all = all.iter().filter_map(Value::as_u64);
                (all.next().unwrap_or(0), all.collect())
            }
            // As runs were kept before: all up to the last one.
            Some(last) => (last.as_u64().unwrap_or(0), Vec::new()),
            None => (0, Vec::new()),
        }
    }

    pub fn has_taken(&self, path: &str, event: Position) -> bool {
        !self.taken.is_empty() && self.taken_by(path).1.contains(&event)
    }

    pub fn took(&mut self, path: &str, event: Position) {
        let (mut floor, mut events) = self.taken_by(path);
        if let Err(at) = events.binary_search(&event) {
            events.insert(at, event);
        }
        if events.len() > TAKEN_MAX {
            floor = events.remove(0);
        }
        let kept: Vec<Position> = std::iter::once(floor).chain(events).collect();
        self.taken.insert(written(path), json!(kept));
    }
}

/// The path of a step as its definition has it: without the rounds of the loops around it (`actions[0][7].do[1]`).
fn written(path: &str) -> String {
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find("][") {
        plain.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        match rest.find(']').filter(|end| rest[end + 1..].starts_with(".do")) {
            Some(end) => rest = &rest[end + 1..],
            None => {
                plain.push('[');
                rest = &rest[1..];
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_taken_once_by_a_step_in_all_rounds() {
        let mut walk = Walked::default();
        walk.took("actions[0][0].do[1]", 9);
        walk.took("actions[0][1].do[1]", 7);
        assert_eq!(walk.taken_by("actions[0][2].do[1]"), (0, vec![7, 9]));
        assert!(walk.has_taken("actions[0][5].do[1]", 9) && !walk.has_taken("actions[0][5].do[1]", 8));
        assert_eq!(walk.taken_by("actions[0][2].do[0]"), (0, vec![]));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_older_runs_are_understood() {
        let mut walk = Walked::default();
        (1..=300).for_each(|event| walk.took("actions[0]", event));
        let (floor, events) = walk.taken_by("actions[0]");
        assert_eq!((floor, events.len(), events[0]), (44, TAKEN_MAX, 45));
        walk.taken.insert("actions[1]".to_owned(), json!(12));
        assert_eq!(walk.taken_by("actions[1]"), (12, vec![]));
    }
}
