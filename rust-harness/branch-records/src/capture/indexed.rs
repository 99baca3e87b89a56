//! Code that is decoded once, however many steps lead over it.

use std::ops::Range;

use super::CodeRange;
use crate::path::{Code, Straight, goes_on};

/// The code of a capture, with what each step asks of it looked up instead of decoded. Steps may be
/// long and many: a capture's author chooses them.
#[derive(Debug)]
pub struct IndexedCode<'a> {
    code: &'a Vec<CodeRange>,
    /// The addresses of the instructions that do not go on to the next one, sorted.
    leaving: Vec<u64>,
    /// Where instructions are known: sorted, and none touches the next one.
    known: Vec<Range<u64>>,
}

impl<'a> IndexedCode<'a> {
    /// Decodes code, which is sorted by address and does not overlap, as that of a capture is.
    #[must_use]
    pub fn new(code: &'a Vec<CodeRange>) -> Self {
        let (mut leaving, mut known) = (Vec::new(), Vec::<Range<u64>>::new());
        for range in code {
            let instructions = (range.address..).step_by(4).zip(&range.words);
            leaving.extend(instructions.filter_map(|(at, word)| (!goes_on(*word)).then_some(at)));
            let end = range.address + 4 * range.words.len() as u64;
            match known.last_mut() {
                Some(last) if last.end == range.address => last.end = end,
                _ => known.push(range.address..end),
            }
        }
        Self {
            code,
            leaving,
            known,
        }
    }
}

impl Code for IndexedCode<'_> {
    fn fetch(&self, address: u64) -> Option<u32> {
        self.code.fetch(address)
    }

    fn straight(&self, way: Range<u64>) -> Straight {
        if way.is_empty() {
            return Straight::Known;
        }
        // No instruction is anywhere else, and so none is known.
        if !way.start.is_multiple_of(4) {
            return Straight::Unknown;
        }
        let before = self.leaving.partition_point(|at| *at < way.start);
        match self.leaving.get(before) {
            Some(at) if *at < way.end => return Straight::Leaves(*at),
            _ => {}
        }
        let after = self.known.partition_point(|known| known.start <= way.start);
        let known = self.known[..after].last();
        if known.is_some_and(|known| known.end >= way.end) {
            Straight::Known
        } else {
            Straight::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Words of A64 that go on to the next one, and one that does not. `None`: not known.
    fn words() -> impl Strategy<Value = Vec<Option<u32>>> {
        const NOP: u32 = 0xd503_201f;
        const CBZ: u32 = 0xb400_0040;
        const SVC: u32 = 0xd400_0001;
        const RET: u32 = 0xd65f_03c0;
        let word = prop_oneof![
            6 => Just(Some(NOP)),
            2 => Just(Some(CBZ)),
            1 => Just(Some(SVC)),
            1 => Just(Some(RET)),
            1 => Just(None),
        ];
        prop::collection::vec(word, 0..24)
    }

    /// The words that are known as ranges of at most `most`, so that some of them touch.
    fn ranges(words: &[Option<u32>], most: usize) -> Vec<CodeRange> {
        let mut ranges: Vec<CodeRange> = Vec::new();
        for (address, word) in (0x1000..).step_by(4).zip(words) {
            let Some(word) = *word else { continue };
            let end = |range: &CodeRange| range.address + 4 * range.words.len() as u64;
            match ranges.last_mut() {
                Some(last) if end(last) == address && last.words.len() < most => {
                    last.words.push(word);
                }
                _ => ranges.push(CodeRange {
                    address,
                    words: vec![word],
                }),
            }
        }
        ranges
    }

    proptest! {
        #[test]
        fn what_was_decoded_before_says_what_a_walk_says(
            words in words(),
            most in 1_usize..6,
            start in 0xff0_u64..0x1070,
            length in 0_u64..24,
        ) {
            let code = ranges(&words, most);
            let way = start..start + 4 * length;
            prop_assert_eq!(IndexedCode::new(&code).straight(way.clone()), code.straight(way));
        }
    }
}
