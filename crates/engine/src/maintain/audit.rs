//! Signed statements of where a ledger stood, so that one that was rewritten or cut is told from the real one.
//!
//! The chain alone shows what does not fit together; whoever recomputes all of it leaves nothing that does not. A checkpoint
//! says position and chain under a signature; kept elsewhere, it says so for ever.
//!
//! ```text
//! tenants/<tenant>/checkpoints.jsonl   {"tenant","position","chain","time","signature"}⏎ …      signature: 128 hex digits
//! signed, ed25519                      everwhen checkpoint 1⏎ tenant⏎ position⏎ chain⏎ time⏎
//! keys/.audit                          the seed of the key, 64 hex digits, mode 0600
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use ledger::disk::OsDisk;
use ledger::{Chain, FindingKind, Head, Noted, Wanted};
use model::{Code, Position, Problem, Timestamp};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{dir_of, files};
use crate::deliver::lock;
use crate::entropy::Entropy;
use crate::tenant::Tenant;
use crate::writer::Fatal;

const CHECKPOINTS: &str = "checkpoints.jsonl";
const KEY: &str = ".audit";
/// The kind of the record that names the bodies that are erased.
const ERASED: &str = "event.erased";
/// A checkpoint so young and so near is as good as a new one.
const NEAR: Position = 16;
const SOON: Duration = Duration::from_secs(60);

/// What the ledger of a tenant was at an instant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub tenant: String,
    pub position: Position,
    pub chain: String,
    pub time: Timestamp,
    pub signature: String,
}

/// Checkpoints and the public key that they were signed for, in hex: what an auditor keeps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Testimony {
    pub key: String,
    pub checkpoints: Vec<Checkpoint>,
}

impl Checkpoint {
    fn statement(&self) -> String {
        let Checkpoint { tenant, position, chain, time, .. } = self;
        format!("everwhen checkpoint 1\n{tenant}\n{position}\n{chain}\n{time}\n")
    }

    fn is_signed_by(&self, key: &[u8; 32]) -> bool {
        let signature = model::id::unhex::<64>(&self.signature);
        let key = UnparsedPublicKey::new(&ED25519, key);
        signature.is_some_and(|signature| key.verify(self.statement().as_bytes(), &signature).is_ok())
    }
}

impl Testimony {
    /// Reads lines as [`Testimony::lines`] writes them; a key may be missing.
    pub fn parse(text: &str) -> Result<Testimony, Problem> {
        let mut testimony = Testimony::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |why: String| {
                let detail = format!("line {} is no checkpoint: {why}", number + 1);
                Problem::new(Code::RequestInvalid, detail).hint("give what `everwhen audit export` wrote")
            };
            let value: Value = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
            match value["key"].as_str() {
                Some(key) => testimony.key = key.to_owned(),
                None => testimony
                    .checkpoints
                    .push(serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?),
            }
        }
        Ok(testimony)
    }

    /// The key first, then a checkpoint a line.
    pub fn lines(&self) -> Vec<String> {
        let key = json!({"key": self.key, "algorithm": "ed25519"}).to_string();
        std::iter::once(key).chain(self.checkpoints.iter().map(|one| json!(one).to_string())).collect()
    }

    pub fn to_json(&self) -> Value {
        json!({"key": self.key, "algorithm": "ed25519", "checkpoints": self.checkpoints})
    }
}

/// Writes down where the ledger of a tenant stands now, unless that was the last thing written down.
pub fn checkpoint(tenant: &Tenant) -> Result<(), Problem> {
    let dir = dir_of(tenant)?;
    let _alone = lock(&tenant.upkeep().checkpoints);
    let Head { position, chain } = tenant.with_writer(|writer| {
        writer.settle().map_err(|Fatal(problem)| problem)?;
        Ok(writer.ledger.head())
    })?;
    note(&dir, tenant.name(), Head { position, chain }, tenant.now())
}

/// The end of a tenant that closes. A command that ends soon after another leaves it to the next: signing takes a sync.
pub(crate) fn sign_end(dir: &Path, tenant: &str, head: Head, now: Timestamp) {
    let signed = newest(dir).and_then(|last| {
        let as_good = |last: Checkpoint| {
            last.time <= now && last.time.plus(SOON) > now && head.position < last.position + NEAR
        };
        if last.is_some_and(as_good) { Ok(()) } else { note(dir, tenant, head, now) }
    });
    if let Err(problem) = signed {
        tracing::warn!(tenant, %problem, "the end of the ledger is not signed");
    }
}

