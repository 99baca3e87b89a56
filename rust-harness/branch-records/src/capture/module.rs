//! The modules of the kernel in a capture.

use serde::{Deserialize, Serialize};

use super::{CaptureError, check, check_name};

/// The most modules of a capture. A capture with more is refused.
pub const MAX_MODULES: usize = 10_000;

/// A module of the kernel that addresses in a capture belong to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Module {
    /// The name, as `/proc/modules` has it.
    pub name: String,
    /// The build ID that the linker gave the module, as hexadecimal digits.
    pub build_id: String,
}

impl Module {
    pub(super) fn validate(&self, field: &str) -> Result<(), CaptureError> {
        check_name(&format!("{field}.name"), &self.name)?;
        check_build_id(&format!("{field}.build_id"), &self.build_id)
    }
}

/// Checks a build ID: whole bytes, as hexadecimal digits.
pub(super) fn check_build_id(field: &str, build_id: &str) -> Result<(), CaptureError> {
    let digits = build_id.as_bytes();
    check(
        field,
        (4..=128).contains(&digits.len())
            && digits.len().is_multiple_of(2)
            && digits.iter().all(u8::is_ascii_hexdigit),
        "not 2 to 64 bytes as hexadecimal digits",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_of_whole_bytes() {
        let is_valid = |build_id: &str| {
            let module = Module {
                name: "nf_tables".to_owned(),
                build_id: build_id.to_owned(),
            };
            module.validate("modules[0]").is_ok()
        };
        assert!(is_valid("ab01ff"));
        for wrong in ["", "ab", "ab01f", "../..", &"a".repeat(130)] {
            assert!(!is_valid(wrong), "{wrong}");
        }
    }
}
