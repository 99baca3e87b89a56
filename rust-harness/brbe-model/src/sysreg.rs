//! The names that software uses: encodings, and who may use them (D24.8,
//! C5.7, and the accessor pseudocode of each register).

use crate::pe::{ExceptionLevel, Pe};

/// A name in an `MRS` or `MSR` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// BRBINF\<n\>_EL1.
    Inf(u8),
    /// BRBSRC\<n\>_EL1.
    Src(u8),
    /// BRBTGT\<n\>_EL1.
    Tgt(u8),
    /// BRBCR_EL1.
    CrEl1,
    /// BRBCR_EL2.
    CrEl2,
    /// BRBCR_EL12 (FEAT_VHE).
    CrEl12,
    /// BRBFCR_EL1.
    Fcr,
    /// BRBTS_EL1.
    Ts,
    /// BRBINFINJ_EL1.
    InfInj,
    /// BRBSRCINJ_EL1.
    SrcInj,
    /// BRBTGTINJ_EL1.
    TgtInj,
    /// BRBIDR0_EL1.
    Idr0,
}

impl Register {
    /// The register with this encoding, `None` where it is not BRBE's.
    pub const fn decode(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Option<Self> {
        let register = match (op0, op1, crn, crm, op2) {
            (2, 1, 8, 0..=15, 0..=7) => {
                // The number is CRm with op2[2] above it.
                let n = crm | (op2 & 4) << 2;
                match op2 & 3 {
                    0 => Self::Inf(n),
                    1 => Self::Src(n),
                    2 => Self::Tgt(n),
                    _ => return None,
                }
            }
            (2, 1, 9, 0, 0) => Self::CrEl1,
            (2, 4, 9, 0, 0) => Self::CrEl2,
            (2, 5, 9, 0, 0) => Self::CrEl12,
            (2, 1, 9, 0, 1) => Self::Fcr,
            (2, 1, 9, 0, 2) => Self::Ts,
            (2, 1, 9, 1, 0) => Self::InfInj,
            (2, 1, 9, 1, 1) => Self::SrcInj,
            (2, 1, 9, 1, 2) => Self::TgtInj,
            (2, 1, 9, 2, 0) => Self::Idr0,
            _ => return None,
        };
        Some(register)
    }

    const fn is_read_only(self) -> bool {
        matches!(
            self,
            Self::Inf(_) | Self::Src(_) | Self::Tgt(_) | Self::Idr0
        )
    }

    /// The bit of HDFGRTR_EL2 and HDFGWTR_EL2 that traps accesses at EL1 while
    /// it is 0: nBRBDATA, nBRBCTL or nBRBIDR.
    const fn fine_grained_bit(self) -> u32 {
        match self {
            Self::CrEl1 | Self::CrEl2 | Self::CrEl12 | Self::Fcr => 60,
            Self::Idr0 => 59,
            _ => 61,
        }
    }
}

/// A `BRB` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// BRB IALL: invalidate all records.
    Iall,
    /// BRB INJ: inject a record.
    Inj,
}

impl Instruction {
    /// The instruction with this encoding, `None` where it is not BRBE's.
    pub const fn decode(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Option<Self> {
        match (op0, op1, crn, crm, op2) {
            (1, 1, 7, 2, 4) => Some(Self::Iall),
            (1, 1, 7, 2, 5) => Some(Self::Inj),
            _ => None,
        }
    }
}

/// Direction of a register access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// `MRS`.
    Read,
    /// `MSR`.
    Write,
}

/// Why an access does not reach the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The instruction is UNDEFINED.
    Undefined,
    /// It traps to EL2, with EC 0x18.
    TrapToEl2,
    /// It traps to EL3, with EC 0x18.
    TrapToEl3,
    /// FEAT_NV2 makes it an access to memory at this offset from VNCR_EL2.
    Memory(u16),
}

const BRBCR_EL1_IN_MEMORY: u16 = 0x8e0;

/// MDCR_EL3.SBRBE: EL3 may keep lower Exception levels from the registers.
fn el3_traps(pe: &Pe) -> bool {
    pe.el3.as_ref().is_some_and(|el3| match el3.secure {
        true => el3.sbrbe != 0b11,
        false => el3.sbrbe & 1 == 0,
    })
}

