//! A ledger that somebody changed, at a thousand places: each is noticed, also where the whole chain was computed anew.

use std::path::{Path, PathBuf};

use engine::maintain::audit::{Testimony, audit, checkpoint, testimony};
use engine::{Draft, Engine};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::temp::TempDir;

const SEED: u64 = 7;
const PLACES: u64 = 1_000;

struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

fn hex(bytes: &[u8]) -> String {
    model::id::hex(bytes)
}

/// The one segment of a tenant, and what was signed of it.
async fn signed(dir: &TempDir) -> (PathBuf, Testimony) {
    let engine = Engine::open(dir.path()).unwrap();
    for n in 0..40 {
        engine.publish(Draft::new("a.b", &json!({"n": n, "text": "something to change"}))).await.unwrap();
    }
    let tenant = engine.main().unwrap();
    checkpoint(&tenant).unwrap();
    for n in 0..20 {
        engine.publish(Draft::new("a.c", &json!({ "n": n }))).await.unwrap();
    }
    engine.close().await.unwrap();
    let tenant_dir = dir.path().join("tenants/main");
    let said = testimony(&tenant_dir).unwrap();
    assert!(said.checkpoints.len() >= 2, "the end is signed, too");
    assert!(audit(&tenant_dir, "main", None).unwrap().is_ok());
    (tenant_dir, said)
}

fn segment(tenant_dir: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(tenant_dir.join("ledger")).unwrap().map(|f| f.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn lines(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

fn joined(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_slice(), b"\n"].concat()).collect()
}

/// Another text in the event at this line, and everything after it chained anew.
fn rewritten(lines: &[Vec<u8>], at: usize) -> Vec<Vec<u8>> {
    let mut lines = lines.to_vec();
    let mut chain = vec![0; 32];
    for (number, line) in lines.iter_mut().enumerate() {
        let text = String::from_utf8(line.clone()).unwrap();
        let (mut head, rest) =
            text.split_once(",\"chain\":\"").map(|(head, rest)| (head.to_owned(), rest.to_owned())).unwrap();
        let (mut bodies, parsed): (String, Value) =
            (rest[65..].to_owned(), serde_json::from_str(&text).unwrap());
        if number == at {
            // Time is under the chain and in no digest.
            let time = parsed["t"].as_str().unwrap();
            head = head.replace(time, "2001-01-01T00:00:00Z");
            if let Some(body) = parsed["b"].get(0).filter(|body| body.is_object()) {
                let (salt, start) = (body["s"].as_str().unwrap(), bodies.find(",\"p\":").unwrap() + 5);
                let end = bodies[start..].find("},{\"s\":").map_or(bodies.len() - 3, |end| start + end);
                let said = bodies[start..end].to_owned();
                let told = said.replace("\"n\":", "\"m\":");
                let digest = |text: &str| {
                    let salt = model::id::unhex::<16>(salt).unwrap();
                    hex(&Sha256::new().chain_update(salt).chain_update(text).finalize())
                };
                head = head.replace(&digest(&said), &digest(&told));
                bodies = bodies.replacen(&said, &told, 1);
            }
        }
        chain = Sha256::new().chain_update(&chain).chain_update(&head).finalize().to_vec();
        *line = format!("{head},\"chain\":\"{}\"{bodies}", hex(&chain)).into_bytes();
    }
    lines
}

#[tokio::test]
async fn a_change_at_any_of_a_thousand_places_is_noticed() {
    let dir = TempDir::new();
    let (tenant_dir, said) = signed(&dir).await;
    let path = segment(&tenant_dir);
    let whole = lines(&std::fs::read(&path).unwrap());
    let mark = tenant_dir.join("ledger/closed");
    let _ = std::fs::remove_file(&mark);
    let mut chance = Chance(SEED.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let sound = lines(&joined(&rewritten(&whole, usize::MAX)));
    assert!(sound == whole, "chaining anew what was not changed changes nothing");
    for place in 0..PLACES {
        let at = chance.below(whole.len());
        let mut changed = whole.clone();
        let what = match place % 6 {
            0 => {
                let byte = chance.below(changed[at].len());
                changed[at][byte] ^= 1 << chance.below(7);
                "flip"
            }
            1 => {
                changed.remove(at);
                "delete"
            }
            2 => {
                let other = (at + 1 + chance.below(whole.len() - 1)) % whole.len();
                changed.swap(at, other);
                "swap"
            }
            3 => {
                let cut = chance.below(joined(&whole).len() - 1);
                changed = vec![joined(&whole)[..cut].to_vec()];
                "truncate"
            }
            4 => {
                changed = rewritten(&whole, at);
                "re-chain"
            }
            _ => {
                let text = String::from_utf8(changed[at].clone()).unwrap();
                let Some((before, _)) = text.split_once(",\"b\":[{") else { continue };
                let bodies = serde_json::from_str::<Value>(&text).unwrap()["b"].as_array().unwrap().len();
                changed[at] =
                    format!("{before},\"b\":[{}]}}", vec!["\"erased\""; bodies].join(",")).into_bytes();
                "erase"
            }
        };
        std::fs::write(&path, joined(&changed)).unwrap();
        let noticed = audit(&tenant_dir, "main", Some(said.clone())).map_or(true, |report| !report.is_ok());
        assert!(noticed, "seed {SEED}, place {place}: {what} at line {at}");
    }
    std::fs::write(&path, joined(&whole)).unwrap();
    assert!(audit(&tenant_dir, "main", Some(said.clone())).unwrap().is_ok(), "and what is whole is believed");
    let mut other = said;
    other.key = "00".repeat(32);
    assert!(!audit(&tenant_dir, "main", Some(other)).unwrap().is_ok(), "signed by somebody else");
}

#[tokio::test]
async fn a_ledger_that_was_chained_anew_passes_verify_and_not_the_audit() {
    let dir = TempDir::new();
    let (tenant_dir, said) = signed(&dir).await;
    let path = segment(&tenant_dir);
    let changed = rewritten(&lines(&std::fs::read(&path).unwrap()), 5);
    std::fs::write(&path, joined(&changed)).unwrap();
    for derived in ["ledger/closed", "state.db", "state.db-wal", "history.db"] {
        let _ = std::fs::remove_file(tenant_dir.join(derived));
    }
    assert!(
        engine::maintain::verify(dir.path(), true, &mut |_, _| ()).unwrap().is_ok(),
        "the chain alone fits"
    );
    let report = audit(&tenant_dir, "main", Some(said)).unwrap();
    assert!(report.ledger.is_ok() && !report.is_ok(), "{report:?}");
    assert!(report.problems[0].1.contains("rewritten"), "{report:?}");
}
