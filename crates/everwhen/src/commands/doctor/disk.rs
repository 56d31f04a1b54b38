//! What can be asked of a directory without opening it: is it there, may we write, is there room, how long is a sync.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use super::{Check, Status, check};
use crate::held::{Holder, is_free};

const SYNCS: usize = 15;

pub fn look(data: &Path) -> Vec<Check> {
    if !data.is_dir() {
        let message = format!("\"{}\" is not there; everwhen init makes it", data.display());
        return vec![check("directory", Status::Fail, message)];
    }
    let mut checks = vec![lock(data), space(data)];
    match syncs(data) {
        Ok(times) => {
            checks.insert(0, check("directory", Status::Ok, format!("\"{}\" is writable", data.display())));
            checks.push(sync(times));
            let named = ["SQLITE_TMPDIR", "TMPDIR"].iter().find_map(std::env::var_os);
            checks.push(temporary(named.map(PathBuf::from)));
        }
        Err(error) => {
            let uid = rustix::process::geteuid().as_raw();
            let message = format!("\"{}\" cannot be written by uid {uid}: {error}", data.display());
            checks.insert(0, check("directory", Status::Fail, message));
        }
    }
    checks
}

/// Where SQLite puts what is too large to be sorted in memory: the first of these that takes it.
fn temporary(named: Option<PathBuf>) -> Check {
    let name = format!("everwhen-doctor-{}", std::process::id());
    let takes = |place: &PathBuf| {
        let path = place.join(&name);
        let made = fs::File::create_new(&path).is_ok();
        let _ = fs::remove_file(&path);
        made
    };
    let usual = ["/var/tmp", "/usr/tmp", "/tmp", "."].map(PathBuf::from);
    let uid = rustix::process::geteuid().as_raw();
    match (named.iter().cloned().chain(usual).find(takes), named) {
        (None, _) => {
            let message =
                format!("uid {uid} can write to no directory for them, so large sorts fail: set TMPDIR");
            check("temporary", Status::Warn, message + "; in a container, --tmpfs /tmp")
        }
        (Some(used), Some(named)) if used != named => {
            let (named, used) = (named.display(), used.display());
            let message =
                format!("uid {uid} cannot write to \"{named}\", which TMPDIR names; \"{used}\" is used");
            check("temporary", Status::Warn, message)
        }
        (Some(used), _) => {
            check("temporary", Status::Ok, format!("\"{}\" takes files of large sorts", used.display()))
        }
    }
}

fn lock(data: &Path) -> Check {
    match (is_free(data), Holder::read(data)) {
        (true, None) => check("lock", Status::Ok, "free"),
        (true, Some(_)) => check(
            "lock",
            Status::Ok,
            "free; a server left serve.json behind when it was killed, the next start removes it",
        ),
        (false, Some(holder)) => {
            check("lock", Status::Ok, format!("held by process {}, which serves {}", holder.pid, holder.url))
        }
        (false, None) => {
            check("lock", Status::Warn, "held by another process that does not say how to reach it")
        }
    }
}

fn space(data: &Path) -> Check {
    let stat = match statvfs(data) {
        Ok(stat) => stat,
        Err(error) => return check("space", Status::Warn, format!("unknown: {error}")),
    };
    judged(stat.f_bavail * stat.f_frsize, (stat.f_blocks * stat.f_frsize).max(1), kept_back(data))
}

fn judged(free: u64, total: u64, kept_back: u64) -> Check {
    let message = format!("{} MiB free ({} %)", free >> 20, free * 100 / total);
    match free {
        // Less than what is kept back for acks: the ledger counts such a disk as full.
        _ if free < kept_back => check("space", Status::Fail, message + "; publishing will be refused"),
        _ if free < 1 << 30 => check("space", Status::Warn, message),
        _ => check("space", Status::Ok, message),
    }
}

/// As the ledgers have it: each refuses events while less is free than it keeps back besides, and that grows with it.
fn kept_back(data: &Path) -> u64 {
    let tenants = fs::read_dir(data.join("tenants")).into_iter().flatten().filter_map(Result::ok);
    let held = tenants.filter_map(|tenant| fs::metadata(tenant.path().join("ledger/headroom")).ok());
    held.map(|file| file.len()).max().unwrap_or(0).max(ledger::HEADROOM_LEAST)
}

/// How long a 4 KiB write and its sync take, each of a few times.
fn syncs(data: &Path) -> std::io::Result<Vec<Duration>> {
    let path = data.join(format!("doctor.{}", std::process::id()));
    let measure = || {
        let mut file = fs::File::create(&path)?;
        let one = |_| {
            let begun = Instant::now();
            file.write_all(&[b'\n'; 4096])?;
            file.sync_data()?;
            Ok(begun.elapsed())
        };
        (0..SYNCS).map(one).collect()
    };
    let times = measure();
    let _ = fs::remove_file(&path);
    times
}

fn sync(mut times: Vec<Duration>) -> Check {
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    let message = format!("a sync takes {:.1} ms, at worst {:.1} ms", ms(median), ms(worst));
    match median {
        _ if median > Duration::from_millis(50) => check("sync", Status::Warn, message + "; a slow disk"),
        _ if median < Duration::from_micros(15) => check(
            "sync",
            Status::Warn,
            message + "; too quick to be true, does this disk keep what it is given?",
        ),
        _ => check("sync", Status::Ok, message),
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The size of all ledgers of a directory.
pub fn ledger_bytes(data: &Path) -> u64 {
    let list =
        |dir: &Path| fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok).collect::<Vec<_>>();
    let tenants = list(&data.join("tenants"));
    let segments = tenants.iter().flat_map(|tenant| list(&tenant.path().join("ledger")));
    segments.filter_map(|segment| segment.metadata().ok()).map(|meta| meta.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_for_temporary_files_that_is_not_there_is_named() {
        let well = temporary(Some(std::env::temp_dir()));
        assert!(matches!(well.status, Status::Ok), "{}", well.message);
        let missing = temporary(Some("/no/such/place".into()));
        assert!(matches!(missing.status, Status::Warn), "{}", missing.message);
        assert!(missing.message.contains("cannot write to \"/no/such/place\""), "{}", missing.message);
    }

    #[test]
    fn a_disk_is_full_when_the_ledger_says_so_and_not_before() {
        let dir = std::env::temp_dir().join(format!("everwhen-doctor-{}", std::process::id()));
        let ledger = dir.join("tenants/main/ledger");
        fs::create_dir_all(&ledger).unwrap();
        assert_eq!(kept_back(&dir), 256 << 10);
        let status = |free: u64| judged(free, 40 << 20, kept_back(&dir)).status;
        assert!(matches!(status(39 << 20), Status::Warn));
        assert!(matches!(status(1 << 20), Status::Warn));
        assert!(matches!(status(200 << 10), Status::Fail));
        fs::write(ledger.join("headroom"), vec![0; 2 << 20]).unwrap();
        assert!(matches!(status(1 << 20), Status::Fail));
        fs::remove_dir_all(&dir).unwrap();
    }
}
