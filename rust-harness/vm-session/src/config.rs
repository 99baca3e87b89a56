//! What the session is to be: written by the host, read by the guest.

use serde::{Deserialize, Serialize};

/// What the session is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    /// The command and its arguments. Empty: a shell.
    pub command: Vec<String>,
    /// Names and values of the command's environment.
    pub environment: Vec<(String, String)>,
    /// Path of the directory that the command begins in.
    pub directory: String,
    /// Directories of the host.
    pub shares: Vec<SharedDirectory>,
    /// The machine has a network: QEMU's own, at its usual addresses.
    pub has_network: bool,
    /// What the command's standard streams are.
    pub streams: Streams,
    /// Where the root comes from.
    #[serde(default)]
    pub root: Root,
}

/// Where the root comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    /// A directory of the host.
    #[default]
    Host,
    /// The initramfs.
    Initramfs,
}

impl SessionConfig {
    /// This session with the command in `words`, each of which ends with a NUL. Its streams have
    /// ports of their own.
    pub fn running(self, words: &[u8]) -> Self {
        let words = words.strip_suffix(b"\0").unwrap_or(words);
        let words = words.split(|byte| *byte == 0);
        Self {
            command: words
                .map(|word| String::from_utf8_lossy(word).into_owned())
                .collect(),
            streams: Streams::Ports,
            ..self
        }
    }
}

/// A directory of the host that the guest sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedDirectory {
    /// The mount tag: 31 bytes at the most.
    pub tag: String,
    /// Path in the guest.
    pub path: String,
    /// The guest cannot write to it.
    pub is_read_only: bool,
}

/// What the command's standard streams are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Streams {
    /// Three pipes.
    #[default]
    Pipes,
    /// A terminal of the host, of this size.
    Terminal(WindowSize),
    /// The machine's own console, of this size. Nothing goes through the port.
    Console(WindowSize),
    /// Ports for output and errors, and for the exit status. There is nothing to read.
    Ports,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowSize {
    /// How many lines it has.
    pub rows: u16,
    /// How many characters a line has.
    pub columns: u16,
}

impl Default for WindowSize {
    /// The size of a terminal that says nothing of its size.
    fn default() -> Self {
        Self {
            rows: 24,
            columns: 80,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_empty_and_have_anything_in_them() {
        let words = |bytes: &[u8]| SessionConfig::default().running(bytes).command;
        let script = b"sh\0-c\0echo \"a b\"\n\0\0";
        assert_eq!(words(script), ["sh", "-c", "echo \"a b\"\n", ""]);
        assert_eq!(words(b"true\0"), ["true"]);
    }
}
