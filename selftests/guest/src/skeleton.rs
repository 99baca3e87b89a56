//! The skeletons of the BPF programs, as the build script generates them.

include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));

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

records_of!(
    board, contract, crossing, cycles, kvm, nested, overflow, pending, shared, waste
);
