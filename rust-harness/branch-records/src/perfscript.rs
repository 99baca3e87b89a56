//! Snapshots as `perf script --show-mmap-events -F ip,brstack` prints samples: what LLVM's
//! `llvm-profgen --perfscript` reads.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::Range;

use crate::brstack;
use crate::capture::{Capture, Mapping};

/// Writes one line for each snapshot that has records, with its branches newest first. The address
/// before them is that where the newest branch led. `image` has the addresses of the kernel image;
/// a line in front of the samples tells it. Before a sample, lines tell which files the process had
/// mapped at its branches, unless lines before have told that of this process.
///
/// # Errors
///
/// When writing to `out` fails.
pub fn write(capture: &Capture, image: &Range<u64>, out: &mut impl Write) -> io::Result<()> {
    // `[kernel.kallsyms]_text` is how perf names the image, by its first symbol.
    let Range { start, end } = image;
    writeln!(
        out,
        " PERF_RECORD_MMAP -1/0: [{start:#x}({:#x}) @ {start:#x}]: x [kernel.kallsyms]_text",
        end.wrapping_sub(*start)
    )?;
    let processes = capture.processes.iter();
    let processes: HashMap<_, _> = processes.map(|it| (it.pid, it)).collect();
    let mut told = (None, HashSet::new());
    for snapshot in &capture.snapshots {
        let Some(newest) = snapshot.records.first() else {
            continue;
        };
        if told.0 != Some(snapshot.pid) {
            told = (Some(snapshot.pid), HashSet::new());
        }
        if let Some(process) = processes.get(&snapshot.pid) {
            let ends = snapshot.records.iter().flat_map(|it| [it.from, it.to]);
            for mapping in ends.filter_map(|address| process.mapping_at(address)) {
                if told.1.insert(mapping.start) {
                    write_mapping(process.pid, mapping, out)?;
                }
            }
        }
        write!(out, " {:x} ", newest.to)?;
        for record in &snapshot.records {
            brstack::write_record(record, out)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_mapping(pid: u32, mapping: &Mapping, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        " PERF_RECORD_MMAP2 {pid}/{pid}: [{:#x}({:#x}) @ {:#x} 00:00 0 0]: r-xp {}",
        mapping.start,
        mapping.end - mapping.start,
        mapping.offset,
        mapping.path
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Process;
    use crate::made_up::{self, ALLOC_CHECK, MAP_CREATE, RETURN, record};

    #[test]
    fn llvm_reads_where_code_is_and_what_was_taken() {
        let mut capture = made_up::capture(vec![
            made_up::snapshot(vec![
                record(MAP_CREATE + 8, ALLOC_CHECK, made_up::CALL),
                record(ALLOC_CHECK + 0x20, MAP_CREATE + 12, RETURN),
                record(MAP_CREATE + 20, 0x40_0010, RETURN),
            ]),
            made_up::snapshot(Vec::new()),
        ]);
        capture.processes = vec![Process {
            pid: capture.snapshots[0].pid,
            mappings: [(0x40_0000, "/bin/demo"), (0x50_0000, "/lib/untouched")]
                .map(|(start, path)| Mapping {
                    start,
                    end: start + 0x1_0000,
                    offset: 0,
                    path: path.to_owned(),
                    build_id: None,
                })
                .into(),
        }];
        let image = 0xffff_8000_8000_0000..0xffff_8000_8100_0000;
        let mut out = Vec::new();
        write(&capture, &image, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }
}
