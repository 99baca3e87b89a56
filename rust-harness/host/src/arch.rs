//! The architectures that kernels are built for and that machines have, with their names in
//! the tools.

use serde::{Deserialize, Serialize};

/// An architecture that kernels are built for and that machines have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arch {
    /// 64-bit Arm, whose CPUs have BRBE. The series are about it.
    #[default]
    Arm64,
    /// 64-bit x86. It shares the helper `bpf_get_branch_snapshot()`, the helper's selftest
    /// and perf's headers with arm64.
    X86_64,
}

impl Arch {
    /// The architecture's name in the kernel's makefiles (`ARCH=`), which is also the name of
    /// its configuration fragment.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "x86_64",
        }
    }

    /// Path of the kernel image that boots, relative to the build directory.
    pub fn image(self) -> &'static str {
        match self {
            Self::Arm64 => "arch/arm64/boot/Image",
            Self::X86_64 => "arch/x86/boot/bzImage",
        }
    }

    /// The architecture's name in Debian.
    pub fn debian(self) -> &'static str {
        match self {
            Self::Arm64 => "arm64",
            Self::X86_64 => "amd64",
        }
    }

    /// The architecture's name as `uname -m` prints it. QEMU uses the same name.
    pub fn machine(self) -> &'static str {
        match self {
            Self::Arm64 => "aarch64",
            Self::X86_64 => "x86_64",
        }
    }

    /// The target triple of the architecture in Rust.
    pub fn target(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// Prefix of the names of the GNU tools for the architecture: `aarch64-linux-gnu-`.
    pub fn gnu(self) -> String {
        format!("{}-linux-gnu-", self.machine())
    }
}
