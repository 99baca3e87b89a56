//! The vCPU's registers, each looked up once.

use lbr_model::Cpl;
use qemu_plugin::registers::{Buffer, Names, RegisterHandle};

/// Handles of all registers that are used, and a buffer to move values in.
pub(crate) struct Registers {
    pub(crate) buffer: Buffer,
    rip: RegisterHandle,
    cs: RegisterHandle,
    cr4: RegisterHandle,
    efer: RegisterHandle,
    /// EAX, EBX, ECX and EDX.
    general: [RegisterHandle; 4],
}

/// CR4.PCE: RDPMC is allowed everywhere.
const PCE: u64 = 1 << 8;
/// EFER.LMA: long mode is active.
const LMA: u64 = 1 << 10;

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
        Ok(Self {
            // SAFETY: the buffer stays on the vCPU's thread, and the callbacks that write
            // registers are registered for it.
            buffer: unsafe { Buffer::new() },
            rip: names.need("rip")?,
            cs: names.need("cs")?,
            cr4: names.need("cr4")?,
            efer: names.need("efer")?,
            general: [
                names.need("rax")?,
                names.need("rbx")?,
                names.need("rcx")?,
                names.need("rdx")?,
            ],
        })
    }

    /// The value of RIP. At the start of a block, it is the block's address.
    pub(crate) fn rip(&self) -> u64 {
        self.buffer.read(self.rip)
    }

    /// The privilege level: bits 1:0 of the code segment's selector.
    pub(crate) fn cpl(&self) -> Cpl {
        match self.buffer.read(self.cs) & 3 {
            0 => Cpl::Kernel,
            _ => Cpl::User,
        }
    }

    /// Whether RDPMC is allowed now, and does not fault.
    pub(crate) fn allows_rdpmc(&self) -> bool {
        self.cpl() == Cpl::Kernel || self.buffer.read(self.cr4) & PCE != 0
    }

    /// Whether the vCPU is in long mode, in which addresses are flat.
    pub(crate) fn is_in_long_mode(&self) -> bool {
        self.buffer.read(self.efer) & LMA != 0
    }

    pub(crate) fn eax(&self) -> u32 {
        self.read(0)
    }

    pub(crate) fn ecx(&self) -> u32 {
        self.read(2)
    }

    /// The value of EDX:EAX.
    pub(crate) fn edx_eax(&self) -> u64 {
        u64::from(self.read(3)) << 32 | u64::from(self.read(0))
    }

    /// Sets RAX and RDX to the halves of `value`.
    pub(crate) fn set_edx_eax(&self, value: u64) {
        self.buffer.write(self.general[0], value & 0xffff_ffff);
        self.buffer.write(self.general[3], value >> 32);
    }

    /// The values of EAX, EBX, ECX and EDX.
    pub(crate) fn all(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|n| self.read(n))
    }

    /// Sets RAX, RBX, RCX and RDX to `values`.
    pub(crate) fn set_all(&self, values: [u32; 4]) {
        for (register, value) in self.general.iter().zip(values) {
            self.buffer.write(*register, value.into());
        }
    }

    fn read(&self, n: usize) -> u32 {
        self.buffer.read(self.general[n]) as u32
    }
}