fn check(pe: &Pe, fine_grained_trap: bool) -> Result<(), Denied> {
    match pe.el {
        ExceptionLevel::El0 => Err(Denied::Undefined),
        ExceptionLevel::El1 if fine_grained_trap => Err(Denied::TrapToEl2),
        ExceptionLevel::El1 | ExceptionLevel::El2 if el3_traps(pe) => Err(Denied::TrapToEl3),
        _ => Ok(()),
    }
}

/// May `pe` execute this `BRB` instruction: HFGITR_EL2.nBRBIALL and nBRBINJ.
pub(crate) fn check_instruction(pe: &Pe, instruction: Instruction) -> Result<(), Denied> {
    let bit = match instruction {
        Instruction::Iall => 56,
        Instruction::Inj => 55,
    };
    let fgt = pe.el2_enabled().and_then(|el2| el2.fgt);
    check(pe, fgt.is_some_and(|fgt| fgt.hfgitr >> bit & 1 == 0))
}

/// The register that an access by `pe` reaches: the one named, but for BRBCR.
pub(crate) fn resolve(pe: &Pe, name: Register, access: Access) -> Result<Register, Denied> {
    match name {
        Register::CrEl1 | Register::CrEl2 | Register::CrEl12 => control(pe, name, access),
        _ => check_register(pe, name, access).map(|()| name),
    }
}

/// May `pe` access `register`, names of BRBCR apart.
fn check_register(pe: &Pe, register: Register, access: Access) -> Result<(), Denied> {
    if access == Access::Write && register.is_read_only() {
        return Err(Denied::Undefined);
    }
    let fgt = pe.el2_enabled().and_then(|el2| el2.fgt);
    let traps = fgt.is_some_and(|fgt| {
        let enables = match access {
            Access::Read => fgt.hdfgrtr,
            Access::Write => fgt.hdfgwtr,
        };
        enables >> register.fine_grained_bit() & 1 == 0
    });
    check(pe, traps)
}

