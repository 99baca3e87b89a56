//! `brbe board-kit`: an archive for somebody who has a board with BRBE.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use board_kit::kit::{self, NAME};
use clap::Args;

use super::booted::BootedArgs;
use host::arch::Arch;
use host::cache;
use host::cargo;
use host::paths::{Paths, ensure_not_hidden};
use kernels::requirements::MachineNeeds;
use machines::guest::Guest;
use machines::machine_spec::MachineSpec;

/// Make an archive for somebody who has a board with BRBE
///
/// The archive has one static program for arm64, a script that runs it and a list of tests. It needs no
/// network, takes ten minutes at the most, and writes one file, brbe-board.json, which `brbe report`
/// puts beside what the emulated machine says. The options that choose a kernel are for --emulated.
#[derive(Args, Debug)]
pub struct BoardKit {
    /// Where to write the archive
    #[arg(long, value_name = "FILE", default_value = "brbe-board-kit.tar.gz")]
    output: PathBuf,

    /// Make no archive, but run the kit on the emulated machine, and write what the kit says there
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    emulated: Option<PathBuf>,

    #[command(flatten)]
    booted: BootedArgs,
}

impl BoardKit {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        ensure_not_hidden(self.emulated.as_ref().unwrap_or(&self.output))?;
        if let Some(emulated) = &self.emulated {
            return self.run_on_emulated_machine(paths, emulated);
        }
        ensure!(
            self.booted.is_default(),
            "the options that choose a kernel are for --emulated FILE: the archive has no kernel in it"
        );
        let program = cargo::guest(paths, Arch::Arm64)?.tests;
        let size = kit::write(paths, &program, &self.output)?;
        super::print_text(&format!(
            "{}: {:.1} MB. On the board:\n\n    tar -xzf {}\n    sudo sh {NAME}/run.sh",
            self.output.display(),
            size as f64 / 1e6,
            name(&self.output),
        ))
    }

    fn run_on_emulated_machine(&self, paths: &Paths, into: &Path) -> Result<()> {
        let guest = Guest::in_qemu(paths);
        let needs = MachineNeeds::of_tests(Arch::Arm64);
        let booted = guest.prepare_beside(|| self.booted.kernel(paths, needs))?;
        let said = kit::on_machine(paths, &guest, &booted.kernel, &MachineSpec::default())?;
        let mut json = serde_json::to_string_pretty(&said).context("writing JSON")?;
        json.push('\n');
        cache::write_atomically(into, json.as_bytes())?;
        let (into, title) = (into.display(), booted.title);
        super::print_text(&format!("{into}: what the kit says on {title}"))
    }
}

/// The name of a file, as one would type it where the file is.
fn name(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str());
    name.to_string_lossy().into_owned()
}
