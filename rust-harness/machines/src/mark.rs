//! Marks, which tell the end of a command's output from the output.

use std::fs::File;
use std::io::Read as _;

use anyhow::{Context as _, Result};

/// A random mark: nobody else knows it, and no program prints it by chance.
///
/// # Errors
///
/// When `/dev/urandom` cannot be read.
pub(super) fn mark() -> Result<String> {
    let mut random = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut random))
        .context("reading /dev/urandom")?;
    Ok(format!("brbe-{:032x}", u128::from_ne_bytes(random)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_differ() {
        let (one, other) = (mark().unwrap(), mark().unwrap());
        assert!(one != other && one.len() > 20, "{one} {other}");
    }
}
