//! QEMU with a plugin that records branches, through the `vmtest` crate.

use anyhow::Result;

use super::{Backend, Boot, Capabilities, Run, program};

/// An unmodified QEMU, whose processors have what the plugin gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Qemu;

impl Backend for Qemu {
    fn name(&self) -> &str {
        "qemu"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            plugin: true,
            cpus: 16,
            records: 64,
            vhe: true,
            pseudo_nmi: true,
            heterogeneous: true,
        }
    }

    fn run(&self, boot: &Boot, progress: &mut dyn FnMut(&str)) -> Result<Run> {
        program::run_self(&["__vm".into()], boot, progress)
    }
}
