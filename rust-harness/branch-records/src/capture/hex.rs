//! Serialises addresses as hexadecimal text: many readers of JSON lose bits of large
//! numbers.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number in a list, as hexadecimal text.
#[derive(Serialize, Deserialize)]
pub(super) struct Hex(#[serde(with = "crate::capture::hex")] pub(super) u64);

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
    from.deserialize_str(Hexadecimal)
}

/// Takes a number from a text that is not copied: a capture has millions of them.
struct Hexadecimal;

impl Visitor<'_> for Hexadecimal {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a hexadecimal number as text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        parse(text).map_err(E::custom)
    }
}
