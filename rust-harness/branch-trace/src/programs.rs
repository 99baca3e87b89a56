//! The BPF programs that are loaded: finds those to be traced, and the source lines of
//! those on the path.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Context as _, Result, bail};
use branch_records::capture::{GuestSymbol, Line, MAX_PATH};
use branch_records::visible::visible;
use guest_support::kallsyms::Kallsyms;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Func;
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};

use crate::returns::{self, Returns};

/// The most bytes of a BPF program's name: `BPF_OBJ_NAME_LEN` without the terminator.
const MAX_NAME: usize = 15;

/// A function of a BPF program that is loaded.
pub(crate) struct Found {
    pub(crate) fd: OwnedFd,
    /// The function's name in the source.
    pub(crate) function: String,
    /// The kernel's name for the function, which contains a hash.
    pub(crate) symbol: String,
    /// The type of what the function returns.
    pub(crate) returns: Returns,
}

/// Finds the function named `function`, or else the main function, in the BPF program
/// whose name or number is `name`.
pub(crate) fn find(name: &str, function: Option<&str>) -> Result<Found> {
    let program = program(name)?;
    let fd = libbpf_rs::Program::fd_from_id(program.id)
        .with_context(|| format!("cannot open BPF program {}", program.id))?;
    let btf = Btf::from_prog_id(program.id)
        .with_context(|| format!("BPF program {name} has no types, so it cannot be traced"))?;
    let functions: Vec<_> = program
        .func_info
        .iter()
        .filter_map(|info| btf.type_by_id::<Func<'_>>(info.type_id.into()))
        .collect();
    let names = functions.iter().map(|function| {
        let name = function.name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    });
    let names: Vec<_> = names.collect();
    let index = match function {
        Some(function) => names.iter().position(|name| name == function),
        None => Some(0).filter(|_| !names.is_empty()),
    };
    let Some(index) = index else {
        bail!(
            "BPF program {name} has no function {}, but {}",
            function.unwrap_or("at all"),
            names.join(", ")
        );
    };
    // The kernel hands out functions and addresses in the same order.
    let address = program.jited_ksyms.get(index).map(|at| at.addr() as u64);
    let symbol = address.and_then(|address| Kallsyms::read().ok()?.symbol(address));
    let symbol = symbol.with_context(|| {
        format!(
            "cannot find the code of {}: is the BPF JIT on (sysctl net.core.bpf_jit_enable)?",
            names[index]
        )
    })?;
    Ok(Found {
        fd,
        function: names[index].clone(),
        symbol: symbol.name,
        returns: functions[index]
            .next_type()
            .and_then(returns::of)
            .unwrap_or_default(),
    })
}

fn program(name: &str) -> Result<ProgramInfo> {
    let number: Option<u32> = name.parse().ok();
    let options = ProgInfoQueryOptions::default()
        .include_func_info(true)
        .include_jited_ksyms(true);
    let matches = |program: &ProgramInfo| match number {
        Some(number) => program.id == number,
        // The kernel cuts long names off.
        None => program.name.as_bytes() == &name.as_bytes()[..name.len().min(MAX_NAME)],
    };
    let mut found: Vec<_> = ProgInfoIter::with_query_opts(options)
        .filter(matches)
        .collect();
    match found.len() {
        0 => bail!("no BPF program is called {name}: `bpftool prog` lists those that are loaded"),
        1 => Ok(found.remove(0)),
        several => {
            let ids: Vec<_> = found.iter().map(|program| program.id.to_string()).collect();
            bail!(
                "{several} BPF programs are called {name}: choose one by its number, {}",
                ids.join(" or ")
            )
        }
    }
}

/// Adds source lines to those symbols that are code of BPF programs.
pub(crate) fn add_lines(symbols: &mut [GuestSymbol]) {
    let of_bpf = |symbol: &&mut GuestSymbol| symbol.name.starts_with("bpf_prog_");
    let mut wanted: HashMap<_, _> = symbols
        .iter_mut()
        .filter(of_bpf)
        .map(|symbol| (symbol.address, symbol))
        .collect();
    if wanted.is_empty() {
        return;
    }
    let options = ProgInfoQueryOptions::default()
        .include_jited_ksyms(true)
        .include_line_info(true)
        .include_jited_line_info(true);
    for program in ProgInfoIter::with_query_opts(options) {
        let starts: Vec<_> = program
            .jited_ksyms
            .iter()
            .map(|at| at.addr() as u64)
            .collect();
        if !starts.iter().any(|start| wanted.contains_key(start)) {
            continue;
        }
        let lines = lines(&program);
        for start in starts {
            if let Some(symbol) = wanted.remove(&start) {
                let range = symbol.address..symbol.end;
                let mut here: Vec<_> = lines
                    .iter()
                    .filter(|l| range.contains(&l.address))
                    .collect();
                here.sort_by_key(|line| line.address);
                symbol.lines = here.into_iter().cloned().collect();
            }
        }
    }
}

/// The source lines of a BPF program, in the order of its instructions.
fn lines(program: &ProgramInfo) -> Vec<Line> {
    let Ok(btf) = Btf::from_prog_id(program.id) else {
        return Vec::new();
    };
    let text = |offset| btf_text(&btf, offset);
    let pairs = program.line_info.iter().zip(&program.jited_line_info);
    pairs
        .filter_map(|(line, address)| {
            Some(Line {
                address: address.addr() as u64,
                file: text(line.file_name_off).filter(|file| !file.is_empty())?,
                line: line.line_num,
                text: cut(text(line.line_off)?.trim()).to_owned(),
            })
        })
        .collect()
}

/// As much of a line of source as a capture has room for.
fn cut(line: &str) -> &str {
    &line[..line.floor_char_boundary(MAX_PATH)]
}

/// The text at `offset` in BTF. A tab becomes a space, and what else a terminal
/// would interpret `?`.
fn btf_text(btf: &Btf<'_>, offset: u32) -> Option<String> {
    use libbpf_rs::AsRawLibbpf as _;
    // SAFETY: the BTF is live, and libbpf checks the offset.
    let text = unsafe { libbpf_sys::btf__str_by_offset(btf.as_libbpf_object().as_ptr(), offset) };
    if text.is_null() {
        return None;
    }
    // SAFETY: libbpf returned a C string that lives as long as the BTF.
    let text = unsafe { std::ffi::CStr::from_ptr(text) };
    Some(visible(&text.to_string_lossy().replace('\t', " ")))
}
