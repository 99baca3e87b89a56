//! Serialises a record as a list of three hexadecimal numbers: from, to, flags.

use serde::{Deserialize, Deserializer, Serializer};

use super::hex::Hex;
use crate::record::RawRecord;

pub(crate) fn serialize<S: Serializer>(records: &[RawRecord], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        records
            .iter()
            .map(|record| [Hex(record.from), Hex(record.to), Hex(record.flags)]),
    )
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RawRecord>, D::Error> {
    let records = Vec::<[Hex; 3]>::deserialize(from)?;
    Ok(records
        .into_iter()
        .map(|[from, to, flags]| RawRecord {
            from: from.0,
            to: to.0,
            flags: flags.0,
        })
        .collect())
}
