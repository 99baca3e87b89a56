//! Identifies the compilers. What they have made is kept for as long as they stay the same.

use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::cache::Key;

/// The programs that kernels and selftests are made with.
const TOOLS: [&str; 8] = [
    "clang",
    "ld.lld",
    "rustc",
    "bindgen",
    "pahole",
    "gcc",
    "aarch64-linux-gnu-gcc",
    "make",
];

/// A cache key for the versions of the programs that kernels and selftests are made with.
/// Other packages do not count: they come and go beside these.
///
/// # Errors
///
/// When one of the programs cannot be started.
pub fn key() -> Result<Key> {
    static VERSIONS: OnceLock<String> = OnceLock::new();
    let versions = match VERSIONS.get() {
        Some(versions) => versions,
        None => {
            let all: Result<String> = TOOLS.iter().map(|tool| version(tool)).collect();
            let all = all?;
            VERSIONS.get_or_init(|| all)
        }
    };
    Ok(Key::new("toolchain 2").with(versions))
}

/// What the program `tool` prints on standard output for `--version`.
///
/// # Errors
///
/// When the program cannot be started.
pub fn version(tool: &str) -> Result<String> {
    let output = Command::new(tool).arg("--version").output();
    let output = output.with_context(|| format!("asking {tool} for its version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
