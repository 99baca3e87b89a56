//! Where the files of modules are.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use object::Object as _;

use super::ModuleError;
use super::compressed;
use crate::capture::Module;
use crate::debug_info;

/// The most directories below each other that are looked into.
const DEPTH: usize = 16;

/// The files of modules below some directories.
#[derive(Debug)]
pub struct ModuleFiles {
    folders: Vec<PathBuf>,
    /// Whether files of this machine that are called by their build IDs are among them.
    by_id: bool,
    /// The files by the names of their modules, in the order of the folders. They are looked for
    /// when the first module is.
    by_name: OnceCell<HashMap<String, Vec<PathBuf>>>,
}

impl ModuleFiles {
    /// The files of modules below `folders`: `NAME.ko`, `NAME.ko.gz`, `.xz` and `.zst`, and
    /// `NAME.ko.debug`. What is in the first of the folders comes first.
    pub fn below(folders: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            folders: folders.into_iter().collect(),
            by_id: false,
            by_name: OnceCell::new(),
        }
    }

    /// The files of modules below `folders`, and then those that this machine has of the kernel
    /// `release`: first the debug information that distributions have apart.
    pub fn of_release(folders: impl IntoIterator<Item = PathBuf>, release: &str) -> Self {
        let installed = [
            format!("/usr/lib/debug/lib/modules/{release}"),
            format!("/usr/lib/debug/usr/lib/modules/{release}"),
            format!("/lib/modules/{release}"),
        ];
        Self {
            by_id: true,
            ..Self::below(folders.into_iter().chain(installed.map(PathBuf::from)))
        }
    }

    /// Reads the file of `module` that has debug information.
    pub(super) fn read(&self, module: &Module) -> Result<(PathBuf, Vec<u8>), ModuleError> {
        let by_name = self.by_name.get_or_init(|| self.look());
        let named = by_name.get(&normalized(&module.name));
        let by_id = self.by_id.then(|| debug_info::debug_file(&module.build_id));
        let by_id = by_id.filter(|path| path.is_file());
        let mut problem = None;
        for path in by_id
            .into_iter()
            .chain(named.into_iter().flatten().cloned())
        {
            match read(&path, module) {
                Ok(None) => {}
                Ok(Some(bytes)) => return Ok((path, bytes)),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        Err(problem.unwrap_or_else(|| ModuleError::Missing {
            name: module.name.clone(),
            build_id: module.build_id.clone(),
        }))
    }

    fn look(&self) -> HashMap<String, Vec<PathBuf>> {
        let mut found = HashMap::new();
        for folder in &self.folders {
            look_into(folder, DEPTH, &mut found);
        }
        found
    }
}

fn look_into(folder: &Path, depth: usize, found: &mut HashMap<String, Vec<PathBuf>>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        // Links to directories are not followed: `build` leads to the tree that the kernel was
        // built in.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            look_into(&entry.path(), depth, found);
            continue;
        }
        let file = entry.file_name();
        let name = file.to_str().and_then(module_name);
        if let Some(name) = name.filter(|_| entry.path().is_file()) {
            found.entry(name).or_default().push(entry.path());
        }
    }
}

/// The name of the module in a file of this name, if a module is in it.
fn module_name(file: &str) -> Option<String> {
    let (name, end) = file.split_once(".ko")?;
    let is_module = matches!(end, "" | ".gz" | ".xz" | ".zst" | ".debug");
    is_module.then(|| normalized(name))
}

/// Files have `-` where the kernel has `_`.
fn normalized(name: &str) -> String {
    name.replace('-', "_")
}

/// The bytes of the file at `path`, if that is `module` with debug information. `None` if the file
/// is of another build.
fn read(path: &Path, module: &Module) -> Result<Option<Vec<u8>>, ModuleError> {
    let damaged = |problem: String| ModuleError::Read {
        path: path.to_owned(),
        problem,
    };
    let bytes = compressed::read(path).map_err(|error| damaged(error.to_string()))?;
    let elf = object::File::parse(&*bytes).map_err(|error| damaged(error.to_string()))?;
    let build_id = elf.build_id().map_err(|error| damaged(error.to_string()))?;
    if build_id.map(debug_info::hexadecimal).as_ref() != Some(&module.build_id.to_ascii_lowercase())
    {
        return Ok(None);
    }
    if elf.section_by_name(".debug_info").is_none() {
        return Err(ModuleError::NoDebugInfo {
            path: path.to_owned(),
        });
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_known_by_the_names_of_their_files() {
        let name = |file| module_name(file);
        let same = Some("snd_hda_intel".to_owned());
        assert_eq!(name("snd-hda-intel.ko"), same);
        assert_eq!(name("snd-hda-intel.ko.xz"), same);
        assert_eq!(name("snd_hda_intel.ko.debug"), same);
        for other in ["modules.dep", "x.ko.sig", "x.kobj", "x.mod.c"] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
