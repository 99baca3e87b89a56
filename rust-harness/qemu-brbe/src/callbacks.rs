//! QEMU's callbacks. `unsafe` is about what QEMU calls, on which thread, and when.

use std::ffi::{c_int, c_uint, c_void};

use crate::block::{Block, is_conditional_to_next};
use crate::insn::{Class, Site, System, classify};
use crate::vcpu::{SystemEffect, Vcpu};
use crate::vcpus::Plugin;
use crate::watch::WatchedBlock;
use crate::words::Word;
use qemu_plugin::api::{CallbackFlags, Cond, PluginId, VcpuCallback, api};
use qemu_plugin::translation::{self, Call, Insn};

static PLUGIN: std::sync::OnceLock<Plugin> = std::sync::OnceLock::new();

/// Registers the plugin's callbacks with QEMU. `plugin` lives from now on.
pub(crate) fn register(id: PluginId, plugin: Plugin) {
    PLUGIN.get_or_init(|| plugin);
    // SAFETY: `id` is what QEMU gave the plugin.
    unsafe { translation::register(id, vcpu_init, translated, discon) };
    let (api, none) = (api(), std::ptr::null_mut());
    // SAFETY: the callbacks have the types that this version of the API asks
    // for, and they need no user data.
    unsafe { (api.qemu_plugin_register_vcpu_idle_cb)(id, idle, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_atexit_cb)(id, at_exit, none) };
}

fn plugin() -> &'static Plugin {
    PLUGIN
        .get()
        .expect("callbacks are registered after the plugin is made")
}

/// The vCPU that this callback was called for, if it has BRBE.
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
    // SAFETY: the block is `tb` of this callback, and goes when that ends.
    let translated = unsafe { translation::Block::new(tb) };
    let (mut first, mut last) = (None, None);
    for insn in translated.insns() {
        let mut word = [0; 4];
        if insn.copy_bytes(&mut word) != 4 {
            // The instruction is not A64.
            return;
        }
        let (word, address) = (u32::from_le_bytes(word), insn.address());
        if let Some(class) = classify(word) {
            instrument(insn, Site::new(word, address), class);
        }
        first = first.or(Some(address));
        last = Some((insn, address, word));
    }
    if let (Some(first), Some((insn, address, word))) = (first, last) {
        instrument_block(translated, insn, Block::new(first, address, word), word);
        if let Some(function) = plugin().watched() {
            watch_block(translated, first, function);
        }
    }
}

fn instrument_block(translated: translation::Block<'_>, last: Insn<'_>, block: Block, word: u32) {
    let scoreboard = plugin().scoreboard;
    translated.call_if(
        scoreboard.word(Word::Following),
        Cond::NotEqual,
        0,
        Call(
            block_start,
            CallbackFlags::ReadRegisters,
            block.into_userdata(),
        ),
    );
    // Of a conditional branch to the next instruction, its own callback reports whether
    // it is taken.
    if block.is_ambiguous() && !is_conditional_to_next(word) {
        last.store(scoreboard.word(Word::Reached), 1);
    }
}

/// Has a block followed that starts at `first`: always where the watched function may begin, and
/// else while a call of it has not returned.
fn watch_block(translated: translation::Block<'_>, first: u64, function: u64) {
    let block = WatchedBlock::new(first, translated.len());
    let flags = CallbackFlags::ReadRegisters;
    let call = Call(watched_block, flags, block.into_userdata());
    // The page need not be where it was when the block was translated.
    if first & 0xfff == function & 0xfff {
        translated.call(call);
    } else {
        let word = plugin().scoreboard.word(Word::Called);
        translated.call_if(word, Cond::NotEqual, 0, call);
    }
}

fn instrument(insn: Insn<'_>, site: Site, class: Class) {
    let call = |callback, flags| Call(callback, flags, site.into_userdata());
    let read = |callback| call(callback, CallbackFlags::ReadRegisters);
    let write = |callback| call(callback, CallbackFlags::WriteRegistersAndPc);
    let (callback, word): (VcpuCallback, _) = match class {
        Class::System(_) => return insn.call(write(system)),
        Class::WaitForEvent => return insn.call(write(wait_for_event)),
        // An exception return to AArch32 matters whether anything is recorded or not.
        Class::ExceptionReturn => return insn.call(read(exception_return)),
        Class::El3StateWrite => return insn.call(read(state_write)),
        Class::ConditionalToNext => (conditional_to_next, Word::Following),
        Class::PmuWrite => (pmu_write, Word::Following),
        Class::HostCall => (host_call, Word::Following),
        Class::StateWrite => (state_write, Word::Active),
        Class::Call => (exception_call, Word::Active),
    };
    insn.call_if_set(plugin().scoreboard.word(word), read(callback));
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

extern "C" fn exception_call(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.exception_call(Site::from_userdata(userdata));
    }
}

extern "C" fn state_write(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.before_state_write(Site::from_userdata(userdata));
    }
}

extern "C" fn pmu_write(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.before_pmu_write(Site::from_userdata(userdata));
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

/// Ends a callback that is registered to write the PC: the vCPU goes on at `address`.
fn go_on_at(address: u64) -> ! {
    // SAFETY: the callbacks that call this are registered to write the PC, and nothing
    // in them owns anything.
    unsafe { qemu_plugin::go_on_at(address) }
}

/// Emulates the system instruction at `site`. Returns the address to go on at, if that
/// was done.
fn emulate(index: c_uint, site: Site) -> Option<u64> {
    let Some(Class::System(instruction)) = classify(site.word()) else {
        return None;
    };
    let instruction: System = instruction;
    match current(index)?.system(site, instruction) {
        SystemEffect::Resume(address) => Some(address),
        SystemEffect::PassOn => None,
    }
}
