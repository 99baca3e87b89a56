//! Jobs for CI engines, made from the matrix by the templates in `scripts/ci`.

use std::fmt;
use std::fs;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use host::paths::Paths;
use kernel_tests::guest_tests;
use kernel_tests::matrix::{self, Cell, MachineKind, Only};
use machines::fvp;
use machines::machine_spec::PSEUDO_NMI;

/// What the jobs differ in from one user to another.
#[derive(Args, Clone, Debug)]
pub struct Wishes {
    /// How many jobs of GitHub's and GitLab's share the matrix
    #[arg(long, value_name = "N", default_value_t = Wishes::default().parts)]
    pub parts: NonZeroU32,

    /// Only the cells of the matrix that have these values, such as records=16,level=VHE; given
    /// several times, the cells that match one of them
    #[arg(long, value_name = "AXIS=VALUE,...")]
    pub only: Vec<Only>,

    /// LAVA's type of the boards
    #[arg(long, value_name = "TYPE", default_value_t = Wishes::default().device_type)]
    pub device_type: String,

    /// LAVA's boot method for the boards
    #[arg(long, value_name = "METHOD", default_value_t = Wishes::default().boot_method)]
    pub boot_method: String,

    /// Where LAVA finds kernels and their roots: BASE-LANGUAGE below it, such as
    /// 7.3-c and 7.3-rust, is a directory that `./brbe export` wrote
    #[arg(long, value_name = "URL", default_value_t = Wishes::default().artifacts)]
    pub artifacts: String,

    /// Where LAVA finds the firmware of Arm's model: bl1.bin, fip.bin, FVP_AARCH64_EFI.fd and
    /// fvp-base-revc.dtb
    #[arg(long, value_name = "URL", default_value_t = Wishes::default().fvp_firmware)]
    pub fvp_firmware: String,

    /// The container that LAVA runs Arm's model in
    #[arg(long, value_name = "NAME", default_value_t = Wishes::default().fvp_container)]
    pub fvp_container: String,

    /// The path of the model in the container
    #[arg(long, value_name = "FILE", default_value_t = Wishes::default().fvp_model)]
    pub fvp_model: String,
}

impl Default for Wishes {
    fn default() -> Self {
        Self {
            parts: NonZeroU32::new(8).unwrap_or(NonZeroU32::MIN),
            only: Vec::new(),
            device_type: "arm64-board".to_owned(),
            boot_method: "u-boot".to_owned(),
            artifacts: "http://artifacts.example".to_owned(),
            fvp_firmware: "http://firmware.example".to_owned(),
            // Those of tuxlava 0.28.
            fvp_container: "shrinkwraptool/base-slim:2026.3.0".to_owned(),
            fvp_model: "/tools/FVP_Base_RevC_AEMvA_11.31_28/bin/FVP_Base_RevC-2xAEMvA".to_owned(),
        }
    }
}

/// A file that defines jobs for a CI engine, and where it has to be in a checkout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The CI engine that the file is for.
    pub engine: Engine,
    /// The path of the file from the directory that it is written to.
    pub path: PathBuf,
    /// The contents of the file.
    pub text: String,
    /// Another file that the jobs need, if there is one: its path from the directory, and its
    /// contents.
    pub beside: Option<(PathBuf, String)>,
}

impl Definition {
    /// The definition for an engine of the cells that are wished for; of several, the first.
    ///
    /// # Errors
    ///
    /// Those of [`definitions`].
    pub(crate) fn of_engine(paths: &Paths, wishes: &Wishes, engine: Engine) -> Result<Self> {
        let mut all = definitions(paths, wishes)?.into_iter();
        all.find(|definition| definition.engine == engine)
            .context("there is no definition for the engine")
    }

    /// Writes the definition to its path below the directory `dir`, and returns the whole path.
    ///
    /// # Errors
    ///
    /// When the file, or a directory above it, cannot be written.
    pub fn write_below(&self, dir: &Path) -> Result<PathBuf> {
        let beside = self.beside.iter().map(|(path, text)| (path, text));
        for (path, text) in beside.chain([(&self.path, &self.text)]) {
            let path = dir.join(path);
            if let Some(dir) = path.parent() {
                fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
            }
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(dir.join(&self.path))
    }

    /// The definition with a mistake in it.
    ///
    /// # Errors
    ///
    /// When the definition has nowhere to make the mistake.
    pub(crate) fn with(&self, mistake: &Mistake) -> Result<Self> {
        let text = mistake.made_in(&self.text);
        let path = self.path.display();
        let text = text.with_context(|| format!("{path} has no {:?}", mistake.right))?;
        Ok(Self {
            text,
            ..self.clone()
        })
    }
}

/// A mistake in a definition, which has to be found: one text in another's place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mistake {
    right: &'static str,
    wrong: &'static str,
}

