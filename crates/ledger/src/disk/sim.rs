//! A simulated disk under the file ledger: loses what was not synced, in any order, and fails when told to.
//! One seed decides everything, so a failing run repeats.
//!
//! ```text
//!              write_at, set_len                 sync_data
//!   process ────────────────────▶ page cache ────────────────▶ disk
//!           ◀──── read_at ──────
//!              create, rename, remove            sync_dir
//!           ────────────────────▶ names ─────────────────────▶ disk
//! ```
//!
//! A power cut keeps each un-synced 512-byte sector or loses it, by the seed, and each name change likewise.
//! A sync that fails leaves its pages in the cache, readable, and never writes them: Linux does the same.

mod node;

use std::collections::BTreeSet;
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard};

use super::{Access, Disk, Entry, File};
use node::{Data, Dir, Node, NodeId};

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error.
    Eio,
    /// No space left.
    Enospc,
    /// A write stops half way; what is no write fails with an input/output error.
    Short,
    /// The power goes: this operation may have happened in part, and all later ones fail. See
    /// [`SimDisk::power_cut`].
    PowerCut,
}

/// Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<Sim>>);

struct Sim {
    nodes: Vec<Node>,
    random: Random,
    /// Operations so far.
    ops: u64,
    plan: Option<Plan>,
    /// Raised by a power cut and by a kill: handles of an earlier life are dead.
    life: u64,
    dark: bool,
    lies: bool,
    eager: bool,
    capacity: Option<u64>,
}

struct Plan {
    at: u64,
    fault: Fault,
    sticky: bool,
}

impl SimDisk {
    /// An empty disk.
    pub fn new(seed: u64) -> SimDisk {
        let (random, nodes) = (Random(seed), vec![Node::Dir(Dir::default())]);
        SimDisk(Arc::new(Mutex::new(Sim {
            nodes,
            random,
            ops: 0,
            plan: None,
            life: 0,
            dark: false,
            lies: false,
            eager: false,
            capacity: None,
        })))
    }

    fn sim(&self) -> MutexGuard<'_, Sim> {
        self.0.lock().expect("nothing panics while it holds the disk")
    }

    /// The power goes and comes back: everything durable is there, of the rest what chance kept. Open
    /// handles are dead.
    pub fn power_cut(&self) {
        let mut sim = self.sim();
        let sim = &mut *sim;
        for node in &mut sim.nodes {
            node.crash(&mut sim.random);
        }
        sim.find_removed();
        sim.begin_life();
    }

    /// The process dies and the machine stays: the page cache survives. Open handles are dead.
    pub fn kill(&self) {
        self.sim().begin_life();
    }

    /// The `n`th operation from now fails (1 = the next); `sticky`: and all after it.
    pub fn fail_after(&self, n: u64, fault: Fault, sticky: bool) {
        let mut sim = self.sim();
        sim.plan = Some(Plan { at: sim.ops + n, fault, sticky });
    }

    /// Nothing fails from here on.
    pub fn heal(&self) {
        self.sim().plan = None;
    }

    /// How many operations there were.
    pub fn ops(&self) -> u64 {
        self.sim().ops
    }

    /// A planted bug: syncs claim success and do nothing.
    pub fn lie_about_syncs(&self, lies: bool) {
        self.sim().lies = lies;
    }

    /// From here on the kernel writes dirty sectors back whenever it likes, also those of a write that was refused.
    pub fn write_back_early(&self, eager: bool) {
        self.sim().eager = eager;
    }

    /// Limits what all files together may hold.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.sim().capacity = bytes;
    }

    /// Damages a file behind everyone's back, durably: for tests of corruption.
    pub fn edit(&self, path: &Path, edit: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut sim = self.sim();
        let id = sim.find(path)?;
        let data = sim.nodes[id].data()?;
        edit(&mut data.cache);
        data.settle();
        Ok(())
    }

    pub fn contents(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut sim = self.sim();
        let id = sim.find(path)?;
        Ok(sim.nodes[id].data()?.cache.clone())
    }
}

