//! Shows what a capture says: `explain CAPTURE VMLINUX [--json]`. User space's files
//! are those of this machine.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use branch_records::capture::Capture;
use branch_records::text::{self, Detail};
use branch_records::vmlinux;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let (capture, vmlinux, json) = match &*arguments {
        [capture, vmlinux] => (capture, vmlinux, false),
        [capture, vmlinux, flag] if flag == "--json" => (capture, vmlinux, true),
        _ => return Err("usage: explain CAPTURE VMLINUX [--json]".into()),
    };
    let capture = Capture::from_reader(File::open(capture)?)?;
    let report = vmlinux::report(&capture, Path::new(vmlinux), |path| Some(path.into()))?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        text::write(&report, Detail::All, &mut anstream::stdout())?;
    }
    Ok(())
}
