//! Names, inlined frames and source lines of the kernel image, from the vmlinux
//! file that it was built as.

use std::ops::Range;
use std::path::{Path, PathBuf};

use blazesym::inspect::{self, Inspector};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use crate::assembly::Assembly;
use crate::capture::Capture;
use crate::debug_info;
use crate::files::Files;
use crate::modules::{Modules, OutsideSymbols};
use crate::report::TraceReport;
use crate::symbol::{Location, Resolve, Symbol};

/// Why a vmlinux file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VmlinuxError {
    /// The file cannot be read, or is not ELF.
    #[error("cannot read symbols from {}: {problem}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
    /// The file has no such symbol: it is no vmlinux, or is stripped.
    #[error("{} has no symbol {name}: is it an unstripped vmlinux?", path.display())]
    NoSymbol {
        /// The path of the file.
        path: PathBuf,
        /// The name of the symbol.
        name: String,
    },
    /// The file has no debug information.
    #[error("{} has no line for start_kernel(): build the kernel with CONFIG_DEBUG_INFO", path.display())]
    NoDebugInfo {
        /// The path of the file.
        path: PathBuf,
    },
}

/// An open vmlinux. What is read from the file is read once.
#[derive(Debug)]
pub struct Vmlinux {
    path: PathBuf,
    symbolizer: Symbolizer,
    source: Source<'static>,
    /// The vmlinux file as a source of its ELF symbols alone, without debug information.
    names: Source<'static>,
    inspector: Inspector,
    assembly: Assembly,
    /// The addresses of the kernel image, as linked.
    image: Range<u64>,
    /// The source tree that the kernel was built from, with a slash at the end.
    tree: String,
}

impl Vmlinux {
    /// Opens the vmlinux at `path`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is stripped of symbols or debug information.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, VmlinuxError> {
        let path = path.into();
        let mut vmlinux = Self {
            symbolizer: Symbolizer::builder().enable_auto_reload(false).build(),
            source: Source::Elf(Elf::new(&path)),
            names: Source::Elf(symbols_alone(&path)),
            inspector: Inspector::new(),
            assembly: Assembly::default(),
            image: 0..0,
            tree: String::new(),
            path,
        };
        vmlinux.image = vmlinux.address_of("_text")?..vmlinux.address_of("_end")?;
        vmlinux.tree = vmlinux.find_tree()?;
        vmlinux.assembly =
            Assembly::read(&vmlinux.path).map_err(|problem| vmlinux.damaged(problem))?;
        Ok(vmlinux)
    }

    /// The addresses of the function `name` in the kernel image as linked.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or has no such function, or when nothing says how
    /// long the function is.
    pub fn function(&self, name: &str) -> Result<Range<u64>, VmlinuxError> {
        let (start, size) = self.look_up(name)?;
        // A symbol that is empty counts as missing.
        let size = size.filter(|size| *size > 0);
        let end = size.and_then(|size| start.checked_add(size as u64));
        Ok(start..end.ok_or_else(|| self.no_symbol(name))?)
    }

    /// The vmlinux file for the inspector: its ELF symbols, without debug information.
    fn symbols(&self) -> inspect::source::Source {
        let mut source = inspect::source::Elf::new(&self.path);
        source.debug_syms = false;
        inspect::source::Source::Elf(source)
    }

    /// The address of the symbol `name`, as linked.
    fn address_of(&self, name: &str) -> Result<u64, VmlinuxError> {
        Ok(self.look_up(name)?.0)
    }

    /// The address, as linked, and the size of the symbol `name`.
    fn look_up(&self, name: &str) -> Result<(u64, Option<usize>), VmlinuxError> {
        let found = self
            .inspector
            .lookup(&self.symbols(), &[name])
            .map_err(|error| self.unreadable(&error))?;
        found
            .first()
            .and_then(|symbols| symbols.first())
            .map(|symbol| (symbol.addr, symbol.size))
            .ok_or_else(|| self.no_symbol(name))
    }

    fn no_symbol(&self, name: &str) -> VmlinuxError {
        VmlinuxError::NoSymbol {
            path: self.path.clone(),
            name: name.to_owned(),
        }
    }

    /// Finds the source tree. Every kernel has `start_kernel()` in `init/main.c`: what
    /// comes before that name in the path of the file is the tree.
    fn find_tree(&self) -> Result<String, VmlinuxError> {
        let entry = self.address_of("start_kernel")?;
        self.symbol_at(entry)
            .and_then(|symbol| symbol.location)
            .and_then(|location| Some(location.file.strip_suffix("init/main.c")?.to_owned()))
            .ok_or_else(|| VmlinuxError::NoDebugInfo {
                path: self.path.clone(),
            })
    }

    fn unreadable(&self, error: &blazesym::Error) -> VmlinuxError {
        self.damaged(format!("{error:#}"))
    }

    fn damaged(&self, problem: String) -> VmlinuxError {
        VmlinuxError::Read {
            path: self.path.clone(),
            problem,
        }
    }

    /// The symbol at `address`, an address of the kernel image as linked.
    fn symbol_at(&self, address: u64) -> Option<Symbol> {
        let place = Input::VirtOffset(address);
        let look_up = |source| debug_info::look_up(&self.symbolizer, source, place);
        // The symboliser cannot read the lines of some assembly files. For these it finds
        // no name either.
        let symbol = look_up(&self.source)
            .or_else(|| look_up(&self.names))
            // arm64's mapping symbols are no names.
            .filter(|symbol| !symbol.name.starts_with('$'))?;
        let mut symbol = self.below_tree(debug_info::symbol(&symbol, debug_info::location));
        if symbol.location.is_none() {
            let line = self.assembly.line(address);
            symbol.location = line.map(|(file, line)| {
                let file = debug_info::normalize(&file.to_string_lossy());
                Location::new(file, Some(line).filter(|line| *line != 0))
            });
            symbol = self.below_tree(symbol);
        }
        Some(symbol)
    }

    /// The addresses of the function at `address`, all as linked.
    fn extent_at(&self, address: u64) -> Option<Range<u64>> {
        let place = Input::VirtOffset(address);
        let symbol = debug_info::look_up(&self.symbolizer, &self.names, place)?;
        let size = symbol.size.filter(|size| *size > 0)?;
        Some(symbol.addr..symbol.addr.saturating_add(size as u64))
    }

    /// The source tree that the kernel was built from, by the name that the compiler was
    /// given.
    pub fn tree(&self) -> &Path {
        Path::new(&self.tree)
    }

    /// `symbol` with the paths of files below the source tree relative to that.
    fn below_tree(&self, mut symbol: Symbol) -> Symbol {
        let inlined = symbol.inlined.iter_mut();
        let inlined = inlined.filter_map(|inlined| inlined.location.as_mut());
        for location in inlined.chain(&mut symbol.location) {
            if let Some(below) = location.file.strip_prefix(&self.tree) {
                location.file = below.to_owned();
            }
        }
        symbol
    }
}

