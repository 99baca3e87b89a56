//! The initramfs of a machine: the program `vm-session` and what the session is to be.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use cpio::newc::{self, Builder, ModeFileType};
use vm_session::config::SessionConfig;
use vm_session::{CONFIG, INIT};

/// Writes the initramfs to the file `into`.
///
/// # Errors
///
/// When the program cannot be read, or the file cannot be written.
pub(crate) fn write(program: &Path, session: &SessionConfig, into: &Path) -> Result<()> {
    let program = fs::read(program).with_context(|| format!("reading {}", program.display()))?;
    let session = serde_json::to_vec(session).context("writing JSON")?;
    let write = || {
        let file = BufWriter::new(File::create(into)?);
        let file = add(file, INIT, 0o755, &program)?;
        let file = add(file, CONFIG, 0o644, &session)?;
        newc::trailer(file)?.flush()?;
        anyhow::Ok(())
    };
    write().with_context(|| format!("writing {}", into.display()))
}

fn add<W: Write>(to: W, name: &str, mode: u32, content: &[u8]) -> Result<W> {
    let size = u32::try_from(content.len()).context("a file of 4 GiB")?;
    let entry = Builder::new(name).mode(mode);
    let mut entry = entry
        .set_mode_file_type(ModeFileType::Regular)
        .write(to, size);
    entry.write_all(content)?;
    Ok(entry.finish()?)
}
