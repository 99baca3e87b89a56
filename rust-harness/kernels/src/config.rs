//! Kernel configurations, which are made of fragments.

use std::collections::{HashMap, HashSet};
use std::fs;

use anyhow::{Context as _, Result};

use host::arch::Arch;
use host::cache::Key;
use host::files;
use host::paths::Paths;

/// The name of the fragment of kernels that GCC builds.
pub(crate) const GCC: &str = "gcc";

/// Where the fragments are, below the repository.
const FRAGMENTS: &str = "kernel-patches/config";

/// Adds the text of all fragments to a cache key.
///
/// # Errors
///
/// When the fragments cannot be read.
pub fn with_all(paths: &Paths, mut key: Key) -> Result<Key> {
    for fragment in files::sorted(&paths.repo(FRAGMENTS))? {
        key = key.with_file(&fragment)?;
    }
    Ok(key)
}

/// A kernel configuration: allnoconfig, and on top of it fragments, which have names.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    pub(crate) fragments: Vec<String>,
    /// The text of all fragments, one after the other.
    pub(crate) text: String,
}

impl KernelConfig {
    /// Reads the fragments `kernel-patches/config/<name>.config`, in the order of
    /// `fragments`.
    pub fn load(paths: &Paths, fragments: &[&str]) -> Result<Self> {
        let mut text = String::new();
        for name in fragments {
            let path = paths.repo(format!("{FRAGMENTS}/{name}.config"));
            text += &fs::read_to_string(&path)
                .with_context(|| format!("reading {}", path.display()))?;
        }
        Ok(Self {
            fragments: fragments.iter().map(ToString::to_string).collect(),
            text,
        })
    }

    /// Whether the kernel checks itself while it runs, which makes it several times slower.
    pub fn has_checks(&self) -> bool {
        let checks = |fragment: &String| ["debug", "lockdep"].contains(&fragment.as_str());
        self.fragments.iter().any(checks)
    }

    /// Whether GCC builds the kernel, and not clang.
    pub(crate) fn is_for_gcc(&self) -> bool {
        self.fragments.iter().any(|fragment| fragment == GCC)
    }

    /// The names of the fragments beside those of every kernel, each after a comma and a
    /// space.
    pub(crate) fn fragments_suffix(&self) -> String {
        let all = ["base", Arch::Arm64.kernel(), Arch::X86_64.kernel()];
        let more = self
            .fragments
            .iter()
            .filter(|name| !all.contains(&name.as_str()));
        more.map(|name| format!(", {name}")).collect()
    }

    pub(crate) fn key(&self) -> Key {
        Key::new("config 1").with(&self.text)
    }

    /// The lines of the fragments that took no effect in a finished `.config`: the kernel
    /// knows no such option, or something that the option depends on is missing.
    pub(crate) fn dropped(&self, finished: &str) -> Vec<&str> {
        let finished: HashSet<_> = finished.lines().collect();
        let lines = self
            .text
            .lines()
            .filter_map(|line| Some((option(line)?, line)));
        // Of two values the later one counts.
        let last: HashMap<_, _> = lines.clone().collect();
        let is_missing = |option: &str, line: &str| {
            if line.starts_with("CONFIG_") {
                !finished.contains(line)
            } else {
                finished
                    .iter()
                    .any(|set| set.starts_with(&format!("{option}=")))
            }
        };
        lines
            .filter(|(option, line)| last[option] == *line && is_missing(option, line))
            .map(|(_, line)| line)
            .collect()
    }
}

/// The name of the option in a line such as `CONFIG_A=y` or `# CONFIG_A is not set`.
pub(crate) fn option(line: &str) -> Option<&str> {
    let line = line.strip_prefix("# ").unwrap_or(line);
    let end = line.find(['=', ' ']).unwrap_or(line.len());
    line[..end].starts_with("CONFIG_").then_some(&line[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_took_no_effect_is_named() {
        let config = KernelConfig {
            fragments: vec!["base".into()],
            text: "# why\nCONFIG_A=y\nCONFIG_GONE=y\nCONFIG_NUMBER=16\n".into(),
        };
        let finished = "CONFIG_A=y\n# CONFIG_GONE is not set\nCONFIG_NUMBER=16\nCONFIG_MORE=y\n";
        assert_eq!(config.dropped(finished), ["CONFIG_GONE=y"]);
        let without = KernelConfig {
            text: config.text.clone() + "# CONFIG_GONE is not set\nCONFIG_NUMBER=8\n",
            ..config
        };
        assert_eq!(without.dropped(finished), ["CONFIG_NUMBER=8"]);
        let finished = finished.to_owned() + "CONFIG_GONE=m\n";
        assert_eq!(without.dropped(&finished).len(), 2);
    }
}
