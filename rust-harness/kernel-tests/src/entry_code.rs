//! Whether the snapshot pauses BRBE before any branch is taken. The kernel's machine code
//! decides. Each branch that is taken before the pause would push a record out of the buffer.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::path::{Flow, FlowKind, flow};
use branch_records::vmlinux::Vmlinux;
use object::{Object as _, ObjectSection as _};

use crate::context::Context;
use crate::entry::ENTRY;
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use report::{Tier, Verdict};

/// The test that the code of a kernel's snapshot passes [`check`].
pub fn tests() -> Batch {
    let name = "no branch before the pause, by the code";
    let test = Test::new(name, Scope::SNAPSHOT).with(KernelNeeds::Symbols);
    // A branch there costs each snapshot a record, and no guest test counts it on each kernel.
    let test = test.in_tier(Tier::Quick);
    Batch::of_one(test, |context, _| {
        by_name(context, check(context.kernel()?.vmlinux()?))
    })
}

/// The verdict on code that was found by the name that it has in this project's series. An
/// implementation of somebody else need not have that name: then the test is skipped.
fn by_name(context: &Context<'_>, found: Result<Verdict>) -> Result<Verdict> {
    match found {
        Err(error) if !context.is_ours() => Ok(Verdict::Skip(format!(
            "the snapshot is not found in vmlinux by its name: {error:#}"
        ))),
        found => found,
    }
}

/// The instruction `MSR DAIFSet, #15` (Arm ARM, C6.2, "MSR (immediate)"), which masks all of
/// DAIF.
pub(crate) const MASK_ALL: u32 = 0xd503_4fdf;
/// The instruction `MSR BRBFCR_EL1, <Xt>` without the bits of [`REGISTER`] (Arm ARM,
/// `BRBFCR_EL1`).
const WRITE_BRBFCR: u32 = 0xd511_9020;
/// The bits of an instruction `MSR` or `MRS` that are the number of the register `<Xt>`.
pub const REGISTER: u32 = 0x1f;
/// The instruction `ISB` (Arm ARM, C6.2, "ISB").
const ISB: u32 = 0xd503_3fdf;

/// What a snapshot executes until the pause takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    instructions: usize,
    /// How many of the instructions are conditional branches, which are not taken where there
    /// is a snapshot.
    conditional: usize,
}

/// Checks the code of [`ENTRY`], from its first instruction on.
///
/// # Errors
///
/// When `vmlinux` cannot be read, or does not have all of the code of [`ENTRY`].
pub fn check(vmlinux: &Path) -> Result<Verdict> {
    let words = entry_code(vmlinux)?;
    Ok(match before(&words) {
        Ok(Before {
            instructions,
            conditional,
        }) => Verdict::Pass(format!(
            "{instructions} instructions, of which {conditional} are branches out of line"
        )),
        Err(why) => Verdict::Fail(why),
    })
}

/// Follows the code that is executed where there is a snapshot: conditional branches lead
/// away from it. The error says in words what is wrong with the code.
fn before(words: &[u32]) -> Result<Before, String> {
    let (mut masked, mut paused, mut conditional) = (false, false, 0);
    for (index, word) in words.iter().enumerate() {
        match *word {
            ISB if paused => {
                return Ok(Before {
                    instructions: index + 1,
                    conditional,
                });
            }
            MASK_ALL => masked = true,
            word if word & !REGISTER == WRITE_BRBFCR && !masked => {
                return Err("BRBE is paused before exceptions are masked".to_owned());
            }
            word if word & !REGISTER == WRITE_BRBFCR => paused = true,
            word => match flow(word) {
                Flow::On => {}
                Flow::Direct {
                    kind: FlowKind::Conditional,
                    ..
                } => conditional += 1,
                flow => {
                    return Err(format!(
                        "instruction {index} ({word:#010x}) is a branch before BRBE is paused: {flow:?}"
                    ));
                }
            },
        }
    }
    Err("BRBE is not paused".to_owned())
}

/// The instructions of [`ENTRY`].
///
/// # Errors
///
/// When `vmlinux` cannot be read, is no ELF file, or does not have all of the code of
/// [`ENTRY`].
pub fn entry_code(vmlinux: &Path) -> Result<Vec<u32>> {
    let range = Vmlinux::open(vmlinux)?.function(ENTRY)?;
    let bytes = fs::read(vmlinux).with_context(|| format!("reading {}", vmlinux.display()))?;
    let file = object::File::parse(&*bytes).context("vmlinux is no ELF file")?;
    let length = range.end - range.start;
    let code = file
        .sections()
        .find_map(|section| section.data_range(range.start, length).ok()?);
    let code = code.with_context(|| format!("vmlinux has not got the code of {ENTRY}()"))?;
    ensure!(
        code.len() as u64 == length,
        "vmlinux has a part of {ENTRY}() only"
    );
    let words = code
        .as_chunks()
        .0
        .iter()
        .copied()
        .map(u32::from_le_bytes)
        .collect();
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const CBZ: u32 = 0x3400_0041;
    const BL: u32 = 0x9400_0010;
    const PAUSE: u32 = WRITE_BRBFCR | 9;

    #[test]
    fn only_branches_that_are_not_taken_may_come_before_the_pause() {
        let good = [NOP, MASK_ALL, CBZ, PAUSE, ISB, BL];
        let found = Before {
            instructions: 5,
            conditional: 1,
        };
        assert_eq!(before(&good), Ok(found));
        for (bad, why) in [
            (
                vec![BL, MASK_ALL, PAUSE, ISB],
                "instruction 0 (0x94000010) is a branch",
            ),
            (vec![PAUSE, MASK_ALL, ISB], "before exceptions are masked"),
            (vec![MASK_ALL, PAUSE, BL, ISB], "instruction 2"),
            (vec![MASK_ALL, PAUSE], "not paused"),
        ] {
            let said = before(&bad).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
