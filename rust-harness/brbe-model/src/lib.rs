//! FEAT_BRBE, Arm's Branch Record Buffer Extension, as a pure state machine.
//!
//! The crate knows the architecture (Arm ARM DDI 0487, chapter D19 and the register
//! descriptions of D24.8) and nothing else: no I/O, no allocation, no emulator. The code
//! that executes instructions keeps a [`Pe`], the state that the processing element (PE)
//! is in, and reports to a [`Brbe`] what was executed:
//!
//! * a taken branch: [`Brbe::branch`],
//! * an exception or an exception return: [`Brbe::exception`],
//!   [`Brbe::exception_return`],
//! * entry to Debug state and exit from it: [`Brbe::debug_entry`],
//!   [`Brbe::debug_exit`],
//! * another change of the state: [`Brbe::note_state`],
//! * `MRS`, `MSR` and `BRB`: [`Brbe::read`], [`Brbe::write`], [`Brbe::execute`],
//! * a counter overflow, level-sensitive, and a snapshot of the counters:
//!   [`Brbe::freeze_on_overflow`], [`Brbe::freeze_on_capture`],
//! * a Warm reset: [`Brbe::warm_reset`].
//!
//! Everything takes effect at once and in program order, which satisfies every
//! synchronisation rule of D19.4 (R_ZHDCC, R_TWYWS, R_PGDLX, I_PPBZP).
//!
//! ```
//! use brbe_model::{BranchKind, Brbe, Config, Pe, Register};
//!
//! let mut brbe = Brbe::new(Config::default());
//! let pe = Pe::default(); // AArch64 at EL1, neither EL2 nor EL3 implemented
//! let brbcr = Register::decode(2, 1, 9, 0, 0).unwrap();
//! let brbfcr = Register::decode(2, 1, 9, 0, 1).unwrap();
//! brbe.write(&pe, brbcr, 1 << 1)?; // E1BRE
//! brbe.write(&pe, brbfcr, 1 << 17)?; // DIRECT
//! brbe.branch(&pe, BranchKind::Direct, 0x8000, 0x9000, 0);
//! assert_eq!(brbe.read(&pe, Register::Src(0)), Ok(0x8000));
//! assert_eq!(brbe.read(&pe, Register::Tgt(0)), Ok(0x9000));
//! # Ok::<(), brbe_model::Denied>(())
//! ```
#![no_std]

mod branch;
mod buffer;
mod config;
mod control;
mod cycles;
mod display;
mod exception;
mod freeze;
mod machine;
mod pe;
mod record;
mod sysreg;

pub use branch::{BranchKind, Comparison, Condition, Decoded, Operand, decode};
pub use config::{Config, NumRecords, Version};
pub use control::{Brbcr, Brbfcr};
pub use cycles::CycleCount;
pub use exception::ExceptionKind;
pub use freeze::{Counter, Pmu};
pub use machine::{Brbe, Region};
pub use pe::{El2, El3, ExceptionLevel, FineGrainedTraps, Hcr, Pe};
pub use record::{BrbeRecord, RecordType, Valid};
pub use sysreg::{Denied, Instruction, Register};
