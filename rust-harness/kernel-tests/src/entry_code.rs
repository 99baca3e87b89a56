//! Whether the snapshot pauses BRBE before any branch is taken. The kernel's machine code
//! decides. Each branch that is taken before the pause would push a record out of the buffer.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use branch_records::path::{Flow, FlowKind, flow};
use branch_records::vmlinux::Vmlinux;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use crate::context::Context;
use crate::entry::{ENTRY, entry};
use crate::registry::{Batch, KernelNeeds, Scope, Test};
use machines::machine_spec::MachineSpec;
use report::{Tier, Verdict};

/// The test that no branch comes before the pause in the code of a kernel's snapshot.
pub fn tests() -> Batch {
    let name = "no branch before the pause, by the code";
    let test = Test::new(name, Scope::SNAPSHOT).with(KernelNeeds::Symbols);
    // A branch there costs each snapshot a record, and no guest test counts it on each kernel.
    let test = test.in_tier(Tier::Quick);
    Batch::of_one(test, |context, _| of_kernel(context))
}

/// The verdict on the kernel of `context`.
fn of_kernel(context: &Context<'_>) -> Result<Verdict> {
    let machine = MachineSpec {
        kernel_args: vec!["nokaslr".to_owned()],
        ..MachineSpec::default()
    };
    Ok(match entry(context, &machine)? {
        Ok(address) => check(context.kernel()?.vmlinux()?, address)?,
        Err(verdict) => verdict,
    })
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

/// Checks the code of the function at `address`, from its first instruction on.
///
/// # Errors
///
/// When `vmlinux` cannot be read, or does not have all of the function's code.
fn check(vmlinux: &Path, address: u64) -> Result<Verdict> {
    let words = code_at(vmlinux, address)?;
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
pub(crate) fn entry_code(vmlinux: &Path) -> Result<Vec<u32>> {
    code_at(vmlinux, Vmlinux::open(vmlinux)?.function(ENTRY)?.start)
}

/// The instructions of the function at `address`, as linked.
fn code_at(vmlinux: &Path, address: u64) -> Result<Vec<u32>> {
    let bytes = fs::read(vmlinux).with_context(|| format!("reading {}", vmlinux.display()))?;
    let file = object::File::parse(&*bytes).context("vmlinux is no ELF file")?;
    // Several names can stand for one address, and some of them have no size.
    let here = file.symbols().filter(|symbol| symbol.address() == address);
    let length = here.map(|symbol| symbol.size()).max().unwrap_or_default();
    ensure!(length > 0, "vmlinux has no function at {address:#x}");
    let code = file
        .sections()
        .find_map(|section| section.data_range(address, length).ok()?);
    let code = code.with_context(|| format!("vmlinux does not have the code at {address:#x}"))?;
    ensure!(
        code.len() as u64 == length,
        "vmlinux has a part of the code at {address:#x} only"
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
