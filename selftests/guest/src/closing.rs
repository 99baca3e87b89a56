//! An event that is disabled leaves nothing behind that records, wherever its
//! counter overflows.
//!
//! For a machine with one CPU and deterministic time (QEMU's `-icount`). The only event
//! there is is enabled and disabled at once. Its period grows by an instruction's cycles
//! from round to round, so that the counter overflows at each instruction, until the
//! event is disabled before that. Then there is no event any more, and so no snapshot.

use std::mem::MaybeUninit;

use anyhow::Result;

use crate::contract::Helper;
use crate::no_event::takes_nothing;
use crate::ring::Ring;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf, settings};

/// The shortest period, in cycles. With shorter ones the counter overflows again on
/// the way out of the overflow's handler, for ever.
const SHORTEST: u64 = 2000;
/// The number of consecutive rounds without an overflow after which no more can come. A
/// timer tick makes a round longer, so that one such round is not enough.
const ENOUGH: usize = 50;
/// The longest period, in cycles: an event is disabled long before.
const LONGEST: u64 = 1_000_000;
/// The only CPU of the machine.
const CPU: u32 = 0;

pub(crate) fn run(step: u64) -> Result<Verdict> {
    verdict::needs_snapshots()?;
    cpus::pin_to(CPU)?;
    let _settings = settings::unlimited_sampling()?;
    let event = perf::open(CPU, perf::FOR_OVERFLOWS).map_err(verdict::cannot_record)?;
    let mut ring = Ring::map(&event)?;
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let (mut overflows, mut without) = (0, 0);
    for period in (SHORTEST..LONGEST).step_by(step.try_into()?) {
        perf::set_period(&event, period)?;
        perf::enable(&event)?;
        perf::disable(&event)?;
        let problem = takes_nothing(&mut helper)?;
        check!(
            problem.is_none(),
            "the only event is disabled, a period of {period} cycles after it was enabled: {}",
            problem.unwrap_or_default()
        );
        if ring.take_samples()?.is_empty() {
            without += 1;
        } else {
            overflows += 1;
            without = 0;
        }
        if without == ENOUGH {
            break;
        }
    }
    check!(
        without == ENOUGH,
        "{overflows} overflows, with every period up to {LONGEST} cycles"
    );
    check!(overflows > 0, "the counter of the event never overflowed");
    Ok(Verdict::Seen(format!(
        "{overflows} overflows before an event was disabled"
    )))
}
