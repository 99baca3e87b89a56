//! What is worth tracing, done a few times.

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use libbpf_rs::{ErrorKind, MapHandle, MapType};

use crate::verdict::Verdict;

/// An interrupt between a function's end and a snapshot takes the records: one of so
/// many has them.
const TIMES: usize = 10;

/// Something that happens in the kernel.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum What {
    /// bpf(BPF_MAP_CREATE) of an array without entries
    RefusedMap,
}

pub(crate) fn run(what: What) -> Result<Verdict> {
    for _ in 0..TIMES {
        match what {
            What::RefusedMap => refused_map()?,
        }
    }
    Ok(Verdict::Pass)
}

/// Asks for an array without room for anything. Nothing but array_map_alloc_check()
/// refuses it.
pub(crate) fn refused_map() -> Result<()> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    match MapHandle::create(MapType::Array, Some("no_entries"), 4, 4, 0, &options) {
        Ok(_) => bail!("the kernel made an array map without entries"),
        Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(()),
        Err(error) => {
            Err(anyhow!(error).context("an array map without entries was not refused with -EINVAL"))
        }
    }
}
