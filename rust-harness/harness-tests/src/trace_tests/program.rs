//! Test of the program itself, which people copy to a machine of their own.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use machines::guest::Guest;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, elf};

/// The most bytes that branch-trace has.
const MAX_BYTES: usize = 8_000_000;

/// Checks that branch-trace for the machines of `guest` is one static program, and small.
///
/// # Errors
///
/// When it is not, or cannot be built.
pub(super) fn check(guest: &Guest) -> Result<()> {
    let [_, tracer] = guest.programs_for_people()?;
    let program = fs::read(&tracer).with_context(|| format!("reading {}", tracer.display()))?;
    ensure!(
        program.len() <= MAX_BYTES,
        "branch-trace has {} bytes, more than {MAX_BYTES}",
        program.len()
    );
    let header = elf::FileHeader64::<LittleEndian>::parse(&*program)?;
    let segments = header.program_headers(header.endian()?, &*program)?;
    let is_static = segments
        .iter()
        .all(|segment| segment.p_type(LittleEndian) != elf::PT_INTERP);
    ensure!(is_static, "branch-trace needs a dynamic linker");
    Ok(())
}
