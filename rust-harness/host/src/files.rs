//! Files that are copied.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

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
