//! The instructions that the plugin handles, classified when they are translated.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl};
use lbr_model::TransferKind;

/// The number of bytes of the longest instruction.
pub(crate) const LONGEST: usize = 15;

/// What the plugin has to do with an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The instruction branches, always or sometimes.
    Branch {
        kind: TransferKind,
        /// Whether this is a direct branch to the instruction after it.
        to_next: bool,
    },
    /// The instruction reads or writes what the model has.
    System(System),
}

/// An instruction that the plugin takes over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Rdmsr,
    Wrmsr,
    Rdpmc,
    Cpuid,
}

/// The class of the 64-bit instruction in `bytes`; `None` for an instruction that is of
/// no interest. INT and its like are not branches here: QEMU reports them as exceptions.
pub(crate) fn classify(bytes: &[u8]) -> Option<Class> {
    let insn = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    let to_next = || insn.near_branch_target() == insn.len() as u64;
    let branch = |kind, to_next| Some(Class::Branch { kind, to_next });
    match insn.code() {
        Code::Rdmsr => return Some(Class::System(System::Rdmsr)),
        Code::Wrmsr => return Some(Class::System(System::Wrmsr)),
        Code::Rdpmc => return Some(Class::System(System::Rdpmc)),
        Code::Cpuid => return Some(Class::System(System::Cpuid)),
        Code::Syscall | Code::Sysenter => return branch(TransferKind::Other, false),
        _ => {}
    }
    match insn.flow_control() {
        FlowControl::ConditionalBranch => branch(TransferKind::Conditional, to_next()),
        FlowControl::UnconditionalBranch if insn.is_jmp_far() => branch(TransferKind::Other, false),
        FlowControl::UnconditionalBranch => branch(TransferKind::DirectJump, to_next()),
        FlowControl::IndirectBranch if insn.is_jmp_far_indirect() => {
            branch(TransferKind::Other, false)
        }
        FlowControl::IndirectBranch => branch(TransferKind::IndirectJump, false),
        FlowControl::Call if insn.is_call_far() => branch(TransferKind::Other, false),
        FlowControl::Call if insn.is_call_near() => branch(TransferKind::DirectCall, to_next()),
        FlowControl::IndirectCall if insn.is_call_far_indirect() => {
            branch(TransferKind::Other, false)
        }
        FlowControl::IndirectCall => branch(TransferKind::IndirectCall, false),
        FlowControl::Return if is_near_return(insn.code()) => branch(TransferKind::Return, false),
        // IRET, SYSRET, SYSEXIT, a far return.
        FlowControl::Return => branch(TransferKind::Other, false),
        _ => None,
    }
}

fn is_near_return(code: Code) -> bool {
    matches!(
        code,
        Code::Retnq | Code::Retnq_imm16 | Code::Retnw | Code::Retnw_imm16
    )
}

/// An instruction in a translated block, packed into what QEMU hands to a callback, so
/// that nothing is allocated.
///
/// A site knows only offsets: QEMU shares translated code between all addresses that a
/// page is mapped at.
///
/// | bits | |
/// |---|---|
/// | 11:0 | where the block starts in its page |
/// | 27:12 | the distance from there to the instruction, in bytes |
/// | 31:28 | the instruction's length |
/// | 34:32 | the kind of branch, or which system instruction it is |
/// | 35 | set for a direct branch to the next instruction |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site(u64);

const SYSTEM: [System; 4] = [System::Rdmsr, System::Wrmsr, System::Rdpmc, System::Cpuid];

impl Site {
    /// The instruction at `address`, of `len` bytes, in the block that starts at `block`.
    pub(crate) fn new(block: u64, address: u64, len: usize, class: Class) -> Self {
        let place = |found: Option<usize>| found.unwrap_or(0) as u64;
        let (number, to_next) = match class {
            Class::Branch { kind, to_next } => (
                place(TransferKind::ALL.iter().position(|k| *k == kind)),
                to_next,
            ),
            Class::System(system) => (place(SYSTEM.iter().position(|s| *s == system)), false),
        };
        let distance = address.wrapping_sub(block) & 0xffff;
        Self(
            block & 0xfff
                | distance << 12
                | (len as u64 & 0xf) << 28
                | number << 32
                | u64::from(to_next) << 35,
        )
    }

    pub(crate) fn from_userdata(userdata: *mut std::ffi::c_void) -> Self {
        Self(userdata.addr() as u64)
    }

    pub(crate) fn into_userdata(self) -> *mut std::ffi::c_void {
        qemu_plugin::userdata(self.0)
    }

    /// The instruction's address, where its block starts at `block`.
    pub(crate) fn address(self, block: u64) -> u64 {
        block.wrapping_add(self.0 >> 12 & 0xffff)
    }

    /// The instruction's address, where `pc` is the address of this or an earlier
    /// instruction of the block.
    pub(crate) fn address_by(self, pc: u64) -> u64 {
        let executed = pc.wrapping_sub(self.0) & 0xfff;
        self.address(pc.wrapping_sub(executed))
    }

