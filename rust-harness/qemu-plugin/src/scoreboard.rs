//! Words that translated code looks at before it calls back, and that it writes: while
//! nothing is of interest, a plugin costs a comparison a block.

use std::ffi::c_void;

use crate::api::{ScoreboardWord, api};

/// A scoreboard: `WORDS` words for each vCPU.
#[derive(Clone, Copy, Debug)]
pub struct Scoreboard<const WORDS: usize>(*mut c_void);

// SAFETY: the handle is never dereferenced here, and QEMU's functions that
// take it may be called from any vCPU's thread.
unsafe impl<const WORDS: usize> Send for Scoreboard<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Scoreboard<WORDS> {}

/// A name for a word, which has a place among the words of a vCPU.
pub trait Place {
    /// The index of the word among the words of a vCPU, below `WORDS`.
    fn place(self) -> usize;
}

impl<const WORDS: usize> Scoreboard<WORDS> {
    /// A new scoreboard, in which all words are zero. It lives as long as the plugin.
    #[expect(clippy::new_without_default, reason = "QEMU makes one each time")]
    pub fn new() -> Self {
        // SAFETY: no preconditions.
        Self(unsafe { (api().qemu_plugin_scoreboard_new)(WORDS * size_of::<u64>()) })
    }

    /// The word as QEMU takes it, for a condition or a store in translated code.
    pub fn word(self, word: impl Place) -> ScoreboardWord {
        ScoreboardWord {
            score: self.0,
            offset: offset::<WORDS>(word),
        }
    }

    /// The address of the word of `vcpu`. QEMU moves it only while no vCPU runs.
    fn find(self, word: impl Place, vcpu: u32) -> *mut u64 {
        // SAFETY: the scoreboard lives as long as the plugin, and the vCPU is
        // started: it has an element.
        let words = unsafe { (api().qemu_plugin_scoreboard_find)(self.0, vcpu) };
        words.wrapping_byte_add(offset::<WORDS>(word)).cast()
    }

    /// Reads the word of `vcpu`, on its thread.
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

    /// Reads the word of `vcpu` and sets it to zero, on its thread.
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
