//! Snapshots as `perf script -F comm,pid,cpu,time,event,brstack` prints samples, for
//! tools that read that output.

use std::io::{self, Write};

use crate::capture::Snapshot;
use crate::record::{Cycles, RawRecord, Speculation};

/// Writes one line for each snapshot, with its branches newest first. Cycles that are not
/// known are written as 0, as perf does.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(snapshots: &[Snapshot], out: &mut impl Write) -> io::Result<()> {
    for snapshot in snapshots {
        write_head(snapshot, out)?;
        for record in &snapshot.records {
            write_record(record, out)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Writes what comes before the branches: the thread, the CPU, the time and what was traced.
pub(crate) fn write_head(snapshot: &Snapshot, out: &mut dyn Write) -> io::Result<()> {
    let Snapshot {
        comm,
        pid,
        cpu,
        time,
        function,
        ..
    } = snapshot;
    let (seconds, microseconds) = (time / 1_000_000_000, time / 1_000 % 1_000_000);
    write!(
        out,
        "{comm:>16} {pid:>7} [{cpu:03}] {seconds:>5}.{microseconds:06}: {function}:"
    )
}

/// Writes one record as `FROM/TO/PREDICTION/TRANSACTION/ABORT/CYCLES/TYPE/SPECULATION`,
/// the format of `print_bstack_flags()` in tools/perf/builtin-script.c.
pub(crate) fn write_record(raw: &RawRecord, out: &mut dyn Write) -> io::Result<()> {
    let record = raw.decode();
    let flag = |set, name| if set { name } else { '-' };
    let prediction = match (record.mispredicted, record.predicted) {
        (true, _) => 'M',
        (false, true) => 'P',
        (false, false) => '-',
    };
    let cycles = match record.cycles {
        Cycles::Unknown => 0,
        Cycles::Count(cycles) | Cycles::AtLeast(cycles) => cycles,
    };
    write!(
        out,
        " {:#x}/{:#x}/{prediction}/{}/{}/{cycles}/{}/{}",
        raw.from,
        raw.to,
        flag(record.in_transaction, 'X'),
        flag(record.abort, 'A'),
        record.kind.name(),
        speculation(record.speculation)
    )
}

/// The name that perf prints for a speculation value: `branch_spec_desc()` in
/// tools/perf/util/branch.c.
fn speculation(speculation: Speculation) -> &'static str {
    match speculation {
        Speculation::NotAvailable => "-",
        Speculation::WrongPath => "SPEC_WRONG_PATH",
        Speculation::NonSpeculativeCorrectPath => "NON_SPEC_CORRECT_PATH",
        Speculation::SpeculativeCorrectPath => "SPEC_CORRECT_PATH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Moment;

    #[test]
    fn a_snapshot_is_a_line() {
        let record = |from, to, flags| RawRecord { from, to, flags };
        let snapshot = Snapshot {
            function: "vfs_read".to_owned(),
            moment: Moment::Entry,
            returned: None,
            cpu: 1,
            pid: 42,
            tid: 43,
            comm: "dd".to_owned(),
            time: 12_345_678_901,
            duration: None,
            asked: 64,
            errno: None,
            stack: Vec::new(),
            arguments: Vec::new(),
            records: vec![
                // COND, 7 cycles, predicted.
                record(
                    0xffff_8000_8001_0000,
                    0xffff_8000_8001_0040,
                    1 << 20 | 7 << 4 | 2,
                ),
                // RET, saturated, mispredicted, on the correct path, no source.
                record(0, 0x40_0000, 3 << 24 | 6 << 20 | 0xffff << 4 | 1),
            ],
        };
        let mut out = Vec::new();
        write(&[snapshot], &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "              dd      42 [001]    12.345678: vfs_read: \
             0xffff800080010000/0xffff800080010040/P/-/-/7/COND/- \
             0x0/0x400000/M/-/-/65535/RET/SPEC_CORRECT_PATH\n"
        );
    }
}
