//! The files of a workspace from the disk: a folder of domains, or files alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lang::declare::{Finding, is_source};
use model::definition::Definition;
use model::{Code, Problem};

/// Files that make a folder a domain.
const OF_A_DOMAIN: [&str; 6] = ["concepts", "queries", "mutations", "shapes", "logic", "automations"];

#[derive(Default)]
pub struct Sources {
    /// By the path inside the workspace, as the language knows it.
    pub files: BTreeMap<String, String>,
    /// Where each lies, as it was given.
    pub paths: BTreeMap<String, PathBuf>,
    /// Only files were given, no folder: what lies beside them was not read.
    bare: bool,
}

/// Reads everything below `paths`. Files and folders whose names begin with `.` or `_` are left out.
pub fn read(paths: &[PathBuf]) -> Result<Sources, Problem> {
    let mut sources = Sources { bare: true, ..Sources::default() };
    for path in paths {
        let found = std::fs::metadata(path).map_err(|err| unreadable(path, &err))?;
        if found.is_dir() {
            sources.bare = false;
            let below = if is_domain(path) { name_of(path) } else { String::new() };
            sources.folder(path, &below)?;
        } else {
            let domain =
                path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|s| OF_A_DOMAIN.contains(&s));
            let folder = path.canonicalize().ok().and_then(|path| path.parent().map(name_of));
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let key = match folder.filter(|_| domain) {
                Some(folder) if !folder.is_empty() => format!("{folder}/{name}"),
                _ => name,
            };
            sources.file(path, key)?;
        }
    }
    Ok(sources)
}

impl Sources {
    /// A finding as it is shown. Where only files were given, a module that is not among them may well be there.
    pub fn shown(&self, finding: &Finding) -> Finding {
        let path = &self.paths[&finding.file];
        let mut shown = Finding { file: path.display().to_string(), ..finding.clone() };
        let text = self.files[&finding.file].lines().nth(finding.line - 1).unwrap_or_default();
        let is_use = finding.code == Code::DefinitionUnknownName && text.trim_start().starts_with("use ");
        if self.bare && is_use && finding.message.starts_with("there is no module") {
            let given =
                if self.files.len() == 1 { "only this file was given" } else { "only files were given" };
            shown.message = format!("{}: {given}", finding.message);
            let folder = root_of(path, &finding.file).display().to_string();
            shown.suggestion = Some(format!("give the folder that has it, too: everwhen check {folder}"));
        }
        shown
    }

    /// Refuses to put nothing into force by mistake: everything that the workspace manages would go, and nobody means that who
    /// stands in the wrong folder or names a scenario. An empty `.ew` file says so.
    pub fn check_not_empty(&self, definitions: &[Definition], paths: &[PathBuf]) -> Result<(), Problem> {
        if !definitions.is_empty() || self.files.keys().any(|name| name.ends_with(".ew")) {
            return Ok(());
        }
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let detail = format!("there are no declarations in \"{}\"", paths.join("\", \""));
        let hint = "stand in the workspace's folder, or name it: everwhen apply PATH; to remove all that it \
                    declared, leave an empty .ew file in it";
        Err(Problem::new(Code::DefinitionInvalid, detail).hint(hint))
    }

    fn folder(&mut self, dir: &Path, below: &str) -> Result<(), Problem> {
        let entries = std::fs::read_dir(dir).map_err(|err| unreadable(dir, &err))?;
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        paths.sort();
        for path in paths {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let key = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
            if is_read(&path) {
                if path.is_dir() { self.folder(&path, &key)? } else { self.file(&path, key)? }
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, key: String) -> Result<(), Problem> {
        let bytes = std::fs::read(path).map_err(|err| unreadable(path, &err))?;
        let text = String::from_utf8(bytes).map_err(|_| {
            Problem::new(Code::DefinitionInvalid, format!("\"{}\" is not UTF-8", path.display()))
        })?;
        // Two roots may hold a file of the same name.
        let key = if self.files.contains_key(&key) { path.to_string_lossy().into_owned() } else { key };
        self.paths.insert(key.clone(), path.to_owned());
        self.files.insert(key, text);
        Ok(())
    }
}

/// Whether a file or folder below a workspace is part of it.
pub fn is_read(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if path.is_dir() {
        !name.starts_with(['.', '_']) && name != "target" && name != "node_modules" && !is_circle(path)
    } else {
        is_source(&name)
    }
}

/// Whether a folder is a link to one that it lies in: what is there is read already, and would be again without end.
fn is_circle(path: &Path) -> bool {
    if !path.is_symlink() {
        return false;
    }
    let Ok(real) = path.canonicalize() else { return false };
    let whole = |path: &Path| path.canonicalize().ok();
    // The way that was taken, link by link, and the folders around where it began.
    let on_the_way = path.ancestors().skip(1).any(|folder| whole(folder).as_ref() == Some(&real));
    on_the_way || path.parent().and_then(whole).is_some_and(|parent| parent.starts_with(&real))
}

/// The folder of domains that a file lies in: that around its own, if its own is a domain.
fn root_of(path: &Path, key: &str) -> PathBuf {
    let here = |path: Option<&Path>| path.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned);
    let folder = here(path.parent());
    match (key.contains('/'), folder) {
        (false, folder) => folder.unwrap_or_else(|| ".".into()),
        (true, None) => "..".into(),
        (true, Some(folder)) => here(folder.parent()).unwrap_or_else(|| ".".into()),
    }
}

fn is_domain(dir: &Path) -> bool {
    OF_A_DOMAIN
        .iter()
        .any(|kind| dir.join(format!("{kind}.ew")).is_file() || dir.join(format!("{kind}.memql")).is_file())
}

fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn unreadable(path: &Path, err: &std::io::Error) -> Problem {
    let what = format!("cannot read \"{}\": {err}", path.display());
    match err.kind() {
        std::io::ErrorKind::NotFound => Problem::new(Code::NotFound, what),
        _ => Problem::new(Code::UsageInvalid, what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_folder_around_it_is_not_followed() {
        use std::os::unix::fs::symlink;
        let root = std::env::temp_dir().join(format!("everwhen-circle-{}", std::process::id()));
        let (shop, bank) = (root.join("wm/shop"), root.join("wm/bank"));
        std::fs::create_dir_all(&shop).unwrap();
        std::fs::create_dir_all(&bank).unwrap();
        std::fs::create_dir_all(root.join("elsewhere")).unwrap();
        std::fs::write(shop.join("concepts.ew"), "concept item { n int }\n").unwrap();
        std::fs::write(root.join("elsewhere/concepts.ew"), "concept other { n int }\n").unwrap();
        symlink("../wm", root.join("wm/loop")).unwrap();
        symlink("../bank", shop.join("there")).unwrap();
        symlink("../shop", bank.join("back")).unwrap();
        symlink("../elsewhere", root.join("wm/linked")).unwrap();
        let keys: Vec<String> = read(&[root.join("wm")]).unwrap().files.into_keys().collect();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(keys, ["bank/back/concepts.ew", "linked/concepts.ew", "shop/concepts.ew"]);
    }
}