impl Mistake {
    pub(crate) const fn new(right: &'static str, wrong: &'static str) -> Self {
        Self { right, wrong }
    }

    /// The text with the mistake, or `None` if the text has nowhere to make it.
    pub(crate) fn made_in(&self, text: &str) -> Option<String> {
        text.contains(self.right)
            .then(|| text.replace(self.right, self.wrong))
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "with {:?} in the place of {:?}", self.wrong, self.right)
    }
}

/// A CI engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// GitHub Actions.
    Github,
    /// GitLab CI.
    Gitlab,
    /// LAVA, which KernelCI's labs run.
    Lava,
}

impl Engine {
    fn template(self) -> &'static str {
        match self {
            Self::Github => "scripts/ci/github.yml",
            Self::Gitlab => "scripts/ci/gitlab.yml",
            Self::Lava => "scripts/ci/lava.yml",
        }
    }
}

/// How many CPUs Arm's model has in a job of LAVA's, and how many branch records each of them.
const FVP_CPUS: u8 = 2;
const FVP_RECORDS: u8 = 64;

/// What a job of LAVA's boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device {
    Board,
    /// Arm's model, behind UEFI.
    Fvp,
    Qemu,
}

impl Device {
    const EACH: [Self; 3] = [Self::Board, Self::Fvp, Self::Qemu];

    fn name(self) -> &'static str {
        match self {
            Self::Board => "board",
            Self::Fvp => "fvp",
            Self::Qemu => "qemu",
        }
    }

    fn template(self) -> &'static str {
        match self {
            Self::Board => "scripts/ci/lava-board.yml",
            Self::Fvp => "scripts/ci/lava-fvp.yml",
            Self::Qemu => "scripts/ci/lava-qemu.yml",
        }
    }
}

/// All definitions of the cells that are wished for: a file for each hosted engine, and one for
/// each cell that boards can run and each device of LAVA's.
///
/// # Errors
///
/// When the matrix or a template cannot be read, or no cell is wished for.
pub fn definitions(paths: &Paths, wishes: &Wishes) -> Result<Vec<Definition>> {
    let cells = matrix::cells(paths, &wishes.only)?;
    let template = |path: &str| {
        let path = paths.repo(path);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    };
    // A part without a cell would be a job that boots a machine for nothing.
    let parts = usize::try_from(wishes.parts.get()).map_or(cells.len(), |it| it.min(cells.len()));
    let numbers: Vec<_> = (1..=parts).map(|n| n.to_string()).collect();
    let parts = parts.to_string();
    let only = wishes.only.iter().map(|only| format!(" --only {only}"));
    let only: String = only.collect();
    let quoted: Vec<_> = numbers.iter().map(|n| format!("\"{n}\"")).collect();
    let hosted = |engine, path: &str| {
        let words = [
            ("parts", parts.as_str()),
            ("numbers", &numbers.join(", ")),
            ("quoted", &quoted.join(", ")),
            ("only", &only),
        ];
        anyhow::Ok(Definition {
            engine,
            path: path.into(),
            text: filled(&template(engine.template())?, &words),
            beside: None,
        })
    };
    let mut definitions = vec![
        hosted(Engine::Github, ".github/workflows/branch-snapshots.yml")?,
        hosted(Engine::Gitlab, ".gitlab-ci.yml")?,
    ];
    let lava = template(Engine::Lava.template())?;
    for device in Device::EACH {
        let machine = template(device.template())?;
        let text = lava.replace("@machine@\n", &machine);
        let boards = for_boards(&cells).into_iter();
        definitions.extend(boards.map(|cell| on_device(&text, device, cell, wishes)));
    }
    Ok(definitions)
}

/// The cells for boards: one for each kernel and kernel command line, which are all that a
/// board can be given. How many records a board has, and at which exception level its kernel
/// runs, depends on the board.
fn for_boards(cells: &[Cell]) -> Vec<&Cell> {
    let same_for_a_board = |cell: &Cell| (cell.base.clone(), cell.in_rust, cell.pseudo_nmi);
    let mut chosen: Vec<&Cell> = Vec::new();
    for cell in cells
        .iter()
        .filter(|cell| cell.machine == MachineKind::Arm64)
    {
        if !chosen
            .iter()
            .any(|other| same_for_a_board(other) == same_for_a_board(cell))
        {
            chosen.push(cell);
        }
    }
    chosen
}