/// Of a head that is durable.
fn note(dir: &Path, tenant: &str, head: Head, time: Timestamp) -> Result<(), Problem> {
    let last = newest(dir)?;
    if head.position == 0 || last.is_some_and(|last| last.position == head.position) {
        return Ok(());
    }
    let mut made = Checkpoint {
        tenant: tenant.to_owned(),
        position: head.position,
        chain: head.chain.to_string(),
        time,
        signature: String::new(),
    };
    let pair = key_pair(&keys_of(dir))?;
    made.signature = model::id::hex(pair.sign(made.statement().as_bytes()).as_ref());
    files::append_line(&dir.join(CHECKPOINTS), &json!(made).to_string())
}

/// What is written down of a tenant, with the key of this directory.
pub fn testimony(tenant_dir: &Path) -> Result<Testimony, Problem> {
    let mut found = stored(tenant_dir)?;
    found.key = model::id::hex(key_pair(&keys_of(tenant_dir))?.public_key().as_ref());
    Ok(found)
}

fn stored(dir: &Path) -> Result<Testimony, Problem> {
    Testimony::parse(&whole_lines(dir)?)
}

fn newest(dir: &Path) -> Result<Option<Checkpoint>, Problem> {
    let text = whole_lines(dir)?;
    Ok(Testimony::parse(text.lines().next_back().unwrap_or_default())?.checkpoints.pop())
}

/// A line that a crash cut short was never told to anybody.
fn whole_lines(dir: &Path) -> Result<String, Problem> {
    let bytes = files::read_small(&dir.join(CHECKPOINTS))?.unwrap_or_default();
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    Ok(String::from_utf8_lossy(&bytes[..whole]).into_owned())
}

fn keys_of(tenant_dir: &Path) -> PathBuf {
    let data = tenant_dir.parent().and_then(Path::parent).unwrap_or(tenant_dir);
    data.join("keys")
}

/// Tenants sign at the same time, and the first who do would each make a key.
static MAKING: Mutex<()> = Mutex::new(());

fn key_pair(keys: &Path) -> Result<Ed25519KeyPair, Problem> {
    let path = keys.join(KEY);
    let _alone = lock(&MAKING);
    let seed: [u8; 32] = match files::read_small(&path)? {
        Some(text) => std::str::from_utf8(&text).ok().and_then(|text| model::id::unhex(text.trim())).ok_or_else(
            || {
                Problem::new(Code::StoreCorrupt, format!("\"{}\" is not a key", path.display()))
                    .hint("restore it from a backup, or remove it: checkpoints of before then need the exported key")
            },
        )?,
        None => {
            let fresh = Entropy::kernel().bytes();
            files::make_private_dir(keys)?;
            files::write_private(&path, model::id::hex(&fresh).as_bytes())?;
            fresh
        }
    };
    Ed25519KeyPair::from_seed_unchecked(&seed)
        .map_err(|_| Problem::new(Code::StoreCorrupt, format!("\"{}\" is not a key", path.display())))
}

/// What `everwhen audit verify` says of one tenant.
#[derive(Clone, Debug)]
pub struct Audited {
    pub tenant: String,
    pub ledger: ledger::Report,
    /// Checkpoints that the ledger agrees with, and those that speak of what was trimmed.
    pub agreed: usize,
    pub trimmed: usize,
    pub problems: Vec<(Position, String)>,
}

impl Audited {
    pub fn is_ok(&self) -> bool {
        self.ledger.is_ok() && self.problems.is_empty()
    }

    pub fn to_json(&self) -> Value {
        let of_ledger = self.ledger.problems.iter().filter_map(|finding| serde_json::to_value(finding).ok());
        let of_checkpoints = self.problems.iter().map(
            |(position, message)| json!({"kind": "checkpoint", "position": position, "message": message}),
        );
        let problems: Vec<Value> = of_ledger.chain(of_checkpoints).collect();
        json!({
            "ok": self.is_ok(), "tenant": self.tenant, "first": self.ledger.first, "last": self.ledger.last,
            "head": self.ledger.head, "checkpoints": self.agreed, "trimmed": self.trimmed, "problems": problems,
        })
    }
}

