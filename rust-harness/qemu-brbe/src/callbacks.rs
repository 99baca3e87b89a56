//! QEMU's callbacks: from here on `unsafe` is about who calls whom, and when.

use std::ffi::{c_int, c_uint, c_void};

use crate::block::{Block, is_conditional_to_next};
use crate::insn::{Class, Site, System, classify};
use crate::scoreboard::Word;
use crate::sys::{
    CallbackFlags, Cond, DISCON_EXCEPTION, DISCON_INTERRUPT, InlineOp, PluginId, VcpuCallback, api,
};
use crate::vcpu::{Outcome, Vcpu};
use crate::vcpus::Plugin;
use crate::watch::WatchedBlock;

static PLUGIN: std::sync::OnceLock<Plugin> = std::sync::OnceLock::new();

/// Asks QEMU to call back. `plugin` lives from now on.
pub(crate) fn register(id: PluginId, plugin: Plugin) {
    PLUGIN.get_or_init(|| plugin);
    let (api, none) = (api(), std::ptr::null_mut());
    // SAFETY: the callbacks have the types that this version of the API asks
    // for, and they need no user data; the same for those that follow.
    unsafe { (api.qemu_plugin_register_vcpu_init_cb)(id, vcpu_init, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_idle_cb)(id, idle, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_tb_trans_cb)(id, translated, none) };
    // SAFETY: as above.
    unsafe {
        (api.qemu_plugin_register_vcpu_discon_cb)(
            id,
            DISCON_INTERRUPT | DISCON_EXCEPTION,
            discon,
            none,
        );
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
    plugin().finish();
}

extern "C" fn idle(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.idle();
    }
}

extern "C" fn discon(index: c_uint, _: c_int, from: u64, to: u64, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.exception(from, to);
    }
}

// --- translation ---------------------------------------------------------------

extern "C" fn translated(tb: *mut c_void, _: *mut c_void) {
    // SAFETY: `tb` is live during the callback.
    let len = unsafe { (api().qemu_plugin_tb_n_insns)(tb) };
    let (mut first, mut last) = (None, None);
    for n in 0..len {
        // SAFETY: as above, and `n` is below the number of instructions.
        let insn = unsafe { (api().qemu_plugin_tb_get_insn)(tb, n) };
        let mut word = [0; 4];
        // SAFETY: `word` has the four bytes that may be written.
        let bytes = unsafe { (api().qemu_plugin_insn_data)(insn, word.as_mut_ptr().cast(), 4) };
        let word = u32::from_le_bytes(word);
        if bytes != 4 {
            // Not A64.
            return;
        }
        // SAFETY: `insn` is live during the callback.
        let address = unsafe { (api().qemu_plugin_insn_vaddr)(insn) };
        if let Some(class) = classify(word) {
            instrument(insn, Site::new(word, address), class);
        }
        first = first.or(Some(address));
        last = Some((insn, address, word));
    }
    if let (Some(first), Some((insn, address, word))) = (first, last) {
        instrument_block(tb, insn, Block::new(first, address, word), word);
        if plugin().watches(first) {
            watch_block(tb, WatchedBlock::new(first, len));
        }
    }
}

fn instrument_block(tb: *mut c_void, last: *mut c_void, block: Block, word: u32) {
    let scoreboard = plugin().scoreboard;
    // SAFETY: `tb` is live while it is translated.
    unsafe {
        (api().qemu_plugin_register_vcpu_tb_exec_cond_cb)(
            tb,
            block_start,
            CallbackFlags::ReadRegisters,
            Cond::NotEqual,
            scoreboard.word(Word::Following),
            0,
            block.into_userdata(),
        );
    }
    // Whether the others are taken is for a callback of theirs to say.
    if block.is_ambiguous() && !is_conditional_to_next(word) {
        // SAFETY: `last` is live while its block is translated.
        unsafe {
            (api().qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu)(
                last,
                InlineOp::StoreU64,
                scoreboard.word(Word::Reached),
                1,
            );
        }
    }
}

fn watch_block(tb: *mut c_void, block: WatchedBlock) {
    let flags = CallbackFlags::ReadRegisters;
    // SAFETY: `tb` is live while it is translated.
    unsafe {
        (api().qemu_plugin_register_vcpu_tb_exec_cb)(
            tb,
            watched_block,
            flags,
            block.into_userdata(),
        );
    }
}

fn instrument(insn: *mut c_void, site: Site, class: Class) {
    let (callback, word): (VcpuCallback, _) = match class {
        Class::System(_) => {
            return call_always(insn, system, CallbackFlags::WriteRegistersAndPc, site);
        }
        Class::WaitForEvent => {
            return call_always(
                insn,
                wait_for_event,
                CallbackFlags::WriteRegistersAndPc,
                site,
            );
        }
        // One to AArch32 matters whether anything is recorded or not.
        Class::ExceptionReturn => {
            return call_always(insn, exception_return, CallbackFlags::ReadRegisters, site);
        }
        Class::ConditionalToNext => (conditional_to_next, Word::Following),
        Class::PmuWrite => (state_write, Word::Following),
        Class::HostCall => (host_call, Word::Following),
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

fn call_always(insn: *mut c_void, callback: VcpuCallback, flags: CallbackFlags, site: Site) {
    // SAFETY: `insn` is live while its block is translated.
    unsafe {
        (api().qemu_plugin_register_vcpu_insn_exec_cb)(insn, callback, flags, site.into_userdata());
    }
}

// --- execution -----------------------------------------------------------------

extern "C" fn block_start(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.block_start(Block::from_userdata(userdata));
    }
}

extern "C" fn watched_block(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.watched_block(WatchedBlock::from_userdata(userdata));
    }
}

extern "C" fn conditional_to_next(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.conditional_to_next(Site::from_userdata(userdata));
    }
}

extern "C" fn exception_return(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.exception_return(Site::from_userdata(userdata));
    }
}

extern "C" fn state_write(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.before_state_write(Site::from_userdata(userdata));
    }
}

extern "C" fn host_call(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.before_host_call();
    }
}

extern "C" fn wait_for_event(index: c_uint, userdata: *mut c_void) {
    let site = Site::from_userdata(userdata);
    let next = current(index).and_then(|vcpu| vcpu.wait_for_event(site));
    if let Some(next) = next {
        go_on_at(next);
    }
}

extern "C" fn system(index: c_uint, userdata: *mut c_void) {
    if let Some(next) = emulate(index, Site::from_userdata(userdata)) {
        go_on_at(next);
    }
}

/// Ends a callback that is registered to write the PC.
fn go_on_at(address: u64) -> ! {
    // SAFETY: the callbacks that call this are registered to write the PC. The call
    // does not return: nothing in them owns anything.
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
