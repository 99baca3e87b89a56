//! Branch records as Linux hands them out, from the raw bytes to what a person
//! reads.
//!
//! * [`record`]: `struct perf_branch_entry`, decoded.
//! * [`capture`]: the JSON document in which one machine hands snapshots to
//!   another, checked by the reader.
//! * [`symbol`]: addresses to names, from the sources there are.
#![cfg_attr(
    feature = "symbolize",
    doc = "* [`vmlinux`]: names, inlined frames and lines from a kernel's debug information."
)]
//! * [`machinery`]: which branches are the tracing's own.
//! * [`report`] and [`text`]: the path that was taken, as JSON and as text.
//!
//! # Example
//!
//! ```
//! use branch_records::capture::Capture;
//! use branch_records::report::Report;
//! use branch_records::symbol::GuestSymbols;
//! use branch_records::text;
//!
//! let document = br#"{
//!   "format": "branch-capture", "version": 3, "scenario": "example",
//!   "kernel": {
//!     "release": "7.3.4", "machine": "aarch64",
//!     "anchor": {"symbol": "_stext", "address": "0xffff800080010000"}
//!   },
//!   "symbols": [
//!     {"address": "0x1000", "end": "0x2000", "name": "demo", "module": "m"}
//!   ],
//!   "code": [{"address": "0x1008", "words": "1400001e"}],
//!   "snapshots": [{
//!     "function": "demo", "return_value": -22, "cpu": 0, "pid": 1, "asked": 64,
//!     "records": [["0x1008", "0x1080", "0x100000"]]
//!   }]
//! }"#;
//! let capture = Capture::from_reader(document.as_slice())?;
//! let report = Report::new(&capture, &GuestSymbols::new(&capture.symbols));
//! let mut out = Vec::new();
//! text::write(&report, &mut out)?;
//! assert!(String::from_utf8_lossy(&out).contains("[#00] demo+0x8 [m]"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod capture;
pub mod machinery;
#[cfg(feature = "path")]
pub mod path;
pub mod record;
pub mod report;
pub mod sweep;
pub mod symbol;
pub mod text;
#[cfg(feature = "symbolize")]
pub mod vmlinux;
