//! The kernel functions that can be traced.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use branch_records::functions::{FunctionInfo, SourcePattern};
use glob::Pattern;

use crate::names;
use crate::target::FunctionSet;

/// The paths of the kernel's list of functions that can be traced: below tracefs, and
/// where tracefs used to be.
const LISTS: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions",
    "/sys/kernel/debug/tracing/available_filter_functions",
];

/// The functions of the kernel and its modules that tracers can be put into. They are read when
/// they are needed: the kernel takes its time to list them.
#[derive(Default)]
pub(crate) struct Functions(OnceCell<BTreeSet<String>>);

impl Functions {
    fn all(&self) -> Result<&BTreeSet<String>> {
        match self.0.get() {
            Some(known) => Ok(known),
            None => {
                let all = Self::read()?;
                Ok(self.0.get_or_init(|| all))
            }
        }
    }

    fn read() -> Result<BTreeSet<String>> {
        let mut problem = None;
        for list in LISTS {
            match fs::read_to_string(list) {
                Ok(text) => return Ok(parse(&text)),
                Err(error) => problem = problem.or(Some(error)),
            }
        }
        let problem = problem.map_or_else(String::new, |error| format!(": {error}"));
        bail!(
            "cannot read {}{problem}: run as root, with tracefs mounted (mount -t tracefs tracefs \
             /sys/kernel/tracing), on a kernel with CONFIG_DYNAMIC_FTRACE",
            LISTS[0]
        )
    }

    /// The functions of a set. It is an error if there are none. `vmlinux` is the kernel's debug
    /// information, if the user says where that is. `is_known` says whether the kernel has a
    /// function: where one is named that it has, whether that can be traced is not looked up here.
    pub(crate) fn of<'a>(
        &'a self,
        set: &'a FunctionSet,
        vmlinux: Option<&Path>,
        is_known: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<&'a str>> {
        match set {
            FunctionSet::Named(name) if is_known(name) => Ok(vec![name]),
            FunctionSet::Named(pattern) => self.matching(pattern),
            FunctionSet::OfSource(pattern) => self.among(&of_sources(pattern, vmlinux)?, set),
            FunctionSet::Listed(path) => {
                let text = fs::read_to_string(path)
                    .with_context(|| format!("cannot read functions from {}", path.display()))?;
                let names: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
                self.among(&names, set)
            }
        }
    }

    /// The functions with the names of a set that can be traced. A name that the compiler has
    /// changed counts as that of the source: `foo` has `foo.isra.0`.
    fn among(&self, names: &[String], set: &FunctionSet) -> Result<Vec<&str>> {
        let wanted: BTreeSet<_> = names.iter().map(String::as_str).collect();
        let source_name = |name: &'_ str| name.split('.').next().unwrap_or_default().to_owned();
        let found = self.all()?.iter().map(String::as_str);
        let found: Vec<_> = found
            .filter(|name| wanted.contains(name) || wanted.contains(&*source_name(name)))
            .collect();
        ensure!(
            !found.is_empty(),
            "of the {} functions of {set} none can be traced: they are not in {}",
            wanted.len(),
            LISTS[0]
        );
        Ok(found)
    }

    /// The functions whose names match a pattern with `*`, `?` and `[…]`. It is an error
    /// if there are none.
    fn matching(&self, pattern: &str) -> Result<Vec<&str>> {
        let glob = Pattern::new(pattern)
            .with_context(|| format!("{pattern:?} is no pattern of functions' names"))?;
        let matching = self.all()?.iter().filter(|name| glob.matches(name));
        let found: Vec<_> = matching.map(String::as_str).collect();
        if found.is_empty() {
            bail!(
                "no function that can be traced is called {pattern}: it may be inlined, notrace, or \
                 not there; {} has those that can",
                LISTS[0]
            );
        }
        Ok(found)
    }

    /// Why a function could not be traced: `error`, unless it is one of those that cannot be.
    pub(crate) fn why_not(name: &str, error: anyhow::Error) -> anyhow::Error {
        let functions = Self::default();
        if functions.all().is_err() {
            return error;
        }
        let cannot = functions.matching(&Pattern::escape(name)).err();
        cannot.unwrap_or(error)
    }
}

/// Parses the kernel's list: each line has a name, and after it, for a module, the module in
/// brackets.
fn parse(text: &str) -> BTreeSet<String> {
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// The functions of the running kernel that are declared in source files that match a pattern.
fn of_sources(pattern: &SourcePattern, vmlinux: Option<&Path>) -> Result<Vec<String>> {
    let found = names::vmlinux_of_this_kernel(vmlinux)?;
    let path = found.with_context(|| {
        format!(
            "which functions :{pattern} has is known from the kernel's debug information, which is \
             not here: give --vmlinux FILE"
        )
    })?;
    let of_file = FunctionInfo::read(&path).and_then(|info| info.of_sources(pattern));
    let functions =
        of_file.map_err(|problem| anyhow!("cannot use {}: {problem}", path.display()))?;
    ensure!(
        !functions.is_empty(),
        "no function of the kernel image is declared in a source file {pattern}"
    );
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(text: &str) -> Functions {
        Functions(OnceCell::from(parse(text)))
    }

    #[test]
    fn functions_of_a_list_are_those_that_can_be_traced() {
        let functions = functions("vfs_read\nvfs_write\nvfs_open.isra.0\n");
        let of = |set| functions.of(set, None, &|_| false);
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let set = FunctionSet::Listed(list.clone());
        assert!(of(&set).is_err());
        fs::write(&list, "vfs_write\nnotrace\nvfs_open\n").unwrap();
        assert_eq!(of(&set).unwrap(), ["vfs_open.isra.0", "vfs_write"]);
        fs::write(&list, "notrace\n").unwrap();
        let error = of(&set).unwrap_err().to_string();
        assert!(error.contains("of the 1 functions of @"), "{error}");
    }

    #[test]
    fn a_function_that_is_known_is_not_looked_up() {
        let functions = functions("vfs_read\n");
        let of = |name: &str| {
            let set = FunctionSet::Named(name.to_owned());
            let found = functions.of(&set, None, &|name| name == "notrace");
            found.map(|found| found.join(" ")).ok()
        };
        assert_eq!(of("notrace").as_deref(), Some("notrace"));
        assert_eq!(of("vfs_read").as_deref(), Some("vfs_read"));
        assert_eq!(of("other"), None);
    }

    #[test]
    fn functions_are_found_by_pattern() {
        let functions = functions("vfs_read\nvfs_write\nnf_hook [nf_tables]\n");
        assert_eq!(
            functions.matching("vfs_*").unwrap(),
            ["vfs_read", "vfs_write"]
        );
        assert_eq!(functions.matching("nf_hook").unwrap(), ["nf_hook"]);
        let error = functions.matching("vfs_open").unwrap_err().to_string();
        assert!(
            error.contains("vfs_open") && error.contains("inlined"),
            "{error}"
        );
        assert!(functions.matching("[").is_err());
    }
}
