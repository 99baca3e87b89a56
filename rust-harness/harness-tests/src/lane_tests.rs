//! Tests of the lanes other than QEMU: a machine that is reached by ssh, Arm's model as a
//! stand-in plays it, and a user's program of a single file.

mod fvp;
mod one_file;
mod ssh;

use anyhow::Result;

use host::cargo;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use report::{Artefact, Verdict};

/// The tests of the other lanes.
pub fn tests() -> Vec<Batch> {
    let of = |name, check: fn(&Context<'_>) -> Result<Verdict>| {
        let test = Test {
            needs_plugin: true,
            ..Test::new(name, Scope::DEFAULT)
        };
        Batch::of_one(test, move |context, _| check(context))
    };
    let fvp = of("lane fvp: a stand-in for the model", fvp::check);
    vec![
        of("lane ssh: an sshd in a VM, over loopback", ssh::check),
        fvp.needing(|context, _| vec![stand_in(context)]),
        of("lane of one file: scripts/lanes/example", one_file::check),
    ]
}

/// The program that plays Arm's model, as an artefact.
fn stand_in<'a>(context: &Context<'a>) -> Artefact<'a> {
    let paths = context.paths;
    let program = Artefact::new("stand-in for Arm's model", || {
        cargo::stand_in(paths).map(|_| ())
    });
    program.holding(cargo::TARGET)
}
