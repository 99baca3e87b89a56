//! Addresses of the kernel image, by the names of its symbols.
//!
//! The kernel writes some 70,000 lines for who reads `/proc/kallsyms`, which takes an emulated CPU
//! longer than most tests. For a BPF program it finds one name (`bpf_kallsyms_lookup_name()`, since
//! Linux 5.16).

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use guest_support::snapshot_function::{self, StaticCall};
use libbpf_rs::ProgramInput;
use rustix::io::Errno;

use crate::kallsyms::Kallsyms;
use crate::skeleton;
use crate::skeleton::symbol::{SymbolSkel, SymbolSkelBuilder};

/// The beginning and the end of the table of jump labels (include/linux/jump_label.h).
const JUMP_LABELS: [&str; 2] = ["__start___jump_table", "__stop___jump_table"];
/// The function that tells lockdep and tracers that interrupts are no longer masked.
pub(crate) const TELLS: &str = "trace_hardirqs_on";

/// What tests want to know of the kernel image. It stays as it is for as long as the kernel runs.
#[derive(Debug)]
pub(crate) struct Image {
    /// The static call that takes snapshots.
    static_call: StaticCall,
    /// The table of jump labels.
    pub(crate) jump_labels: Option<Range<u64>>,
    /// `trace_hardirqs_on()`, where the kernel has it.
    pub(crate) tells: Option<u64>,
}

impl Image {
    /// The image of the kernel that runs here.
    ///
    /// # Errors
    ///
    /// When the kernel tells this process no addresses.
    pub(crate) fn of_this_kernel() -> Result<&'static Self> {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        if let Some(known) = IMAGE.get() {
            return Ok(known);
        }
        let read = Self::found().or_else(|_| Self::listed())?;
        Ok(IMAGE.get_or_init(|| read))
    }

    /// By a BPF program.
    fn found() -> Result<Self> {
        let mut object = MaybeUninit::uninit();
        let mut skeleton = skeleton::load(SymbolSkelBuilder::default(), &mut object)?;
        Self::by(|name| find(&mut skeleton, name))
    }

    /// By the list of all symbols.
    fn listed() -> Result<Self> {
        let symbols = Kallsyms::once()?;
        Self::by(|name| Ok(symbols.address_of(name)))
    }

    fn by(mut address_of: impl FnMut(&str) -> Result<Option<u64>>) -> Result<Self> {
        let [start, end] = JUMP_LABELS;
        Ok(Self {
            static_call: StaticCall::by(&mut address_of)?,
            jump_labels: address_of(start)?
                .zip(address_of(end)?)
                .map(|(start, end)| start..end),
            tells: address_of(TELLS)?,
        })
    }

    /// The function that takes snapshots, if a driver has put one there by now.
    ///
    /// # Errors
    ///
    /// When the kernel's memory cannot be read, or the kernel does not say where the static call is.
    pub(crate) fn snapshot_function(&self) -> Result<Option<u64>> {
        snapshot_function::installed(&self.static_call)
    }
}

/// The address of a symbol. `None` if the kernel has none of that name.
fn find(skeleton: &mut SymbolSkel<'_>, name: &str) -> Result<Option<u64>> {
    let data = skeleton.maps.bss_data.as_deref_mut();
    let data = data.context("the BPF program has no memory")?;
    ensure!(name.len() < data.name.len(), "{name} is too long");
    data.name.fill(0);
    for (to, from) in data.name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let output = skeleton.progs.find.test_run(ProgramInput::default());
    let output = output.context("cannot run a BPF program")?;
    match output.return_value.cast_signed() {
        0 => {
            let data = skeleton.maps.bss_data.as_deref();
            Ok(Some(data.context("the BPF program has no memory")?.address))
        }
        error if error == -Errno::NOENT.raw_os_error() => Ok(None),
        error => {
            let error = std::io::Error::from_raw_os_error(-error);
            Err(error).with_context(|| format!("finding the symbol {name}"))
        }
    }
}
