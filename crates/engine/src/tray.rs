//! Where the writer's answers lie for one who asks much and looks for all answers together, on one thread.
//!
//! Who waits for a single answer is woken for it. Here a whole batch is laid down first, and then it rings once; not even that when
//! its owner is looking anyway.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use model::Problem;

use crate::command::Answer;
use crate::deliver::lock;
use crate::tenant::closing;

/// An answer, and the question it belongs to.
pub struct Laid {
    pub ticket: u64,
    pub(crate) answer: Result<Answer, Problem>,
}

pub struct Tray {
    laid: Mutex<Vec<Laid>>,
    /// The owner does not look: the next answer has to ring.
    away: AtomicBool,
    bell: Box<dyn Fn() + Send + Sync>,
}

impl Tray {
    /// `bell` is rung by whoever has laid something down while the owner was away.
    pub fn new(bell: impl Fn() + Send + Sync + 'static) -> Arc<Tray> {
        Arc::new(Tray { laid: Mutex::default(), away: AtomicBool::new(false), bell: Box::new(bell) })
    }

    /// All that lies here, in exchange for an empty list.
    pub fn take(&self, empty: &mut Vec<Laid>) {
        std::mem::swap(&mut *lock(&self.laid), empty);
    }

    /// Said before the owner stops looking. False when something lies here already: then it does not.
    pub fn leave(&self) -> bool {
        self.away.store(true, Ordering::SeqCst);
        // After that store: who lays something down now either was seen here, or sees it and rings.
        let empty = lock(&self.laid).is_empty();
        if !empty {
            self.away.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// The owner looks again.
    pub fn come_back(&self) {
        self.away.store(false, Ordering::SeqCst);
    }

    fn lay(&self, laid: Laid) {
        lock(&self.laid).push(laid);
    }

    pub(crate) fn ring(&self) {
        if self.away.swap(false, Ordering::SeqCst) {
            (self.bell)();
        }
    }
}

/// Where one answer belongs. One that never comes is an answer, too: nobody waits for ever.
pub(crate) struct Place(Option<(Arc<Tray>, u64)>);

impl Place {
    pub fn new(tray: Arc<Tray>, ticket: u64) -> Place {
        Place(Some((tray, ticket)))
    }

    /// The tray has to be rung after the last.
    pub fn fill(mut self, answer: Result<Answer, Problem>) -> Option<Arc<Tray>> {
        let (tray, ticket) = self.0.take()?;
        tray.lay(Laid { ticket, answer });
        Some(tray)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some((tray, ticket)) = self.0.take() {
            tray.lay(Laid { ticket, answer: Err(closing()) });
            tray.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn counted() -> (Arc<Tray>, Arc<AtomicUsize>) {
        let rung = Arc::new(AtomicUsize::new(0));
        let counter = rung.clone();
        (Tray::new(move || _ = counter.fetch_add(1, Ordering::SeqCst)), rung)
    }

    fn tickets(tray: &Tray) -> Vec<u64> {
        let mut taken = Vec::new();
        tray.take(&mut taken);
        taken.iter().map(|laid| laid.ticket).collect()
    }

    #[test]
    fn it_rings_once_for_a_batch_and_only_for_who_is_away() {
        let (tray, rung) = counted();
        let lay = |ticket| Place::new(tray.clone(), ticket).fill(Err(closing())).unwrap().ring();
        lay(1);
        assert_eq!(rung.load(Ordering::SeqCst), 0, "the owner looks");
        assert!(!tray.leave(), "something lies here");
        assert_eq!(tickets(&tray), [1]);
        assert!(tray.leave());
        lay(2);
        lay(3);
        assert_eq!((rung.load(Ordering::SeqCst), tickets(&tray)), (1, vec![2, 3]));
    }

    #[test]
    fn a_question_that_is_dropped_is_answered() {
        let (tray, rung) = counted();
        assert!(tray.leave());
        drop(Place::new(tray.clone(), 7));
        assert_eq!((rung.load(Ordering::SeqCst), tickets(&tray)), (1, vec![7]));
    }
}
