//! The verifier knows that the helper reads its flags, all 64 bits of them.
//!
//! A program that does not set them is refused. One that sets 32 bits of them, as compilers do for
//! an `u32`, is run, and its flags are what it has set: with `BPF_F_TEST_RND_HI32` the verifier
//! writes random bits into the upper half of a register where it knows of nobody who reads it.

use std::mem::MaybeUninit;

use anyhow::{Context as _, Result};
use libbpf_rs::ProgramInput;
use libbpf_rs::skel::OpenSkel as _;
use rustix::io::Errno;

use crate::skeleton;
use crate::skeleton::unset_flags::UnsetFlagsSkelBuilder;
use crate::verdict::{Verdict, check};

/// `BPF_F_TEST_RND_HI32` of `linux/bpf.h`.
const RANDOM_UPPER_HALVES: u32 = 1 << 2;

pub(crate) fn run() -> Result<Verdict> {
    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::open(UnsetFlagsSkelBuilder::default(), &mut object)?;
    open.progs
        .take_with_short_flags
        .set_flags(RANDOM_UPPER_HALVES);
    // That this program can be loaded shows that the other one is refused for its flags alone.
    let skeleton = skeleton::loaded(open)?;
    skeleton
        .progs
        .take_with_short_flags
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    let data = skeleton.maps.bss_data.as_deref();
    let returned = data.context("the BPF program has no memory")?.taken;
    check!(
        returned != -i64::from(Errno::INVAL.raw_os_error()),
        "flags of 32 bits, all of them 0: the helper returned {returned}"
    );

    let mut object = MaybeUninit::uninit();
    let mut open = skeleton::open(UnsetFlagsSkelBuilder::default(), &mut object)?;
    open.progs.take_with_short_flags.set_autoload(false);
    open.progs.take_with_unset_flags.set_autoload(true);
    // libbpf would print what the verifier says.
    let print = libbpf_rs::set_print(None);
    let loaded = open.load();
    libbpf_rs::set_print(print);
    check!(
        loaded.is_err(),
        "a program that does not set the helper's flags is loaded"
    );
    Ok(Verdict::Pass)
}
