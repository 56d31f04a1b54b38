//! What is sound of a damaged data directory, copied into a new one that opens: `everwhen salvage`.

mod start;

use std::path::Path;

use ledger::disk::OsDisk;
use model::{Position, Problem};
use serde_json::{Value, json};

use super::{files, snapshot};
use crate::read;
use crate::sealing::keys;

/// What was saved, tenant by tenant.
#[derive(Clone, Debug)]
pub struct Salvaged {
    pub tenants: Vec<SalvagedTenant>,
}

#[derive(Clone, Debug)]
pub struct SalvagedTenant {
    pub tenant: String,
    pub commits: u64,
    pub records: u64,
    pub last: Position,
    pub head: String,
    /// Why and where it ended before the end, if it did.
    pub stopped: Option<String>,
    /// What the copy lacks besides the lines behind that place.
    pub lost: Option<String>,
}

impl Salvaged {
    pub fn to_json(&self) -> Value {
        json!({"tenants": self.tenants.iter().map(SalvagedTenant::to_json).collect::<Vec<_>>()})
    }
}

impl SalvagedTenant {
    fn to_json(&self) -> Value {
        let mut out = json!({
            "tenant": self.tenant, "commits": self.commits, "records": self.records,
            "last": self.last, "head": self.head,
        });
        if let Some(stopped) = &self.stopped {
            out["stopped"] = stopped.as_str().into();
        }
        if let Some(lost) = &self.lost {
            out["lost"] = lost.as_str().into();
        }
        out
    }
}

/// Copies every tenant's valid prefix into `to`, which must not exist or be empty. `data` is only read.
pub fn salvage(data: &Path, to: &Path) -> Result<Salvaged, Problem> {
    let tenants = files::tenants(data)?;
    files::claim(to)?;
    let mut saved = Vec::new();
    for (name, dir) in tenants {
        let target = to.join("tenants").join(&name);
        files::make_dir(&target)?;
        saved.push(salvage_tenant(name, &dir, &target)?);
    }
    files::copy_keys(&data.join("keys"), &to.join("keys"))?;
    for (name, dir) in files::tenants(data)? {
        files::copy_keys(&keys::folder(&dir), &keys::folder(&to.join("tenants").join(name)))?;
    }
    Ok(Salvaged { tenants: saved })
}

fn salvage_tenant(tenant: String, dir: &Path, to: &Path) -> Result<SalvagedTenant, Problem> {
    let copied = ledger::salvage(&OsDisk, &dir.join("ledger"), &to.join("ledger"), &mut |_, _| ());
    let mut saved = match copied {
        Ok(saved) => saved,
        // Nothing of it is left; what can be saved of the others still is.
        Err(error @ (ledger::Error::Missing { .. } | ledger::Error::Corrupt { .. })) => {
            let (head, stopped) = (String::new(), Some(error.to_string()));
            return Ok(SalvagedTenant { tenant, commits: 0, records: 0, last: 0, head, stopped, lost: None });
        }
        Err(error) => return Err(read::problem(error)),
    };
    // A trimmed ledger is folded on top of one of these. One beyond what was saved would say that the copy lacks lines.
    files::copy_dir(&dir.join("snapshots"), &to.join("snapshots"))?;
    for (path, _) in snapshot::placed(to).into_iter().filter(|(_, at)| *at > saved.head.position) {
        files::remove(&path)?;
    }
    let lost = start::complete(dir, to, &mut saved)?;
    Ok(SalvagedTenant {
        tenant,
        commits: saved.commits,
        records: saved.records,
        last: saved.head.position,
        head: saved.head.chain.to_string(),
        stopped: saved.stopped,
        lost,
    })
}
