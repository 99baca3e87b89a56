//! Names, inlined frames and source lines of user space, from the files that a
//! process had mapped.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};

use crate::capture::{Mapping, Process};
use crate::debug_info;
use crate::symbol::Symbol;

/// The files that a capture's processes had mapped, as a source of symbols. What is read
/// from a file is read once.
pub struct Files<'a> {
    processes: HashMap<u32, &'a Process>,
    find: &'a dyn Fn(&str) -> Option<PathBuf>,
    symbolizer: Symbolizer,
    /// The build IDs of files that are here.
    build_ids: RefCell<HashMap<PathBuf, Option<Vec<u8>>>>,
}

impl<'a> Files<'a> {
    /// The files of `processes`. For the name that a file has on the machine that the
    /// capture is from, `find` returns the path of that file on this machine, if it is
    /// here.
    pub fn new(processes: &'a [Process], find: &'a dyn Fn(&str) -> Option<PathBuf>) -> Self {
        Self {
            processes: processes
                .iter()
                .map(|process| (process.pid, process))
                .collect(),
            find,
            symbolizer: Symbolizer::builder().enable_auto_reload(false).build(),
            build_ids: RefCell::default(),
        }
    }

    /// The symbol at `address` in process `pid`. Where no symbol is known, or the file that is
    /// here has another build ID, the file's name and the offset in the file. `None` where no file
    /// is mapped.
    pub fn resolve(&self, pid: u32, address: u64) -> Option<Symbol> {
        let process = self.processes.get(&pid)?;
        let mapping = process.mapping_at(address)?;
        let (path, offset) = process.file_at(address)?;
        let file = (self.find)(path).filter(|file| self.is_mapped(file, mapping));
        let named = file.and_then(|file| self.symbol_at(file, offset));
        let name = Path::new(path).file_name();
        let file = name.map_or(path.into(), |name| name.to_string_lossy());
        Some(match named {
            Some(symbol) => Symbol {
                module: Some(file.into_owned()),
                ..symbol
            },
            None => Symbol::new(file, offset),
        })
    }

    /// Whether a file is the one that is mapped, as far as that is known.
    fn is_mapped(&self, file: &Path, mapping: &Mapping) -> bool {
        let Some(wanted) = &mapping.build_id else {
            return true;
        };
        let mut build_ids = self.build_ids.borrow_mut();
        let id = build_ids
            .entry(file.to_owned())
            .or_insert_with(|| debug_info::build_id(file).ok().flatten());
        id.as_ref()
            .is_some_and(|id| *wanted == debug_info::hexadecimal(id))
    }

    fn symbol_at(&self, file: PathBuf, offset: u64) -> Option<Symbol> {
        let source = Source::Elf(Elf::new(file));
        let place = Input::FileOffset(offset);
        let symbol = debug_info::look_up(&self.symbolizer, &source, place)?;
        Some(debug_info::symbol(&symbol, debug_info::location))
    }
}

impl fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut files = f.debug_struct("Files");
        files.field("processes", &self.processes);
        files.finish_non_exhaustive()
    }
}
