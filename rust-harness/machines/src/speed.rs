//! How fast this machine is, so that limits follow it.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How long the boot of an ordinary kernel takes on the machine that the limits were chosen on:
/// two cores, with a second guest beside it.
const BOOT: Duration = Duration::from_secs(4);
/// How many times as long as on that machine things may take while nothing is known of this one.
const UNKNOWN: f64 = 3.0;
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
    limit.mul_f64(slowness())
}

/// How long what took `taken` on this machine would take on the one that limits were chosen on: for
/// a limit, which is [`scaled`] when it is used.
pub fn as_chosen(taken: Duration) -> Duration {
    taken.div_f64(slowness())
}

/// How many times as long as on the machine that limits were chosen on things may take here.
fn slowness() -> f64 {
    let boots = BOOTS.lock().unwrap_or_else(PoisonError::into_inner);
    let slowest = boots.iter().max();
    slowest.map_or(UNKNOWN, |slowest| by(*slowest))
}

/// How many times as long as [`BOOT`] the slowest of the last boots took, and no less than once.
fn by(slowest: Duration) -> f64 {
    slowest.div_duration_f64(BOOT).max(1.0)
}

/// Words for a kernel's command line by which its own watchdogs are as patient as the limits here:
/// that of RCU, which bites after 21 s by default, and that of lockups, after 10 s and 20 s
/// (Documentation/admin-guide/kernel-parameters.txt). A kernel takes no more than 300 s and 60 s.
pub(crate) fn watchdogs() -> [String; 2] {
    let seconds = |default, most| scaled(Duration::from_secs(default)).as_secs().min(most);
    [
        format!("rcupdate.rcu_cpu_stall_timeout={}", seconds(21, 300)),
        format!("watchdog_thresh={}", seconds(10, 60)),
    ]
}

/// Words for the command line of a kernel that checks itself: a task that is stuck is reported, and
/// ends the machine, before the time of an ordinary test is over.
pub(crate) fn hung_tasks() -> [String; 2] {
    let seconds = scaled(Duration::from_secs(40)).as_secs();
    [
        format!("sysctl.kernel.hung_task_timeout_secs={seconds}"),
        "sysctl.kernel.hung_task_panic=1".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_machine_has_more_time_and_a_fast_one_no_less() {
        let limit = Duration::from_secs(60);
        assert_eq!(scaled(limit), 3 * limit, "no boot is known yet");
        let patient = ["rcupdate.rcu_cpu_stall_timeout=63", "watchdog_thresh=30"];
        assert_eq!(watchdogs(), patient);
        assert_eq!(as_chosen(3 * limit), limit);
        for (seconds, times) in [(0, 1.0), (2, 1.0), (12, 3.0)] {
            assert_eq!(by(Duration::from_secs(seconds)), times);
        }
        for seconds in [30, 1, 1, 1, 1] {
            note(Duration::from_secs(seconds));
        }
        assert_eq!(scaled(limit), limit, "boots of long ago do not count");
        let defaults = ["rcupdate.rcu_cpu_stall_timeout=21", "watchdog_thresh=10"];
        assert_eq!(watchdogs(), defaults);
        assert_eq!(hung_tasks()[0], "sysctl.kernel.hung_task_timeout_secs=40");
        note(Duration::from_secs(1000));
        let most = ["rcupdate.rcu_cpu_stall_timeout=300", "watchdog_thresh=60"];
        assert_eq!(watchdogs(), most);
    }
}
