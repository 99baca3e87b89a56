//! Snapshots as `perf script --show-mmap-events -F ip,brstack` prints samples: what LLVM's
//! `llvm-profgen --perfscript` reads.

use std::io::{self, Write};
use std::ops::Range;

use crate::brstack;
use crate::capture::{Capture, Process};

/// Writes one line for each snapshot that has records, with its branches newest first. The address
/// before them is that where the newest branch led. `image` has the addresses of the kernel image;
/// a line in front of the samples tells it. Before the samples of a process, lines tell which files
/// it had mapped.
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
        end - start
    )?;
    let mut mapped = None;
    for snapshot in &capture.snapshots {
        let Some(newest) = snapshot.records.first() else {
            continue;
        };
        if mapped != Some(snapshot.pid) {
            let mut processes = capture.processes.iter();
            if let Some(process) = processes.find(|process| process.pid == snapshot.pid) {
                write_mappings(process, out)?;
            }
            mapped = Some(snapshot.pid);
        }
        write!(out, " {:x} ", newest.to)?;
        for record in &snapshot.records {
            brstack::write_record(record, out)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_mappings(process: &Process, out: &mut impl Write) -> io::Result<()> {
    let pid = process.pid;
    for mapping in &process.mappings {
        writeln!(
            out,
            " PERF_RECORD_MMAP2 {pid}/{pid}: [{:#x}({:#x}) @ {:#x} 00:00 0 0]: r-xp {}",
            mapping.start,
            mapping.end - mapping.start,
            mapping.offset,
            mapping.path
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Mapping;
    use crate::made_up::{self, ALLOC_CHECK, MAP_CREATE, RETURN, record};

    #[test]
    fn llvm_reads_where_code_is_and_what_was_taken() {
        let mut capture = made_up::capture(vec![
            made_up::snapshot(vec![
                record(MAP_CREATE + 8, ALLOC_CHECK, made_up::CALL),
                record(ALLOC_CHECK + 0x20, MAP_CREATE + 12, RETURN),
            ]),
            made_up::snapshot(Vec::new()),
        ]);
        capture.processes = vec![Process {
            pid: capture.snapshots[0].pid,
            mappings: vec![Mapping {
                start: 0x40_0000,
                end: 0x41_0000,
                offset: 0,
                path: "/bin/demo".to_owned(),
            }],
        }];
        let image = 0xffff_8000_8000_0000..0xffff_8000_8100_0000;
        let mut out = Vec::new();
        write(&capture, &image, &mut out).unwrap();
        insta::assert_snapshot!(String::from_utf8(out).unwrap());
    }
}
