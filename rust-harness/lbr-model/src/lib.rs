//! Intel's architectural last branch records (LBR), and as much of architectural
//! performance monitoring as an operating system needs to use them.
//!
//! [`Cpu`] is what one CPU has, a logical processor in the SDM's words. It takes in each
//! branch that is taken and the number of instructions executed, and answers RDMSR,
//! WRMSR, RDPMC and CPUID. It knows nothing of what executes the instructions. The rules
//! are those of Intel's *Software Developer's Manual*, volume 3B (SDM): "Last Branch
//! Records" for the records, "Performance Monitoring" for counters and freezing, volume 4
//! for the registers' addresses.
//!
//! The model raises no #GP. Where hardware does, reserved bits are not kept, and
//! registers that are not there read as zero.

#![no_std]

mod branch;
mod control;
mod cpu;
pub mod cpuid;
mod lbr;
mod msr;
mod pmu;
mod stack;

pub use branch::{CodePlace, Cpl, TakenBranch, TransferKind};
pub use control::Control;
pub use cpu::Cpu;
pub use lbr::Lbr;
pub use msr::Msr;
pub use pmu::{IntelCounter, IntelPmu};
pub use stack::{Depth, LbrRecord};
