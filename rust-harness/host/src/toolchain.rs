//! The compilers: what they make is kept for as long as they are the same.

use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result};

use crate::cache::Key;

/// Those that kernels and selftests are made with.
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

/// A key for what they say of themselves: other packages come and go beside them.
///
/// # Errors
///
/// When one of them cannot be asked.
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

/// What a program says of its version.
///
/// # Errors
///
/// When it is not there.
pub fn version(tool: &str) -> Result<String> {
    let output = Command::new(tool).arg("--version").output();
    let output = output.with_context(|| format!("asking {tool} for its version"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
