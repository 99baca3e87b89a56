//! A call that is refused for its flags takes no snapshot: nothing is written, and the
//! records are there for the next call.
//!
//! The verifier writes the check of the flags into programs that are compiled. So the
//! program is interpreted here, and calls the helper itself.

use std::mem::MaybeUninit;

use anyhow::Result;
use rustix::io::Errno;

use crate::contract::{Helper, WHOLE};
use crate::cpus;
use crate::verdict::{self, Verdict, check};

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let events = verdict::record_everywhere()?;
    let mut object = MaybeUninit::uninit();
    let Some(mut helper) = Helper::interpreted(&mut object)? else {
        return Ok(Verdict::Skip(
            "the kernel has no interpreter for BPF (CONFIG_BPF_JIT_ALWAYS_ON)".to_owned(),
        ));
    };
    for (cpu, _) in &events {
        cpus::pin_to(*cpu)?;
        let refused = helper.call(WHOLE, 1)?;
        check!(
            refused.returned == -i64::from(Errno::INVAL.raw_os_error()),
            "CPU {cpu}, a flag: the helper returned {}",
            refused.returned
        );
        let written = refused.overwritten();
        check!(
            written.is_none(),
            "CPU {cpu}: a call that is refused for its flags has taken a snapshot, and written \
             record {}",
            written.unwrap_or_default()
        );
        let taken = helper.call(WHOLE, 0)?;
        check!(
            !taken.records().is_empty(),
            "CPU {cpu}, without flags: the helper returned {}",
            taken.returned
        );
    }
    Ok(Verdict::Pass)
}
