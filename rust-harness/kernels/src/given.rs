//! Kernels that were built elsewhere.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::finished_config::{FinishedConfig, ImageText, Setting};
use crate::kernel::Kernel;

/// A kernel that was built elsewhere, and what is known of it.
#[derive(Clone, Debug)]
pub struct GivenKernel {
    /// Its files.
    pub kernel: Kernel,
    /// What it was built with. `None`: nobody knows.
    pub config: Option<FinishedConfig>,
    /// Its name in messages: `Linux 7.3.4-mine`, by its release, or its file's name.
    pub title: String,
}

/// The options of a kernel that make it several times slower.
const CHECKS: [&str; 3] = ["PROVE_LOCKING", "KASAN", "UBSAN_TRAP"];

impl GivenKernel {
    /// Reads what is known of a kernel: its image, its `vmlinux`, and its `.config`, which is
    /// taken out of the image where it is not given (`IKCONFIG`).
    ///
    /// # Errors
    ///
    /// When a file is not there or cannot be read, or is no `.config`.
    pub fn open(image: &Path, vmlinux: Option<&Path>, config: Option<&Path>) -> Result<Self> {
        let image = there(image)?;
        let text = ImageText::read(&image)?;
        let config = match config {
            Some(file) => Some(FinishedConfig::of_file(file)?),
            None => text
                .config()
                .with_context(|| format!("reading {}", image.display()))?,
        };
        let title = match text.release() {
            Some(release) => format!("Linux {release}"),
            None => image.display().to_string(),
        };
        let has_checks = config.as_ref().is_some_and(|config| {
            CHECKS
                .iter()
                .any(|option| config.setting(option) == Setting::In)
        });
        Ok(Self {
            kernel: Kernel {
                image,
                vmlinux: vmlinux.map(there).transpose()?,
                has_checks,
                drivers: None,
            },
            config,
            title,
        })
    }
}

fn there(file: &Path) -> Result<PathBuf> {
    file.canonicalize()
        .with_context(|| format!("looking for {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_kernel_comes_from_its_files() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let file = dir.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        };
        let image = file("Image", "..Linux version 7.3.4-mine (x)");
        let config = file(".config", "CONFIG_PROVE_LOCKING=y\n");
        let given = GivenKernel::open(&image, None, Some(&config)).unwrap();
        assert_eq!(given.title, "Linux 7.3.4-mine");
        assert!(given.kernel.has_checks && given.kernel.vmlinux.is_none());
        let bare = GivenKernel::open(&file("bare", "x"), Some(&image), None).unwrap();
        assert!(bare.title.ends_with("/bare"), "{}", bare.title);
        assert!(bare.config.is_none() && !bare.kernel.has_checks);
        assert_eq!(bare.kernel.vmlinux.unwrap(), image.canonicalize().unwrap());
        let missing = GivenKernel::open(&image, Some(Path::new("/no/vmlinux")), None);
        assert_eq!(missing.unwrap_err().to_string(), "looking for /no/vmlinux");
        let other = GivenKernel::open(&image, None, Some(&image)).unwrap_err();
        assert!(other.to_string().contains("is no .config"), "{other}");
    }
}
