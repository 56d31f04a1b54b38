//! A disk whose power can be cut: an ext4 image on a loop device, shut down by ioctl so that everything unsynced is gone.
//!
//! Needs root, `mount` and `mkfs.ext4`. Images and mounts are found again by name, so that a run that was itself killed
//! leaves nothing for good.

#![expect(unsafe_code, reason = "the one ioctl of the harness: FS_IOC_GOINGDOWN has no safe wrapper")]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `_IOR('X', 125, __u32)`.
const FS_IOC_GOINGDOWN: rustix::ioctl::Opcode = 0x8004_587d;
/// Neither data nor journal is flushed: what a power cut leaves.
const GOINGDOWN_NOLOGFLUSH: u32 = 2;
const IMAGE_BYTES: u64 = 64 << 20;
const PREFIX: &str = "everwhen-power-";

/// A mounted image. Unmounted and removed when dropped.
pub struct PowerDisk {
    image: PathBuf,
    mount: PathBuf,
    mounted: bool,
}

/// Whether this machine lets us; if not, why.
pub fn ability() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root to mount a loop device".to_owned());
    }
    if !Path::new("/dev/loop-control").exists() {
        return Err("needs loop devices (/dev/loop-control)".to_owned());
    }
    match Command::new("mkfs.ext4").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("needs mkfs.ext4: {error}")),
    }
}

fn run(program: &str, arguments: &[&Path]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{program}: {said}")))
}

impl PowerDisk {
    pub fn create() -> io::Result<PowerDisk> {
        clean_up();
        let base = std::env::temp_dir().join(format!("{PREFIX}{}", std::process::id()));
        let disk = PowerDisk { image: base.with_extension("img"), mount: base, mounted: false };
        File::create(&disk.image)?.set_len(IMAGE_BYTES)?;
        run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &disk.image])?;
        std::fs::create_dir_all(&disk.mount)?;
        Ok(disk)
    }

    pub fn path(&self) -> &Path {
        &self.mount
    }

    pub fn mount(&mut self) -> io::Result<()> {
        run("mount", &[Path::new("-o"), Path::new("loop"), &self.image, &self.mount])?;
        self.mounted = true;
        Ok(())
    }

    pub fn unmount(&mut self) -> io::Result<()> {
        run("umount", &[&self.mount])?;
        self.mounted = false;
        Ok(())
    }

    /// The power goes. Every operation on the disk fails until it is mounted again.
    pub fn cut(&self) -> io::Result<()> {
        let root = File::open(&self.mount)?;
        // SAFETY: FS_IOC_GOINGDOWN reads one u32 through the pointer, which is what this setter hands over.
        unsafe {
            let down = rustix::ioctl::Setter::<FS_IOC_GOINGDOWN, u32>::new(GOINGDOWN_NOLOGFLUSH);
            rustix::ioctl::ioctl(&root, down)?;
        }
        Ok(())
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            let _ = run("umount", &[Path::new("-l"), &self.mount]);
        }
        let _ = std::fs::remove_dir(&self.mount);
        let _ = std::fs::remove_file(&self.image);
    }
}

/// Removes what runs that are no longer alive left behind.
fn clean_up() {
    let Ok(entries) = std::fs::read_dir(std::env::temp_dir()) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('.').next()) else { continue };
        if Path::new("/proc").join(pid).exists() {
            continue;
        }
        if path.is_dir() {
            let _ = run("umount", &[&path]);
            let _ = std::fs::remove_dir(&path);
        } else {
            let _ = std::fs::remove_file(&path);
        }
    }
}
