//! Finds sequences that repeat themselves, as the branches of loops do.

use std::ops::Range;

/// The most branches of a loop that is recognised as one.
const LONGEST: usize = 8;

/// A sequence of `length` things that is repeated: it comes `times` times, from index
/// `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoldedRun {
    start: usize,
    length: usize,
    pub(crate) times: usize,
}

impl FoldedRun {
    /// The indices of the last repetition.
    pub(crate) fn last(&self) -> Range<usize> {
        let end = self.start + self.length * self.times;
        end - self.length..end
    }
}

/// A run for each of `count` things: nothing is folded.
pub(crate) fn none(count: usize) -> Vec<FoldedRun> {
    (0..count).map(alone).collect()
}

fn alone(start: usize) -> FoldedRun {
    FoldedRun {
        start,
        length: 1,
        times: 1,
    }
}

/// Splits `things` into runs that repeat themselves. Of several ways to do so, the one is
/// taken that leaves the least to show.
pub(crate) fn runs<T>(things: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<FoldedRun> {
    let mut runs = Vec::new();
    let mut start = 0;
    while start < things.len() {
        let rest = &things[start..];
        let run = |length: usize| FoldedRun {
            start,
            length,
            times: times(rest, length, &same),
        };
        let saved = |run: &FoldedRun| (run.times - 1) * run.length;
        let longest = LONGEST.min(rest.len());
        // Of the lengths that save the same, the shortest is taken.
        let best = (1..=longest).map(run).rev().max_by_key(saved);
        let run = best.filter(|run| run.times > 1).unwrap_or(alone(start));
        start += run.length * run.times;
        runs.push(run);
    }
    runs
}

/// How often the first `length` of `things` come in succession, at least once.
fn times<T>(things: &[T], length: usize, same: impl Fn(&T, &T) -> bool) -> usize {
    let repeats = |(index, thing): (usize, &T)| same(thing, &things[index % length]);
    let matching = things.iter().enumerate().take_while(|&pair| repeats(pair));
    (matching.count() / length).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    /// Folds a text: `ab` three times becomes `(ab)3`.
    fn folded(text: &str) -> String {
        let things: Vec<_> = text.chars().collect();
        runs(&things, |a, b| a == b)
            .iter()
            .map(|run| {
                let once: String = things[run.last()].iter().collect();
                match run.times {
                    1 => once,
                    times => format!("({once}){times}"),
                }
            })
            .collect()
    }

    #[test]
    fn loops_are_shown_once() {
        assert_eq!(folded(""), "");
        assert_eq!(folded("abc"), "abc");
        assert_eq!(folded("aab"), "(a)2b");
        assert_eq!(folded("xabababy"), "x(ab)3y");
        assert_eq!(folded("aaaa"), "(a)4");
        assert_eq!(folded("abcabcabd"), "(abc)2abd");
        assert_eq!(folded("abababa"), "(ab)3a");
    }

    proptest! {
        #[test]
        fn nothing_is_lost(text in "[ab]{0,40}") {
            let things: Vec<_> = text.chars().collect();
            let unfolded: String = runs(&things, |a, b| a == b)
                .iter()
                .flat_map(|run| {
                    let once: String = things[run.last()].iter().collect();
                    std::iter::repeat_n(once, run.times)
                })
                .collect();
            prop_assert_eq!(unfolded, text);
        }
    }
}
