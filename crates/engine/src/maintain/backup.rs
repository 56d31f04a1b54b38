//! A copy of a data directory while it is in use, complete up to a position, and the way back.
//!
//! ```text
//! DIR/tenants/<tenant>/ledger/*.jsonl     up to the head at that moment
//!                      snapshots/*.db     one of them taken for this backup
//!                      history.db         up to somewhere before that head; the rest is in the ledger
//!     keys/                               but for those of sealed spaces, which are kept apart
//!     backup.json                         {"at":…,"tenants":{name:{"position","chain"}}}   written last
//! ```
//!
//! The last record of a backup is `snapshot.taken`, never `ledger.closed`: a restored tenant opens as after a crash, so
//! deliveries that were out count as crashes, and its tokens are of a new epoch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ledger::disk::OsDisk;
use ledger::{Chain, Head, Segment};
use model::{Code, Position, Problem, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{aside, files, snapshot};
use crate::deliver::lock;
use crate::engine::Engine;
use crate::sealing::{Seals, keys};
use crate::tenant::Tenant;
use crate::writer::Fatal;

const MANIFEST: &str = "backup.json";
const HISTORY: &str = "history.db";
const CHECKPOINTS: &str = "checkpoints.jsonl";

#[derive(Serialize, Deserialize)]
struct Manifest {
    at: Timestamp,
    tenants: BTreeMap<String, Place>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Place {
    position: Position,
    chain: String,
}

/// What was copied.
#[derive(Clone, Debug)]
pub struct Backed {
    pub at: Timestamp,
    pub tenants: Vec<Copied>,
    /// Tenants that do not open, and are not in the backup.
    pub left_out: Vec<String>,
}

/// What was brought back.
#[derive(Clone, Debug)]
pub struct Restored {
    pub tenants: Vec<Copied>,
}

#[derive(Clone, Debug)]
pub struct Copied {
    pub tenant: String,
    pub last: Position,
    pub head: String,
    pub bytes: u64,
}

impl Backed {
    pub fn to_json(&self) -> Value {
        let mut out = json!({"at": self.at, "tenants": shown(&self.tenants)});
        if !self.left_out.is_empty() {
            out["left_out"] = json!(self.left_out);
        }
        out
    }
}

impl Restored {
    pub fn to_json(&self) -> Value {
        json!({"tenants": shown(&self.tenants)})
    }
}

fn shown(tenants: &[Copied]) -> Vec<Value> {
    let one = |t: &Copied| json!({"tenant": t.tenant, "last": t.last, "head": t.head, "bytes": t.bytes});
    tenants.iter().map(one).collect()
}

/// Copies every open tenant to `to`, which must not exist or be empty. Publishing goes on meanwhile.
pub async fn backup(engine: &Engine, to: &Path) -> Result<Backed, Problem> {
    let inside = ["tenants", "keys"].iter().any(|name| to.starts_with(engine.dir().join(name)));
    if inside {
        return Err(Problem::new(Code::RequestInvalid, format!("\"{}\" is inside the data", to.display()))
            .hint("name a directory outside the data directory"));
    }
    files::claim(to)?;
    let copied = copy_all(engine, to).await;
    if copied.is_err() {
        files::clear(to);
    }
    copied
}

async fn copy_all(engine: &Engine, to: &Path) -> Result<Backed, Problem> {
    let mut tenants = Vec::new();
    let at = engine.main()?.moment().now;
    for name in engine.tenants()? {
        let target = to.join("tenants").join(&name);
        if engine.is_suspended(&name) {
            tenants.extend(engine.beside(move |engine| copy_resting(engine, &name, &target)).await?);
            continue;
        }
        let was_open = engine.open_tenants().iter().any(|tenant| tenant.name() == name);
        // One that does not open is told among those left out.
        let Ok(tenant) = engine.tenant(&name) else { continue };
        tenants.push(aside(&tenant, move |tenant| copy_tenant(tenant, &target)).await?);
        if !was_open {
            engine.let_go(tenant);
        }
    }
    files::copy_keys(&engine.dir().join("keys"), &to.join("keys"))?;
    let place = |t: &Copied| (t.tenant.clone(), Place { position: t.last, chain: t.head.clone() });
    let manifest = Manifest { at, tenants: tenants.iter().map(place).collect() };
    files::write_small(&to.join(MANIFEST), json!(manifest).to_string().as_bytes())?;
    let mut left_out: Vec<String> = files::tenants(engine.dir())?.into_iter().map(|(name, _)| name).collect();
    left_out.retain(|name| !tenants.iter().any(|copied| copied.tenant == *name));
    Ok(Backed { at, tenants, left_out })
}

fn copy_tenant(tenant: &Tenant, to: &Path) -> Result<Copied, Problem> {
    let _alone = tenant.upkeep().alone();
    let dir = super::dir_of(tenant)?;
    let bare = is_bare(tenant.seals(), tenant.first());
    let mut bytes = if bare { 0 } else { copy_history(tenant, &dir, to)? };
    bytes += copy_checkpoints(&dir, to)?;
    snapshot::take_keeping(tenant, 2)?;
    let (head, segments) = stand(tenant)?;
    bytes += copy_segments(&dir.join("ledger"), &to.join("ledger"), &segments)?;
    if !bare {
        bytes += files::copy_dir(&dir.join("snapshots"), &to.join("snapshots"))?;
    }
    Ok(Copied { tenant: tenant.name().to_owned(), last: head.position, head: head.chain.to_string(), bytes })
}

/// What is derived says in the clear what is sealed in the ledger. It stays out while the whole ledger is there to fold it from.
fn is_bare(seals: &Seals, first: Position) -> bool {
    seals.is_used() && first == 1
}

/// One that is suspended is closed, and is copied as it lies there. `None` when it did not close cleanly: it is left out.
fn copy_resting(engine: &Engine, name: &str, to: &Path) -> Result<Option<Copied>, Problem> {
    let gate = engine.gate(name);
    let _alone = lock(&gate);
    let dir = engine.dir().join("tenants").join(name);
    let Some(head) = ledger::closed_at(&OsDisk, &dir.join("ledger")) else { return Ok(None) };
    let whole = dir.join("ledger").join(format!("{:020}.jsonl", 1)).exists();
    let seals = keys::load(&dir)?;
    seals.settle();
    let bare = is_bare(&seals, u64::from(whole));
    let mut bytes = if bare { 0 } else { files::copy_dir(&dir.join("snapshots"), &to.join("snapshots"))? };
    files::make_dir(&to.join("ledger"))?;
    for file in files::list(&dir.join("ledger")).iter().filter(|file| files::ends_with(file, "jsonl")) {
        bytes += files::copy(file, &to.join("ledger").join(file.file_name().unwrap_or_default()), None)?;
    }
    files::sync_dir(&to.join("ledger"))?;
    // With a log beside it, it would not be whole without; what is missing then is read from the ledger.
    if !bare && files::size(&dir.join(HISTORY)) > 0 && files::size(&dir.join("history.db-wal")) == 0 {
        bytes += files::copy(&dir.join(HISTORY), &to.join(HISTORY), None)?;
        files::sync_dir(to)?;
    }
    let (last, head) = (head.position, head.chain.to_string());
    Ok(Some(Copied { tenant: name.to_owned(), last, head, bytes }))
}

/// Before the ledger, so that it never tells of more than that.
fn copy_history(tenant: &Tenant, dir: &Path, to: &Path) -> Result<u64, Problem> {
    if files::size(&dir.join(HISTORY)) == 0 {
        return Ok(0);
    }
    files::make_dir(to)?;
    let copy = to.join(HISTORY);
    tenant.copy_history(&copy)?;
    files::sync_file(&copy)?;
    files::sync_dir(to)?;
    Ok(files::size(&copy))
}

/// Before the ledger, which a later checkpoint would accuse of being cut.
fn copy_checkpoints(from: &Path, to: &Path) -> Result<u64, Problem> {
    if files::size(&from.join(CHECKPOINTS)) == 0 {
        return Ok(0);
    }
    files::make_dir(to)?;
    let bytes = files::copy(&from.join(CHECKPOINTS), &to.join(CHECKPOINTS), None)?;
    files::sync_dir(to)?;
    Ok(bytes)
}

/// The head, everything durable up to it, and how long each segment is there.
fn stand(tenant: &Tenant) -> Result<(Head, Vec<Segment>), Problem> {
    tenant.with_writer(|writer| {
        writer.settle().map_err(|Fatal(problem)| problem)?;
        Ok((writer.ledger.head(), writer.ledger.segments()))
    })
}

/// Segments only grow behind what is copied: trims and erasures wait until we are done.
fn copy_segments(from: &Path, to: &Path, segments: &[Segment]) -> Result<u64, Problem> {
    files::make_dir(to)?;
    let mut bytes = 0;
    for segment in segments {
        let name = format!("{:020}.jsonl", segment.first);
        bytes += files::copy(&from.join(&name), &to.join(&name), Some(segment.bytes))?;
    }
    files::sync_dir(to)?;
    Ok(bytes)
}

/// Makes the data directory `data`, which must not exist or be empty, out of a backup. A damaged backup is refused.
pub fn restore(from: &Path, data: &Path) -> Result<Restored, Problem> {
    let manifest = read_manifest(from)?;
    check(from, &manifest)?;
    files::claim(data)?;
    let aside = data.join("tenants.new");
    let restored = copy_back(from, data, &aside, &manifest);
    if restored.is_err() {
        files::clear(&aside);
    }
    restored
}

fn read_manifest(from: &Path) -> Result<Manifest, Problem> {
    let path = from.join(MANIFEST);
    let bytes = files::read_small(&path)?.ok_or_else(|| {
        Problem::new(Code::StoreNotFound, format!("there is no backup in \"{}\"", from.display()))
            .hint(format!("a complete backup has a \"{MANIFEST}\""))
    })?;
    serde_json::from_slice(&bytes).map_err(|error| damaged(format!("\"{}\": {error}", path.display())))
}

fn damaged(detail: String) -> Problem {
    Problem::new(Code::StoreCorrupt, detail).hint("nothing was restored; use another backup")
}

/// Every ledger must be sound and end exactly where the backup says; one that was trimmed needs a snapshot, too.
fn check(from: &Path, manifest: &Manifest) -> Result<(), Problem> {
    let report = super::verify(from, true, &mut |_, _| ())?;
    for (name, place) in &manifest.tenants {
        let missing = || damaged(format!("the backup lacks tenant \"{name}\""));
        let found = report.tenants.iter().find(|found| found.tenant == *name).ok_or_else(missing)?;
        if let Some(problem) = found.ledger.problems.first() {
            let (file, offset) = (problem.file.display(), problem.offset);
            return Err(damaged(format!("\"{file}\" at byte {offset}: {}", problem.message)));
        }
        if let Some(problem) = found.problems.first() {
            return Err(damaged(format!("tenant \"{name}\": \"{}\": {}", problem.file, problem.message)));
        }
        if (found.ledger.last, &found.ledger.head) != (place.position, &place.chain) {
            let (last, due) = (found.ledger.last, place.position);
            return Err(damaged(format!("tenant \"{name}\" ends at position {last}, {due} was due")));
        }
    }
    Ok(())
}

fn copy_back(from: &Path, data: &Path, aside: &Path, manifest: &Manifest) -> Result<Restored, Problem> {
    files::clear(aside);
    let mut tenants = Vec::new();
    for (name, Place { position, chain }) in &manifest.tenants {
        let (source, target): (PathBuf, PathBuf) = (from.join("tenants").join(name), aside.join(name));
        let mut bytes = files::copy_dir(&source.join("ledger"), &target.join("ledger"))?;
        bytes += files::copy_dir(&source.join("snapshots"), &target.join("snapshots"))?;
        if files::size(&source.join(HISTORY)) > 0 {
            bytes += files::copy(&source.join(HISTORY), &target.join(HISTORY), None)?;
            files::sync_dir(&target)?;
        }
        bytes += copy_checkpoints(&source, &target)?;
        let head = Chain::parse(chain).unwrap_or(Chain::ZERO).to_string();
        tenants.push(Copied { tenant: name.clone(), last: *position, head, bytes });
    }
    files::copy_keys(&from.join("keys"), &data.join("keys"))?;
    files::rename(aside, &data.join("tenants"))?;
    Ok(Restored { tenants })
}
