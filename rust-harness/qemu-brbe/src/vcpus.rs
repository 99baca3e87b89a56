//! All vCPUs: each is made and used by its own thread, without a lock.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use brbe_model::Brbe;
use qemu_plugin::vcpus::Vcpus;

use crate::log::{Log, LogFile};
use crate::options::Options;
use crate::registers::Registers;
use crate::shared::{Counts, Shared};
use crate::stats;
use crate::vcpu::Vcpu;
use crate::watch::Watch;
use crate::words::Scoreboard;

/// The plugin's state, alive as long as QEMU is.
pub(crate) struct Plugin {
    options: Options,
    log: Option<Arc<LogFile>>,
    watch_log: Option<Arc<LogFile>>,
    pub(crate) scoreboard: Scoreboard,
    vcpus: Vcpus<Vcpu>,
    shared: Box<[OnceLock<Shared>]>,
}

impl Plugin {
    /// Makes the plugin's state, and creates the plugin's files.
    pub(crate) fn new(options: Options, max_vcpus: u32) -> Result<Self, String> {
        stats::check(&options)?;
        let create = |option, path: &Option<PathBuf>| {
            let path = path.as_deref();
            path.map(|path| LogFile::create(option, path)).transpose()
        };
        let log = create("log", &options.log)?;
        let watch_log = create("watch-log", &options.watch_log)?;
        Ok(Self {
            options,
            log,
            watch_log,
            scoreboard: Scoreboard::new(),
            vcpus: Vcpus::new(max_vcpus),
            shared: (0..max_vcpus).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Gives vCPU `index` BRBE, if it is to have it. Called on the vCPU's thread, when
    /// the vCPU starts.
    pub(crate) fn start(&'static self, index: u32) {
        self.vcpus.refuse_shared_thread("qemu-brbe", index);
        let Some(shared) = self.shared.get(index as usize) else {
            return;
        };
        if !self.options.has_brbe(index) || self.vcpus.is_taken(index) {
            return;
        }
        // SAFETY: this is the vCPU's initialisation, on its thread.
        match unsafe { Registers::look_up() } {
            Ok(registers) => {
                let shared = shared.get_or_init(|| Shared {
                    index,
                    counts: Counts::default(),
                    log: self.log.clone().map(|file| Log::new(index, file)),
                    watch: self.watch(index),
                    counts_exactly: self.log.is_some() || self.options.stats.is_some(),
                });
                let brbe = Brbe::new(self.options.config);
                let vcpu = Vcpu::new(registers, self.scoreboard, brbe, shared);
                self.vcpus.give(index, vcpu);
            }
            Err(name) => {
                eprintln!(
                    "qemu-brbe: vCPU {index} has no register {name}: it gets no BRBE \
                     (a CPU model with a PMU is needed, such as -cpu max)"
                );
            }
        }
    }

    fn watch(&self, index: u32) -> Option<Watch> {
        let log = Log::new(index, self.watch_log.clone()?);
        Some(Watch::new(log, self.watched()?))
    }

    /// The address of the function whose calls are followed, if there is one.
    pub(crate) fn watched(&self) -> Option<u64> {
        self.options.watch
    }

    /// The vCPU that a callback runs on, if it has BRBE.
    ///
    /// # Safety
    ///
    /// Call it on that vCPU's thread, from a callback of QEMU's, once: the
    /// callback must have the vCPU for itself.
    #[expect(clippy::mut_from_ref, reason = "each vCPU belongs to one thread")]
    pub(crate) unsafe fn current(&self, index: u32) -> Option<&mut Vcpu> {
        // SAFETY: as this function asks for.
        unsafe { self.vcpus.current(index) }
    }

    /// Called when QEMU ends: writes what is still to be written.
    pub(crate) fn finish(&self) {
        let vcpus = || self.shared.iter().filter_map(OnceLock::get);
        for vcpu in vcpus() {
            vcpu.log.iter().for_each(Log::flush);
            vcpu.watch.iter().for_each(Watch::flush);
        }
        stats::write(&self.options, vcpus());
    }
}
