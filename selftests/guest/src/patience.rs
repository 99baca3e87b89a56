//! How long to wait for a kernel.

use std::fs;
use std::time::Duration;

/// How long RCU waits for a CPU before it reports that one as stalled, in seconds. On a slow
/// machine the harness has the kernel wait longer.
const STALL: &str = "/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout";
/// How long a kernel waits that is not asked to wait longer, nor configured so
/// (`CONFIG_RCU_CPU_STALL_TIMEOUT`).
const USUAL: u64 = 21;

/// `limit`, or more if the kernel waits longer for a CPU than most: limits are as patient as it is.
pub(crate) fn of_the_kernel(limit: Duration) -> Duration {
    let seconds = fs::read_to_string(STALL).ok();
    scaled(limit, seconds.and_then(|text| text.trim().parse().ok()))
}

fn scaled(limit: Duration, seconds: Option<u64>) -> Duration {
    let seconds = seconds.unwrap_or(USUAL).max(USUAL);
    limit.mul_f64(seconds as f64 / USUAL as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_grows_with_the_patience_of_the_kernel() {
        let limit = Duration::from_secs(60);
        for (seconds, grown) in [(None, 60), (Some(3), 60), (Some(21), 60), (Some(63), 180)] {
            assert_eq!(scaled(limit, seconds), Duration::from_secs(grown));
        }
    }
}
