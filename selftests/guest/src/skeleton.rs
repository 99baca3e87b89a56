//! The skeletons of the BPF programs, as the build script generates them.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));

/// Converts the records of BPF programs: each program has a type of its own for
/// `struct record`.
macro_rules! records_of {
    ($($program:ident),+) => {$(
        impl From<&$program::types::record> for branch_records::record::RawRecord {
            fn from(record: &$program::types::record) -> Self {
                Self {
                    from: record.from,
                    to: record.to,
                    flags: record.flags,
                }
            }
        }
    )+};
}

records_of!(
    board,
    contract,
    crossing,
    cycles,
    kvm,
    nested,
    overflow,
    pending,
    shared,
    unknown_level,
    waste
);

/// Opens a skeleton, whose constants can be set then.
pub(crate) fn open<'object, Builder: SkelBuilder<'object>>(
    builder: Builder,
    object: &'object mut MaybeUninit<OpenObject>,
) -> Result<Builder::Output> {
    builder.open(object).context("cannot open a BPF program")
}

/// Loads the programs of an opened skeleton.
pub(crate) fn loaded<'object, Open: OpenSkel<'object>>(open: Open) -> Result<Open::Output> {
    open.load()
        .context("cannot load a BPF program: run as root, or with CAP_PERFMON and CAP_BPF")
}

/// Loads the programs of a skeleton as they are.
pub(crate) fn load<'object, Builder: SkelBuilder<'object>>(
    builder: Builder,
    object: &'object mut MaybeUninit<OpenObject>,
) -> Result<<Builder::Output as OpenSkel<'object>>::Output> {
    loaded(open(builder, object)?)
}

/// Has the programs of an opened skeleton take notice of this process alone. Each skeleton has a
/// type of its own for its constants.
macro_rules! of_this_process {
    ($open:expr) => {
        $open
            .maps
            .rodata_data
            .as_deref_mut()
            .context("the BPF program has no constants")?
            .target_pid = std::process::id()
    };
}
pub(crate) use of_this_process;
