//! Branch records as Linux hands them out, from the raw bytes to what a person
//! reads.
//!
//! * [`record`]: `struct perf_branch_entry`, decoded.
//! * [`capture`]: the JSON document in which one machine hands snapshots to another; the
//!   reader checks it.
//! * [`symbol`]: addresses to names, from all sources of symbols.
#![cfg_attr(
    feature = "symbolize",
    doc = "* [`vmlinux`], [`modules`] and [`files`]: names, inlined frames and lines from the debug
  information of a kernel, of its modules and of user space's files."
)]
#![cfg_attr(
    feature = "symbolize",
    doc = "* [`functions`]: the functions of source files, and what a function returns."
)]
//! * [`machinery`]: which branches are the tracing machinery's own.
//! * [`filter`]: which snapshots are wanted.
//! * [`report`] and [`text`]: the path that was taken, as JSON and as text.
//! * [`compare`]: where the paths of two groups of snapshots part.
//! * [`summary`]: many snapshots, counted.
//! * [`brstack`] and [`perfscript`]: snapshots as perf prints samples.
//! * [`visible`]: texts of anybody's that a terminal only shows.
//! * [`listing`] and [`html`]: the source of the functions on the path, with the path
//!   drawn on it, from [`sources`].
#![cfg_attr(
    feature = "show",
    doc = "* [`instructions`]: what was executed between branches, disassembled."
)]
#![cfg_attr(
    feature = "show",
    doc = "* [`show`]: the options of a command line for all that."
)]
//!
//! # Example
//!
//! ```
//! use branch_records::capture::Capture;
//! use branch_records::report::TraceReport;
//! use branch_records::symbol::GuestSymbols;
//! use branch_records::text::{self, TextForm};
//!
//! let document = br#"{
//!   "format": "branch-capture", "version": 7, "scenario": "example",
//!   "kernel": {
//!     "release": "7.3.4", "machine": "aarch64",
//!     "anchor": {"symbol": "_stext", "address": "0xffff800080010000"}
//!   },
//!   "branches": ["any", "k"],
//!   "symbols": [
//!     {"address": "0xffff80007a001000", "end": "0xffff80007a002000", "name": "demo", "module": "m"}
//!   ],
//!   "code": [{"address": "0xffff80007a001008", "words": "1400001e"}],
//!   "snapshots": [{
//!     "function": "demo", "moment": "return", "returned": {"signed": -22},
//!     "cpu": 0, "pid": 1, "tid": 1, "comm": "test", "time": 0, "asked": 64,
//!     "records": [["0xffff80007a001008", "0xffff80007a001080", "0x100000"]]
//!   }]
//! }"#;
//! let capture = Capture::from_reader(document.as_slice())?;
//! let report = TraceReport::new(&capture, &GuestSymbols::new(&capture.symbols));
//! let mut out = Vec::new();
//! text::write(&report, TextForm::default(), &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains("[#00] demo+0x8 [m]"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "symbolize")]
mod assembly;
pub mod brstack;
pub mod capture;
pub mod compare;
#[cfg(feature = "symbolize")]
pub mod debug_info;
pub mod errno;
#[cfg(feature = "symbolize")]
pub mod files;
pub mod filter;
#[cfg(feature = "symbolize")]
pub mod functions;
pub mod html;
mod instruction_set;
#[cfg(feature = "show")]
pub mod instructions;
pub mod listing;
pub mod machinery;
#[cfg(test)]
mod made_up;
#[cfg(feature = "symbolize")]
pub mod modules;
#[cfg(feature = "path")]
pub mod path;
pub mod perfscript;
pub mod record;
pub mod report;
#[cfg(feature = "show")]
pub mod show;
pub mod sources;
pub mod summary;
pub mod sweep;
pub mod symbol;
pub mod text;
pub mod visible;
#[cfg(feature = "symbolize")]
pub mod vmlinux;
mod walk;

pub use instruction_set::InstructionSet;
