//! The code in a capture.

use serde::{Deserialize, Serialize};

use super::{CaptureError, check, hex};

/// The most ranges of code in a capture. A capture with more is refused.
pub const MAX_CODE: usize = 100_000;
/// The most bytes from the first to the last word of a range of code.
pub const MAX_CODE_BYTES: u64 = crate::path::STRAIGHT;

/// A range of code, as the running kernel had it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeRange {
    /// The address of the first word: a multiple of 4.
    #[serde(with = "hex")]
    pub address: u64,
    /// Words of 4 bytes, the byte at the lowest address in the lowest bits, each as 8 hexadecimal
    /// digits. On arm64 each is an instruction. x86's instructions begin and end anywhere in them.
    #[serde(with = "words")]
    pub words: Vec<u32>,
}

/// Looks up words in ranges that are sorted by address and do not overlap, as those of a
/// capture are.
#[cfg(feature = "path")]
impl crate::path::Code for Vec<CodeRange> {
    fn fetch(&self, address: u64) -> Option<u32> {
        let after = self.partition_point(|range| range.address <= address);
        let range = self[..after].last()?;
        let bytes = address - range.address;
        let index = usize::try_from(bytes / 4).ok()?;
        let word = range.words.get(index).copied();
        word.filter(|_| bytes.is_multiple_of(4))
    }
}

pub(crate) fn check_code(code: &[CodeRange]) -> Result<(), CaptureError> {
    let problem = format!("more than {MAX_CODE}");
    check("code", code.len() <= MAX_CODE, &problem)?;
    let mut behind = 0;
    for (index, range) in code.iter().enumerate() {
        let field = format!("code[{index}]");
        let bytes = 4 * range.words.len() as u64;
        let end = range.address.checked_add(bytes);
        check(
            &field,
            (4..=MAX_CODE_BYTES + 4).contains(&bytes) && end.is_some(),
            &format!("empty, longer than {MAX_CODE_BYTES} bytes, or past the last address"),
        )?;
        check(
            &field,
            range.address.is_multiple_of(4),
            "not at a multiple of 4",
        )?;
        // Two ranges that overlap could hold different code for one address.
        check(&field, range.address >= behind, "not behind the one before")?;
        behind = end.unwrap_or(u64::MAX);
    }
    Ok(())
}

/// Serialises words as one text of 8 hexadecimal digits each.
mod words {
    use std::fmt::Write as _;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(words: &[u32], to: S) -> Result<S::Ok, S::Error> {
        let mut text = String::with_capacity(8 * words.len());
        for word in words {
            // Writing to a string does not fail.
            let _ = write!(text, "{word:08x}");
        }
        to.serialize_str(&text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u32>, D::Error> {
        let text = String::deserialize(from)?;
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        let word = |digits: &[u8; 8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            plain.then(|| u32::from_str_radix(digits, 16).ok())?
        };
        let words: Option<Vec<_>> = words.iter().map(word).collect();
        words
            .filter(|_| rest.is_empty())
            .ok_or_else(|| D::Error::custom("not words of 8 hexadecimal digits each"))
    }
}
