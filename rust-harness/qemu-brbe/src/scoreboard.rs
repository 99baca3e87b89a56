//! Words that translated code looks at before it calls back: while all are
//! zero, the plugin costs a comparison each.

use std::mem::offset_of;

use crate::sys::{ScoreboardWord, api};

/// One vCPU's words.
#[repr(C)]
struct Words {
    recording: u64,
    active: u64,
    pending: u64,
}

/// Which word.
#[derive(Clone, Copy)]
pub(crate) enum Word {
    /// Branches are recorded where the vCPU is now.
    Recording,
    /// They may be at some Exception level: exception returns matter.
    Active,
    /// The next block's start is the target of a branch.
    Pending,
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

    /// The word, for a condition.
    pub(crate) fn word(self, word: Word) -> ScoreboardWord {
        let offset = match word {
            Word::Recording => offset_of!(Words, recording),
            Word::Active => offset_of!(Words, active),
            Word::Pending => offset_of!(Words, pending),
        };
        ScoreboardWord {
            score: self.0,
            offset,
        }
    }

    /// Sets a vCPU's word.
    pub(crate) fn set(self, word: Word, vcpu: u32, value: bool) {
        // SAFETY: the word lies in the scoreboard, and the vCPU is started.
        unsafe { (api().qemu_plugin_u64_set)(self.word(word), vcpu, value.into()) };
    }
}
