//! The vCPU's registers, each looked up once.

use std::cell::OnceCell;

use qemu_plugin::registers::{Buffer, Names, RegisterHandle};

/// Handles of all registers that are used, and a buffer to move values in.
pub(crate) struct Registers {
    buffer: Buffer,
    x: [RegisterHandle; 31],
    pub(crate) pc: RegisterHandle,
    pub(crate) sp: RegisterHandle,
    pub(crate) cpsr: RegisterHandle,
    pub(crate) id_aa64dfr0: RegisterHandle,
    pub(crate) pmovsset: RegisterHandle,
    pub(crate) pmcr: RegisterHandle,
    pub(crate) cntfrq: RegisterHandle,
    /// `esr`, `elr` and `spsr` are the registers ESR, ELR and SPSR of EL1 to EL3.
    pub(crate) esr: [Option<RegisterHandle>; 3],
    pub(crate) elr: [Option<RegisterHandle>; 3],
    pub(crate) spsr: [Option<RegisterHandle>; 3],
    /// Those that QEMU shows: see [`Self::el2`].
    shown_el2: Option<El2Registers>,
    has_el2: OnceCell<bool>,
    pub(crate) el3: Option<El3Registers>,
}

/// Registers that exist where EL2 does.
#[derive(Clone, Copy)]
pub(crate) struct El2Registers {
    pub(crate) hcr: RegisterHandle,
    pub(crate) mdcr: RegisterHandle,
    pub(crate) cntvoff: RegisterHandle,
    /// CNTPOFF_EL2 and CNTHCTL_EL2, with FEAT_ECV_POFF.
    pub(crate) physical_offset: Option<[RegisterHandle; 2]>,
    /// HDFGRTR_EL2, HDFGWTR_EL2 and HFGITR_EL2, with FEAT_FGT.
    pub(crate) fgt: Option<[RegisterHandle; 3]>,
}

/// Registers that exist where EL3 does.
#[derive(Clone, Copy)]
pub(crate) struct El3Registers {
    pub(crate) scr: RegisterHandle,
    pub(crate) mdcr: RegisterHandle,
}

impl Registers {
    /// Looks up the registers of the current vCPU. The error is the name of a register
    /// that QEMU does not show.
    ///
    /// # Safety
    ///
    /// There is a current vCPU, and the returned registers stay on its thread.
    pub(crate) unsafe fn look_up() -> Result<Self, String> {
        // SAFETY: there is a current vCPU.
        let names = unsafe { Names::look_up() };
        let find = |name: &str| names.find(name);
        let need = |name: &str| names.need(name);
        let mut x = Vec::with_capacity(31);
        for n in 0..31 {
            x.push(need(&format!("x{n}"))?);
        }
        let per_level = |name: &str| [1, 2, 3].map(|el| find(&format!("{name}_EL{el}")));
        let el2 = match find("HCR_EL2") {
            None => None,
            Some(hcr) => Some(El2Registers {
                hcr,
                mdcr: need("MDCR_EL2")?,
                cntvoff: need("CNTVOFF_EL2")?,
                physical_offset: match (find("CNTPOFF_EL2"), find("CNTHCTL_EL2")) {
                    (Some(offset), Some(control)) => Some([offset, control]),
                    _ => None,
                },
                fgt: match (find("HDFGRTR_EL2"), find("HDFGWTR_EL2"), find("HFGITR_EL2")) {
                    (Some(read), Some(write), Some(instruction)) => {
                        Some([read, write, instruction])
                    }
                    _ => None,
                },
            }),
        };
        let el3 = match find("SCR_EL3") {
            None => None,
            Some(scr) => Some(El3Registers {
                scr,
                mdcr: need("MDCR_EL3")?,
            }),
        };
        Ok(Self {
            // SAFETY: the buffer stays on the vCPU's thread, and the callbacks that write
            // registers are registered for it.
            buffer: unsafe { Buffer::new() },
            x: x.try_into().map_err(|_| "x0".to_owned())?,
            pc: need("pc")?,
            sp: need("sp")?,
            cpsr: need("cpsr")?,
            id_aa64dfr0: need("ID_AA64DFR0_EL1")?,
            pmovsset: need("PMOVSSET_EL0")?,
            pmcr: need("PMCR_EL0")?,
            cntfrq: need("CNTFRQ_EL0")?,
            esr: per_level("ESR"),
            elr: per_level("ELR"),
            spsr: per_level("SPSR"),
            shown_el2: el2,
            // Without EL3, QEMU shows registers of EL2 only where EL2 is.
            has_el2: el3.map_or_else(|| OnceCell::from(true), |_| OnceCell::new()),
            el3,
        })
    }

    /// The registers of EL2, where EL2 is implemented.
    ///
    /// Where EL3 is and EL2 is not, QEMU shows registers of EL2 all the same, which are 0 (Arm ARM
    /// rule RJFFP). Where EL2 is, MDCR_EL2 has another value after a reset: its field HPMN is the
    /// number of counters. QEMU gives no values while a vCPU starts, so that is asked for when the
    /// registers are first used: before the vCPU's first instruction, since software can write 0.
    pub(crate) fn el2(&self) -> Option<El2Registers> {
        let shown = self.shown_el2?;
        let is_there = || self.read(shown.mdcr) != 0;
        self.has_el2.get_or_init(is_there).then_some(shown)
    }

    /// The register's value, 0 where QEMU refuses to give it.
    ///
    /// Callbacks that call this are registered with access to registers, or
    /// are of a kind that always has it.
    pub(crate) fn read(&self, register: RegisterHandle) -> u64 {
        self.buffer.read(register)
    }

    /// Sets the register. Callbacks that call this are registered to write registers.
    pub(crate) fn write(&self, register: RegisterHandle, value: u64) {
        self.buffer.write(register, value);
    }

    /// The value of the general-purpose register `n`: X0 to X30; 31 is zero.
    pub(crate) fn read_x(&self, n: u8) -> u64 {
        self.x
            .get(usize::from(n))
            .map_or(0, |register| self.read(*register))
    }

    /// Writes the general-purpose register `n`: X0 to X30; a write to 31 does nothing.
    pub(crate) fn write_x(&self, n: u8, value: u64) {
        if let Some(register) = self.x.get(usize::from(n)) {
            self.write(*register, value);
        }
    }
}
