//! What an event starts is over before the next event of the same commit is looked at, as far as it waits for nothing.
//!
//! So events of one array, what one run publishes and writes, and timers of one instant come to what they would come to one after the
//! other: a run that takes no time is in nobody's way. What a walk publishes is routed in its turn, after what was there before.

use std::collections::VecDeque;

use model::Position;

use super::start::is_long;
use crate::draft::Draft;
use crate::gate::mode;
use crate::state::{Result, State};
use crate::walk;

/// How often runs that yield go on in one commit, all of them together; after that they let others go first, as always.
const YIELDS_MAX: usize = 20;

/// Walks the runs that became ready at `since` or later, and those that become ready by that. Whatever does not fit into one commit
/// stays ready.
pub fn walk_since(draft: &mut Draft<'_>, since: Position) -> Result<()> {
    let mut next = VecDeque::new();
    put(draft.state, &mut next, ready_since(draft.state, since));
    while let Some(run) = next.pop_front() {
        if is_long(draft) {
            break;
        }
        let since = draft.next();
        walk::walk(draft, run)?;
        let mut fresh = ready_since(draft.state, since);
        // One that has yielded goes on when what it has led to is over.
        if let Some(at) = fresh.iter().position(|ready| *ready == run) {
            fresh.remove(at);
            draft.yields += 1;
            if draft.yields <= YIELDS_MAX {
                next.push_front(run);
            }
        }
        put(draft.state, &mut next, fresh);
    }
    Ok(())
}

/// Whether nothing that became ready at `since` or later can walk on, and the commit has room for more.
pub fn is_over(draft: &Draft<'_>, since: Position) -> bool {
    !is_long(draft) && ready_since(draft.state, since).is_empty()
}

/// As between commits: first those that others would find in their way.
fn put(state: &State, next: &mut VecDeque<Position>, fresh: Vec<Position>) {
    let (first, last): (Vec<_>, Vec<_>) = fresh.into_iter().partition(|run| mode::is_in_the_way(state, *run));
    first.into_iter().rev().for_each(|run| next.push_front(run));
    next.extend(last);
}

/// In the order in which they became ready, which is that of the queue.
fn ready_since(state: &State, since: Position) -> Vec<Position> {
    let runs = &state.runs;
    let is_fresh = |run: &&Position| runs.live.get(run).and_then(|brief| brief.ready) >= Some(since);
    let mut fresh: Vec<Position> = runs.ready.iter().rev().take_while(is_fresh).copied().collect();
    fresh.reverse();
    fresh
}
