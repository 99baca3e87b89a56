//! A copy of a machine to take away: a directory that boots by QEMU alone.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::initramfs;
use crate::terminal;
use host::files::copy_into;
use host::process;
use vm_session::PROGRAMS;
use vm_session::config::{Root, SessionConfig, Streams};

/// The script that boots the copy.
const RUN: &str = include_str!("export/run.sh");

/// What a copy is made of. The machine is one for arm64.
#[derive(Clone, Debug)]
pub struct Exported {
    /// Path of the kernel image.
    pub kernel: PathBuf,
    /// Path of its `vmlinux`, if it is known.
    pub vmlinux: Option<PathBuf>,
    /// Path of the directory that is the guest's root.
    pub root: PathBuf,
    /// Path of the program `vm-session`.
    pub program: PathBuf,
    /// Paths of this project's own programs for the guest.
    pub programs: Vec<PathBuf>,
    /// Path of the plugin that gives branch records to QEMU's CPUs.
    pub plugin: PathBuf,
}

impl Exported {
    /// Writes the copy into the directory `into`, which must not be there yet: a copy is whole, or
    /// is not there. `environment` is that of commands. What other programs say while they pack
    /// goes to `log`. Returns the names of the files and their sizes in bytes.
    ///
    /// # Errors
    ///
    /// When the directory is there, a file cannot be read or written, or packing fails.
    pub fn write(
        &self,
        environment: Vec<(String, String)>,
        into: &Path,
        log: &Path,
    ) -> Result<Vec<(String, u64)>> {
        ensure!(
            into.symlink_metadata().is_err(),
            "{} is there: remove it, or name another directory",
            into.display()
        );
        let parent = std::path::absolute(into).context("the path of the copy")?;
        let parent = parent.parent().context("the path of the copy")?.to_owned();
        fs::create_dir_all(&parent).with_context(|| format!("creating {}", parent.display()))?;
        let partial = tempfile::Builder::new()
            .prefix(".export-")
            .tempdir_in(&parent);
        let partial =
            partial.with_context(|| format!("creating a directory in {}", parent.display()))?;
        let dir = partial.path();

        copy(&self.kernel, &dir.join("Image"))?;
        copy(&self.plugin, &dir.join("libqemu_brbe.so"))?;
        let programs = dir.join("programs");
        fs::create_dir(&programs).context("a directory for programs")?;
        for program in &self.programs {
            copy_into(program, &programs)?;
        }
        if let Some(vmlinux) = &self.vmlinux {
            let mut zstd = Command::new("zstd");
            zstd.args(["--quiet", "-T0", "-10"]).arg(vmlinux);
            zstd.arg("-o").arg(dir.join("vmlinux.zst"));
            process::step("pack vmlinux", log, &mut zstd)?;
        }
        self.pack_root(environment, dir, log)?;
        let run = dir.join("run");
        fs::write(&run, RUN).context("writing the script")?;
        for path in [dir, &run] {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(path, mode).context("permissions of the copy")?;
        }
        let files = sizes(dir, "")?;
        fs::rename(dir, into).with_context(|| format!("creating {}", into.display()))?;
        // The copy has its own name now: there is nothing to remove.
        let _ = partial.keep();
        Ok(files)
    }

    /// Packs the root as an initramfs.
    fn pack_root(&self, environment: Vec<(String, String)>, dir: &Path, log: &Path) -> Result<()> {
        let session = SessionConfig {
            environment,
            directory: PROGRAMS.to_owned(),
            streams: Streams::Console(terminal::size()),
            root: Root::Initramfs,
            ..SessionConfig::default()
        };
        let whole = dir.join("root.cpio");
        let file = File::create(&whole).context("writing the initramfs")?;
        let file = BufWriter::new(file);
        let (root, programs) = (&self.root, &self.programs);
        initramfs::write_with_root(&self.program, &session, root, programs, file)?;
        // LAVA takes an initramfs apart to add its own files, and cannot where zstd has packed it.
        let mut gzip = Command::new("gzip");
        gzip.arg("--no-name").arg(&whole);
        process::step("pack the initramfs", log, &mut gzip)
    }
}

/// Writes the plugin and its manual page into the directory `into`, which is made if it is not
/// there.
///
/// # Errors
///
/// When one of them cannot be read or written.
pub fn plugin(plugin: &Path, page: &Path, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("creating {}", into.display()))?;
    for file in [plugin, page] {
        copy_into(file, into)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

/// The files in a directory, whose names begin with `prefix`, with their sizes.
fn sizes(dir: &Path, prefix: &str) -> Result<Vec<(String, u64)>> {
    let mut files = Vec::new();
    let entries = fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))?;
    for entry in entries {
        let entry = entry.context("reading the copy")?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().context("reading the copy")?;
        if metadata.is_dir() {
            files.extend(sizes(&entry.path(), &format!("{name}/"))?);
        } else {
            files.push((name, metadata.len()));
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_that_leads_nowhere_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let [into, log] = ["copy", "log"].map(|name| dir.path().join(name));
        symlink("nowhere", &into).unwrap();
        let exported = Exported {
            kernel: PathBuf::new(),
            vmlinux: None,
            root: PathBuf::new(),
            program: PathBuf::new(),
            programs: Vec::new(),
            plugin: PathBuf::new(),
        };
        let error = exported.write(Vec::new(), &into, &log).unwrap_err();
        assert!(error.to_string().contains("is there: remove it"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
