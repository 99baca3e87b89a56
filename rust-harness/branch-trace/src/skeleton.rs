//! The skeleton of the BPF program, as the build script generates it.

include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));

impl From<&trace::types::record> for branch_records::record::RawRecord {
    fn from(record: &trace::types::record) -> Self {
        Self {
            from: record.from,
            to: record.to,
            flags: record.flags,
        }
    }
}
