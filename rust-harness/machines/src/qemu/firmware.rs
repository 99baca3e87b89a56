//! Firmware at EL3: Trusted Firmware-A in the flash that a machine starts from, and the kernel
//! behind it.

use std::fs::{self, OpenOptions};
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use kernels::firmware::PARTS;
use tempfile::NamedTempFile;

/// Where the flash has the archive with the rest of the firmware (PLAT_QEMU_FIP_BASE of TF-A,
/// plat/qemu/qemu/include/platform_def.h).
const ARCHIVE: u64 = 256 << 10;
/// How many bytes the flash has (hw/arm/virt.c of QEMU, half of VIRT_FLASH).
const SIZE: u64 = 64 << 20;
/// The name of the archive in a build of TF-A, if it has one.
const BUILT_ARCHIVE: &str = "fip.bin";

/// A file for the flash of a machine that starts with the firmware in `dir` and goes on with
/// `kernel`. The directory is that of a build of TF-A: it has its parts, or the first of them and
/// the archive `fip.bin` of the others.
///
/// # Errors
///
/// When a part is missing, `fiptool` cannot make an archive of them, or the kernel is too large.
pub(super) fn flash(dir: &Path, kernel: &Path) -> Result<NamedTempFile> {
    let [first, second, third] = PARTS.map(|part| dir.join(part));
    let built = dir.join(BUILT_ARCHIVE);
    let archive = NamedTempFile::new().context("a file for the firmware's archive")?;
    let mut fiptool = Command::new("fiptool");
    if built.is_file() {
        fs::copy(&built, archive.path()).context("copying the firmware's archive")?;
        fiptool.arg("update");
    } else {
        fiptool.arg("create");
        fiptool.arg("--tb-fw").arg(&second);
        fiptool.arg("--soc-fw").arg(&third);
    }
    fiptool.arg("--nt-fw").arg(kernel).arg(archive.path());
    let output = fiptool.output().context("starting fiptool")?;
    ensure!(
        output.status.success(),
        "fiptool cannot put the kernel behind the firmware in {}: {}\nA build of TF-A for QEMU \
         has {} there, or {BUILT_ARCHIVE} beside the first of them",
        dir.display(),
        String::from_utf8_lossy(&output.stderr).trim(),
        PARTS.join(", ")
    );
    let flash = NamedTempFile::new().context("a file for the flash")?;
    fs::copy(&first, flash.path()).with_context(|| format!("copying {}", first.display()))?;
    let mut file = OpenOptions::new().write(true).open(flash.path())?;
    let begins = file.seek(SeekFrom::End(0)).context("the flash")?;
    ensure!(
        begins <= ARCHIVE,
        "{} has {begins} bytes, and the archive begins after {ARCHIVE}",
        first.display()
    );
    file.seek(SeekFrom::Start(ARCHIVE)).context("the flash")?;
    let mut archive = fs::File::open(archive.path()).context("the firmware's archive")?;
    let rest = std::io::copy(&mut archive, &mut file).context("writing the flash")?;
    ensure!(
        ARCHIVE + rest <= SIZE,
        "firmware and kernel have {} bytes, and the flash {SIZE}",
        ARCHIVE + rest
    );
    Ok(flash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_firmware_is_refused_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("Image");
        fs::write(&kernel, "kernel").unwrap();
        let error = flash(dir.path(), &kernel).unwrap_err().to_string();
        assert!(error.contains("bl31.bin"), "{error}");
    }

    #[test]
    fn the_parts_and_the_kernel_are_in_the_flash() {
        let dir = tempfile::tempdir().unwrap();
        for part in PARTS {
            fs::write(dir.path().join(part), format!("this is {part}")).unwrap();
        }
        let kernel = dir.path().join("Image");
        fs::write(&kernel, "this is the kernel").unwrap();
        let flash = fs::read(flash(dir.path(), &kernel).unwrap()).unwrap();
        assert!(flash.starts_with(b"this is bl1.bin"));
        let archive = &flash[usize::try_from(ARCHIVE).unwrap()..];
        for part in ["this is bl2.bin", "this is bl31.bin", "this is the kernel"] {
            let part = part.as_bytes();
            let found = archive.windows(part.len()).any(|bytes| bytes == part);
            assert!(found, "{part:?}");
        }
    }
}
