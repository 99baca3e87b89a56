//! The vCPU's registers, each looked up once.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};

use crate::sys::{GArray, GByteArray, RegisterDescriptor, api};

/// A register of the vCPU it was looked up on.
#[derive(Clone, Copy)]
pub(crate) struct Register(*mut c_void);

/// Handles of all registers that are used, and a buffer to move values in.
pub(crate) struct Registers {
    buffer: *mut GByteArray,
    x: [Register; 31],
    pub(crate) pc: Register,
    pub(crate) cpsr: Register,
    pub(crate) id_aa64dfr0: Register,
    pub(crate) pmovsset: Register,
    pub(crate) pmcr: Register,
    pub(crate) cntfrq: Register,
    /// ESR, ELR and SPSR of EL1 to EL3.
    pub(crate) esr: [Option<Register>; 3],
    pub(crate) elr: [Option<Register>; 3],
    pub(crate) spsr: [Option<Register>; 3],
    pub(crate) el2: Option<El2Registers>,
    pub(crate) el3: Option<El3Registers>,
}

/// Registers that exist where EL2 does.
#[derive(Clone, Copy)]
pub(crate) struct El2Registers {
    pub(crate) hcr: Register,
    pub(crate) mdcr: Register,
    pub(crate) cntvoff: Register,
    /// HDFGRTR_EL2, HDFGWTR_EL2 and HFGITR_EL2, with FEAT_FGT.
    pub(crate) fgt: Option<[Register; 3]>,
}

/// Registers that exist where EL3 does.
#[derive(Clone, Copy)]
pub(crate) struct El3Registers {
    pub(crate) scr: Register,
    pub(crate) mdcr: Register,
}

/// All registers of the current vCPU by name.
fn by_name() -> HashMap<String, Register> {
    // SAFETY: called from a vCPU's initialisation, where there is a current one.
    let array = unsafe { (api().qemu_plugin_get_registers)() };
    let mut names = HashMap::new();
    // SAFETY: QEMU returned a live GArray.
    let GArray { data, len } = unsafe { array.read() };
    if !data.is_null() {
        // SAFETY: its elements are `len` register descriptors.
        let descriptors =
            unsafe { std::slice::from_raw_parts(data.cast::<RegisterDescriptor>(), len as usize) };
        for descriptor in descriptors {
            // SAFETY: names are interned C strings.
            let name = unsafe { CStr::from_ptr(descriptor.name) };
            names.insert(
                name.to_string_lossy().into_owned(),
                Register(descriptor.handle),
            );
        }
    }
    // SAFETY: the caller owns the array and nothing refers to it any more.
    unsafe { (api().g_array_free)(array, 1) };
    names
}

impl Registers {
    /// Looks the registers of the current vCPU up. On failure, the name of one
    /// that QEMU does not show.
    pub(crate) fn look_up() -> Result<Self, String> {
        let names = by_name();
        let find = |name: &str| names.get(name).copied();
        let need = |name: &str| find(name).ok_or_else(|| name.to_owned());
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
            // SAFETY: no preconditions. The array lives as long as the vCPU.
            buffer: unsafe { (api().g_byte_array_new)() },
            x: x.try_into().map_err(|_| "x0".to_owned())?,
            pc: need("pc")?,
            cpsr: need("cpsr")?,
            id_aa64dfr0: need("ID_AA64DFR0_EL1")?,
            pmovsset: need("PMOVSSET_EL0")?,
            pmcr: need("PMCR_EL0")?,
            cntfrq: need("CNTFRQ_EL0")?,
            esr: per_level("ESR"),
            elr: per_level("ELR"),
            spsr: per_level("SPSR"),
            el2,
            el3,
        })
    }

    /// The register's value, 0 where QEMU refuses to give it.
    ///
    /// Callbacks that call this are registered with access to registers, or
    /// are of a kind that always has it.
    pub(crate) fn read(&self, register: Register) -> u64 {
        let api = api();
        // SAFETY: the buffer is a live GByteArray of this vCPU's; QEMU appends.
        unsafe { (*self.buffer).len = 0 };
        // SAFETY: the handle is this vCPU's, and its thread is the one we are on.
        unsafe { (api.qemu_plugin_read_register)(register.0, self.buffer) };
        // SAFETY: the buffer is live.
        let GByteArray { data, len } = unsafe { self.buffer.read() };
        let mut value = [0; 8];
        if !data.is_null() {
            let len = len.min(8) as usize;
            // SAFETY: the array holds `len` bytes or more, `value` has eight.
            unsafe { std::ptr::copy_nonoverlapping(data, value.as_mut_ptr(), len) };
        }
        // AArch64 system registers are little-endian for the debugger.
        u64::from_le_bytes(value)
    }

    /// X0 to X30; 31 is zero.
    pub(crate) fn read_x(&self, n: u8) -> u64 {
        self.x
            .get(usize::from(n))
            .map_or(0, |register| self.read(*register))
    }

    /// Writes X0 to X30; 31 goes nowhere.
    pub(crate) fn write_x(&self, n: u8, value: u64) {
        let Some(register) = self.x.get(usize::from(n)) else {
            return;
        };
        let api = api();
        // SAFETY: the buffer is a live GByteArray of this vCPU's.
        unsafe { (api.g_byte_array_set_size)(self.buffer, 8) };
        // SAFETY: the buffer is live.
        let data = unsafe { (*self.buffer).data };
        // SAFETY: the array holds eight bytes now.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), data, 8) };
        // SAFETY: the handle is this vCPU's and the buffer has its size; the
        // callbacks that write registers are registered for it.
        unsafe { (api.qemu_plugin_write_register)(register.0, self.buffer) };
    }
}
