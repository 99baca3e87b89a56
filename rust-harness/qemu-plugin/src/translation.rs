//! A block while QEMU translates it, and what is added to it.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;

use crate::api::{
    CallbackFlags, Cond, DISCON_EXCEPTION, DISCON_INTERRUPT, DisconCallback, InlineOp, PluginId,
    ScoreboardWord, TranslationCallback, VcpuCallback, api,
};

/// What QEMU calls in translated code: the callback, what it may do, and what it is given.
#[derive(Clone, Copy, Debug)]
pub struct Call(pub VcpuCallback, pub CallbackFlags, pub *mut c_void);

/// Registers callbacks: QEMU calls them when a vCPU starts, when it has translated a
/// block, and when a vCPU takes an interrupt or an exception.
///
/// # Safety
///
/// `id` is what QEMU gave the plugin.
pub unsafe fn register(
    id: PluginId,
    vcpu_init: VcpuCallback,
    translated: TranslationCallback,
    discon: DisconCallback,
) {
    const KINDS: c_int = DISCON_INTERRUPT | DISCON_EXCEPTION;
    let (api, none) = (api(), std::ptr::null_mut());
    // SAFETY: the callbacks have the types that this version of the API asks
    // for, and they need no user data; the same for those that follow.
    unsafe { (api.qemu_plugin_register_vcpu_init_cb)(id, vcpu_init, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_tb_trans_cb)(id, translated, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_discon_cb)(id, KINDS, discon, none) };
}

/// A block while QEMU translates it.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a>(*mut c_void, PhantomData<&'a ()>);

/// An instruction of a block while QEMU translates it.
#[derive(Clone, Copy, Debug)]
pub struct Insn<'a>(*mut c_void, PhantomData<&'a ()>);

impl<'a> Block<'a> {
    /// The block that a translation callback was called with.
    ///
    /// # Safety
    ///
    /// The block is dropped when that callback ends, with all that came from it.
    pub unsafe fn new(tb: *mut c_void) -> Self {
        Self(tb, PhantomData)
    }

    /// The number of instructions in the block.
    pub fn len(self) -> usize {
        // SAFETY: the block is live.
        unsafe { (api().qemu_plugin_tb_n_insns)(self.0) }
    }

    /// Whether the block has no instructions.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The instructions of the block.
    pub fn insns(self) -> impl Iterator<Item = Insn<'a>> {
        (0..self.len()).map(move |n| {
            // SAFETY: the block is live, and `n` below the number of instructions.
            let insn = unsafe { (api().qemu_plugin_tb_get_insn)(self.0, n) };
            Insn(insn, PhantomData)
        })
    }

    /// Adds a call to the block. It is made when the block starts.
    pub fn call(self, Call(callback, flags, userdata): Call) {
        // SAFETY: the block is live while it is translated.
        unsafe {
            (api().qemu_plugin_register_vcpu_tb_exec_cb)(self.0, callback, flags, userdata);
        }
    }

    /// Adds a call to the block. It is made when the block starts, if the word compares
    /// like this.
    pub fn call_if(self, word: ScoreboardWord, cond: Cond, value: u64, call: Call) {
        let Call(callback, flags, userdata) = call;
        // SAFETY: as above.
        unsafe {
            (api().qemu_plugin_register_vcpu_tb_exec_cond_cb)(
                self.0, callback, flags, cond, word, value, userdata,
            );
        }
    }

    /// Makes the block add `value` to the word when it starts.
    pub fn add(self, word: ScoreboardWord, value: u64) {
        // SAFETY: as above.
        unsafe {
            (api().qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu)(
                self.0,
                InlineOp::AddU64,
                word,
                value,
            );
        }
    }
}

impl Insn<'_> {
    /// Copies the instruction's bytes, as many as there are and fit. Returns how many
    /// were copied.
    pub fn copy_bytes(self, into: &mut [u8]) -> usize {
        let (bytes, most) = (into.as_mut_ptr().cast(), into.len());
        // SAFETY: the instruction is live, and `most` bytes may be written.
        unsafe { (api().qemu_plugin_insn_data)(self.0, bytes, most) }
    }

    /// The address that the instruction has as it is translated.
    pub fn address(self) -> u64 {
        // SAFETY: the instruction is live.
        unsafe { (api().qemu_plugin_insn_vaddr)(self.0) }
    }

    /// Adds a call to the instruction. It is made before the instruction executes.
    pub fn call(self, Call(callback, flags, userdata): Call) {
        // SAFETY: the instruction is live while its block is translated.
        unsafe {
            (api().qemu_plugin_register_vcpu_insn_exec_cb)(self.0, callback, flags, userdata);
        }
    }

    /// Adds a call to the instruction. It is made before the instruction executes, if the
    /// word is not zero.
    pub fn call_if_set(self, word: ScoreboardWord, call: Call) {
        let Call(callback, flags, userdata) = call;
        // SAFETY: as above.
        unsafe {
            (api().qemu_plugin_register_vcpu_insn_exec_cond_cb)(
                self.0,
                callback,
                flags,
                Cond::NotEqual,
                word,
                0,
                userdata,
            );
        }
    }

    /// Makes translated code set the word to `value` before the instruction executes.
    pub fn store(self, word: ScoreboardWord, value: u64) {
        // SAFETY: as above.
        unsafe {
            (api().qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu)(
                self.0,
                InlineOp::StoreU64,
                word,
                value,
            );
        }
    }
}
