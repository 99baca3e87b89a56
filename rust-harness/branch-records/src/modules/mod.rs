//! Inlined frames and source lines of the kernel's modules, from the files that they were loaded
//! from, or from files with their debug information.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use crate::capture::{Capture, GuestSymbol, Module};
use crate::debug_info;
use crate::symbol::{GuestSymbols, Resolve, Symbol};

mod compressed;
mod found;
mod laid_out;

pub use found::ModuleFiles;
use laid_out::LaidOut;

/// Why a module's functions have no lines.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModuleError {
    /// No file is the module.
    #[error(
        "no file of module {name} is here, with the build id {build_id}: its functions have no \
         lines; --modules DIR says where to look"
    )]
    Missing {
        /// The module's name.
        name: String,
        /// The module's build ID, as hexadecimal digits.
        build_id: String,
    },
    /// The module was built without debug information, or it was taken out.
    #[error(
        "{} has no debug information: the functions of that module have no lines",
        path.display()
    )]
    NoDebugInfo {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file cannot be read, or is no module.
    #[error("cannot read module {}: {problem}", path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// A description of the problem.
        problem: String,
    },
}

/// The debug information of modules. What is read of a module is read once.
pub struct Modules {
    files: ModuleFiles,
    symbolizer: Symbolizer,
    /// The modules that were looked for so far, and what was found.
    open: RefCell<HashMap<Module, Option<OpenModule>>>,
}

/// A module with debug information.
struct OpenModule {
    source: Source<'static>,
    /// The addresses of each function in the file of `source`; `None` where several have the name.
    functions: HashMap<String, Option<Range<u64>>>,
    /// The file of `source`, which has no name and ends with this.
    _file: File,
}

impl Modules {
    /// Modules that are looked for in `files`.
    pub fn new(files: ModuleFiles) -> Self {
        Self {
            files,
            symbolizer: Symbolizer::builder().enable_auto_reload(false).build(),
            open: RefCell::default(),
        }
    }

    /// Opens those modules that were not asked for before. Returns what is wrong with those that
    /// cannot be used.
    pub fn open(&self, modules: &[Module]) -> Vec<ModuleError> {
        let mut open = self.open.borrow_mut();
        let mut problems = Vec::new();
        for module in modules {
            if open.contains_key(module) {
                continue;
            }
            let found = self.files.read(module).and_then(|(path, bytes)| {
                OpenModule::new(&bytes).map_err(|problem| ModuleError::Read { path, problem })
            });
            let found = found.map_err(|problem| problems.push(problem)).ok();
            open.insert(module.clone(), found);
        }
        problems
    }

    /// The symbol at `address`, which `function` of `module` covers, with normalised paths.
    fn symbol_at(&self, module: &Module, function: &GuestSymbol, address: u64) -> Option<Symbol> {
        let open = self.open.borrow();
        let open = open.get(module)?.as_ref()?;
        let range = open.range(function)?;
        let offset = address.checked_sub(function.address)?;
        let linked = range.start.checked_add(offset);
        // Behind the last function, the kernel puts branches to places that are far away.
        let linked = linked.filter(|linked| range.contains(linked))?;
        let place = Input::VirtOffset(linked);
        let found = debug_info::look_up(&self.symbolizer, &open.source, place)?;
        let symbol = debug_info::symbol(&found, debug_info::location);
        Some(Symbol {
            module: Some(module.name.clone()),
            location: symbol.location,
            inlined: symbol.inlined,
            ..Symbol::new(&*function.name, offset)
        })
    }

    /// The addresses of `function` of `module` in the running kernel.
    fn extent(&self, module: &Module, function: &GuestSymbol) -> Option<Range<u64>> {
        let open = self.open.borrow();
        let range = open.get(module)?.as_ref()?.range(function)?;
        let size = range.end.checked_sub(range.start)?;
        Some(function.address..function.address.checked_add(size)?)
    }
}

/// The symbols outside of the kernel image: those that a capture brings along, with the lines of the
/// modules that were opened.
#[derive(Debug)]
pub struct OutsideSymbols<'a> {
    guest: GuestSymbols<'a>,
    modules: Option<(&'a Modules, &'a [Module])>,
}

impl<'a> OutsideSymbols<'a> {
    /// The symbols of `capture`, whose modules have no lines.
    pub fn new(capture: &'a Capture) -> Self {
        Self {
            guest: GuestSymbols::new(&capture.symbols),
            modules: None,
        }
    }

    /// The symbols of `capture`, with the lines of its modules that `modules` has opened.
    pub fn with_modules(capture: &'a Capture, modules: &'a Modules) -> Self {
        Self {
            modules: Some((modules, &capture.modules)),
            ..Self::new(capture)
        }
    }

    /// What covers `address`, and the module that it belongs to.
    fn in_module(&self, address: u64) -> Option<(&GuestSymbol, &Modules, &Module)> {
        let covering = self.guest.covering(address)?;
        let (modules, of_capture) = self.modules?;
        let module = of_capture.iter().find(|it| it.name == covering.module)?;
        Some((covering, modules, module))
    }
}

impl Resolve for OutsideSymbols<'_> {
    fn resolve(&self, address: u64) -> Option<Symbol> {
        let in_module = self.in_module(address);
        in_module
            .and_then(|(covering, modules, module)| modules.symbol_at(module, covering, address))
            .or_else(|| self.guest.resolve(address))
    }

    fn extent(&self, address: u64) -> Option<Range<u64>> {
        let in_module = self.in_module(address);
        in_module
            .and_then(|(covering, modules, module)| modules.extent(module, covering))
            .or_else(|| self.guest.extent(address))
    }
}

impl OpenModule {
    fn new(module: &[u8]) -> Result<Self, String> {
        let LaidOut { bytes, functions } =
            LaidOut::of(module).map_err(|error| error.to_string())?;
        let write = || {
            let mut file = tempfile::tempfile()?;
            file.write_all(&bytes)?;
            Ok(file)
        };
        let file = write().map_err(|error: io::Error| format!("a file for it: {error}"))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(Self {
            source: Source::Elf(Elf::new(path)),
            functions,
            _file: file,
        })
    }

    /// The addresses of `function` in the file of the source.
    fn range(&self, function: &GuestSymbol) -> Option<&Range<u64>> {
        self.functions.get(&function.name)?.as_ref()
    }
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut modules = f.debug_struct("Modules");
        modules.field("files", &self.files);
        modules.finish_non_exhaustive()
    }
}