fn on_device(template: &str, device: Device, cell: &Cell, wishes: &Wishes) -> Definition {
    let language = if cell.in_rust { "rust" } else { "c" };
    let kernel = format!("{}-{language}", cell.base);
    let (interrupts, arguments) = if cell.pseudo_nmi {
        ("pseudo-nmi", PSEUDO_NMI)
    } else {
        ("irq", "")
    };
    // LAVA's shell ends at the first command that fails.
    let steps: Vec<_> = guest_tests::for_any_machine(false)
        .iter()
        .map(|test| {
            let name = test.name;
            format!(
                "                - s=0; ./branch-guest {name} || s=$?; case $s in 0) r=pass;; \
                 77) r=skip;; *) r=fail;; esac; lava-test-case {name} --result $r"
            )
        })
        .collect();
    let words = [
        ("cell", format!("{kernel}, {interrupts}")),
        ("device", device.name().to_owned()),
        ("device-type", wishes.device_type.clone()),
        ("boot-method", wishes.boot_method.clone()),
        (
            "artifacts",
            wishes.artifacts.trim_end_matches('/').to_owned(),
        ),
        ("kernel", kernel.clone()),
        ("interrupts", interrupts.to_owned()),
        ("kernel-args", arguments.to_owned()),
        (
            "fvp-firmware",
            wishes.fvp_firmware.trim_end_matches('/').to_owned(),
        ),
        ("fvp-container", wishes.fvp_container.clone()),
        ("fvp-model", wishes.fvp_model.clone()),
        ("fvp-arguments", fvp_arguments()),
        ("steps", steps.join("\n")),
    ];
    let words = words
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    Definition {
        engine: Engine::Lava,
        path: Path::new("lava")
            .join(device.name())
            .join(format!("{kernel}-{interrupts}.yaml")),
        text: filled(template, &words),
        beside: (device == Device::Fvp).then(|| {
            let dir = Path::new("lava/fvp").join(&kernel).join(interrupts);
            (dir.join("startup.nsh"), startup(arguments))
        }),
    }
}

/// The script that UEFI's shell runs when the model starts: it boots the kernel. LAVA has unpacked
/// the initramfs.
fn startup(arguments: &str) -> String {
    let arguments = [
        "Image",
        "dtb=fvp-base-revc.dtb",
        "initrd=root.cpio",
        "console=ttyAMA0",
        "earlycon=pl011,0x1c090000",
        arguments,
    ];
    arguments.join(" ").trim_end().to_owned() + "\n"
}

/// The arguments of the model in a job of LAVA's, a line each. LAVA replaces names in braces.
fn fvp_arguments() -> String {
    let mut parameters = fvp::machine_parameters(FVP_CPUS, FVP_RECORDS);
    for (name, value) in [
        ("bp.secureflashloader.fname", "{BL1}"),
        ("bp.flashloader0.fname", "{FIP}"),
        ("bp.flashloader1.fname", "{UEFI}"),
        ("bp.secure_memory", "1"),
        // UEFI finds startup.nsh and the kernel there.
        ("cluster0.cpu0.semihosting-cwd", "{ARTIFACT_DIR}"),
        ("bp.terminal_0.mode", "telnet"),
    ] {
        parameters.insert(name.to_owned(), value.to_owned());
    }
    let lines = parameters
        .iter()
        .map(|(name, value)| format!("        - \"-C {name}={value}\""));
    lines.collect::<Vec<_>>().join("\n")
}

/// The template with `@name@` replaced.
fn filled(template: &str, words: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in words {
        text = text.replace(&format!("@{name}@"), value);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_gets_what_a_job_names() {
        let arguments = fvp_arguments();
        for argument in [
            "\"-C bp.flashloader1.fname={UEFI}\"",
            "\"-C bp.secure_memory=1\"",
            "\"-C cluster1.has_brbe=1\"",
            "\"-C cluster0.cpu1.number-of-branch-records=64\"",
        ] {
            assert!(arguments.contains(argument), "{argument}: {arguments}");
        }
        let irq = "Image dtb=fvp-base-revc.dtb initrd=root.cpio console=ttyAMA0 \
                   earlycon=pl011,0x1c090000\n";
        assert_eq!(startup(""), irq);
        assert!(startup(PSEUDO_NMI).ends_with(&format!(" {PSEUDO_NMI}\n")));
    }

    #[test]
    fn names_are_replaced() {
        let words = [("a", "1"), ("b-c", "2")];
        assert_eq!(
            filled("@a@ @b-c@ user@host @d@", &words),
            "1 2 user@host @d@"
        );
    }
}
