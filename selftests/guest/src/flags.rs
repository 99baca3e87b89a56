//! Whether a branch was predicted, and how many cycles came before it, is not claimed in
//! a snapshot if no event asks for that. If any event asks for it, it is there.

use std::mem::MaybeUninit;

use anyhow::Result;
use branch_records::record::{Cycles, RawRecord};

use crate::contract::{Answer, Helper, WHOLE};
use crate::perf::{FOR_SNAPSHOTS, NO_CYCLES, NO_FLAGS, Recording};
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// The size of memory with room for fewer records than there are, in bytes.
const FEW: usize = RawRecord::SIZE * 4;

/// What events ask for beside the branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    flags: bool,
    cycles: bool,
}

/// All that an event asks for which does not say otherwise.
pub(crate) const ALL: Asked = Asked {
    flags: true,
    cycles: true,
};

/// Events that ask for less than all: a name, the recording, and what it asks for.
const LESS: [(&str, Recording, Asked); 3] = [
    (
        "PERF_SAMPLE_BRANCH_NO_FLAGS",
        FOR_SNAPSHOTS.and(NO_FLAGS),
        Asked {
            flags: false,
            ..ALL
        },
    ),
    (
        "PERF_SAMPLE_BRANCH_NO_CYCLES",
        FOR_SNAPSHOTS.and(NO_CYCLES),
        Asked {
            cycles: false,
            ..ALL
        },
    ),
    (
        "PERF_SAMPLE_BRANCH_NO_FLAGS and NO_CYCLES",
        FOR_SNAPSHOTS.and(NO_FLAGS | NO_CYCLES),
        Asked {
            flags: false,
            cycles: false,
        },
    ),
];

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    if !cfg!(target_arch = "aarch64") {
        return Ok(Verdict::Skip(
            "what is not asked for is a matter of BRBE's registers".to_owned(),
        ));
    }
    // The events show which CPUs can record branches, and are closed again: on each CPU,
    // an event of the test has to be the only one.
    let events =
        perf::open_everywhere(&cpus::online()?, FOR_SNAPSHOTS).map_err(verdict::cannot_record)?;
    let able: Vec<u32> = events.into_iter().map(|(cpu, _)| cpu).collect();
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for cpu in able {
        cpus::pin_to(cpu)?;
        for (name, less, asked) in LESS {
            let _less = perf::open(cpu, less)?;
            let alone = problem(&mut helper, asked)?;
            check!(
                alone.is_none(),
                "CPU {cpu}, an event with {name} alone: {}",
                alone.unwrap_or_default()
            );
            let _plain = perf::open(cpu, FOR_SNAPSHOTS)?;
            let together = problem(&mut helper, ALL)?;
            check!(
                together.is_none(),
                "CPU {cpu}, an event with {name} beside one without: {}",
                together.unwrap_or_default()
            );
        }
    }
    Ok(Verdict::Pass)
}

/// What is wrong with snapshots on this CPU, if anything: of branches inside the kernel,
/// of the newest of them, and of some that enter and leave it.
fn problem(helper: &mut Helper<'_>, asked: Asked) -> Result<Option<String>> {
    let inside = helper.call(WHOLE, 0)?;
    let few = helper.call(FEW, 0)?;
    let at_the_border = helper.call_at_system_call()?;
    let answers = [inside, few, at_the_border];
    let problem = |answer: &Answer| answer.written_behind().or_else(|| wrong(answer, asked));
    Ok(answers.iter().find_map(problem))
}

/// What is wrong with a snapshot, if anything: it claims what was not asked for, or lacks
/// what was asked for.
pub(crate) fn wrong(answer: &Answer, asked: Asked) -> Option<String> {
    let records = answer.records();
    if records.is_empty() {
        return Some(format!("the helper returned {}", answer.returned));
    }
    let record_is_wrong = records.iter().enumerate().find_map(|(index, raw)| {
        let record = raw.decode();
        let flags = u8::from(record.mispredicted) + u8::from(record.predicted);
        // Prediction is not recorded of a branch that comes from where nothing is
        // recorded.
        let expected = u8::from(asked.flags && record.from.is_some());
        let what = if flags != expected {
            format!("has {flags} of mispred and predicted, not {expected}")
        } else if !asked.cycles && record.cycles != Cycles::Unknown {
            "has cycles that no event asks for".to_owned()
        } else {
            return None;
        };
        Some(format!("record {index} {what}: {raw:x?}"))
    });
    let has_cycles = |raw: &RawRecord| raw.decode().cycles != Cycles::Unknown;
    record_is_wrong.or_else(|| {
        let without = asked.cycles && !records.iter().any(has_cycles);
        without.then(|| "no record has the cycles that an event asks for".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREDICTED: u64 = 1 << 1;
    const CYCLES: u64 = 7 << 4;

    fn answer(from: u64, flags: u64) -> Answer {
        let record = RawRecord { from, to: 1, flags };
        Answer::new(RawRecord::SIZE as i64, vec![record])
    }

    #[test]
    fn what_is_claimed_and_was_not_asked_for_is_reported() {
        for (name, _, asked) in LESS {
            let flags = u64::from(asked.flags) * PREDICTED + u64::from(asked.cycles) * CYCLES;
            assert_eq!(wrong(&answer(4, flags), asked), None, "{name}");
            let claimed = wrong(&answer(4, PREDICTED | CYCLES), asked).unwrap();
            assert!(claimed.contains("record 0 has"), "{name}: {claimed}");
        }
    }

    #[test]
    fn what_was_asked_for_and_is_not_there_is_reported() {
        assert_eq!(wrong(&answer(4, PREDICTED | CYCLES), ALL), None);
        for (from, flags, said) in [
            (4, CYCLES, "has 0 of mispred and predicted, not 1"),
            (4, CYCLES | 3, "has 2 of mispred and predicted, not 1"),
            (
                0,
                CYCLES | PREDICTED,
                "has 1 of mispred and predicted, not 0",
            ),
            (4, PREDICTED, "no record has the cycles"),
        ] {
            let wrong = wrong(&answer(from, flags), ALL).unwrap();
            assert!(wrong.contains(said), "{wrong}");
        }
        assert_eq!(wrong(&answer(0, CYCLES), ALL), None);
        let none = Answer::new(-2, Vec::new());
        assert!(wrong(&none, ALL).unwrap().contains("returned -2"));
    }
}
