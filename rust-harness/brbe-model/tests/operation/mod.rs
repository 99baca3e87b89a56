//! What may happen to a processing element with BRBE, at random.

mod strategy;

use brbe_model::{
    BranchKind, ExceptionKind, ExceptionLevel, FineGrainedTraps, Hcr, Instruction, Register,
};

pub(crate) use strategy::{cpus, implementations, operations};

/// Something that a PE, its software or its debugger does.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Taken branches, one after the other.
    Branches(Vec<Branch>),
    Exception {
        to: ExceptionLevel,
        to_aarch32: bool,
        kind: ExceptionKind,
        src: u64,
        tgt: u64,
    },
    /// An exception return. From EL3 it leads to the Security state that `secure` says.
    ExceptionReturn {
        to: ExceptionLevel,
        to_aarch32: bool,
        secure: bool,
        src: u64,
        tgt: u64,
    },
    /// Entry to Debug state, or exit from it.
    Debug(u64),
    Read(Register),
    Write(Register, u64),
    Brb(Instruction),
    /// A new value of PMOVSCLR_EL0, with FEAT_PMUv3_ICNTR's flag.
    OverflowFlags(u64),
    Capture,
    WarmReset,
    /// Firmware or a hypervisor writes a register that BRBE depends on.
    Configure(Setting),
    /// Firmware or a hypervisor writes a register that BRBE depends on, and at once
    /// writes back what was there before.
    ConfigureForAMoment(Setting),
    Cycles(u64),
}

/// Values of registers that are not BRBE's.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Setting {
    Hcr(Hcr),
    Hpmn(u8),
    FineGrainedTraps(Option<FineGrainedTraps>),
    Mdcr {
        sbrbe: u8,
        e3brec: bool,
        e3brew: bool,
    },
    /// SCR_EL3.EEL2.
    SecureEl2(bool),
}

#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) kind: BranchKind,
    pub(crate) src: u64,
    pub(crate) tgt: u64,
    /// The cycles until the next branch.
    pub(crate) cycles: u64,
}

/// What the PE implements besides BRBE.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu {
    pub(crate) el2: bool,
    pub(crate) el3: bool,
    pub(crate) counters: u8,
    pub(crate) icntr: bool,
}
