//! Words that translated code looks at before it calls back, and one that it
//! writes: while nothing is recorded, the plugin costs a comparison a block.

use std::mem::offset_of;

use crate::sys::{ScoreboardWord, api};

/// One vCPU's words.
#[repr(C)]
struct Words {
    following: u64,
    active: u64,
    reached: u64,
}

/// Which word.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// What the vCPU executes next is of interest: it records where it is now, or
    /// an exception return or a change of its state is to be completed, or it was
    /// idle.
    Following,
    /// It may record at some Exception level: registers that say where matter.
    Active,
    /// Written by translated code: the block's last instruction was reached.
    Reached,
}

impl Word {
    const fn offset(self) -> usize {
        match self {
            Self::Following => offset_of!(Words, following),
            Self::Active => offset_of!(Words, active),
            Self::Reached => offset_of!(Words, reached),
        }
    }
}

/// The words of all vCPUs.
#[derive(Clone, Copy)]
pub(crate) struct Scoreboard(*mut std::ffi::c_void);

// SAFETY: the handle is never dereferenced here, and QEMU's functions that
// take it may be called from any vCPU's thread.
unsafe impl Send for Scoreboard {}
// SAFETY: as above.
unsafe impl Sync for Scoreboard {}

impl Scoreboard {
    pub(crate) fn new() -> Self {
        // SAFETY: no preconditions.
        Self(unsafe { (api().qemu_plugin_scoreboard_new)(size_of::<Words>()) })
    }

    /// The word, for a condition or a store in translated code.
    pub(crate) fn word(self, word: Word) -> ScoreboardWord {
        ScoreboardWord {
            score: self.0,
            offset: word.offset(),
        }
    }

    /// Where the vCPU's word is. QEMU moves it only while no vCPU runs.
    fn find(self, word: Word, vcpu: u32) -> *mut u64 {
        // SAFETY: the scoreboard lives as long as the plugin, and the vCPU is
        // started: it has an element.
        let words = unsafe { (api().qemu_plugin_scoreboard_find)(self.0, vcpu) };
        words.wrapping_byte_add(word.offset()).cast()
    }

    /// Sets the word of `vcpu`, on its thread.
    pub(crate) fn set(self, word: Word, vcpu: u32, value: bool) {
        // SAFETY: the word lies in the vCPU's element, and only its own thread
        // touches it.
        unsafe { self.find(word, vcpu).write(value.into()) };
    }

    /// The word of `vcpu`, on its thread; it is zero afterwards.
    pub(crate) fn take(self, word: Word, vcpu: u32) -> bool {
        // SAFETY: as above.
        unsafe { self.find(word, vcpu).replace(0) != 0 }
    }
}
