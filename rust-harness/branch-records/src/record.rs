//! One branch, as `struct perf_branch_entry` of the perf UAPI holds it.

use std::num::NonZeroU64;

use serde::Serialize;

/// `struct perf_branch_entry` as the kernel wrote it: two addresses and one
/// word of bit fields, nothing interpreted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawRecord {
    /// Address of the branch instruction, 0 when the hardware kept it back.
    pub from: u64,
    /// Address branched to, 0 when the hardware kept it back.
    pub to: u64,
    /// The bit fields: `mispred:1 predicted:1 in_tx:1 abort:1 cycles:16 type:4
    /// spec:2 new_type:4 priv:3 reserved:31`, from the least significant bit.
    pub flags: u64,
}

impl RawRecord {
    /// `sizeof(struct perf_branch_entry)`.
    pub const SIZE: usize = 24;

    /// Reads a record as it lies in the memory of the machine that took it, in
    /// that machine's byte order.
    pub fn from_ne_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_ne_bytes(word)
        };
        Self {
            from: word(0),
            to: word(8),
            flags: word(16),
        }
    }

    /// Decodes the bit fields.
    pub fn decode(&self) -> Record {
        let field = |shift: u32, width: u32| (self.flags >> shift) & ((1 << width) - 1);
        Record {
            from: NonZeroU64::new(self.from),
            to: NonZeroU64::new(self.to),
            mispredicted: field(0, 1) == 1,
            predicted: field(1, 1) == 1,
            in_transaction: field(2, 1) == 1,
            abort: field(3, 1) == 1,
            cycles: match field(4, 16) {
                0 => Cycles::Unknown,
                0xffff => Cycles::AtLeast(0xffff),
                // The field is 16 bits wide: nothing is cut off.
                cycles => Cycles::Count(cycles as u16),
            },
            kind: BranchType::from_fields(field(20, 4) as u8, field(26, 4) as u8),
            speculation: Speculation::from_field(field(24, 2) as u8),
            privilege: Privilege::from_field(field(30, 3) as u8),
            new_type: field(26, 4) as u8,
            reserved: field(33, 31) as u32,
        }
    }
}

/// A record with its bit fields decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Address of the branch instruction. `None` in a half record: the branch
    /// came from where recording was prohibited.
    pub from: Option<NonZeroU64>,
    /// Address branched to. `None` in a half record.
    pub to: Option<NonZeroU64>,
    /// The hardware says that it predicted this branch wrongly.
    pub mispredicted: bool,
    /// The hardware says that it predicted this branch correctly. When neither
    /// flag is set, the hardware does not say.
    pub predicted: bool,
    /// The branch was taken inside a transaction.
    pub in_transaction: bool,
    /// The branch is the abort of a transaction.
    pub abort: bool,
    /// Cycles since the branch before this one.
    pub cycles: Cycles,
    /// The type of the branch.
    pub kind: BranchType,
    /// Whether the branch was taken speculatively.
    pub speculation: Speculation,
    /// The privilege level that the branch went to.
    pub privilege: Privilege,
    /// The `new_type` field itself. It has a meaning with `PERF_BR_EXTEND_ABI` only, and
    /// is 0 in every other record.
    pub new_type: u8,
    /// The reserved bits. They have no meaning, and are 0.
    pub reserved: u32,
}

impl Record {
    /// A description of a field whose value has no meaning in the perf ABI, if there is
    /// one. The kernel must never hand out such a record. Memory that was not written
    /// looks like this.
    pub fn illegal_field(&self) -> Option<String> {
        let extended = matches!(self.kind, BranchType::Extended(_));
        if self.reserved != 0 {
            Some(format!("reserved bits are {:#x}", self.reserved))
        } else if !extended && self.new_type != 0 {
            Some(format!(
                "new_type is {} though type is not PERF_BR_EXTEND_ABI",
                self.new_type
            ))
        } else if let BranchType::Extended(NewType::Undefined(value)) = self.kind {
            Some(format!("new_type is {value}, which is not defined"))
        } else if let Privilege::Undefined(value) = self.privilege {
            Some(format!("priv is {value}, which is not defined"))
        } else if self.mispredicted && self.predicted {
            Some("both mispred and predicted are set".to_owned())
        } else if self.from.is_none() && self.to.is_none() {
            Some("both addresses are 0".to_owned())
        } else {
            None
        }
    }
}

/// The cycles between a branch and the branch before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cycles {
    /// The cycles were not counted, or are not known.
    Unknown,
    /// This many cycles.
    Count(u16),
    /// At least this many cycles: the field is 16 bits wide and saturated.
    AtLeast(u16),
}

/// The type of a branch: `PERF_BR_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are perf's
pub enum BranchType {
    Unknown,
    Conditional,
    Unconditional,
    Indirect,
    Call,
    IndirectCall,
    Return,
    Syscall,
    SyscallReturn,
    ConditionalCall,
    ConditionalReturn,
    ExceptionReturn,
    Irq,
    SystemError,
    NotInTransaction,
    /// `PERF_BR_EXTEND_ABI`: `new_type` says more.
    Extended(NewType),
}

