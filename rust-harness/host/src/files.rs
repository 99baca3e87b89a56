//! Files that are copied, and directories for a while.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::paths::Paths;

/// Creates an empty directory below the caches, where another program sees it under its own name.
/// It is removed when the value is dropped; what killed runs leave goes later.
///
/// # Errors
///
/// When it cannot be created.
pub fn scratch(paths: &Paths, prefix: &str) -> Result<TempDir> {
    let dir = paths.home("run");
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let scratch = tempfile::Builder::new().prefix(prefix).tempdir_in(&dir);
    scratch.with_context(|| format!("creating a directory in {}", dir.display()))
}

/// Copies a file into a directory, where it has the same name.
///
/// # Errors
///
/// When the file has no name, or cannot be read or written.
pub fn copy_into(file: &Path, dir: &Path) -> Result<()> {
    let name = file.file_name().context("a file has a name")?;
    fs::copy(file, dir.join(name)).with_context(|| format!("copying {}", file.display()))?;
    Ok(())
}
