//! The time from which on no further test begins.

use std::time::{Duration, Instant};

/// The time from which on no further test begins (`--within`).
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    end: Instant,
    minutes: u32,
}

impl Limit {
    /// A limit that is reached in `minutes` minutes from now.
    pub fn of_minutes(minutes: u32) -> Self {
        Self {
            end: Instant::now() + Duration::from_secs(60) * minutes,
            minutes,
        }
    }

    /// How long it is until the limit is reached.
    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The reason why no test begins any more, if the limit has been reached. Otherwise
    /// `None`.
    pub fn passed(&self) -> Option<String> {
        (Instant::now() >= self.end).then(|| {
            format!(
                "not begun: the {} minutes of --within were over; what was built is kept",
                self.minutes
            )
        })
    }
}
