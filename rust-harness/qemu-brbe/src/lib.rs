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
//! | `log=FILE` | a line for every record, freeze and access to BRBE |
//! | `watch=START-END:…` | addresses where each block is told of |
//! | `watch-log=FILE` | a line for each such block, overflow and interrupt |
//!
//! What QEMU translates is looked at once: `MRS`, `MSR` and `BRB` of BRBE are
//! taken over, branches and exception returns report to the vCPU they run on
//! while that records. Exceptions report through QEMU's discontinuity callback.
//! The rules are those of `brbe-model`; a cycle is an instruction executed.

mod block;
mod callbacks;
mod insn;
mod log;
mod options;
mod registers;
mod scoreboard;
mod shared;
mod stats;
mod sys;
mod trail;
mod vcpu;
mod vcpus;
mod watch;

use std::ffi::{CStr, c_char, c_int};

use options::Options;
use sys::{API_VERSION, Info, PluginId};

/// The API version that the plugin needs. QEMU reads it before it calls
/// [`qemu_plugin_install`] and refuses the plugin where it does not offer it.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = API_VERSION;

/// QEMU's way in: checks what it offers and what was asked for.
///
/// # Safety
///
/// QEMU calls it, once, with a live `info` and `argc` C strings in `argv`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let arguments = (0..usize::try_from(argc).unwrap_or(0)).map(|n| {
        // SAFETY: `argv` has `argc` elements.
        let argument = unsafe { argv.add(n) };
        // SAFETY: as above.
        let argument = unsafe { argument.read() };
        // SAFETY: each is a C string that lives as long as the plugin.
        unsafe { CStr::from_ptr(argument) }
            .to_str()
            .unwrap_or("(not UTF-8)")
    });
    // SAFETY: `info` is live during the call.
    let info = unsafe { &*info };
    match install(id, info, arguments) {
        Ok(()) => 0,
        Err(message) => {
            eprintln!("qemu-brbe: {message}");
            1
        }
    }
}

fn install<'a>(
    id: PluginId,
    info: &Info,
    arguments: impl Iterator<Item = &'a str>,
) -> Result<(), String> {
    let (min, cur) = (info.min_version, info.cur_version);
    if !(min..=cur).contains(&API_VERSION) {
        return Err(format!(
            "this plugin needs version {API_VERSION} of QEMU's plugin API (QEMU 11), \
             this QEMU offers {min} to {cur}"
        ));
    }
    // SAFETY: QEMU gives its target's name as a C string.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    if target != c"aarch64" || !info.system_emulation {
        return Err("BRBE is a part of Arm's 64-bit CPUs: use qemu-system-aarch64".to_owned());
    }
    let options = Options::parse(arguments).map_err(|error| error.to_string())?;
    sys::load().map_err(|name| format!("this QEMU has no {}", name.to_string_lossy()))?;
    let max = u32::try_from(info.max_vcpus).unwrap_or(0);
    if let Some(cpu) = options.cpus.iter().find(|cpu| **cpu >= max) {
        return Err(format!(
            "option 'cpus=': there is no vCPU {cpu}, this machine has {max}"
        ));
    }
    callbacks::register(id, vcpus::Plugin::new(options, max)?);
    Ok(())
}
