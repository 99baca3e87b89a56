//! Serialises a record as a list of three hexadecimal numbers: from, to, flags.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::hex;
use crate::record::RawRecord;

#[derive(Serialize, Deserialize)]
struct Word(#[serde(with = "hex")] u64);

pub(crate) fn serialize<S: Serializer>(records: &[RawRecord], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        records
            .iter()
            .map(|record| [Word(record.from), Word(record.to), Word(record.flags)]),
    )
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<RawRecord>, D::Error> {
    let records = Vec::<[Word; 3]>::deserialize(from)?;
    Ok(records
        .into_iter()
        .map(|[from, to, flags]| RawRecord {
            from: from.0,
            to: to.0,
            flags: flags.0,
        })
        .collect())
}
