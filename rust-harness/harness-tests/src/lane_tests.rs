//! Tests of the lanes other than QEMU: a machine that is reached by ssh, Arm's model as a
//! stand-in plays it, and a user's program of a single file.

mod fvp;
mod one_file;
mod ssh;

use anyhow::Result;

use host::cargo;
use kernel_tests::context::Context;
use kernel_tests::registry::{Batch, Scope, Test};
use machines::fvp::DEVICE_TREE;
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
        fvp.needing(|context, _| {
            [stand_in(context)]
                .into_iter()
                .chain(device_tree(context))
                .collect()
        }),
        of("lane of one file: scripts/lanes/example", one_file::check),
    ]
}

/// The device tree of Arm's model, as an artefact. A kernel that was built elsewhere has none.
fn device_tree<'a>(context: &Context<'a>) -> Option<Artefact<'a>> {
    let subject = context.subject().ok()?;
    let title = format!("device tree of Arm's model for {}", context.title);
    let made = Artefact::new(title, || subject.device_tree(DEVICE_TREE).map(|_| ()));
    Some(made.holding(subject.patch_tree.lock()))
}

/// The program that plays Arm's model, as an artefact.
fn stand_in<'a>(context: &Context<'a>) -> Artefact<'a> {
    let paths = context.paths;
    let program = Artefact::new("stand-in for Arm's model", || {
        cargo::stand_in(paths).map(|_| ())
    });
    program.holding(cargo::TARGET)
}