impl BranchType {
    /// The type that has this name in perf: the inverse of [`Self::name`]. An empty name
    /// is [`Self::Unknown`], because perf prints nothing at all for a type that is not
    /// known.
    pub fn from_name(name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::Unknown);
        }
        (0..=15)
            .flat_map(|kind| (0..=7).map(move |new_type| Self::from_fields(kind, new_type)))
            .find(|kind| kind.name() == name)
    }

    /// Decodes the `type` field (4 bits) with the help of `new_type` (4 bits).
    fn from_fields(kind: u8, new_type: u8) -> Self {
        match kind & 0xf {
            0 => Self::Unknown,
            1 => Self::Conditional,
            2 => Self::Unconditional,
            3 => Self::Indirect,
            4 => Self::Call,
            5 => Self::IndirectCall,
            6 => Self::Return,
            7 => Self::Syscall,
            8 => Self::SyscallReturn,
            9 => Self::ConditionalCall,
            10 => Self::ConditionalReturn,
            11 => Self::ExceptionReturn,
            12 => Self::Irq,
            13 => Self::SystemError,
            14 => Self::NotInTransaction,
            _ => Self::Extended(NewType::from_field(new_type)),
        }
    }

    /// perf's own short name of the type, as `perf script -F brstack` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "-",
            Self::Conditional => "COND",
            Self::Unconditional => "UNCOND",
            Self::Indirect => "IND",
            Self::Call => "CALL",
            Self::IndirectCall => "IND_CALL",
            Self::Return => "RET",
            Self::Syscall => "SYSCALL",
            Self::SyscallReturn => "SYSRET",
            Self::ConditionalCall => "COND_CALL",
            Self::ConditionalReturn => "COND_RET",
            Self::ExceptionReturn => "ERET",
            Self::Irq => "IRQ",
            Self::SystemError => "SERROR",
            Self::NotInTransaction => "NO_TX",
            Self::Extended(new) => new.name(),
        }
    }
}

/// The meaning of `new_type` in a `PERF_BR_EXTEND_ABI` branch: `PERF_BR_NEW_*`. The
/// values that perf leaves to the architecture have arm64's meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are perf's
pub enum NewType {
    AlignmentFault,
    DataFault,
    InstructionFault,
    Fiq,
    DebugHalt,
    DebugExit,
    DebugInstruction,
    DebugData,
    /// A value that perf does not define.
    Undefined(u8),
}

impl NewType {
    fn from_field(new_type: u8) -> Self {
        match new_type {
            0 => Self::AlignmentFault,
            1 => Self::DataFault,
            2 => Self::InstructionFault,
            3 => Self::Fiq,
            4 => Self::DebugHalt,
            5 => Self::DebugExit,
            6 => Self::DebugInstruction,
            7 => Self::DebugData,
            undefined => Self::Undefined(undefined),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::AlignmentFault => "FAULT_ALGN",
            Self::DataFault => "FAULT_DATA",
            Self::InstructionFault => "FAULT_INST",
            Self::Fiq => "ARM64_FIQ",
            Self::DebugHalt => "ARM64_DEBUG_HALT",
            Self::DebugExit => "ARM64_DEBUG_EXIT",
            Self::DebugInstruction => "ARM64_DEBUG_INST",
            Self::DebugData => "ARM64_DEBUG_DATA",
            Self::Undefined(_) => "undefined",
        }
    }
}

/// Whether a branch was speculative: `PERF_BR_SPEC_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // the names are perf's
pub enum Speculation {
    NotAvailable,
    WrongPath,
    NonSpeculativeCorrectPath,
    SpeculativeCorrectPath,
}

impl Speculation {
    /// Decodes the `spec` field (2 bits).
    fn from_field(spec: u8) -> Self {
        match spec & 3 {
            0 => Self::NotAvailable,
            1 => Self::WrongPath,
            2 => Self::NonSpeculativeCorrectPath,
            _ => Self::SpeculativeCorrectPath,
        }
    }
}

/// The privilege level a branch went to: `PERF_BR_PRIV_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are perf's
pub enum Privilege {
    Unknown,
    User,
    Kernel,
    Hypervisor,
    /// A value that perf does not define.
    Undefined(u8),
}

impl Privilege {
    /// Decodes the `priv` field (3 bits).
    fn from_field(privilege: u8) -> Self {
        match privilege {
            0 => Self::Unknown,
            1 => Self::User,
            2 => Self::Kernel,
            3 => Self::Hypervisor,
            undefined => Self::Undefined(undefined),
        }
    }

    /// The name of the privilege level, as perf's event modifiers have it but written
    /// out.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "-",
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::Hypervisor => "hv",
            Self::Undefined(_) => "undefined",
        }
    }
}

#[cfg(test)]
mod tests;
