//! What a TCG plugin in Rust needs of QEMU, whatever it emulates.
//!
//! * [`api`]: the functions of QEMU's plugin API, version 7, looked up when the plugin is
//!   installed;
//! * [`install()`]: the entry point that QEMU calls, up to the plugin's own options;
//! * [`registers`]: a vCPU's registers by name;
//! * [`scoreboard`]: the words that translated code looks at;
//! * [`translation`]: a block while it is translated, and what is added to it;
//! * [`vcpus`]: what belongs to one vCPU, used by its own thread, without a lock;
//! * [`go_on_at`]: the end of a callback that took an instruction over.
//!
//! `unsafe` is about what QEMU calls, on which thread, and when: QEMU calls a vCPU's
//! callbacks on that vCPU's thread, and they do not nest.

pub mod api;
mod install;
pub mod registers;
pub mod scoreboard;
pub mod translation;
pub mod vcpus;

pub use install::{Target, install};

/// Ends a callback: the vCPU goes on at `address`.
///
/// # Safety
///
/// The callback is registered with [`api::CallbackFlags::WriteRegistersAndPc`], and
/// nothing on its stack owns anything: this does not return.
pub unsafe fn go_on_at(address: u64) -> ! {
    // SAFETY: as this function asks for.
    unsafe { (api::api().qemu_plugin_set_pc)(address) }
}

/// A word, as the user data that QEMU hands to a callback.
pub fn userdata(word: u64) -> *mut std::ffi::c_void {
    std::ptr::without_provenance_mut(word as usize)
}
