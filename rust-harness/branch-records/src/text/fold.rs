//! What repeats itself, as loops do.

use std::ops::Range;

/// Branches of a loop that are told from a path.
const LONGEST: usize = 8;

/// The same things in the same order, `times` times, from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    start: usize,
    length: usize,
    pub(crate) times: usize,
}

impl Run {
    /// The last time.
    pub(crate) fn last(&self) -> Range<usize> {
        let end = self.start + self.length * self.times;
        end - self.length..end
    }
}

/// Every one of `count` things alone.
pub(crate) fn none(count: usize) -> Vec<Run> {
    (0..count).map(alone).collect()
}

fn alone(start: usize) -> Run {
    Run {
        start,
        length: 1,
        times: 1,
    }
}

/// Which of them repeat what is right before them. Of several ways to see it, what
/// leaves the least to show.
pub(crate) fn runs<T>(things: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut start = 0;
    while start < things.len() {
        let rest = &things[start..];
        let run = |length: usize| Run {
            start,
            length,
            times: times(rest, length, &same),
        };
        let saved = |run: &Run| (run.times - 1) * run.length;
        let longest = LONGEST.min(rest.len());
        // The first of those that save the same: the shortest.
        let best = (1..=longest).map(run).rev().max_by_key(saved);
        let run = best.filter(|run| run.times > 1).unwrap_or(alone(start));
        start += run.length * run.times;
        runs.push(run);
    }
    runs
}

/// How often the first `length` of them come after each other.
fn times<T>(things: &[T], length: usize, same: impl Fn(&T, &T) -> bool) -> usize {
    let repeats = |(index, thing): (usize, &T)| same(thing, &things[index % length]);
    let matching = things.iter().enumerate().take_while(|&pair| repeats(pair));
    (matching.count() / length).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    /// `ab` three times is `(ab)3`.
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
    fn loops_are_told_once() {
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