/// The register that a BRBCR name reaches (D24.8.1, D24.8.2): HCR_EL2.E2H
/// redirects at EL2, HCR_EL2.{NV,NV1,NV2} at EL1. TGE plays no part.
fn control(pe: &Pe, name: Register, access: Access) -> Result<Register, Denied> {
    use ExceptionLevel::{El0, El1, El2, El3};
    let nv = pe.el2_enabled().map(|el2| el2.hcr).filter(|hcr| hcr.nv);
    let checked = || check_register(pe, name, access);
    match (name, pe.el) {
        (_, El0) => Err(Denied::Undefined),
        (Register::CrEl12, El1) => match nv {
            Some(hcr) if hcr.nv2 && !hcr.nv1 => Err(Denied::Memory(BRBCR_EL1_IN_MEMORY)),
            Some(_) => Err(Denied::TrapToEl2),
            None => Err(Denied::Undefined),
        },
        (Register::CrEl12, El2 | El3) if !pe.e2h() => Err(Denied::Undefined),
        (Register::CrEl12, _) => checked().map(|()| Register::CrEl1),
        (Register::CrEl2, El1) if nv.is_some() => Err(Denied::TrapToEl2),
        (Register::CrEl2, El1) => Err(Denied::Undefined),
        (Register::CrEl2, _) => checked().map(|()| Register::CrEl2),
        (_, El1) => {
            checked()?;
            match nv {
                Some(hcr) if hcr.nv1 && hcr.nv2 => Err(Denied::Memory(BRBCR_EL1_IN_MEMORY)),
                _ => Ok(Register::CrEl1),
            }
        }
        (_, El2) if pe.e2h() => checked().map(|()| Register::CrEl2),
        _ => checked().map(|()| Register::CrEl1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pe::{El2, El3, FineGrainedTraps, Hcr};
    use Access::{Read, Write};

    const NAMES: [Register; 12] = [
        Register::Inf(0),
        Register::Src(31),
        Register::Tgt(5),
        Register::CrEl1,
        Register::CrEl2,
        Register::CrEl12,
        Register::Fcr,
        Register::Ts,
        Register::InfInj,
        Register::SrcInj,
        Register::TgtInj,
        Register::Idr0,
    ];

    fn pe(el: ExceptionLevel, hcr: Hcr) -> Pe {
        let el2 = Some(El2 {
            enabled: true,
            hcr,
            hpmn: 6,
            fgt: None,
        });
        Pe {
            el,
            el2,
            ..Pe::default()
        }
    }

    const VHE: Hcr = Hcr {
        e2h: true,
        tge: true,
        nv: false,
        nv1: false,
        nv2: false,
    };

    /// D24.8.4 to D24.8.12: n is CRm with op2[2] above.
    #[test]
    fn record_registers_are_numbered_by_crm_and_op2() {
        for n in 0..32_u8 {
            let (crm, high) = (n & 15, n >> 4 << 2);
            assert_eq!(Register::decode(2, 1, 8, crm, high), Some(Register::Inf(n)));
            assert_eq!(
                Register::decode(2, 1, 8, crm, high | 1),
                Some(Register::Src(n))
            );
            assert_eq!(
                Register::decode(2, 1, 8, crm, high | 2),
                Some(Register::Tgt(n))
            );
            assert_eq!(Register::decode(2, 1, 8, crm, high | 3), None);
        }
        assert_eq!(Register::decode(2, 1, 7, 0, 0), None); // the trace unit's
    }

    #[test]
    fn at_el0_everything_is_undefined() {
        let el0 = pe(ExceptionLevel::El0, VHE);
        for name in NAMES {
            for access in [Read, Write] {
                assert_eq!(check_register(&el0, name, access), Err(Denied::Undefined));
                assert_eq!(control(&el0, name, access), Err(Denied::Undefined));
            }
        }
        assert_eq!(
            check_instruction(&el0, Instruction::Iall),
            Err(Denied::Undefined)
        );
    }

    #[test]
    fn writes_of_read_only_registers_are_undefined() {
        for name in [
            Register::Inf(0),
            Register::Src(0),
            Register::Tgt(0),
            Register::Idr0,
        ] {
            assert_eq!(
                check_register(&Pe::default(), name, Write),
                Err(Denied::Undefined)
            );
            assert_eq!(check_register(&Pe::default(), name, Read), Ok(()));
        }
    }

    /// D24.8.1, D24.8.2: the accessor table of BRBCR.
    #[test]
    fn e2h_redirects_brbcr_at_el2() {
        let (nvhe, vhe) = (
            pe(ExceptionLevel::El2, Hcr::default()),
            pe(ExceptionLevel::El2, VHE),
        );
        assert_eq!(control(&nvhe, Register::CrEl1, Write), Ok(Register::CrEl1));
        assert_eq!(
            control(&nvhe, Register::CrEl12, Write),
            Err(Denied::Undefined)
        );
        assert_eq!(control(&nvhe, Register::CrEl2, Write), Ok(Register::CrEl2));
        assert_eq!(control(&vhe, Register::CrEl1, Write), Ok(Register::CrEl2));
        assert_eq!(control(&vhe, Register::CrEl12, Write), Ok(Register::CrEl1));
        assert_eq!(control(&vhe, Register::CrEl2, Write), Ok(Register::CrEl2));
        let el1 = pe(ExceptionLevel::El1, VHE);
        assert_eq!(control(&el1, Register::CrEl1, Read), Ok(Register::CrEl1));
        assert_eq!(
            control(&el1, Register::CrEl12, Read),
            Err(Denied::Undefined)
        );
        assert_eq!(control(&el1, Register::CrEl2, Read), Err(Denied::Undefined));
        let el3 = Pe {
            el: ExceptionLevel::El3,
            ..vhe
        };
        assert_eq!(control(&el3, Register::CrEl1, Read), Ok(Register::CrEl1));
        assert_eq!(control(&el3, Register::CrEl12, Read), Ok(Register::CrEl1));
    }

    /// FEAT_NV and FEAT_NV2 at EL1.
    #[test]
    fn nested_virtualisation_at_el1() {
        let with = |nv, nv1, nv2| {
            pe(
                ExceptionLevel::El1,
                Hcr {
                    nv,
                    nv1,
                    nv2,
                    ..Hcr::default()
                },
            )
        };
        let memory = Err(Denied::Memory(0x8e0));
        let nv = with(true, false, false);
        assert_eq!(control(&nv, Register::CrEl2, Read), Err(Denied::TrapToEl2));
        assert_eq!(control(&nv, Register::CrEl12, Read), Err(Denied::TrapToEl2));
        assert_eq!(control(&nv, Register::CrEl1, Read), Ok(Register::CrEl1));
        assert_eq!(
            control(&with(true, false, true), Register::CrEl12, Read),
            memory
        );
        assert_eq!(
            control(&with(true, true, true), Register::CrEl1, Read),
            memory
        );
        assert_eq!(
            control(&with(true, true, true), Register::CrEl12, Read),
            Err(Denied::TrapToEl2)
        );
    }

    /// HDFGRTR_EL2, HDFGWTR_EL2 and HFGITR_EL2 trap where their bit is 0.
    #[test]
    fn fine_grained_traps_of_el1() {
        let with = |hdfgrtr: u64, hdfgwtr: u64, hfgitr: u64| {
            let fgt = Some(FineGrainedTraps {
                hdfgrtr,
                hdfgwtr,
                hfgitr,
            });
            let el2 = Some(El2 {
                enabled: true,
                fgt,
                ..El2::default()
            });
            Pe {
                el2,
                ..Pe::default()
            }
        };
        for (name, bit) in [
            (Register::Inf(3), 61),
            (Register::Ts, 61),
            (Register::SrcInj, 61),
            (Register::CrEl1, 60),
            (Register::Fcr, 60),
            (Register::Idr0, 59),
        ] {
            let trap = with(!(1 << bit), u64::MAX, u64::MAX);
            assert_eq!(
                check_register(&trap, name, Read),
                Err(Denied::TrapToEl2),
                "{name:?}"
            );
            assert_eq!(
                check_register(&with(1 << bit, 0, 0), name, Read),
                Ok(()),
                "{name:?}"
            );
            if !name.is_read_only() {
                let trap = with(u64::MAX, !(1 << bit), u64::MAX);
                assert_eq!(check_register(&trap, name, Write), Err(Denied::TrapToEl2));
                assert_eq!(check_register(&trap, name, Read), Ok(()));
            }
        }
        for (instruction, bit) in [(Instruction::Iall, 56), (Instruction::Inj, 55)] {
            let trap = with(u64::MAX, u64::MAX, !(1 << bit));
            assert_eq!(
                check_instruction(&trap, instruction),
                Err(Denied::TrapToEl2)
            );
            assert_eq!(
                check_instruction(&with(0, 0, 1 << bit), instruction),
                Ok(())
            );
        }
        let at_el2 = Pe {
            el: ExceptionLevel::El2,
            ..with(0, 0, 0)
        };
        assert_eq!(check_register(&at_el2, Register::Fcr, Write), Ok(()));
    }

    /// MDCR_EL3.SBRBE, by Security state; nothing traps at EL3.
    #[test]
    fn sbrbe_traps_to_el3() {
        let with = |el, sbrbe, secure| {
            let el3 = Some(El3 {
                sbrbe,
                secure,
                ..El3::default()
            });
            Pe {
                el,
                el3,
                ..Pe::default()
            }
        };
        for (sbrbe, non_secure, secure) in [
            (0b00, true, true),
            (0b01, false, true),
            (0b10, true, true),
            (0b11, false, false),
        ] {
            for (state, traps) in [(false, non_secure), (true, secure)] {
                let pe = with(ExceptionLevel::El1, sbrbe, state);
                let denied = check_register(&pe, Register::Fcr, Read) == Err(Denied::TrapToEl3);
                assert_eq!(denied, traps, "SBRBE {sbrbe:#b} secure {state}");
                let el3 = with(ExceptionLevel::El3, sbrbe, state);
                assert_eq!(check_register(&el3, Register::Fcr, Read), Ok(()));
            }
        }
    }
}
