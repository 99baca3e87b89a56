//! The skeleton of the BPF programs, by which libbpf-cargo hands them to Rust. It is
//! generated: the lints are for what people write.
#![allow(
    clippy::all,
    clippy::multiple_unsafe_ops_per_block,
    clippy::semicolon_if_nothing_returned,
    clippy::undocumented_unsafe_blocks,
    clippy::uninlined_format_args,
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports
)]

pub(crate) mod trace {
    include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
}

impl From<&trace::types::record> for branch_records::record::RawRecord {
    fn from(record: &trace::types::record) -> Self {
        Self {
            from: record.from,
            to: record.to,
            flags: record.flags,
        }
    }
}
