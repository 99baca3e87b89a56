//! The Debian mirror that apt is configured with: its files, and lists of its packages.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::cache;
use crate::process;

/// The address of the Debian mirror that apt is configured with.
///
/// # Errors
///
/// When `BRBE_MIRROR` is not set.
pub fn url() -> Result<String> {
    std::env::var("BRBE_MIRROR")
        .context("BRBE_MIRROR is not set: start this program with ./brbe, which finds apt's mirror")
}

/// The packages that a list names: one a line, `#` starts a comment.
///
/// # Errors
///
/// When the list cannot be read.
pub fn packages(list: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
    let words = text.lines().filter_map(|line| line.split('#').next());
    Ok(words
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty())
        .collect())
}

/// Downloads the file `path`, relative to the root of apt's mirror, to `into`, and verifies
/// its SHA-256. apt's own helper downloads it, because apt knows its proxies. `what` is the
/// file's name in messages. What the helper prints goes to `log`.
///
/// # Errors
///
/// When `BRBE_MIRROR` is not set, the file cannot be downloaded or read, or its SHA-256 is
/// not `sha256`.
pub fn fetch(what: &str, path: &str, sha256: &str, into: &Path, log: &Path) -> Result<()> {
    let mirror = url()?;
    let mut helper = Command::new("/usr/lib/apt/apt-helper");
    helper
        .args([
            "-o",
            "APT::Sandbox::User=root",
            "-o",
            "Acquire::Retries=3",
            "download-file",
        ])
        .arg(format!("{}/{path}", mirror.trim_end_matches('/')))
        .arg(into);
    process::step(&format!("fetch {what}"), log, &mut helper).with_context(|| {
        format!(
            "{what} could not be fetched from {mirror}. Debian's mirrors drop old packages: \
             BRBE_MIRROR can name another mirror, or an archive, that has {path}"
        )
    })?;
    verify(into, sha256)
        .with_context(|| format!("{what} from {mirror}, as BRBE_MIRROR or apt names it"))
}

/// Checks that the SHA-256 of a file is `sha256`, in lower-case hexadecimal digits.
pub fn verify(file: &Path, sha256: &str) -> Result<()> {
    let mut source = fs::File::open(file).with_context(|| format!("opening {}", file.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => hash.update(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
        }
    }
    let found = cache::hex(&hash.finalize());
    if found != sha256 {
        bail!("sha256 is {found}, and this repository wants {sha256}: the file was not used");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_have_comments() {
        let list = tempfile::NamedTempFile::new().unwrap();
        fs::write(list.path(), "# base\nbash\n\n  coreutils # ls\n").unwrap();
        assert_eq!(packages(list.path()).unwrap(), ["bash", "coreutils"]);
    }

    #[test]
    fn a_wrong_hash_is_named_with_the_right_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x");
        fs::write(&file, "abc").unwrap();
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        verify(&file, right).unwrap();
        let wrong = verify(&file, &"0".repeat(64)).unwrap_err().to_string();
        assert!(
            wrong.contains(right) && wrong.contains("was not used"),
            "{wrong}"
        );
    }
}
