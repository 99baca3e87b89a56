//! Serialises addresses as hexadecimal text: many readers of JSON lose bits of large
//! numbers.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

#[derive(Deserialize)]
#[serde(transparent)]
struct Text(String);

pub(crate) fn parse(text: &str) -> Result<u64, String> {
    text.strip_prefix("0x")
        .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| format!("{text:?} is not a hexadecimal number of up to 64 bits"))
}

pub(crate) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{value:#x}"))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    parse(&Text::deserialize(from)?.0).map_err(D::Error::custom)
}
