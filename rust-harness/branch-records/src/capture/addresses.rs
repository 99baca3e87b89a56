//! Serialises addresses as a list of hexadecimal numbers.

use serde::{Deserialize, Deserializer, Serializer};

use super::hex::Hex;

pub(super) fn serialize<S: Serializer>(addresses: &[u64], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(addresses.iter().copied().map(Hex))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    let addresses = Vec::<Hex>::deserialize(from)?;
    Ok(addresses.into_iter().map(|address| address.0).collect())
}
