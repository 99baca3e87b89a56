//! A vCPU's registers, by the names that QEMU has for debuggers.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};

use crate::api::{GArray, GByteArray, RegisterDescriptor, api};

/// A register of the vCPU it was looked up on.
#[derive(Clone, Copy, Debug)]
pub struct RegisterHandle(*mut c_void);

/// All registers of a vCPU by name.
#[derive(Debug)]
pub struct Names(HashMap<String, RegisterHandle>);

impl Names {
    /// Looks up the registers of the current vCPU.
    ///
    /// # Safety
    ///
    /// There is a current vCPU: this is called from its initialisation, or from another
    /// callback of its thread.
    pub unsafe fn look_up() -> Self {
        // SAFETY: there is a current vCPU.
        let array = unsafe { (api().qemu_plugin_get_registers)() };
        let mut names = HashMap::new();
        // SAFETY: QEMU returned a live GArray.
        let GArray { data, len } = unsafe { array.read() };
        if !data.is_null() {
            // SAFETY: its elements are `len` register descriptors.
            let descriptors = unsafe {
                std::slice::from_raw_parts(data.cast::<RegisterDescriptor>(), len as usize)
            };
            for descriptor in descriptors {
                // SAFETY: names are interned C strings.
                let name = unsafe { CStr::from_ptr(descriptor.name) };
                names.insert(
                    name.to_string_lossy().into_owned(),
                    RegisterHandle(descriptor.handle),
                );
            }
        }
        // SAFETY: the caller owns the array and nothing refers to it any more.
        unsafe { (api().g_array_free)(array, 1) };
        Self(names)
    }

    /// The register of this name, where there is one.
    pub fn find(&self, name: &str) -> Option<RegisterHandle> {
        self.0.get(name).copied()
    }

    /// The register of this name, which has to be there.
    ///
    /// # Errors
    ///
    /// The name, if there is no such register.
    pub fn need(&self, name: &str) -> Result<RegisterHandle, String> {
        self.find(name).ok_or_else(|| name.to_owned())
    }
}

/// A buffer by which values of one vCPU's registers and memory are read and written.
#[derive(Debug)]
pub struct Buffer(*mut GByteArray);

impl Buffer {
    /// A buffer for the current vCPU.
    ///
    /// # Safety
    ///
    /// The buffer is used on this vCPU's thread alone, with its registers: to read in
    /// callbacks that are registered with access to registers, or of a kind that always
    /// has it; to write in those that are registered for that.
    pub unsafe fn new() -> Self {
        // SAFETY: no preconditions. The array lives as long as the vCPU.
        Self(unsafe { (api().g_byte_array_new)() })
    }

    /// The register's value, 0 where QEMU refuses to give it.
    pub fn read(&self, register: RegisterHandle) -> u64 {
        // SAFETY: the buffer is a live GByteArray of this vCPU's; QEMU appends.
        unsafe { (*self.0).len = 0 };
        // SAFETY: the handle is this vCPU's, and its thread is the one we are on.
        unsafe { (api().qemu_plugin_read_register)(register.0, self.0) };
        self.word()
    }

    /// Sets the register.
    pub fn write(&self, register: RegisterHandle, value: u64) {
        self.set(&value.to_le_bytes());
        // SAFETY: the handle is this vCPU's and the buffer has its size.
        unsafe { (api().qemu_plugin_write_register)(register.0, self.0) };
    }

    /// Reads four bytes at `address` of the vCPU's physical address space, where a device
    /// may be. `None` if QEMU refuses that.
    pub fn read_physical(&self, address: u64) -> Option<u32> {
        // SAFETY: we are on the vCPU's thread, and the buffer is live; QEMU sets its size.
        let result = unsafe { (api().qemu_plugin_read_memory_hwaddr)(address, self.0, 4) };
        (result == 0).then(|| self.word() as u32)
    }

    /// Writes four bytes at `address` of the vCPU's physical address space. Returns
    /// whether QEMU did.
    pub fn write_physical(&self, address: u64, value: u32) -> bool {
        self.set(&value.to_le_bytes());
        // SAFETY: we are on the vCPU's thread, and the buffer is live.
        let result = unsafe { (api().qemu_plugin_write_memory_hwaddr)(address, self.0) };
        result == 0
    }

    /// The buffer's first bytes as a number: registers are little-endian for the
    /// debugger.
    fn word(&self) -> u64 {
        // SAFETY: the buffer is live.
        let GByteArray { data, len } = unsafe { self.0.read() };
        let mut value = [0; 8];
        if !data.is_null() {
            let len = len.min(8) as usize;
            // SAFETY: the array holds `len` bytes or more, `value` has eight.
            unsafe { std::ptr::copy_nonoverlapping(data, value.as_mut_ptr(), len) };
        }
        u64::from_le_bytes(value)
    }

    fn set(&self, bytes: &[u8]) {
        let len = u32::try_from(bytes.len()).unwrap_or(0);
        // SAFETY: the buffer is a live GByteArray of this vCPU's.
        unsafe { (api().g_byte_array_set_size)(self.0, len) };
        // SAFETY: the buffer is live.
        let data = unsafe { (*self.0).data };
        // SAFETY: the array holds `len` bytes now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, len as usize) };
    }
}
