//! A CPU that is switched off and on again.

use crate::run::*;

/// S_YLMQQ: a Warm reset switches recording off and keeps the records.
#[test]
fn a_cpu_switched_on_again_was_reset() {
    let run = Run::new("psci.S", "", "");
    let enabled = 1 << 1;
    assert_eq!(
        run.values("second"),
        [enabled, 0, run.labels["SECOND_LAST"]]
    );
}
