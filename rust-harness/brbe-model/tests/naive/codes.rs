//! The tables of section 3: filter bits, TYPE, EL.

use brbe_model::{BranchKind, ExceptionKind, ExceptionLevel};

pub(crate) fn branch_filter(kind: BranchKind) -> u32 {
    match kind {
        BranchKind::Conditional => 22,
        BranchKind::DirectCall => 21,
        BranchKind::IndirectCall => 20,
        BranchKind::Return => 19,
        BranchKind::Indirect => 18,
        BranchKind::Direct => 17,
    }
}

pub(crate) fn branch_type(kind: BranchKind) -> u64 {
    match kind {
        BranchKind::Direct => 0b000000,
        BranchKind::Indirect => 0b000001,
        BranchKind::DirectCall => 0b000010,
        BranchKind::IndirectCall => 0b000011,
        BranchKind::Return => 0b000101,
        BranchKind::Conditional => 0b001000,
    }
}

pub(crate) fn exception_type(kind: ExceptionKind) -> u64 {
    match kind {
        ExceptionKind::Call => 0b100010,
        ExceptionKind::Trap => 0b100011,
        ExceptionKind::SError => 0b100100,
        ExceptionKind::InstructionDebug => 0b100110,
        ExceptionKind::DataDebug => 0b100111,
        ExceptionKind::Alignment => 0b101010,
        ExceptionKind::InstructionFault => 0b101011,
        ExceptionKind::DataFault => 0b101100,
        ExceptionKind::Irq => 0b101110,
        ExceptionKind::Fiq => 0b101111,
        ExceptionKind::ImplementationDefined => 0b110000,
    }
}

pub(crate) fn el(el: ExceptionLevel) -> u64 {
    match el {
        ExceptionLevel::El0 => 0b00,
        ExceptionLevel::El1 => 0b01,
        ExceptionLevel::El2 => 0b10,
        ExceptionLevel::El3 => 0b11,
    }
}
