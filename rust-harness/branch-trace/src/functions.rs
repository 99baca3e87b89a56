//! The kernel functions that can be traced.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, bail};
use glob::Pattern;

/// The paths of the kernel's list of functions that can be traced: below tracefs, and
/// where tracefs used to be.
const LISTS: [&str; 2] = [
    "/sys/kernel/tracing/available_filter_functions",
    "/sys/kernel/debug/tracing/available_filter_functions",
];

/// The functions of the kernel and its modules that tracers can be put into.
pub(crate) struct Functions(BTreeSet<String>);

impl Functions {
    pub(crate) fn read() -> Result<Self> {
        let mut problem = None;
        for list in LISTS {
            match fs::read_to_string(list) {
                Ok(text) => return Ok(Self::parse(&text)),
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

    /// Parses the kernel's list: each line has a name, and after it, for a module, the
    /// module in brackets.
    fn parse(text: &str) -> Self {
        let names = text
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        Self(names.map(str::to_owned).collect())
    }

    /// The functions whose names match a pattern with `*`, `?` and `[…]`. It is an error
    /// if there are none.
    pub(crate) fn matching(&self, pattern: &str) -> Result<Vec<&str>> {
        let glob = Pattern::new(pattern)
            .with_context(|| format!("{pattern:?} is no pattern of functions' names"))?;
        let matching = self.0.iter().filter(|name| glob.matches(name));
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_pattern() {
        let functions = Functions::parse("vfs_read\nvfs_write\nnf_hook [nf_tables]\n");
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
