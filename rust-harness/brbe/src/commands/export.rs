//! `brbe export`: a copy of the machine to take away.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets::UTF8_FULL_CONDENSED};

use super::booted::BootedArgs;
use host::arch::Arch;
use host::logs::Log;
use host::paths::{Paths, ensure_not_hidden};
use kernels::requirements::MachineNeeds;
use machines::guest::Guest;
use machines::machine_spec::MachineSpec;
use vm::export::Exported;

/// Make a copy of the machine to take away
///
/// Writes a directory with the kernel, the guest's root, the plugin, and a script that boots them
/// with QEMU 11.1 or later, without this project: `DIR/run` gives a shell there, and
/// `DIR/run -- COMMAND` runs that command there.
#[derive(Args, Debug)]
pub struct Export {
    #[command(flatten)]
    booted: BootedArgs,

    /// Only the plugin, with its manual page
    #[arg(long, conflicts_with_all = ["base", "series", "kernel_src", "unpatched", "image"])]
    plugin: bool,

    /// The directory to make: it must not be there yet, except with --plugin
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Export {
    /// Runs the command.
    pub fn run(&self, paths: &Paths) -> Result<()> {
        ensure_not_hidden(&self.dir)?;
        let guest = Guest::in_qemu(paths);
        if self.plugin {
            let plugin = plugin_of(&guest)?;
            let page = paths.repo("rust-harness/qemu-brbe/libqemu_brbe.7");
            vm::export::plugin(&plugin, &page, &self.dir)?;
            let dir = self.dir.display();
            return super::print_text(&format!(
                "{dir}/libqemu_brbe.so, man -l {dir}/libqemu_brbe.7"
            ));
        }
        let needs = MachineNeeds {
            has_session: true,
            ..MachineNeeds::of_tests(Arch::Arm64)
        };
        let booted = guest.prepare_beside(|| self.booted.kernel(paths, needs))?;
        let exported = Exported {
            kernel: booted.kernel.image,
            vmlinux: booted.kernel.vmlinux,
            root: guest.root()?,
            program: guest.session_program()?,
            programs: guest.programs_for_people()?.into(),
            plugin: plugin_of(&guest)?,
        };
        let log = Log::fresh(paths.log("export"))?;
        let files = exported.write(vm::environment("xterm"), &self.dir, &log)?;
        let mut table = Table::new();
        table
            .load_preset(UTF8_FULL_CONDENSED)
            .set_header(["file", "MB"]);
        for (name, size) in &files {
            table.add_row([name.clone(), megabytes(*size)]);
        }
        let all: u64 = files.iter().map(|(_, size)| size).sum();
        table.add_row(["all".to_owned(), megabytes(all)]);
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let (title, dir) = (booted.title, self.dir.display());
        super::print_text(&format!("{table}\n{title}: {dir}/run --help"))
    }
}

/// Path of the plugin that QEMU's machines have.
fn plugin_of(guest: &Guest) -> Result<PathBuf> {
    let plugin = guest.plugin_file(&MachineSpec::default())?;
    Ok(plugin.context("QEMU's machines have a plugin")?.path)
}

fn megabytes(size: u64) -> String {
    format!("{:.1}", size as f64 / 1e6)
}
