//! A ledger whose readers see what is sealed as it was before; what it is given to append is sealed already.

use std::sync::Arc;

use ledger::{AppendError, Batch, Erased, Error, Head, Ledger, ReadEnd, Reader, Segment, Trimmed};
use model::Position;

use super::Seals;

pub(crate) struct Unsealed {
    pub within: Box<dyn Ledger>,
    pub seals: Arc<Seals>,
}

struct Opening {
    within: Box<dyn Reader>,
    seals: Arc<Seals>,
}

impl Reader for Opening {
    fn read(&mut self, from: Position, max_bytes: usize, out: &mut Vec<u8>) -> Result<ReadEnd, Error> {
        let end = self.within.read(from, max_bytes, out)?;
        self.seals.open(out)?;
        Ok(end)
    }

    fn another(&self) -> Box<dyn Reader> {
        Box::new(Opening { within: self.within.another(), seals: self.seals.clone() })
    }
}

impl Ledger for Unsealed {
    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Opening { within: self.within.reader(), seals: self.seals.clone() })
    }

    fn head(&self) -> Head {
        self.within.head()
    }

    fn synced(&self) -> Position {
        self.within.synced()
    }

    fn first(&self) -> Position {
        self.within.first()
    }

    fn append(&mut self, batch: &Batch, sync: bool) -> Result<(), AppendError> {
        self.within.append(batch, sync)
    }

    fn sync(&mut self) -> Result<(), AppendError> {
        self.within.sync()
    }

    fn segments(&self) -> Vec<Segment> {
        self.within.segments()
    }

    fn trim(&mut self, first: Position) -> Result<Trimmed, Error> {
        self.within.trim(first)
    }

    fn seal(&mut self) -> Result<(), AppendError> {
        self.within.seal()
    }

    fn erase(&mut self, positions: &[Position]) -> Result<Erased, Error> {
        self.within.erase(positions)
    }

    fn is_full(&mut self) -> bool {
        self.within.is_full()
    }

    fn make_room(&mut self) {
        self.within.make_room();
    }

    fn close(&mut self) -> Result<(), AppendError> {
        self.within.close()
    }
}
