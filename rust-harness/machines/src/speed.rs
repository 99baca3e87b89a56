//! How fast this machine is, so that limits follow it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the boot of an ordinary kernel takes on the machine that the limits were chosen on:
/// two cores, with a second guest beside it.
const BOOT: Duration = Duration::from_secs(5);
/// How many times as long as on that machine things may take while nothing is known of this one.
const UNKNOWN: u32 = 3;
/// How many boots count, the last ones: what else the machine has to do changes.
const COUNTED: usize = 4;

/// How long the last boots of an ordinary kernel took in this process.
static BOOTS: Mutex<VecDeque<Duration>> = Mutex::new(VecDeque::new());

/// Notes how long the boot of an ordinary kernel took, from power-on to the command.
pub(crate) fn note(boot: Duration) {
    let mut boots = BOOTS.lock().unwrap_or_else(PoisonError::into_inner);
    boots.truncate(COUNTED - 1);
    boots.push_front(boot);
}

/// A limit for this machine: `limit`, or more by as much as boots take longer here. Before the
/// first boot the machine may be a slow one.
pub fn scaled(limit: Duration) -> Duration {
    let boots = BOOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let slowest = boots.iter().max();
    slowest.map_or(UNKNOWN * limit, |slowest| by(limit, *slowest))
}

/// `limit`, or more if the slowest of the last boots, `slowest`, was slower than [`BOOT`].
fn by(limit: Duration, slowest: Duration) -> Duration {
    limit.mul_f64(slowest.div_duration_f64(BOOT).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_has_more_time_and_a_fast_one_no_less() {
        let limit = Duration::from_secs(60);
        assert_eq!(scaled(limit), 3 * limit, "no boot is known yet");
        assert_eq!(by(limit, Duration::ZERO), limit);
        assert_eq!(by(limit, Duration::from_secs(2)), limit);
        assert_eq!(by(limit, Duration::from_secs(15)), 3 * limit);
        for seconds in [30, 1, 1, 1, 1] {
            note(Duration::from_secs(seconds));
        }
        assert_eq!(scaled(limit), limit, "boots of long ago do not count");
    }
}
