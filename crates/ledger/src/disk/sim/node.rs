//! Files and folders of the simulated disk, each with what is durable beside what is only in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::Random;

pub(super) type NodeId = usize;

/// What a disk writes as one.
const SECTOR: usize = 512;

pub(super) enum Node {
    File(Data),
    Dir(Dir),
}

impl Node {
    pub fn data(&mut self) -> io::Result<&mut Data> {
        match self {
            Node::File(data) => Ok(data),
            Node::Dir(_) => Err(io::ErrorKind::IsADirectory.into()),
        }
    }

    pub fn dir(&mut self) -> io::Result<&mut Dir> {
        match self {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Node::File(data) if !data.removed => data.cache.len() as u64,
            _ => 0,
        }
    }

    pub fn crash(&mut self, random: &mut Random) {
        match self {
            Node::File(data) => data.crash(random),
            Node::Dir(dir) => dir.crash(random),
        }
    }
}

/// A file's bytes.
#[derive(Default)]
pub(super) struct Data {
    /// What a read sees.
    pub cache: Vec<u8>,
    durable: Vec<u8>,
    /// Sectors that a sync will write.
    dirty: BTreeSet<usize>,
    /// Sectors that a failed sync forgot: only in the cache, and no later sync writes them.
    forgotten: BTreeSet<usize>,
    /// Its name is gone; the space is free again.
    pub removed: bool,
}

impl Data {
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if bytes.is_empty() {
            return;
        }
        if self.cache.len() < to {
            self.set_len(to);
        }
        self.cache[from..to].copy_from_slice(bytes);
        self.touch(from, to);
    }

    pub fn set_len(&mut self, len: usize) {
        let (from, to) = (self.cache.len().min(len), self.cache.len().max(len));
        self.cache.resize(len, 0);
        self.touch(from, to);
    }

    fn touch(&mut self, from: usize, to: usize) {
        let sectors = from / SECTOR..to.div_ceil(SECTOR);
        for sector in sectors {
            self.dirty.insert(sector);
            self.forgotten.remove(&sector);
        }
    }

    pub fn sync(&mut self) {
        self.durable.resize(self.cache.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.keep(sector);
        }
    }

    pub fn fail_sync(&mut self) {
        self.forgotten.append(&mut self.dirty);
    }

    /// The kernel writes some of what is dirty before anybody asks it to. No promise comes with it: a sync writes it again.
    pub fn write_back(&mut self, random: &mut Random) {
        if self.dirty.is_empty() {
            return;
        }
        if self.durable.len() < self.cache.len() && random.coin() {
            self.durable.resize(self.cache.len(), 0);
        }
        for sector in self.dirty.clone() {
            if random.coin() {
                self.keep(sector);
            }
        }
    }

    /// Makes the cache durable as it stands.
    pub fn settle(&mut self) {
        self.durable = self.cache.clone();
        self.dirty.clear();
        self.forgotten.clear();
    }

    fn keep(&mut self, sector: usize) {
        let from = (sector * SECTOR).min(self.durable.len()).min(self.cache.len());
        let to = (from + SECTOR).min(self.durable.len()).min(self.cache.len());
        self.durable[from..to].copy_from_slice(&self.cache[from..to]);
    }

    /// Each sector that was not durable is kept or lost; so is a change of length.
    pub fn crash(&mut self, random: &mut Random) {
        let mut unsure = std::mem::take(&mut self.dirty);
        unsure.append(&mut self.forgotten);
        if random.coin() {
            self.durable.resize(self.cache.len(), 0);
        }
        let keep_all = random.below(4) == 0;
        for sector in unsure {
            if keep_all || random.coin() {
                self.keep(sector);
            }
        }
        self.cache = self.durable.clone();
    }
}

/// A folder's names.
#[derive(Default)]
pub(super) struct Dir {
    pub now: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    changes: Vec<Change>,
}

pub(super) enum Change {
    Link(String, NodeId),
    Unlink(String),
    Rename(String, String, NodeId),
}

impl Dir {
    pub fn change(&mut self, change: Change) {
        apply(&mut self.now, &change);
        self.changes.push(change);
    }

    pub fn sync(&mut self) {
        self.durable = self.now.clone();
        self.changes.clear();
    }

    /// Each change that was not durable is kept or lost, whatever became of the others.
    pub fn crash(&mut self, random: &mut Random) {
        for change in std::mem::take(&mut self.changes) {
            if random.coin() {
                apply(&mut self.durable, &change);
            }
        }
        self.now = self.durable.clone();
    }
}

fn apply(names: &mut BTreeMap<String, NodeId>, change: &Change) {
    match change {
        Change::Link(name, id) => {
            names.insert(name.clone(), *id);
        }
        Change::Unlink(name) => {
            names.remove(name);
        }
        Change::Rename(from, to, id) => {
            names.remove(from);
            names.insert(to.clone(), *id);
        }
    }
}
