//! How long the stress test goes on.

use std::time::{Duration, Instant};

use super::seen::Seen;

/// How often the test's time may pass until it has seen what has to be seen.
const TURNS: u32 = 5;

/// What the test does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It goes on.
    GoOn,
    /// It goes on with fewer samples: on a slow machine these leave time for nothing else.
    SampleLess,
    /// It ends: it has seen enough, something wrong, or too little for the last time.
    End,
}

/// The turns of the test. It has one, and others while it has not seen what has to be seen.
///
/// Turns are counted, and not their seconds: on a slow machine, one look at what was recorded may
/// take longer than all turns are to take.
#[derive(Debug)]
pub(super) struct Turns {
    /// How long a turn takes at least.
    time: Duration,
    start: Instant,
    /// How many come after this one.
    left: u32,
}

impl Turns {
    /// Begins the first turn. Each takes at least `time`.
    pub(super) fn of(time: Duration) -> Self {
        Self {
            time,
            start: Instant::now(),
            left: TURNS - 1,
        }
    }

    /// What is next, by what was seen so far. Begins another turn if the last one is over and
    /// something is missing.
    pub(super) fn next(&mut self, seen: &Seen) -> Next {
        if seen.problem.is_some() {
            return Next::End;
        }
        if self.start.elapsed() < self.time {
            return Next::GoOn;
        }
        if seen.missing().is_none() || self.left == 0 {
            return Next::End;
        }
        self.left -= 1;
        self.start = Instant::now();
        if seen.has_samples() {
            Next::SampleLess
        } else {
            Next::GoOn
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_a_look_however_long_it_takes() {
        let seen = Seen::default();
        let mut turns = Turns::of(Duration::ZERO);
        for _ in 1..TURNS {
            assert_eq!(turns.next(&seen), Next::GoOn);
        }
        assert_eq!(turns.next(&seen), Next::End);
    }

    #[test]
    fn what_is_wrong_ends_the_test_at_once() {
        let mut seen = Seen::default();
        let mut turns = Turns::of(Duration::from_secs(3600));
        assert_eq!(turns.next(&seen), Next::GoOn);
        seen.note(Some("a record".to_owned()));
        assert_eq!(turns.next(&seen), Next::End);
    }
}
