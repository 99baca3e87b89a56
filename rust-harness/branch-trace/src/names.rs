//! Names for addresses, on the machine that branches are recorded on: from the kernel's
//! debug information where there is some, and else from the kernel's own list of symbols.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use branch_records::capture::Capture;
use branch_records::files::Files;
use branch_records::symbol::{GuestSymbols, Resolve, Symbol};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};
use guest_support::kallsyms::Kallsyms;

use crate::build_id::BuildId;

/// The source of names for addresses.
pub(crate) enum Names {
    /// The vmlinux that the kernel was linked as, with its debug information.
    DebugInfo(Box<Vmlinux>),
    /// The kernel's own list of symbols alone: functions have no lines.
    Alone,
}

impl Names {
    /// Names for the running kernel. `given` has to be its vmlinux; without `given`, a
    /// vmlinux is looked for.
    pub(crate) fn of_this_kernel(given: Option<&Path>) -> Result<Self> {
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let running = BuildId::of_kernel();
        if let Some(path) = given {
            let running = running?;
            return match BuildId::of_file(path)? {
                Some(id) if id == running => Self::of(path),
                Some(id) => bail!(
                    "{} is of another kernel: its build id is {id}, that of the one that runs \
                     {running}",
                    path.display()
                ),
                None => bail!("{} has no build id: is it a vmlinux?", path.display()),
            };
        }
        let Ok(running) = running else {
            return Ok(Self::Alone);
        };
        let is_it =
            |path: &PathBuf| matches!(BuildId::of_file(path), Ok(Some(id)) if id == running);
        let places = places(&release, &running.to_string());
        match places.iter().find(|path| is_it(path)) {
            Some(path) => match Vmlinux::open(path) {
                Ok(vmlinux) => Ok(Self::DebugInfo(Box::new(vmlinux))),
                // The vmlinux that distributions have in /boot is stripped.
                Err(_) => Ok(Self::Alone),
            },
            None => Ok(Self::Alone),
        }
    }

    /// Names from the vmlinux at `path`, whatever kernel is running here.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let vmlinux = Vmlinux::open(path).context("cannot use --vmlinux")?;
        Ok(Self::DebugInfo(Box::new(vmlinux)))
    }

    /// A message that says which debug information is missing and how to get it, if it
    /// is.
    pub(crate) fn missing(&self) -> Option<String> {
        let Self::Alone = self else {
            return None;
        };
        let system = rustix::system::uname();
        let release = system.release().to_string_lossy();
        Some(format!(
            "no debug information of kernel {release} is here: functions have names, and no lines. \
             Install it (Debian, Ubuntu: linux-image-{release}-dbg or -dbgsym; Fedora: dnf \
             debuginfo-install kernel), or give --vmlinux FILE"
        ))
    }

    /// Calls `then` with the symbols for the addresses of a capture. `kallsyms` is the
    /// running kernel's list of symbols, if the capture is of that kernel.
    pub(crate) fn with<T>(
        &self,
        capture: &Capture,
        kallsyms: Option<&Kallsyms>,
        then: impl FnOnce(&dyn Resolve) -> Result<T>,
    ) -> Result<T> {
        let here = |path: &str| Some(PathBuf::from(path)).filter(|path| path.is_file());
        let files = Files::new(&capture.processes, &here);
        match self {
            Self::DebugInfo(vmlinux) => {
                let symbols = KernelSymbols::new(vmlinux, capture, files);
                then(&symbols.context("cannot put names to the addresses")?)
            }
            Self::Alone => then(&Listed {
                kallsyms,
                outside: GuestSymbols::new(&capture.symbols),
                files,
            }),
        }
    }

    /// The source tree that the kernel was built from, if it is known.
    pub(crate) fn tree(&self) -> Option<&Path> {
        match self {
            Self::DebugInfo(vmlinux) => Some(vmlinux.tree()),
            Self::Alone => None,
        }
    }
}

/// Where a vmlinux with debug information may be, by the places that perf looks at
/// (`vmlinux_path__init()`, tools/perf/util/symbol.c), and by its build id.
fn places(release: &str, id: &str) -> Vec<PathBuf> {
    let (first, rest) = id.split_at(id.len().min(2));
    [
        format!("/usr/lib/debug/.build-id/{first}/{rest}.debug"),
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/usr/lib/debug/boot/vmlinux-{release}.debug"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/boot/vmlinux-{release}"),
        "/boot/vmlinux".to_owned(),
    ]
    .map(PathBuf::from)
    .into()
}

/// Symbols for a capture without debug information.
struct Listed<'a> {
    kallsyms: Option<&'a Kallsyms>,
    /// The symbols that the capture brings along, with the lines of BPF programs.
    outside: GuestSymbols<'a>,
    files: Files<'a>,
}

impl Resolve for Listed<'_> {
    fn resolve(&self, address: u64) -> Option<Symbol> {
        let known = self.outside.resolve(address);
        known.or_else(|| self.kallsyms?.symbol(address))
    }

    fn resolve_user(&self, pid: u32, address: u64) -> Option<Symbol> {
        self.files.resolve(pid, address)
    }

    fn image(&self) -> Option<Range<u64>> {
        let address = |name| self.kallsyms?.address_of(name);
        // Variables are not in every kernel's list.
        let end = address("_end").or_else(|| address("_etext"));
        Some(address("_text")?..end?)
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        self.outside.extent(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vmlinux_is_looked_for_by_its_id_too() {
        let places = places("7.3.4", "ab01ff");
        let expected = "/usr/lib/debug/.build-id/ab/01ff.debug";
        assert_eq!(places[0], Path::new(expected));
        assert!(places.contains(&PathBuf::from("/boot/vmlinux-7.3.4")));
    }
}
