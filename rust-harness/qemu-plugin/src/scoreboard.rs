//! Words that translated code looks at before it calls back, and that it writes: while
//! nothing is of interest, a plugin costs a comparison a block.

use std::ffi::c_void;

use crate::api::{ScoreboardWord, api};

/// So many words of each vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Scoreboard<const WORDS: usize>(*mut c_void);

// SAFETY: the handle is never dereferenced here, and QEMU's functions that
// take it may be called from any vCPU's thread.
unsafe impl<const WORDS: usize> Send for Scoreboard<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Scoreboard<WORDS> {}

/// A word's place among a vCPU's, below `WORDS`.
pub trait Place {
    /// Which.
    fn place(self) -> usize;
}

impl<const WORDS: usize> Scoreboard<WORDS> {
    /// All words are zero. It lives as long as the plugin.
    #[expect(clippy::new_without_default, reason = "QEMU makes one each time")]
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        Self(unsafe { (api().qemu_plugin_scoreboard_new)(WORDS * size_of::<u64>()) })
    }

    /// The word, for a condition or a store in translated code.
    pub fn word(self, word: impl Place) -> ScoreboardWord {
        ScoreboardWord {
            score: self.0,
            offset: offset::<WORDS>(word),
        }
    }

    /// Where the vCPU's word is. QEMU moves it only while no vCPU runs.
    fn find(self, word: impl Place, vcpu: u32) -> *mut u64 {
        // SAFETY: the scoreboard lives as long as the plugin, and the vCPU is
        // started: it has an element.
        let words = unsafe { (api().qemu_plugin_scoreboard_find)(self.0, vcpu) };
        words.wrapping_byte_add(offset::<WORDS>(word)).cast()
    }

    /// The word of `vcpu`, on its thread.
    pub fn get(self, word: impl Place, vcpu: u32) -> u64 {
        // SAFETY: the word lies in the vCPU's element, and only its own thread
        // touches it.
        unsafe { self.find(word, vcpu).read() }
    }

    /// Sets the word of `vcpu`, on its thread.
    pub fn set(self, word: impl Place, vcpu: u32, value: u64) {
        // SAFETY: as above.
        unsafe { self.find(word, vcpu).write(value) };
    }

    /// The word of `vcpu`, on its thread; it is zero afterwards.
    pub fn take(self, word: impl Place, vcpu: u32) -> u64 {
        // SAFETY: as above.
        unsafe { self.find(word, vcpu).replace(0) }
    }
}

fn offset<const WORDS: usize>(word: impl Place) -> usize {
    let place = word.place();
    assert!(place < WORDS, "a scoreboard has {WORDS} words");
    place * size_of::<u64>()
}
