//! Intel's architectural LBR for an unmodified QEMU, as a TCG plugin.
//!
//! ```text
//! qemu-system-x86_64 -cpu max,vendor=GenuineIntel,min-level=28 \
//!     -plugin libqemu_lbr.so[,depth=8|16|…|64] …
//! ```
//!
//! `depth` is the most records that there are, 32 without it. Software looks for LBRs on
//! Intel's CPUs alone, and CPUID has to have their leaf, 28.
//!
//! Each instruction is looked at once, when QEMU translates it. RDMSR, WRMSR and RDPMC
//! are taken over where they are of LBRs or of performance monitoring. CPUID's result is
//! completed. Branches report to the vCPU that they run on, while it records. Interrupts
//! and exceptions report through QEMU's discontinuity callback. The rules are those of
//! `lbr-model`; a cycle is an instruction executed. An overflow's interrupt goes to the
//! vCPU's own local APIC, through its registers in memory: a guest that uses x2APIC gets
//! none.

mod callbacks;
mod insn;
mod local_apic;
mod options;
mod registers;
mod vcpu;
mod words;

use std::ffi::{c_char, c_int};

use qemu_plugin::Target;
use qemu_plugin::api::{API_VERSION, Info, PluginId};

/// The API version that the plugin needs. QEMU reads it before it calls
/// [`qemu_plugin_install`], and refuses a plugin whose version it does not offer.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = API_VERSION;

const TARGET: Target = Target {
    plugin: "qemu-lbr",
    name: c"x86_64",
    refusal: "LBRs are a part of Intel's CPUs: use qemu-system-x86_64",
};

/// The plugin's entry point, which QEMU calls. It checks what QEMU offers and which
/// options were given.
///
/// # Safety
///
/// QEMU calls this function, once, with a live `info` and `argc` C strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: as this function asks for.
    unsafe {
        qemu_plugin::install(TARGET, info, argc, argv, |info, arguments| {
            let depth = options::depth(&arguments)?;
            let vcpus = u32::try_from(info.max_vcpus).unwrap_or(0);
            callbacks::register(id, depth, vcpus);
            Ok(())
        })
    }
}
