//! The options `--kernel`, `--vmlinux` and `--config`: a kernel that was built elsewhere.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use clap::Args;

use host::progress;
use kernels::given::GivenKernel;
use kernels::requirements::{self, MachineNeeds};

/// A kernel that was built elsewhere.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct GivenArgs {
    /// Boot this kernel image, which was built elsewhere
    #[arg(
        long = "kernel",
        value_name = "IMAGE",
        conflicts_with_all = ["base", "series", "kernel_src"]
    )]
    image: Option<PathBuf>,

    /// The vmlinux of that kernel, with its symbols and its debug information
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,

    /// The .config of that kernel. Without it, the one in the image is taken, if there is one (IKCONFIG)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl GivenArgs {
    /// Path of the vmlinux.
    pub(super) fn vmlinux(&self) -> Option<&Path> {
        self.vmlinux.as_deref()
    }

    /// Whether a kernel is given.
    pub(super) fn is_given(&self) -> bool {
        self.image.is_some()
    }

    /// Whether anything of a kernel is given, if only one of its other files.
    pub(super) fn is_named(&self) -> bool {
        let Self {
            image,
            vmlinux,
            config,
        } = self;
        image.is_some() || vmlinux.is_some() || config.is_some()
    }

    /// The kernel, for a machine with these needs. `None`: none is given.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, the kernel lacks something without which the machine does not
    /// come up, or there is a `vmlinux` or a `.config` of no kernel.
    pub(super) fn open(&self, needs: MachineNeeds) -> Result<Option<GivenKernel>> {
        let [vmlinux, config] = [&self.vmlinux, &self.config].map(Option::as_deref);
        let Some(image) = &self.image else {
            ensure!(
                vmlinux.is_none() && config.is_none(),
                "--vmlinux and --config describe the kernel of --kernel IMAGE: give --kernel as well"
            );
            return Ok(None);
        };
        let given = GivenKernel::open(image, vmlinux, config)?;
        let Some(config) = &given.config else {
            progress::say(&format!(
                "brbe: {} does not say what it was built with (IKCONFIG), and --config FILE does not \
                 either: what it lacks is not known",
                image.display()
            ));
            return Ok(Some(given));
        };
        if let Some(lacking) = needs.lacking(config) {
            bail!("{} does not run here: {lacking}", image.display());
        }
        if let Some(lacking) = requirements::lacking_for_snapshots(config, needs.arch) {
            progress::say(&format!(
                "brbe: {} boots, and takes no branch snapshots: {lacking}",
                image.display()
            ));
        }
        Ok(Some(given))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use host::arch::Arch;

    #[test]
    fn what_a_kernel_lacks_for_the_machine_is_said_before_it_boots() {
        let dir = tempfile::tempdir().unwrap();
        let [image, config] = ["Image", ".config"].map(|name| dir.path().join(name));
        fs::write(&image, "Linux version 7.3.4").unwrap();
        fs::write(&config, "CONFIG_SMP=y\nCONFIG_9P_FS=m\n").unwrap();
        let mut args = GivenArgs {
            image: Some(image),
            ..GivenArgs::default()
        };
        let needs = MachineNeeds::of_tests(Arch::Arm64);
        let unknown = args.open(needs).unwrap().unwrap();
        assert_eq!(unknown.title, "Linux 7.3.4");
        args.config = Some(config);
        let error = args.open(needs).unwrap_err().to_string();
        assert!(
            error.contains("9P_FS (a module; it has to be =y)"),
            "{error}"
        );
        assert!(!error.contains('\n'), "{error}");
        args.image = None;
        assert!(
            args.open(needs)
                .unwrap_err()
                .to_string()
                .contains("--kernel")
        );
        assert!(GivenArgs::default().open(needs).unwrap().is_none());
    }
}
