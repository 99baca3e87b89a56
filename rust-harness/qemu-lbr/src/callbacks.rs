//! QEMU's callbacks. `unsafe` is about what QEMU calls, on which thread, and when.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::OnceLock;

use lbr_model::{Depth, TransferKind};
use qemu_plugin::api::{CallbackFlags, Cond, PluginId};
use qemu_plugin::translation::{self, Block, Call, Insn};
use qemu_plugin::vcpus::Vcpus;

use crate::insn::{Class, LONGEST, Site, System, classify};
use crate::registers::Registers;
use crate::vcpu::Vcpu;
use crate::words::{OVERFLOWN, Scoreboard, Word};

/// The plugin's state, alive as long as QEMU is.
struct Plugin {
    depth: Depth,
    words: Scoreboard,
    vcpus: Vcpus<Vcpu>,
}

static PLUGIN: OnceLock<Plugin> = OnceLock::new();

/// Registers the plugin's callbacks with QEMU.
pub(crate) fn register(id: PluginId, depth: Depth, max_vcpus: u32) {
    PLUGIN.get_or_init(|| Plugin {
        depth,
        words: Scoreboard::new(),
        vcpus: Vcpus::new(max_vcpus),
    });
    // SAFETY: `id` is what QEMU gave the plugin.
    unsafe { translation::register(id, vcpu_init, translated, discon) };
}

fn plugin() -> &'static Plugin {
    PLUGIN
        .get()
        .expect("callbacks are registered after the plugin is made")
}

/// The vCPU that this callback was called for, if it has LBRs.
fn current(index: c_uint) -> Option<&'static mut Vcpu> {
    // SAFETY: QEMU calls on the vCPU's thread, callbacks do not nest, and each
    // calls this once.
    unsafe { plugin().vcpus.current(index) }
}

extern "C" fn vcpu_init(index: c_uint, _: *mut c_void) {
    let Plugin {
        depth,
        words,
        vcpus,
    } = plugin();
    vcpus.refuse_shared_thread("qemu-lbr", index);
    // SAFETY: this is the vCPU's initialisation, on its thread.
    match unsafe { Registers::look_up() } {
        Ok(registers) => vcpus.give(index, Vcpu::new(index, *words, registers, *depth)),
        Err(name) => eprintln!("qemu-lbr: vCPU {index} has no register {name}: it gets no LBRs"),
    }
}

extern "C" fn discon(index: c_uint, _: c_int, from: u64, to: u64, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.event(from, to);
    }
}

// --- translation ---------------------------------------------------------------

extern "C" fn translated(tb: *mut c_void, _: *mut c_void) {
    // SAFETY: the block is `tb` of this callback, and goes when that ends.
    let translated = unsafe { Block::new(tb) };
    instrument_block(translated);
    let (mut block, mut is_behind_cpuid) = (None, false);
    for insn in translated.insns() {
        let mut bytes = [0; LONGEST];
        let len = insn.copy_bytes(&mut bytes);
        let address = insn.address();
        let block = *block.get_or_insert(address);
        if is_behind_cpuid {
            let completing = plugin().words.word(Word::Completing);
            insn.call_if_set(completing, BEHIND_CPUID);
        }
        let class = bytes.get(..len).and_then(classify);
        is_behind_cpuid = class == Some(Class::System(System::Cpuid));
        if let Some(class) = class {
            instrument(insn, Site::new(block, address, len, class), class);
        }
    }
}

const BEHIND_CPUID: Call = Call(
    behind_cpuid,
    CallbackFlags::WriteRegistersAndPc,
    std::ptr::null_mut(),
);

/// Adds to a block what is done when it starts: callbacks, for when its address matters,
/// and the count of its instructions.
fn instrument_block(block: Block<'_>) {
    let word = |word| plugin().words.word(word);
    let read = |callback| Call(callback, CallbackFlags::ReadRegisters, std::ptr::null_mut());
    let set = Cond::NotEqual;
    // CPUID may have been the last instruction of the block before.
    block.call_if(word(Word::Completing), set, 0, BEHIND_CPUID);
    block.call_if(word(Word::Arriving), set, 0, read(arrive));
    let executed = word(Word::Executed);
    block.call_if(executed, Cond::GreaterOrEqual, OVERFLOWN, read(overflow));
    block.add(executed, block.len() as u64);
}

fn instrument(insn: Insn<'_>, site: Site, class: Class) {
    let call = |callback, flags| Call(callback, flags, site.into_userdata());
    let word = match class {
        Class::System(_) => {
            return insn.call(call(system, CallbackFlags::WriteRegistersAndPc));
        }
        Class::Branch {
            kind: TransferKind::Other,
            ..
        } => Word::Watching,
        Class::Branch { .. } => Word::Recording,
    };
    let call = call(branch, CallbackFlags::ReadRegisters);
    insn.call_if_set(plugin().words.word(word), call);
}

// --- execution -----------------------------------------------------------------

extern "C" fn arrive(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.arrive();
    }
}

extern "C" fn behind_cpuid(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.complete_cpuid();
    }
}

extern "C" fn overflow(index: c_uint, _: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.overflow();
    }
}

extern "C" fn branch(index: c_uint, userdata: *mut c_void) {
    if let Some(vcpu) = current(index) {
        vcpu.branch(Site::from_userdata(userdata));
    }
}

extern "C" fn system(index: c_uint, userdata: *mut c_void) {
    let site = Site::from_userdata(userdata);
    let next = current(index).and_then(|vcpu| vcpu.system(site));
    if let Some(next) = next {
        // SAFETY: the callback is registered to write the PC, and nothing in it owns
        // anything.
        unsafe { qemu_plugin::go_on_at(next) }
    }
}