fn symbols_alone(path: &Path) -> Elf {
    let mut source = Elf::new(path);
    source.debug_syms = false;
    source
}

/// All sources of symbols for the addresses of one capture: the vmlinux, the capture
/// itself, the kernel's modules, and the files of user space.
#[derive(Debug)]
pub struct KernelSymbols<'a> {
    vmlinux: &'a Vmlinux,
    outside: OutsideSymbols<'a>,
    files: Files<'a>,
    /// The distance from an address as linked to the same address in the running kernel.
    slide: u64,
    /// The addresses of the kernel image in the running kernel.
    image: Range<u64>,
}

impl<'a> KernelSymbols<'a> {
    /// The symbols of the kernel that `capture` was taken in, which was built
    /// as `vmlinux`, and of the `files` that its processes had mapped.
    ///
    /// # Errors
    ///
    /// When `vmlinux` does not have the symbol of the capture's anchor, or cannot be
    /// read.
    pub fn new(
        vmlinux: &'a Vmlinux,
        capture: &'a Capture,
        files: Files<'a>,
    ) -> Result<Self, VmlinuxError> {
        let anchor = &capture.kernel.anchor;
        let slide = anchor
            .address
            .wrapping_sub(vmlinux.address_of(&anchor.symbol)?);
        Ok(Self {
            vmlinux,
            outside: OutsideSymbols::new(capture),
            files,
            slide,
            image: vmlinux.image.start.wrapping_add(slide)..vmlinux.image.end.wrapping_add(slide),
        })
    }

    /// Adds the lines of modules. `modules` has opened those of the same `capture`.
    #[must_use]
    pub fn with_modules(mut self, modules: &'a Modules, capture: &'a Capture) -> Self {
        self.outside = OutsideSymbols::with_modules(capture, modules);
        self
    }
}

impl KernelSymbols<'_> {
    /// The address as linked of an address in the running kernel's image; `None` for an
    /// address outside of the image.
    pub fn linked(&self, address: u64) -> Option<u64> {
        let is_in_it = self.image.contains(&address);
        is_in_it.then(|| address.wrapping_sub(self.slide))
    }
}

impl Resolve for KernelSymbols<'_> {
    fn resolve(&self, address: u64) -> Option<Symbol> {
        match self.linked(address) {
            Some(linked) => self.vmlinux.symbol_at(linked),
            None => {
                let symbol = self.outside.resolve(address)?;
                Some(self.vmlinux.below_tree(symbol))
            }
        }
    }

    fn resolve_user(&self, pid: u32, address: u64) -> Option<Symbol> {
        self.files.resolve(pid, address)
    }

    fn image(&self) -> Option<Range<u64>> {
        Some(self.image.clone())
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let Some(linked) = self.linked(address) else {
            return self.outside.extent(address);
        };
        let linked = self.vmlinux.extent_at(linked)?;
        let moved = |address: u64| address.wrapping_add(self.slide);
        Some(moved(linked.start)..moved(linked.end))
    }
}

impl Vmlinux {
    /// Makes a report of a capture of the kernel that was built as this vmlinux. `find`
    /// is asked for the files of the guest's user space.
    ///
    /// # Errors
    ///
    /// When this vmlinux does not have the symbol of the capture's anchor, or cannot be
    /// read.
    pub fn report(
        &self,
        capture: &Capture,
        find: &dyn Fn(&str) -> Option<PathBuf>,
    ) -> Result<TraceReport, VmlinuxError> {
        let files = Files::new(&capture.processes, find);
        let symbols = KernelSymbols::new(self, capture, files)?;
        Ok(TraceReport::new(capture, &symbols))
    }
}

/// Makes a report of a capture with the symbols of the file `vmlinux`. `find` is asked
/// for the files of the guest's user space.
///
/// # Errors
///
/// When the file `vmlinux` cannot be read, is stripped of symbols or debug information,
/// or does not have the symbol of the capture's anchor.
pub fn report(
    capture: &Capture,
    vmlinux: &Path,
    find: impl Fn(&str) -> Option<PathBuf>,
) -> Result<TraceReport, VmlinuxError> {
    Vmlinux::open(vmlinux)?.report(capture, &find)
}
