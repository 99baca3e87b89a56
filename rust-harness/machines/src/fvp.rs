//! Arm's Fixed Virtual Platform (FVP), the model `FVP_Base_RevC-2xAEMvA`, as a backend.
//!
//! The kernel, the root and the command are those of the other backends. The root and the
//! shared directory are put together in a mount namespace and shown to the model as one
//! directory by virtio 9P. The guest's first process is `guest-runner`, which writes its events
//! to a file; the console is read from the model's terminal port. `Documentation/fvp.md` has the parameters, and where
//! they are documented.

mod check;
mod command;
mod events;
pub mod model_child;
mod root;
mod terminal;

pub use command::machine as machine_parameters;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::backend::{Backend, Boot, Checks, Progress, Run};
use crate::machine_spec::Capabilities;
use crate::program;

/// The name of the model's device tree in the kernel's source.
pub const DEVICE_TREE: &str = "arm/fvp-base-revc";

/// The settings of the model, as the user's file has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Settings {
    /// Path of the model's program.
    pub model: PathBuf,
    /// The firmware, which starts the kernel.
    pub firmware: Firmware,
    /// More parameters of the model, by name. They replace those that the harness sets.
    #[serde(default)]
    pub parameters: toml::Table,
    /// Variables of the model's environment, such as the one that names a licence server. The
    /// model has none of the user's.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// How many branch records each CPU of the model has: 8, 16, 32 or 64.
    #[serde(default = "default_records")]
    pub records: u8,
}

fn default_records() -> u8 {
    64
}

impl Settings {
    /// The command that starts the model, without arguments.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.model);
        command.envs(&self.environment).stdin(Stdio::null());
        command
    }
}

/// The firmware, which runs before the kernel, at EL3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Firmware {
    /// Trusted Firmware-A's BL31. The model is reset to it, with the kernel and the device
    /// tree in memory already.
    #[serde(rename_all = "kebab-case")]
    TfA {
        /// Path of `bl31.bin`.
        bl31: PathBuf,
        /// The address that BL31 is linked to, and that the model is reset to.
        #[serde(default = "Firmware::default_bl31_at")]
        bl31_at: u64,
        /// The kernel's address, `PRELOADED_BL33_BASE` in the firmware's build.
        #[serde(default = "Firmware::default_kernel_at")]
        kernel_at: u64,
        /// The device tree's address, `ARM_PRELOADED_DTB_BASE` in the firmware's build.
        #[serde(default = "Firmware::default_device_tree_at")]
        device_tree_at: u64,
    },
    /// boot-wrapper-aarch64: a command makes one ELF file of wrapper, kernel and device
    /// tree.
    #[serde(rename_all = "kebab-case")]
    BootWrapper {
        /// The program that makes the file, and its arguments. In them, the paths of the
        /// kernel image and of the device tree take the place of `{image}` and
        /// `{device-tree}`, the kernel's command line that of `{cmdline}`, and the path of
        /// the file to make that of `{elf}`.
        make: Vec<String>,
    },
}

impl Firmware {
    fn default_bl31_at() -> u64 {
        0x0400_1000
    }

    fn default_kernel_at() -> u64 {
        0x8400_0000
    }

    fn default_device_tree_at() -> u64 {
        0x8200_0000
    }
}

/// The backend that runs Arm's model, as the user's file describes it.
#[derive(Clone, Debug)]
pub struct Fvp(Settings);

impl Fvp {
    /// Reads the user's file. Paths in it are relative to the directory that it is in.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, lacks a setting or has one that is unknown or wrong, or
    /// names a model or a firmware that is not there.
    pub fn load(file: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let dir = file.parent().unwrap_or(Path::new("."));
        let dir = dir
            .canonicalize()
            .or_else(|_| std::env::current_dir())
            .context("finding the directory of this file")?;
        Self::parse(&text, &dir).with_context(|| file.display().to_string())
    }

    fn parse(text: &str, dir: &Path) -> Result<Self> {
        let mut settings: Settings = toml::from_str(text)?;
        let there = |path: &mut PathBuf, what: &str| {
            *path = dir.join(&*path);
            ensure!(
                path.is_file(),
                "{what}: there is no file {}",
                path.display()
            );
            Ok(())
        };
        there(&mut settings.model, "model")?;
        if let Firmware::TfA { bl31, .. } = &mut settings.firmware {
            there(bl31, "firmware")?;
        }
        ensure!(
            [8, 16, 32, 64].contains(&settings.records),
            "records is {}, and has to be 8, 16, 32 or 64",
            settings.records
        );
        Ok(Self(settings))
    }
}

impl Backend for Fvp {
    fn name(&self) -> &str {
        "fvp"
    }

    fn description(&self) -> String {
        let program = self.0.model.file_name().unwrap_or_default();
        format!("Arm's model {}", program.display())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            plugin: false,
            cpus: 8,
            records: self.0.records,
            // The firmware enters the kernel at EL2, where it stays.
            vhe: true,
            pseudo_nmi: true,
            heterogeneous: false,
        }
    }

    fn device_tree(&self) -> Option<&'static str> {
        Some(DEVICE_TREE)
    }

    fn checks(&self) -> Option<&dyn Checks> {
        Some(self)
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(Progress<'_>)) -> Result<Run> {
        let settings = serde_json::to_string(&self.0).context("describing the model")?;
        let arguments = ["__fvp".into(), settings.into()];
        program::run_self(&arguments, boot, progress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_from_where_the_file_is() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("FVP"), "").unwrap();
        fs::write(dir.path().join("bl31.bin"), "").unwrap();
        let text = "model = 'FVP'\n[firmware.tf-a]\nbl31 = 'bl31.bin'\n\
                    [parameters]\n'cluster0.NUM_CORES' = 2\n";
        fs::write(dir.path().join("fvp.toml"), text).unwrap();
        let Fvp(settings) = Fvp::load(&dir.path().join("fvp.toml")).unwrap();
        assert_eq!(
            settings.model,
            dir.path().canonicalize().unwrap().join("FVP")
        );
        assert_eq!(settings.records, 64);
        let there_and_back: Settings =
            serde_json::from_str(&serde_json::to_string(&settings).unwrap()).unwrap();
        assert_eq!(there_and_back, settings);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("FVP"), "").unwrap();
        let firmware = "[firmware.boot-wrapper]\nmake = ['make']\n";
        for (text, said) in [
            (String::new(), "missing field `model`"),
            (
                format!("model = 'no'\n{firmware}"),
                "model: there is no file",
            ),
            ("model = 'FVP'\n".to_owned(), "missing field `firmware`"),
            (
                "model = 'FVP'\n[firmware.tf-a]\nbl31 = 'x'\n".to_owned(),
                "firmware: there is no file",
            ),
            (
                format!("model = 'FVP'\nmodell = 1\n{firmware}"),
                "unknown field `modell`",
            ),
            (
                format!("model = 'FVP'\nrecords = 24\n{firmware}"),
                "records is 24",
            ),
        ] {
            let error = format!("{:#}", Fvp::parse(&text, dir.path()).unwrap_err());
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
