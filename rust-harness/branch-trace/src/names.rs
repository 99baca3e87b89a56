//! Names for addresses, on the machine that branches are recorded on: from the kernel's
//! debug information where there is some, and else from the kernel's own list of symbols.

use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use branch_records::capture::{Capture, CapturedKernel};
use branch_records::files::Files;
use branch_records::modules::{ModuleError, ModuleFiles, Modules, OutsideSymbols};
use branch_records::symbol::{Resolve, Symbol};
use branch_records::vmlinux::{KernelSymbols, Vmlinux};
use guest_support::kallsyms::Kallsyms;

use crate::build_id::BuildId;

/// The sources of names for addresses.
pub(crate) struct Names {
    /// The vmlinux that the kernel was linked as, with its debug information. Without it there is
    /// the kernel's own list of symbols, and functions of the kernel image have no lines.
    vmlinux: Option<Box<Vmlinux>>,
    modules: Modules,
}

impl Names {
    /// Names for the running kernel. `given` has to be its vmlinux; without `given`, a
    /// vmlinux is looked for. Modules are looked for in `folders`, and where they are installed.
    pub(crate) fn of_this_kernel(given: Option<&Path>, folders: &[PathBuf]) -> Result<Self> {
        let vmlinux = match vmlinux_of_this_kernel(given)? {
            Some(path) if given.is_some() => Some(opened(&path)?),
            // The vmlinux that distributions have in /boot is stripped.
            Some(path) => opened(&path).ok(),
            None => None,
        };
        Ok(Self::new(vmlinux, &release(), folders))
    }

    /// Names from `vmlinux`, for a capture of `kernel`, whatever kernel is running here.
    pub(crate) fn of(
        vmlinux: Option<&Path>,
        kernel: &CapturedKernel,
        folders: &[PathBuf],
    ) -> Result<Self> {
        if let (Some(path), Some(its)) = (vmlinux, &kernel.build_id) {
            match BuildId::of_file(path)? {
                Some(id) if id.to_string() == *its => {}
                Some(id) => bail!(
                    "{} is of another kernel: its build id is {id}, that of the kernel that was \
                     traced {its}",
                    path.display()
                ),
                None => bail!("{} has no build id: is it a vmlinux?", path.display()),
            }
        }
        let vmlinux = vmlinux.map(opened).transpose()?;
        Ok(Self::new(vmlinux, &kernel.release, folders))
    }

    fn new(vmlinux: Option<Vmlinux>, release: &str, folders: &[PathBuf]) -> Self {
        let files = ModuleFiles::of_release(folders.iter().cloned(), release);
        Self {
            vmlinux: vmlinux.map(Box::new),
            modules: Modules::new(files),
        }
    }

    /// Opens the modules of a capture. Returns what is wrong with those that cannot be used: of each
    /// module, once.
    pub(crate) fn open_modules(&self, capture: &Capture) -> Vec<ModuleError> {
        self.modules.open(&capture.modules)
    }

    /// A message that says which debug information is missing and how to get it, if it
    /// is.
    pub(crate) fn missing(&self) -> Option<String> {
        if self.vmlinux.is_some() {
            return None;
        }
        let release = release();
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
        match &self.vmlinux {
            Some(vmlinux) => {
                let symbols = KernelSymbols::new(vmlinux, capture, files)
                    .context("cannot put names to the addresses")?;
                then(&symbols.with_modules(&self.modules, capture))
            }
            None => then(&Listed {
                kallsyms,
                outside: OutsideSymbols::with_modules(capture, &self.modules),
                files,
            }),
        }
    }

    /// The source tree that the kernel was built from, if it is known.
    pub(crate) fn tree(&self) -> Option<&Path> {
        self.vmlinux.as_ref().map(|vmlinux| vmlinux.tree())
    }
}

fn opened(vmlinux: &Path) -> Result<Vmlinux> {
    Vmlinux::open(vmlinux).context("cannot use --vmlinux")
}

/// The vmlinux of the running kernel: `given`, which has to be of that kernel, or one that is found
/// where distributions have it.
pub(crate) fn vmlinux_of_this_kernel(given: Option<&Path>) -> Result<Option<PathBuf>> {
    let running = BuildId::of_kernel();
    if let Some(path) = given {
        let running = running?;
        return match BuildId::of_file(path)? {
            Some(id) if id == running => Ok(Some(path.to_owned())),
            Some(id) => bail!(
                "{} is of another kernel: its build id is {id}, that of the one that runs {running}",
                path.display()
            ),
            None => bail!("{} has no build id: is it a vmlinux?", path.display()),
        };
    }
    let Ok(running) = running else {
        return Ok(None);
    };
    let is_it = |path: &PathBuf| matches!(BuildId::of_file(path), Ok(Some(id)) if id == running);
    let apart = [running.debug_file()].into_iter();
    Ok(apart.chain(places(&release())).find(is_it))
}

/// `uname -r`.
fn release() -> String {
    let system = rustix::system::uname();
    system.release().to_string_lossy().into_owned()
}

/// Where a vmlinux with debug information may be: the places that perf looks at
/// (`vmlinux_path__init()`, tools/perf/util/symbol.c).
fn places(release: &str) -> [PathBuf; 6] {
    [
        format!("/usr/lib/debug/boot/vmlinux-{release}"),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux"),
        format!("/usr/lib/debug/boot/vmlinux-{release}.debug"),
        format!("/lib/modules/{release}/build/vmlinux"),
        format!("/boot/vmlinux-{release}"),
        "/boot/vmlinux".to_owned(),
    ]
    .map(PathBuf::from)
}

/// Symbols for a capture without debug information.
struct Listed<'a> {
    kallsyms: Option<&'a Kallsyms>,
    /// The symbols that the capture brings along, with the lines of BPF programs and modules.
    outside: OutsideSymbols<'a>,
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
