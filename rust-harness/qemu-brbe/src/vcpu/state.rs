//! The state of the PE (processing element), as QEMU's registers show it.

use brbe_model::{El2, El3, ExceptionLevel, FineGrainedTraps, Hcr, Pe};

use super::Vcpu;

/// PSTATE.IL.
const PSTATE_IL: u64 = 1 << 20;

impl Vcpu {
    /// PSTATE in AArch64, laid out as SPSR_ELx is.
    pub(super) fn pstate(&self) -> u64 {
        self.registers.read(self.registers.cpsr)
    }

    /// Whether the vCPU is in Illegal Execution state, by PSTATE.IL: an instruction raises
    /// an exception, and is not executed.
    pub(super) fn is_illegal(&self) -> bool {
        self.pstate() & PSTATE_IL != 0
    }

    /// Reads the state that the vCPU is in from its registers.
    pub(super) fn read_pe(&self) -> Pe {
        let r = &self.registers;
        let el3 = r.el3.map(|el3| {
            let (scr, mdcr) = (r.read(el3.scr), r.read(el3.mdcr));
            let el3 = El3 {
                sbrbe: (mdcr >> 32 & 3) as u8,
                e3brec: mdcr >> 38 & 1 != 0,
                e3brew: mdcr >> 37 & 1 != 0,
                secure: scr & 1 == 0,
            };
            (el3, scr)
        });
        let el2 = r.el2().map(|el2| {
            let hcr = r.read(el2.hcr);
            let bit = |n: u32| hcr >> n & 1 != 0;
            // SCR_EL3.FGTEn.
            let fgt_enabled = el3.is_none_or(|(_, scr)| scr >> 27 & 1 != 0);
            El2 {
                // SCR_EL3.NS or SCR_EL3.EEL2.
                enabled: el3.is_none_or(|(el3, scr)| !el3.secure || scr >> 18 & 1 != 0),
                hcr: Hcr {
                    e2h: bit(34),
                    tge: bit(27),
                    nv: bit(42),
                    nv1: bit(43),
                    nv2: bit(45),
                },
                hpmn: (r.read(el2.mdcr) & 0x1f) as u8,
                fgt: el2
                    .fgt
                    .filter(|_| fgt_enabled)
                    .map(|[read, write, instruction]| FineGrainedTraps {
                        hdfgrtr: r.read(read),
                        hdfgwtr: r.read(write),
                        hfgitr: r.read(instruction),
                    }),
            }
        });
        Pe {
            el: ExceptionLevel::from_bits(self.pstate() >> 2),
            aarch32: self.aarch32,
            el2,
            el3: el3.map(|(el3, _)| el3),
        }
    }
}
