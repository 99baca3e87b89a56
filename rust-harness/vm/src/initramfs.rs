//! The initramfs of a machine: the program `vm-session`, what the session is to be, and of a
//! machine that is exported its root.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use cpio::newc::{self, Builder, ModeFileType};
use vm_session::config::SessionConfig;
use vm_session::{CONFIG, INIT, PROGRAMS};

/// Writes the initramfs to the file `into`.
///
/// # Errors
///
/// When the program cannot be read, or the file cannot be written.
pub(crate) fn write(program: &Path, session: &SessionConfig, into: &Path) -> Result<()> {
    let program = read(program)?;
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

/// Writes an initramfs that has the files in the directory `root` too, and `programs` in
/// [`PROGRAMS`]. All files are root's.
///
/// # Errors
///
/// When a file cannot be read, or the initramfs cannot be written.
pub(crate) fn write_with_root<W: Write>(
    program: &Path,
    session: &SessionConfig,
    root: &Path,
    programs: &[PathBuf],
    to: W,
) -> Result<()> {
    let mut to = add_directory(to, root, "")?;
    let dir = PROGRAMS.trim_start_matches('/');
    let parents = dir.match_indices('/').map(|(end, _)| &dir[..end]);
    for parent in parents.chain([dir]) {
        to = add_entry(to, parent, ModeFileType::Directory, 0o755, &[])?;
    }
    for path in programs {
        let name = path.file_name().context("a file has a name")?;
        let name = format!("{dir}/{}", name.to_string_lossy());
        to = add(to, &name, 0o755, &read(path)?)?;
    }
    let session = serde_json::to_vec(session).context("writing JSON")?;
    let to = add(to, INIT, 0o755, &read(program)?)?;
    let to = add(to, CONFIG, 0o644, &session)?;
    newc::trailer(to)?.flush()?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// Adds what is in a directory, which the initramfs has as `name`. Devices are left out: those are
/// the kernel's.
fn add_directory<W: Write>(mut to: W, dir: &Path, name: &str) -> Result<W> {
    let what = || format!("reading {}", dir.display());
    let entries = fs::read_dir(dir).with_context(what)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(what)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, file) = (entry.path(), entry.file_name());
        let file = file.to_str().context("a file's name in the root")?;
        let name = if name.is_empty() {
            file.to_owned()
        } else {
            format!("{name}/{file}")
        };
        let metadata = entry.metadata().with_context(what)?;
        let (kind, mode) = (metadata.file_type(), metadata.mode() & 0o7777);
        to = if kind.is_dir() {
            let to = add_entry(to, &name, ModeFileType::Directory, mode, &[])?;
            add_directory(to, &path, &name)?
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).with_context(what)?;
            let target = target.as_os_str().as_encoded_bytes();
            add_entry(to, &name, ModeFileType::Symlink, 0o777, target)?
        } else if kind.is_file() {
            add(to, &name, mode, &read(&path)?)?
        } else {
            to
        };
    }
    Ok(to)
}

fn add<W: Write>(to: W, name: &str, mode: u32, content: &[u8]) -> Result<W> {
    add_entry(to, name, ModeFileType::Regular, mode, content)
}

fn add_entry<W: Write>(
    to: W,
    name: &str,
    kind: ModeFileType,
    mode: u32,
    content: &[u8],
) -> Result<W> {
    let size = u32::try_from(content.len()).context("a file of 4 GiB")?;
    let entry = Builder::new(name).mode(mode);
    let mut entry = entry.set_mode_file_type(kind).write(to, size);
    entry.write_all(content)?;
    Ok(entry.finish()?)
}
