//! The architectures that kernels are built for, and machines are of.

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arch {
    /// The subject: BRBE.
    #[default]
    Arm64,
    /// Shares the helper, its selftest and perf's headers.
    X86_64,
}

impl Arch {
    /// Its name in the kernel's makefiles, and of its fragment of the configuration.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "x86_64",
        }
    }

    /// What boots, below a build directory.
    pub fn image(self) -> &'static str {
        match self {
            Self::Arm64 => "arch/arm64/boot/Image",
            Self::X86_64 => "arch/x86/boot/bzImage",
        }
    }

    /// Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "amd64",
        }
    }

    /// `uname -m`, which is QEMU's name, too.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64",
            Self::X86_64 => "x86_64",
        }
    }

    /// Rust's name.
    pub fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// Before the names of GNU's tools for it.
    pub fn gnu(self) -> String {
        format!("{}-linux-gnu-", self.machine())
    }
}
