//! FEAT_BRBE for an unmodified QEMU, as a TCG plugin.
//!
//! ```text
//! qemu-system-aarch64 -M virt -cpu max … -plugin libqemu_brbe.so[,key=value…]
//! ```
//!
//! | option | |
//! |---|---|
//! | `cpus=0-1:4` | the vCPUs that have BRBE; all without it |
//! | `records=8\|16\|32\|64` | size of the record buffer; 64 |
//! | `version=1.0\|1.1` | FEAT_BRBE or FEAT_BRBEv1p1; 1.1 |
//! | `cc=on\|off` | cycle counts; off, all are unknown; on |
//! | `stats=FILE` | counts per vCPU, as JSON, at exit |
//! | `log=FILE` | a line for every record, freeze, reset and access to BRBE |
//! | `watch=ADDRESS` | the function whose calls are followed |
//! | `watch-log=FILE` | a line for all that such a call executes, and for what comes in between |
//!
//! Each instruction is looked at once, when QEMU translates it. `MRS`, `MSR` and `BRB` of
//! BRBE are taken over. Branches and exception returns report to the vCPU that they run
//! on, while it records. Exceptions report through QEMU's discontinuity callback. The
//! rules are those of `brbe-model`; a cycle is an instruction executed.

mod block;
mod callbacks;
mod insn;
mod log;
mod options;
mod registers;
mod shared;
mod stats;
mod trail;
mod vcpu;
mod vcpus;
mod watch;
mod words;

use std::ffi::{c_char, c_int};

use options::Options;
use qemu_plugin::Target;
use qemu_plugin::api::{API_VERSION, Info, PluginId};

/// The API version that the plugin needs. QEMU reads it before it calls
/// [`qemu_plugin_install`], and refuses a plugin whose version it does not offer.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = API_VERSION;

const TARGET: Target = Target {
    plugin: "qemu-brbe",
    name: c"aarch64",
    refusal: "BRBE is a part of Arm's 64-bit CPUs: use qemu-system-aarch64",
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
    unsafe { qemu_plugin::install(TARGET, info, argc, argv, |info, args| start(id, info, args)) }
}

fn start(id: PluginId, info: &Info, arguments: Vec<&str>) -> Result<(), String> {
    let options = Options::parse(arguments.into_iter()).map_err(|error| error.to_string())?;
    let max = u32::try_from(info.max_vcpus).unwrap_or(0);
    if let Some(cpu) = options.cpus.iter().find(|cpu| **cpu >= max) {
        return Err(format!(
            "option 'cpus=': there is no vCPU {cpu}, this machine has {max}"
        ));
    }
    callbacks::register(id, vcpus::Plugin::new(options, max)?);
    Ok(())
}