impl Sim {
    fn begin_life(&mut self) {
        self.life += 1;
        self.dark = false;
        self.plan = None;
    }

    /// Counts an operation; the fault it meets, if any.
    fn step(&mut self) -> Option<Fault> {
        self.ops += 1;
        if self.eager && !self.dark && self.random.below(4) == 0 {
            self.write_back();
        }
        if self.dark {
            return Some(Fault::Eio);
        }
        let due = |plan: &Plan| self.ops == plan.at || (plan.sticky && self.ops > plan.at);
        let fault = self.plan.as_ref().filter(|plan| due(plan))?.fault;
        self.dark = fault == Fault::PowerCut;
        Some(fault)
    }

    fn write_back(&mut self) {
        for node in &mut self.nodes {
            if let Node::File(data) = node {
                data.write_back(&mut self.random);
            }
        }
    }

    /// For what either happens or does not.
    fn gate(&mut self) -> io::Result<()> {
        self.step().map_or(Ok(()), |fault| Err(error(fault)))
    }

    fn find(&mut self, path: &Path) -> io::Result<NodeId> {
        let mut at = 0;
        for name in names(path) {
            at = *self.nodes[at].dir()?.now.get(&name).ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(at)
    }

    fn parent(&mut self, path: &Path) -> io::Result<(&mut Dir, String)> {
        let name = names(path).pop().ok_or(io::ErrorKind::InvalidInput)?;
        let parent = self.find(path.parent().unwrap_or(Path::new("")))?;
        Ok((self.nodes[parent].dir()?, name))
    }

    fn add(&mut self, path: &Path, node: Node) -> io::Result<NodeId> {
        let id = self.nodes.len();
        let (dir, name) = self.parent(path)?;
        dir.change(node::Change::Link(name, id));
        self.nodes.push(node);
        Ok(id)
    }

    /// After a crash a removed file may have its name back, and a new one may have lost it.
    fn find_removed(&mut self) {
        let dirs = self.nodes.iter().filter_map(|node| match node {
            Node::Dir(dir) => Some(dir),
            Node::File(_) => None,
        });
        let named: BTreeSet<NodeId> = dirs.flat_map(|dir| dir.now.values().copied()).collect();
        for (id, node) in self.nodes.iter_mut().enumerate() {
            if let Node::File(data) = node {
                data.removed = !named.contains(&id);
            }
        }
    }

    fn used(&self) -> u64 {
        self.nodes.iter().map(Node::bytes).sum()
    }

    fn room(&self, more: u64) -> bool {
        self.capacity.is_none_or(|most| self.used() + more <= most)
    }
}

fn names(path: &Path) -> Vec<String> {
    let normal = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    path.components().filter_map(normal).collect()
}

fn error(fault: Fault) -> io::Error {
    match fault {
        Fault::Enospc => io::ErrorKind::StorageFull.into(),
        _ => io::Error::other("simulated input/output error"),
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn File>> {
        let mut sim = self.sim();
        sim.gate()?;
        let node = match sim.find(path) {
            Ok(node) => node,
            Err(_) if access == Access::Create => sim.add(path, Node::File(Data::default()))?,
            Err(err) => return Err(err),
        };
        let data = sim.nodes[node].data()?;
        if access == Access::Create {
            data.set_len(0);
        }
        Ok(Arc::new(SimFile { disk: self.clone(), node, life: sim.life }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        sim.gate()?;
        let new = names(to).pop().ok_or(io::ErrorKind::InvalidInput)?;
        assert_eq!(from.parent(), to.parent(), "a rename stays in its folder");
        let (dir, old) = sim.parent(from)?;
        let id = *dir.now.get(&old).ok_or(io::ErrorKind::NotFound)?;
        dir.change(node::Change::Rename(old, new, id));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        sim.gate()?;
        let id = sim.find(path)?;
        let (dir, name) = sim.parent(path)?;
        dir.change(node::Change::Unlink(name));
        sim.nodes[id].data()?.removed = true;
        Ok(())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        sim.gate()?;
        if sim.find(dir).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        sim.add(dir, Node::Dir(Dir::default())).map(|_| ())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut sim = self.sim();
        sim.gate()?;
        let id = sim.find(dir)?;
        let names: Vec<_> = sim.nodes[id].dir()?.now.clone().into_iter().collect();
        let entry = |(name, id): (String, NodeId)| match &sim.nodes[id] {
            Node::File(data) => Entry { name, bytes: data.cache.len() as u64, is_dir: false },
            Node::Dir(_) => Entry { name, bytes: 0, is_dir: true },
        };
        Ok(names.into_iter().map(entry).collect())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut sim = self.sim();
        let fault = sim.step();
        let id = sim.find(if dir == Path::new(".") { Path::new("") } else { dir })?;
        let lies = sim.lies;
        let dir = sim.nodes[id].dir()?;
        match fault {
            Some(fault) => Err(error(fault)),
            None if lies => Ok(()),
            None => {
                dir.sync();
                Ok(())
            }
        }
    }

    fn free_space(&self, _dir: &Path) -> io::Result<u64> {
        let sim = self.sim();
        Ok(sim.capacity.map_or(1 << 40, |most| most.saturating_sub(sim.used())))
    }
}

struct SimFile {
    disk: SimDisk,
    node: NodeId,
    life: u64,
}

impl SimFile {
    /// Runs `act` on the file's data, unless the handle is of an earlier life.
    fn with<T>(&self, act: impl FnOnce(&mut Sim, NodeId) -> io::Result<T>) -> io::Result<T> {
        let mut sim = self.disk.sim();
        if sim.life != self.life {
            return Err(io::Error::other("a handle from before the crash"));
        }
        act(&mut sim, self.node)
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.with(|sim, node| {
            sim.gate()?;
            let cache = &sim.nodes[node].data()?.cache;
            let rest = cache.get(offset as usize..).unwrap_or_default();
            let len = rest.len().min(buf.len());
            buf[..len].copy_from_slice(&rest[..len]);
            Ok(len)
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.with(|sim, node| {
            let fault = sim.step();
            let part = sim.random.below(bytes.len() as u64 + 1) as usize;
            let grows = (offset + bytes.len() as u64).saturating_sub(sim.nodes[node].bytes());
            let room = sim.room(grows);
            let data = sim.nodes[node].data()?;
            match fault {
                None if room => {
                    data.write(bytes, offset);
                    return Ok(bytes.len());
                }
                None => return Err(io::ErrorKind::StorageFull.into()),
                Some(Fault::Short) if bytes.len() > 1 => {
                    let part = part.clamp(1, bytes.len() - 1);
                    data.write(&bytes[..part], offset);
                    return Ok(part);
                }
                Some(_) => data.write(&bytes[..part], offset),
            }
            Err(error(fault.unwrap_or(Fault::Eio)))
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|sim, node| {
            let (fault, lies) = (sim.step(), sim.lies);
            let data = sim.nodes[node].data()?;
            match fault {
                None if lies => Ok(()),
                None => {
                    data.sync();
                    Ok(())
                }
                // With the power gone the sync may have done any part of its work; a power cut decides that
                // sector by sector.
                Some(Fault::PowerCut) => Err(error(Fault::PowerCut)),
                Some(fault) => {
                    data.fail_sync();
                    Err(error(fault))
                }
            }
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|sim, node| {
            sim.gate()?;
            sim.nodes[node].data()?.set_len(len as usize);
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|sim, node| Ok(sim.nodes[node].data()?.cache.len() as u64))
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.with(|sim, node| {
            sim.gate()?;
            if !sim.room(len.saturating_sub(sim.nodes[node].bytes())) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            sim.nodes[node].data()?.set_len(len as usize);
            Ok(())
        })
    }
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 0
    }
}
