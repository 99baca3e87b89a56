//! `kernel-patches/bases.toml`: the kernels that there are series for.

use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use host::paths::Paths;

/// A base: a kernel version that there are series for, as Debian packages its source.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// The name of the base in this repository, and of the folder of its series: `7.3`.
    pub name: String,
    /// The kernel's version in full: `7.3.4`.
    pub version: String,
    /// The name of the Debian package with the source.
    pub package: String,
    /// Path of the package's file, relative to the mirror's root.
    pub pool: String,
    /// SHA-256 of the package's file: 64 hexadecimal digits.
    pub sha256: String,
}

impl Base {
    /// The name of the package's file, which contains the package's revision.
    pub fn file_name(&self) -> &str {
        self.pool
            .rsplit_once('/')
            .map_or(&self.pool, |(_, name)| name)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    base: Vec<Base>,
}

/// Reads all bases from `kernel-patches/bases.toml`. The first is the default base.
pub fn load(paths: &Paths) -> Result<Vec<Base>> {
    let path = paths.repo("kernel-patches/bases.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    parse(&text).with_context(|| format!("in {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Base>> {
    let bases = toml::from_str::<Document>(text)?.base;
    if bases.is_empty() {
        bail!("no base is named");
    }
    for base in &bases {
        if base.sha256.len() != 64 || !base.sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
            bail!("base {}: sha256 is not 64 hexadecimal digits", base.name);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
        if base.name.is_empty() || base.name.starts_with('.') || !base.name.chars().all(plain) {
            bail!(
                "base {:?}: the name has to do as the name of a folder",
                base.name
            );
        }
    }
    Ok(bases)
}

/// The base that is called `name`, or the default base if `name` is `None`.
pub fn choose(bases: &[Base], name: Option<&str>) -> Result<Base> {
    let Some(name) = name else {
        return Ok(bases[0].clone());
    };
    bases
        .iter()
        .find(|base| base.name == name)
        .cloned()
        .with_context(|| {
            let known: Vec<_> = bases.iter().map(|base| base.name.as_str()).collect();
            format!(
                "no base is called {name}: there are {}",
                known.join(" and ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(name: &str, sha256: &str) -> String {
        format!(
            "[[base]]\nname = '{name}'\nversion = '1'\npackage = 'p'\npool = 'q'\nsha256 = '{sha256}'\n"
        )
    }

    #[test]
    fn the_repository_s_own_file_is_valid() {
        let bases = parse(include_str!("../../../kernel-patches/bases.toml")).unwrap();
        assert_eq!(choose(&bases, None).unwrap().name, "7.3");
        assert_eq!(choose(&bases, Some("7.0")).unwrap().version, "7.0.13");
    }

    #[test]
    fn an_unknown_base_names_the_known_ones() {
        let bases = parse(&document("7.3", &"0".repeat(64))).unwrap();
        let error = choose(&bases, Some("6.1")).unwrap_err();
        assert_eq!(error.to_string(), "no base is called 6.1: there are 7.3");
    }

    #[test]
    fn a_short_hash_or_a_path_for_a_name_is_refused() {
        assert!(parse(&document("7.3", "abc")).is_err());
        assert!(parse(&document("../x", &"0".repeat(64))).is_err());
    }
}
