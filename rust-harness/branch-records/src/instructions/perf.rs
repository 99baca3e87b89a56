//! Snapshots as `perf script -F comm,pid,cpu,time,event,brstackinsn` prints samples:
//! `perf_sample__fprintf_brstackinsn()` in tools/perf/builtin-script.c.
//!
//! perf cannot tell where an arm64 instruction ends, and stops at the first. Here, instructions are
//! disassembled as perf does with `brstackdisasm`.

use std::io::{self, Write};

use super::{Disassembler, ExecutedInstruction};
use crate::brstack;
use crate::capture::Capture;
use crate::record::{Cycles, RawRecord};
use crate::symbol::Resolve;

/// Writes the snapshots of a capture. Instructions that the capture does not hold are left out.
///
/// # Errors
///
/// When writing to `out` fails.
pub(crate) fn write(
    capture: &Capture,
    symbols: &dyn Resolve,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut disassembler = Disassembler::new(capture, symbols);
    for snapshot in &capture.snapshots {
        brstack::write_head(snapshot, out)?;
        writeln!(out)?;
        let mut written = Written {
            total: 0,
            function: None,
            out,
        };
        let blocks = disassembler.of_snapshot(snapshot);
        let records = snapshot.records.iter().rev();
        for (index, (block, record)) in blocks.iter().zip(records).enumerate() {
            let (last, others) = match block.split_last() {
                Some((last, others)) if last.branches(record.from) => (Some(last.clone()), others),
                // perf has the instruction that was interrupted here.
                _ => (
                    disassembler.instruction(snapshot.pid, record.from),
                    &block[..],
                ),
            };
            for instruction in others {
                written.instruction(instruction)?;
            }
            if let Some(last) = last {
                let is_whole =
                    index > 0 && !block.is_empty() && !block.iter().any(|it| it.after_gap);
                let executed = is_whole.then_some(others.len() + 1);
                written.branch(&last, record, executed)?;
            }
        }
    }
    Ok(())
}

/// What was written of a snapshot.
struct Written<'a> {
    /// The cycles of all branches until now.
    total: u64,
    function: Option<String>,
    out: &'a mut dyn Write,
}

impl Written<'_> {
    fn function(&mut self, instruction: &ExecutedInstruction) -> io::Result<()> {
        let symbol = instruction.symbol.as_ref();
        let name = symbol.map(|symbol| symbol.name.clone());
        if let Some(symbol) = symbol.filter(|_| self.function != name) {
            let offset = match symbol.offset {
                0 => String::new(),
                offset => format!("+{offset}"),
            };
            writeln!(self.out, "\t{}{offset}:", symbol.name)?;
        }
        self.function = name;
        Ok(())
    }

    fn instruction(&mut self, instruction: &ExecutedInstruction) -> io::Result<()> {
        self.function(instruction)?;
        let ExecutedInstruction { address, text, .. } = instruction;
        writeln!(self.out, "\t{address:016x}\t{text}")
    }

    /// Writes an instruction with what perf says of its branch: whether it was predicted, its
    /// cycles, the cycles up to it, and the instructions for each of its cycles. `executed` is the
    /// number of instructions since the branch before, where it is known.
    fn branch(
        &mut self,
        instruction: &ExecutedInstruction,
        raw: &RawRecord,
        executed: Option<usize>,
    ) -> io::Result<()> {
        self.function(instruction)?;
        let ExecutedInstruction { address, text, .. } = instruction;
        write!(self.out, "\t{address:016x}\t{text:<30}\t#")?;
        let record = raw.decode();
        let flags = [
            (record.predicted, " PRED"),
            (record.mispredicted, " MISPRED"),
            (record.in_transaction, " INTX"),
            (record.abort, " ABORT"),
        ];
        for (_, name) in flags.into_iter().filter(|(is_set, _)| *is_set) {
            write!(self.out, "{name}")?;
        }
        if let Cycles::Count(cycles @ 1..) | Cycles::AtLeast(cycles @ 1..) = record.cycles {
            self.total += u64::from(cycles);
            write!(self.out, " {cycles} cycles [{}]", self.total)?;
            if let Some(executed) = executed {
                let each = executed as f64 / f64::from(cycles);
                write!(self.out, " {each:.2} IPC")?;
            }
        }
        writeln!(self.out)
    }
}
