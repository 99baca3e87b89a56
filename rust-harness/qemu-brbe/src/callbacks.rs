//! QEMU's callbacks: from here on `unsafe` is about who calls whom, and when.

use std::ffi::{c_int, c_uint, c_void};

use brbe_model::{Decoded, decode};

use crate::insn::{Class, Site, System, classify};
use crate::scoreboard::Word;
use crate::stats;
use crate::sys::{CallbackFlags, Cond, DISCON_INTERRUPT_OR_EXCEPTION, PluginId, VcpuCallback, api};
use crate::vcpu::{Outcome, Vcpu};
use crate::vcpus::Plugin;

static PLUGIN: std::sync::OnceLock<Plugin> = std::sync::OnceLock::new();

/// Asks QEMU to call back. `plugin` lives from now on.
pub(crate) fn register(id: PluginId, plugin: Plugin) {
    PLUGIN.get_or_init(|| plugin);
    let (api, none) = (api(), std::ptr::null_mut());
    // SAFETY: the callbacks have the types that this version of the API asks
    // for, and they need no user data; the same for the three that follow.
    unsafe { (api.qemu_plugin_register_vcpu_init_cb)(id, vcpu_init, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_tb_trans_cb)(id, translated, none) };
    // SAFETY: as above.
    unsafe {
        (api.qemu_plugin_register_vcpu_discon_cb)(id, DISCON_INTERRUPT_OR_EXCEPTION, discon, none);
    };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_atexit_cb)(id, at_exit, none) };
}

fn plugin() -> &'static Plugin {
    PLUGIN
        .get()
        .expect("callbacks are registered after the plugin is made")
}

/// The vCPU that this callback was called for.
fn current(index: c_uint) -> Option<&'static mut Vcpu> {
    // SAFETY: QEMU calls on the vCPU's thread, callbacks do not nest, and each
    // calls this once.
    unsafe { plugin().current(index) }
}

extern "C" fn vcpu_init(index: c_uint, _: *mut c_void) {
    plugin().start(index);
}

extern "C" fn at_exit(_: *mut c_void) {
    // SAFETY: QEMU has stopped its vCPUs when it calls this.
    let counts = unsafe { plugin().counts() };
    stats::write(&plugin().options, &counts);
}

extern "C" fn discon(index: c_uint, _: c_int, from: u64, to: u64, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.exception(from, to);
    }
}

// --- translation ---------------------------------------------------------------

extern "C" fn translated(tb: *mut c_void, _: *mut c_void) {
    let api = api();
    let pending = plugin().scoreboard.word(Word::Pending);
    // SAFETY: `tb` is live during the callback.
    unsafe {
        (api.qemu_plugin_register_vcpu_tb_exec_cond_cb)(
            tb,
            block_start,
            CallbackFlags::ReadRegisters,
            Cond::NotEqual,
            pending,
            0,
            std::ptr::null_mut(),
        );
    }
    // SAFETY: as above.
    let len = unsafe { (api.qemu_plugin_tb_n_insns)(tb) };
    for n in 0..len {
        // SAFETY: as above, and `n` is below the number of instructions.
        let insn = unsafe { (api.qemu_plugin_tb_get_insn)(tb, n) };
        let mut word = [0; 4];
        // SAFETY: `word` has the four bytes that may be written.
        let bytes = unsafe { (api.qemu_plugin_insn_data)(insn, word.as_mut_ptr().cast(), 4) };
        let word = u32::from_le_bytes(word);
        if bytes != 4 {
            continue;
        }
        if let Some(class) = classify(word) {
            // SAFETY: `insn` is live during the callback.
            let address = unsafe { (api.qemu_plugin_insn_vaddr)(insn) };
            instrument(insn, Site::new(word, address), class);
        }
    }
}

fn instrument(insn: *mut c_void, site: Site, class: Class) {
    let (callback, word): (VcpuCallback, _) = match class {
        Class::System(_) => {
            // SAFETY: `insn` is live while its block is translated, and the
            // callback may write registers and the PC.
            unsafe {
                (api().qemu_plugin_register_vcpu_insn_exec_cb)(
                    insn,
                    system,
                    CallbackFlags::WriteRegistersAndPc,
                    site.into_userdata(),
                );
            }
            return;
        }
        Class::Branch(Decoded::Direct { .. }) => (direct_branch, Word::Recording),
        Class::Branch(Decoded::Indirect(_)) => (indirect_branch, Word::Recording),
        Class::Branch(Decoded::ExceptionReturn) => (exception_return, Word::Active),
        Class::PmuWrite => (pmu_write, Word::Recording),
        Class::StateWrite => (state_write, Word::Active),
    };
    // SAFETY: `insn` is live while its block is translated.
    unsafe {
        (api().qemu_plugin_register_vcpu_insn_exec_cond_cb)(
            insn,
            callback,
            CallbackFlags::ReadRegisters,
            Cond::NotEqual,
            plugin().scoreboard.word(word),
            0,
            site.into_userdata(),
        );
    }
}

// --- execution -----------------------------------------------------------------

extern "C" fn block_start(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.block_start();
    }
}

extern "C" fn direct_branch(index: c_uint, userdata: *mut c_void) {
    let site = Site::from_userdata(userdata);
    if let (
        Some(vcpu),
        Some(Decoded::Direct {
            kind,
            offset,
            condition,
        }),
    ) = (current(index), decode(site.word()))
    {
        vcpu.direct_branch(site, kind, offset, condition);
    }
}

extern "C" fn indirect_branch(index: c_uint, userdata: *mut c_void) {
    let site = Site::from_userdata(userdata);
    if let (Some(vcpu), Some(Decoded::Indirect(kind))) = (current(index), decode(site.word())) {
        vcpu.indirect_branch(site, kind);
    }
}

extern "C" fn exception_return(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.exception_return(Site::from_userdata(userdata));
    }
}

extern "C" fn pmu_write(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.before_pmu_write();
    }
}

extern "C" fn state_write(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.before_state_write();
    }
}

extern "C" fn system(index: c_uint, userdata: *mut c_void) {
    let site = Site::from_userdata(userdata);
    let Some(address) = emulate(index, site) else {
        return;
    };
    // SAFETY: the callback is registered to write the PC. The call does not
    // return: nothing here owns anything.
    unsafe { (api().qemu_plugin_set_pc)(address) }
}

/// Emulates the instruction, and says where to go on if that was done.
fn emulate(index: c_uint, site: Site) -> Option<u64> {
    let Some(Class::System(instruction)) = classify(site.word()) else {
        return None;
    };
    let instruction: System = instruction;
    match current(index)?.system(site, instruction) {
        Outcome::Resume(address) => Some(address),
        Outcome::PassOn => None,
    }
}