/// Compares a ledger, by reading only, with what was signed. Without checkpoints from elsewhere its own are taken, without a key
/// from elsewhere that of its directory.
pub fn audit(tenant_dir: &Path, tenant: &str, given: Option<Testimony>) -> Result<Audited, Problem> {
    let own = || testimony(tenant_dir);
    let mut said = match given {
        Some(given) if given.checkpoints.is_empty() => Testimony { checkpoints: own()?.checkpoints, ..given },
        Some(given) => given,
        None => own()?,
    };
    if said.key.is_empty() {
        said.key = own()?.key;
    }
    let key = model::id::unhex::<32>(said.key.trim()).ok_or_else(|| {
        Problem::new(Code::RequestInvalid, "the key is not 64 hex digits")
            .hint("give what `everwhen audit export` wrote")
    })?;
    let mine: Vec<&Checkpoint> = said.checkpoints.iter().filter(|one| one.tenant == tenant).collect();
    let wanted = Wanted { ends: mine.iter().map(|one| one.position).collect(), kind: ERASED };
    let (ledger, noted) = ledger::verify_noting(&OsDisk, &tenant_dir.join("ledger"), &wanted, &mut |_, _| ())
        .map_err(|error| Problem::new(Code::StoreCorrupt, error.to_string()))?;
    let mut audited =
        Audited { tenant: tenant.to_owned(), ledger, agreed: 0, trimmed: 0, problems: Vec::new() };
    if mine.is_empty() && !said.checkpoints.is_empty() {
        audited.problems.push((0, format!("no checkpoint speaks of tenant \"{tenant}\"")));
    }
    for checkpoint in mine {
        audited.judge(checkpoint, &key, &noted.chains);
    }
    audited.judge_erased(&noted);
    Ok(audited)
}

impl Audited {
    /// A body may go while the chain stands; that somebody wanted it stands under the chain.
    fn judge_erased(&mut self, noted: &Noted) {
        #[derive(Deserialize)]
        struct Erased {
            positions: Vec<Position>,
        }
        let said = noted.records.iter().filter_map(|data| serde_json::from_str::<Erased>(data).ok());
        let said: BTreeSet<Position> = said.flat_map(|erased| erased.positions).collect();
        let unsaid = noted.erased.iter().filter(|position| !said.contains(position));
        let problem = |position: &Position| (*position, "a body is erased, and no record says so".to_owned());
        self.problems.extend(unsaid.map(problem));
    }

    fn judge(&mut self, checkpoint: &Checkpoint, key: &[u8; 32], chains: &BTreeMap<Position, Chain>) {
        let Checkpoint { position, chain, time, .. } = checkpoint;
        let message = if !checkpoint.is_signed_by(key) {
            "a checkpoint is not signed with this key".to_owned()
        } else if *position < self.ledger.first {
            self.trimmed += 1;
            return;
        } else {
            match chains.get(position) {
                Some(found) if found.to_string() == *chain => {
                    self.agreed += 1;
                    return;
                }
                Some(_) => format!("the ledger up to here is not the one of {time}: it was rewritten"),
                None if *position > self.ledger.last => {
                    let last = self.ledger.last;
                    format!("the ledger ends at position {last}, and at {time} it went this far: it was cut")
                }
                None => format!("at {time} a commit ended here, and none does: the ledger was rewritten"),
            }
        };
        self.problems.push((*position, message));
        // What a crash may leave is no excuse where a signature says otherwise.
        let last = self.ledger.last;
        for finding in self.ledger.problems.iter_mut().filter(|_| *position > last) {
            if finding.kind == FindingKind::TornTail {
                finding.kind = FindingKind::Corrupt;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a folder of the test's own is removed")]
mod tests {
    use super::*;

    #[test]
    fn all_who_sign_first_at_the_same_time_sign_with_one_key() {
        let dir = std::env::temp_dir().join(format!("everwhen-audit-{}", std::process::id()));
        for round in 0..20 {
            let keys = dir.join(round.to_string());
            let public = |_: &usize| key_pair(&keys).map(|pair| pair.public_key().as_ref().to_vec()).unwrap();
            let made: BTreeSet<Vec<u8>> = crate::pool::each(8, &[0; 8], public).into_iter().collect();
            assert_eq!(made.len(), 1, "in round {round}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
