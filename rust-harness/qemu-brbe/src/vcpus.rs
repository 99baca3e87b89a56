//! All vCPUs: each is made and used by its own thread, without a lock.

use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;

use brbe_model::Brbe;

use crate::log::{Log, LogFile};
use crate::options::Options;
use crate::registers::Registers;
use crate::scoreboard::Scoreboard;
use crate::shared::{Counts, Shared};
use crate::stats;
use crate::vcpu::Vcpu;
use crate::watch::Watch;

/// The plugin's state, alive as long as QEMU is.
pub(crate) struct Plugin {
    options: Options,
    log: Option<Arc<LogFile>>,
    watch_log: Option<Arc<LogFile>>,
    pub(crate) scoreboard: Scoreboard,
    slots: Box<[Slot]>,
    /// The thread that each vCPU started in.
    threads: Mutex<Vec<(u32, ThreadId)>>,
}

#[derive(Default)]
struct Slot {
    vcpu: AtomicPtr<Vcpu>,
    shared: OnceLock<Shared>,
}

impl Plugin {
    /// The plugin, with its files made.
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
            slots: (0..max_vcpus).map(|_| Slot::default()).collect(),
            threads: Mutex::default(),
        })
    }

    /// Gives vCPU `index` BRBE, if it is to have it. Called on its thread, when
    /// it starts.
    pub(crate) fn start(&'static self, index: u32) {
        self.refuse_shared_thread(index);
        let Some(slot) = self.slots.get(index as usize) else {
            return;
        };
        if !self.options.has_brbe(index) || !slot.vcpu.load(Ordering::Acquire).is_null() {
            return;
        }
        match Registers::look_up() {
            Ok(registers) => {
                let shared = slot.shared.get_or_init(|| Shared {
                    index,
                    counts: Counts::default(),
                    log: self.log.clone().map(|file| Log::new(index, file)),
                    watch: self.watch_log.clone().map(|file| {
                        let log = Log::new(index, file);
                        Watch::new(log, self.options.watch.clone())
                    }),
                    counts_exactly: self.log.is_some() || self.options.stats.is_some(),
                });
                let brbe = Brbe::new(self.options.config);
                let vcpu = Vcpu::new(registers, self.scoreboard, brbe, shared);
                slot.vcpu
                    .store(Box::into_raw(Box::new(vcpu)), Ordering::Release);
            }
            Err(name) => {
                eprintln!(
                    "qemu-brbe: vCPU {index} has no register {name}: it gets no BRBE \
                     (a CPU model with a PMU is needed, such as -cpu max)"
                );
            }
        }
    }

    /// Ends QEMU where it runs several vCPUs in one thread. They share translated
    /// code then, and QEMU 11.1 writes the number of the vCPU that it was
    /// translated for into what plugins add to that: others would use the wrong
    /// words, and go astray (`mul_i32 $0x1,$0x1,$0x18` with `-d op`: the constant
    /// itself is overwritten).
    fn refuse_shared_thread(&self, index: u32) {
        let thread = std::thread::current().id();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, _)) = threads.iter().find(|(_, id)| *id == thread) {
            eprintln!(
                "qemu-brbe: vCPUs {other} and {index} share a thread, which QEMU's plugins do not \
                 work with: use one vCPU with -icount, and -accel tcg,thread=multi without"
            );
            std::process::exit(1);
        }
        threads.push((index, thread));
    }

    /// Is what executes at `address` watched?
    pub(crate) fn watches(&self, address: u64) -> bool {
        self.options.watch.contain(address)
    }

    /// The vCPU that a callback runs on, if it has BRBE.
    ///
    /// # Safety
    ///
    /// Call it on that vCPU's thread, from a callback of QEMU's, once: the
    /// callback must have the vCPU for itself.
    #[expect(clippy::mut_from_ref, reason = "each vCPU belongs to one thread")]
    pub(crate) unsafe fn current(&self, index: u32) -> Option<&mut Vcpu> {
        let vcpu = self.slots.get(index as usize)?.vcpu.load(Ordering::Acquire);
        // SAFETY: it is null or came from a box that is never freed, and the
        // caller has it for itself.
        unsafe { vcpu.as_mut() }
    }

    /// QEMU ends: writes what is still to be written.
    pub(crate) fn finish(&self) {
        let vcpus = || self.slots.iter().filter_map(|slot| slot.shared.get());
        for vcpu in vcpus() {
            vcpu.log.iter().for_each(Log::flush);
            vcpu.watch.iter().for_each(Watch::flush);
        }
        stats::write(&self.options, vcpus());
    }
}
