//! Kprobes at an instruction in the middle of a function, which `libbpf-rs` does not have.

use std::ffi::CString;
use std::io;
use std::ptr::NonNull;

use anyhow::{Context as _, Result};
use guest_support::first_read::FirstRead;
use libbpf_rs::{AsRawLibbpf as _, Link, ProgramImpl};
use libbpf_sys::bpf_kprobe_opts;

/// Attaches a BPF program to the instruction at `place`.
pub(crate) fn attach<T>(program: &ProgramImpl<'_, T>, place: &FirstRead) -> Result<Link> {
    let cannot = || format!("cannot probe {place}");
    let function = CString::new(&*place.function).with_context(cannot)?;
    let options = bpf_kprobe_opts {
        sz: size_of::<bpf_kprobe_opts>().try_into()?,
        offset: place.offset,
        ..bpf_kprobe_opts::default()
    };
    // SAFETY: the program is loaded, and it, the name and the options outlive the call, which
    // keeps neither of the two.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_kprobe_opts(
            program.as_libbpf_object().as_ptr(),
            function.as_ptr(),
            &raw const options,
        )
    };
    let link = NonNull::new(link).ok_or_else(io::Error::last_os_error);
    let link = link.with_context(cannot)?;
    // SAFETY: libbpf has just made it, and nothing else has it.
    Ok(unsafe { Link::from_ptr(link) })
}
