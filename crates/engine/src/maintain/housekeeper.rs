//! What a tenant needs now and then, done on a thread of its own beside the path of an event, in small pieces.

use std::collections::BTreeMap;
use std::time::Duration;

use model::{Code, Position, Problem};
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::{audit, broken, files, retention, sidecar};
use crate::metrics::Metrics;
use crate::read;
use crate::state::Fault;
use crate::tenant::Tenant;

/// How often the housekeeper looks around.
pub const EVERY: Duration = Duration::from_secs(10);
/// A log of `state.db` longer than this is moved into the file.
const LOG_MAX: u64 = 4 << 20;
/// One sealed segment is read and checked this often, so that rot is found before its backup is gone.
const SCRUB_EVERY: Duration = Duration::from_secs(3600);

/// A ledger that goes on is signed this often, and whenever a segment is full.
const SIGN_EVERY: Duration = Duration::from_secs(600);

/// Old runs are forgotten this often.
const TRIM_EVERY: Duration = Duration::from_secs(600);

/// What the housekeeper remembers between two rounds.
#[derive(Default)]
pub struct Housekeeper {
    seen: BTreeMap<String, Seen>,
}

#[derive(Default)]
struct Seen {
    /// Where the active segment began.
    active: Position,
    /// The segment to be checked next, and when.
    scrub: Position,
    scrub_at: Duration,
    /// When the history is looked through for what is too old.
    trim_at: Duration,
    /// When the ledger is signed next.
    sign_at: Duration,
}

impl Housekeeper {
    /// Looks after every tenant once. A failure is said and tried again next time.
    pub fn round(&mut self, tenants: &[Tenant], metrics: &Metrics) {
        let mut full = false;
        for tenant in tenants.iter().filter(|tenant| !tenant.is_closing()) {
            let is_full = tenant.with_writer(|writer| Ok(writer.ledger.is_full())).unwrap_or(false);
            full |= is_full;
            if !is_full {
                // What a full disk kept from being committed.
                tenant.due_in(Duration::ZERO);
            }
            let seen = self.seen.entry(tenant.name().to_owned()).or_default();
            if let Err(problem) = look_after(tenant, seen)
                && !tenant.is_closing()
            {
                tracing::warn!(tenant = tenant.name(), %problem, "housekeeping failed; it is tried again");
            }
        }
        metrics.storage_full(full);
    }
}

fn look_after(tenant: &Tenant, seen: &mut Seen) -> Result<(), Problem> {
    checkpoint(tenant)?;
    let active = tenant.with_writer(|writer| Ok(writer.ledger.segments().last().map_or(1, |s| s.first)))?;
    if seen.active != active {
        if seen.active != 0 {
            tenant.record_floors();
            seen.sign_at = Duration::ZERO;
        }
        sidecar::build_missing(tenant)?;
        seen.active = active;
    }
    if tenant.dir().is_some() && tenant.boot() >= seen.sign_at {
        audit::checkpoint(tenant)?;
        seen.sign_at = tenant.boot() + SIGN_EVERY;
    }
    retention::run(tenant)?;
    let past = tenant.dir().map(|dir| dir.join("history.db"));
    if tenant.boot() >= seen.trim_at && past.is_some_and(|past| files::size(&past) > 0) {
        tenant.trim_history()?;
        seen.trim_at = tenant.boot() + TRIM_EVERY;
    }
    if tenant.boot() >= seen.scrub_at {
        // Not right at the start: there is enough to do then.
        if seen.scrub_at > Duration::ZERO {
            seen.scrub = scrub(tenant, seen.scrub)?;
        }
        seen.scrub_at = tenant.boot() + SCRUB_EVERY;
    }
    Ok(())
}

/// Moves a long log into `state.db`: most of it beside the writer, only the rest while it waits.
pub fn checkpoint(tenant: &Tenant) -> Result<(), Problem> {
    let Some(path) = tenant.dir().map(|dir| dir.join("state.db")) else { return Ok(()) };
    if files::size(&path.with_extension("db-wal")) <= LOG_MAX {
        return Ok(());
    }
    let passive = || -> Result<(), Fault> {
        let db = Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        db.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).optional()?;
        Ok(())
    };
    passive().map_err(broken)?;
    // One that somebody copies is cut in the next round.
    tenant.cut_state_log().map(drop)
}

/// Reads and checks the first sealed segment at or after `from`; where to go on. Damage makes the tenant unready.
pub fn scrub(tenant: &Tenant, from: Position) -> Result<Position, Problem> {
    let sealed = sidecar::sealed(tenant)?;
    let next = sealed.iter().find(|segment| segment.first >= from).or(sealed.first());
    let Some(segment) = next else { return Ok(0) };
    match check(tenant, segment) {
        Err(problem) if problem.code() == Code::StoreCorrupt => tenant.report_damage(&problem),
        // Trimmed meanwhile, or the disk would not read: the next round sees.
        Err(problem) if problem.code() != Code::EventGone => return Err(problem),
        _ => {}
    }
    Ok(segment.last + 1)
}

fn check(tenant: &Tenant, segment: &sidecar::Sealed) -> Result<(), Problem> {
    let (mut next, mut bytes, mut chain) = (segment.first, Vec::new(), None);
    while next <= segment.last {
        // Digests are of what stands there.
        let end = tenant.with_raw_reader(|reader| reader.read(next, read::CHUNK, &mut bytes));
        let end = end.map_err(read::problem)?;
        for text in ledger::lines(&bytes) {
            let (line, _) = read::parse(text)?;
            let bad = chain.is_some_and(|chain| !line.fits(chain)) || line.bad_body().is_some();
            if bad && line.first <= segment.last {
                let detail = format!("the line at position {} does not fit its chain or digest", line.first);
                return Err(Problem::new(Code::StoreCorrupt, detail));
            }
            chain = Some(line.chain);
        }
        next = end.next;
    }
    Ok(())
}
