//! The entry point of a plugin, which QEMU calls.

use std::ffi::{CStr, c_char, c_int};

use crate::api::{self, API_VERSION, Info};

/// What a plugin is for.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The plugin's name, which begins its messages.
    pub plugin: &'static str,
    /// QEMU's name of the only target that it is for.
    pub name: &'static CStr,
    /// The message for a QEMU with another target.
    pub refusal: &'static str,
}

/// Checks what QEMU offers, and then calls `plugin`, which does the plugin's own part of
/// `qemu_plugin_install`. It is given QEMU's description of itself, and the arguments.
/// Returns what `qemu_plugin_install` returns.
///
/// # Safety
///
/// `info` and `argv` are what QEMU called `qemu_plugin_install` with: a live object,
/// and `argc` C strings that live as long as the plugin.
pub unsafe fn install(
    target: Target,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
    plugin: impl FnOnce(&Info, Vec<&'static str>) -> Result<(), String>,
) -> c_int {
    let arguments = (0..usize::try_from(argc).unwrap_or(0)).map(|n| {
        // SAFETY: `argv` has `argc` elements.
        let argument = unsafe { argv.add(n) };
        // SAFETY: as above.
        let argument = unsafe { argument.read() };
        // SAFETY: each argument is a C string that lives as long as the plugin.
        unsafe { CStr::from_ptr(argument) }
            .to_str()
            .unwrap_or("(not UTF-8)")
    });
    // SAFETY: `info` is live during the call.
    let info = unsafe { &*info };
    match check(target, info).and_then(|()| plugin(info, arguments.collect())) {
        Ok(()) => 0,
        Err(message) => {
            eprintln!("{}: {message}", target.plugin);
            1
        }
    }
}

fn check(target: Target, info: &Info) -> Result<(), String> {
    let (min, cur) = (info.min_version, info.cur_version);
    if !(min..=cur).contains(&API_VERSION) {
        return Err(format!(
            "this plugin needs version {API_VERSION} of QEMU's plugin API (QEMU 11), \
             this QEMU offers {min} to {cur}"
        ));
    }
    // SAFETY: QEMU gives its target's name as a C string.
    let name = unsafe { CStr::from_ptr(info.target_name) };
    if name != target.name || !info.system_emulation {
        return Err(target.refusal.to_owned());
    }
    api::load().map_err(|name| format!("this QEMU has no {}", name.to_string_lossy()))
}
