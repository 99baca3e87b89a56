//! A virtual machine of one CPU, which branches and then asks for its host, again and again.

use std::ops::Range;

use anyhow::{Context as _, Result, ensure};
use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Where the guest's memory is, as the guest sees it. Neither the kernel nor a program of the host
/// has anything there.
const MEMORY: u64 = 0x12_3400_0000;
/// The size of the guest's memory: a page of any size.
const SIZE: usize = 64 << 10;
/// An address where the guest has no memory: whoever writes there asks for the host.
const HOST: u64 = 0x45_6700_0000;

/// The guest's program. Its MMU is off, and `X0` is [`HOST`] (Arm ARM, C6.2).
const PROGRAM: [u32; 7] = [
    0xd2a0_0081, //    mov x1, #0x40000
    0x9400_0005, // 1: bl 2f
    0xf100_0421, //    subs x1, x1, #1
    0x54ff_ffc1, //    b.ne 1b
    0xf900_001f, //    str xzr, [x0]
    0x17ff_fffb, //    b PROGRAM
    0xd65f_03c0, // 2: ret
];

/// A virtual machine that runs [`PROGRAM`].
#[derive(Debug)]
pub(super) struct Machine {
    cpu: VcpuFd,
    _machine: VmFd,
}

impl Machine {
    /// Makes the machine. `None` where the kernel has no KVM, or its CPU does not let it run
    /// guests.
    pub(super) fn new() -> Result<Option<Self>> {
        let Ok(kvm) = Kvm::new() else {
            return Ok(None);
        };
        let machine = kvm.create_vm().context("KVM makes no machine")?;
        // SAFETY: a new mapping at an address of the kernel's choice replaces nothing.
        let memory = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let memory = memory.context("no memory for a guest")?;
        // SAFETY: the mapping is writable, larger than the program and aligned to a page, and
        // nothing else knows it yet.
        unsafe { memory.cast::<[u32; PROGRAM.len()]>().write(PROGRAM) };
        let region = kvm_userspace_memory_region {
            slot: 0,
            flags: 0,
            guest_phys_addr: MEMORY,
            memory_size: SIZE as u64,
            userspace_addr: memory.expose_provenance() as u64,
        };
        // SAFETY: the mapping stays as long as this process: nothing unmaps it.
        unsafe { machine.set_user_memory_region(region) }.context("KVM takes no memory")?;
        let cpu = machine.create_vcpu(0).context("KVM makes no CPU")?;
        set_up(&machine, &cpu)?;
        Ok(Some(Self {
            cpu,
            _machine: machine,
        }))
    }

    /// The addresses of the guest's memory.
    pub(super) fn memory() -> Range<u64> {
        MEMORY..MEMORY + SIZE as u64
    }

    /// Runs the guest until it asks for its host.
    pub(super) fn run(&mut self) -> Result<()> {
        let exit = self.cpu.run().context("KVM does not run the guest")?;
        let asked = matches!(exit, VcpuExit::MmioWrite(HOST, _));
        ensure!(asked, "the guest does not branch and ask: {exit:?}");
        Ok(())
    }
}

/// Has the CPU begin with [`PROGRAM`].
#[cfg(target_arch = "aarch64")]
fn set_up(machine: &VmFd, cpu: &VcpuFd) -> Result<()> {
    use kvm_bindings::{
        KVM_REG_ARM_CORE, KVM_REG_ARM64, KVM_REG_SIZE_U64, kvm_vcpu_init, user_pt_regs,
    };
    use std::mem::offset_of;

    let mut target = kvm_vcpu_init::default();
    machine
        .get_preferred_target(&mut target)
        .and_then(|()| cpu.vcpu_init(&target))
        .context("KVM sets up no CPU")?;
    for (offset, value) in [
        (offset_of!(user_pt_regs, regs), HOST),
        (offset_of!(user_pt_regs, pc), MEMORY),
    ] {
        // Registers are counted in words of 32 bits.
        let number = u64::from(KVM_REG_ARM_CORE) | (offset as u64 / 4);
        let register = KVM_REG_ARM64 | KVM_REG_SIZE_U64 | number;
        cpu.set_one_reg(register, &value.to_ne_bytes())
            .context("KVM sets no register")?;
    }
    Ok(())
}

#[cfg(not(target_arch = "aarch64"))]
fn set_up(_machine: &VmFd, _cpu: &VcpuFd) -> Result<()> {
    anyhow::bail!("the guest's program is arm64's")
}
