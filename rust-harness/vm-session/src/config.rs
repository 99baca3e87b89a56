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
