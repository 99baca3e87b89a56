//! What a kit is told: its version, and which tests it tries.

use serde::{Deserialize, Serialize};

/// The name of the file in a kit that holds a [`Kit`], as JSON.
pub const FILE: &str = "kit.json";

/// What a kit is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kit {
    /// The version of the kit.
    pub version: String,
    /// The tests, in the order in which they are tried.
    pub tests: Vec<KitTest>,
}

/// A test that a kit tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KitTest {
    /// The test's name.
    pub name: String,
    /// The arguments of `branch-guest` for it.
    pub arguments: Vec<String>,
    /// What it decides.
    pub decides: Decides,
}

/// What a test decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decides {
    /// Whether snapshots are right.
    Promise,
    /// In which of several right ways an implementation does something.
    Policy,
}
