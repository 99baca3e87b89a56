//! All vCPUs: each is made and used by its own thread, without a lock.

use std::sync::atomic::{AtomicPtr, Ordering};

use brbe_model::Brbe;

use crate::options::Options;
use crate::registers::Registers;
use crate::scoreboard::Scoreboard;
use crate::vcpu::{Counts, Vcpu};

/// The plugin's state, alive as long as QEMU is.
pub(crate) struct Plugin {
    pub(crate) options: Options,
    pub(crate) scoreboard: Scoreboard,
    vcpus: Box<[AtomicPtr<Vcpu>]>,
}

impl Plugin {
    pub(crate) fn new(options: Options, max_vcpus: u32) -> Self {
        let vcpus = (0..max_vcpus).map(|_| AtomicPtr::default()).collect();
        Self {
            options,
            scoreboard: Scoreboard::new(),
            vcpus,
        }
    }

    /// Gives vCPU `index` BRBE, if it is to have it. Called on its thread, when
    /// it starts.
    pub(crate) fn start(&self, index: u32) {
        let Some(slot) = self.vcpus.get(index as usize) else {
            return;
        };
        if !self.options.has_brbe(index) || !slot.load(Ordering::Acquire).is_null() {
            return;
        }
        match Registers::look_up() {
            Ok(registers) => {
                let brbe = Brbe::new(self.options.config);
                let vcpu = Vcpu::new(index, registers, self.scoreboard, brbe);
                slot.store(Box::into_raw(Box::new(vcpu)), Ordering::Release);
            }
            Err(name) => {
                eprintln!(
                    "qemu-brbe: vCPU {index} has no register {name}: it gets no BRBE \
                     (a CPU model with a PMU is needed, such as -cpu max)"
                );
            }
        }
    }

    /// The vCPU that a callback runs on, if it has BRBE.
    ///
    /// # Safety
    ///
    /// Call it on that vCPU's thread, from a callback of QEMU's, once: the
    /// callback must have the vCPU for itself.
    #[expect(clippy::mut_from_ref, reason = "each vCPU belongs to one thread")]
    pub(crate) unsafe fn current(&self, index: u32) -> Option<&mut Vcpu> {
        let vcpu = self.vcpus.get(index as usize)?.load(Ordering::Acquire);
        // SAFETY: it is null or came from a box that is never freed, and the
        // caller has it for itself.
        unsafe { vcpu.as_mut() }
    }

    /// The counts of every vCPU that has BRBE.
    ///
    /// # Safety
    ///
    /// No vCPU may run any more.
    pub(crate) unsafe fn counts(&self) -> Vec<(u32, Counts)> {
        let counts = |(index, slot): (usize, &AtomicPtr<Vcpu>)| {
            // SAFETY: it is null or came from a box that is never freed, and no
            // vCPU's thread uses it any more.
            let vcpu = unsafe { slot.load(Ordering::Acquire).as_ref() };
            vcpu.map(|vcpu| (index as u32, vcpu.counts()))
        };
        self.vcpus.iter().enumerate().filter_map(counts).collect()
    }
}
