//! The skeletons of the BPF programs, by which libbpf-cargo hands them to Rust. They are
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

pub(crate) mod contract {
    include!(concat!(env!("OUT_DIR"), "/contract.skel.rs"));
}

pub(crate) mod cost {
    include!(concat!(env!("OUT_DIR"), "/cost.skel.rs"));
}

pub(crate) mod interpreted {
    include!(concat!(env!("OUT_DIR"), "/interpreted.skel.rs"));
}

pub(crate) mod nested {
    include!(concat!(env!("OUT_DIR"), "/nested.skel.rs"));
}

pub(crate) mod overflow {
    include!(concat!(env!("OUT_DIR"), "/overflow.skel.rs"));
}

pub(crate) mod pending {
    include!(concat!(env!("OUT_DIR"), "/pending.skel.rs"));
}

pub(crate) mod raw_section {
    include!(concat!(env!("OUT_DIR"), "/raw_section.skel.rs"));
}

pub(crate) mod refuse {
    include!(concat!(env!("OUT_DIR"), "/refuse.skel.rs"));
}

pub(crate) mod stress {
    include!(concat!(env!("OUT_DIR"), "/stress.skel.rs"));
}

pub(crate) mod waste {
    include!(concat!(env!("OUT_DIR"), "/waste.skel.rs"));
}

/// Converts the records of BPF programs: each program has a type of its own for
/// `struct record`.
macro_rules! records_of {
    ($($program:ident),+) => {$(
        impl From<&$program::types::record> for branch_records::record::RawRecord {
            fn from(record: &$program::types::record) -> Self {
                Self {
                    from: record.from,
                    to: record.to,
                    flags: record.flags,
                }
            }
        }
    )+};
}

records_of!(contract, interpreted, nested, overflow, pending, waste);