    /// The instruction's length in bytes.
    pub(crate) fn len(self) -> u64 {
        self.0 >> 28 & 0xf
    }

    /// The kind of the branch, if the instruction is a branch.
    pub(crate) fn kind(self) -> TransferKind {
        TransferKind::ALL[(self.0 >> 32 & 7) as usize % TransferKind::ALL.len()]
    }

    /// Which system instruction this is, if it is one.
    pub(crate) fn system(self) -> System {
        SYSTEM[(self.0 >> 32 & 7) as usize % SYSTEM.len()]
    }

    /// Whether the instruction is a direct branch to the instruction after it.
    pub(crate) fn is_to_next(self) -> bool {
        self.0 >> 35 & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(kind: TransferKind) -> Option<Class> {
        Some(Class::Branch {
            kind,
            to_next: false,
        })
    }

    #[test]
    fn instructions_are_distinguished() {
        for (bytes, class) in [
            (&[0x74, 0x10][..], branch(TransferKind::Conditional)), // je
            (&[0x0f, 0x85, 1, 0, 0, 0], branch(TransferKind::Conditional)), // jne
            (&[0xe2, 0xfe], branch(TransferKind::Conditional)),     // loop
            (&[0xe3, 0x10], branch(TransferKind::Conditional)),     // jrcxz
            (&[0xeb, 0x10], branch(TransferKind::DirectJump)),
            (&[0xe9, 1, 0, 0, 0], branch(TransferKind::DirectJump)),
            (&[0xff, 0xe0], branch(TransferKind::IndirectJump)), // jmp *%rax
            (&[0x3e, 0xff, 0xe0], branch(TransferKind::IndirectJump)), // notrack
            (
                &[0xff, 0x24, 0xc5, 0, 0, 0, 0],
                branch(TransferKind::IndirectJump),
            ),
            (&[0xe8, 1, 0, 0, 0], branch(TransferKind::DirectCall)),
            (&[0xff, 0xd0], branch(TransferKind::IndirectCall)), // call *%rax
            (&[0x41, 0xff, 0xd3], branch(TransferKind::IndirectCall)), // call *%r11
            (&[0xc3], branch(TransferKind::Return)),
            (&[0xf3, 0xc3], branch(TransferKind::Return)), // rep ret
            (&[0xc2, 8, 0], branch(TransferKind::Return)),
            (&[0xcb], branch(TransferKind::Other)), // far return
            (&[0xff, 0x28], branch(TransferKind::Other)), // far jump
            (&[0x48, 0xff, 0x18], branch(TransferKind::Other)), // far call
            (&[0x48, 0xcf], branch(TransferKind::Other)), // iretq
            (&[0x0f, 0x05], branch(TransferKind::Other)), // syscall
            (&[0x48, 0x0f, 0x07], branch(TransferKind::Other)), // sysretq
            (&[0xcc], None),                        // int3
            (&[0xcd, 0x80], None),                  // int
            (&[0x0f, 0x0b], None),                  // ud2
            (&[0x90], None),
            (&[0x0f, 0x32], Some(Class::System(System::Rdmsr))),
            (&[0x0f, 0x30], Some(Class::System(System::Wrmsr))),
            (&[0x0f, 0x33], Some(Class::System(System::Rdpmc))),
            (&[0x0f, 0xa2], Some(Class::System(System::Cpuid))),
            (&[0x0f], None),
        ] {
            assert_eq!(classify(bytes), class, "{bytes:x?}");
        }
    }

    #[test]
    fn a_branch_to_the_next_instruction_is_known() {
        for bytes in [&[0x74, 0][..], &[0xeb, 0], &[0xe8, 0, 0, 0, 0]] {
            let class = classify(bytes);
            assert!(matches!(class, Some(Class::Branch { to_next: true, .. })));
        }
    }

    #[test]
    fn a_site_survives_the_way_through_qemu() {
        for kind in TransferKind::ALL {
            let class = Class::Branch {
                kind,
                to_next: kind == TransferKind::DirectCall,
            };
            let site = Site::new(0xffff_8000_1234_5ff0, 0xffff_8000_1234_6003, 15, class);
            let back = Site::from_userdata(site.into_userdata());
            assert_eq!((back.kind(), back.len()), (kind, 15));
            assert_eq!(back.is_to_next(), kind == TransferKind::DirectCall);
            // The block is executed at another address.
            assert_eq!(back.address(0x5ff0), 0x6003);
            for pc in [0x5ff0, 0x5ff7, 0x6003] {
                assert_eq!(back.address_by(pc), 0x6003, "{pc:#x}");
            }
        }
        for system in SYSTEM {
            let site = Site::new(0x1000, 0x1002, 2, Class::System(system));
            assert_eq!(site.system(), system);
        }
    }
}
