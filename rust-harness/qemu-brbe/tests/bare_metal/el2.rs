//! EL2 as a hypervisor's level, and what runs below it.

use crate::run::*;

const EL1: Option<u64> = Some(1);

/// Runs the guest with deterministic time: QEMU then begins without a vCPU that is idle.
fn run(machine: &str) -> Run {
    let more = ["-smp", "1", "-icount", "shift=0"];
    Run::with("el2.S", machine, "", &more)
}

/// EL2 is there, although MDCR_EL2 has no value that a reset gives it any more.
#[test]
fn el2_is_known_before_software_writes_mdcr_el2() {
    for machine in [
        ",gic-version=3,virtualization=on",
        ",gic-version=3,secure=on,virtualization=on",
    ] {
        let run = run(machine);
        assert_eq!(run.values("brbcr_el2"), [1 << 3], "{machine}");
    }
}

/// FEAT_NV2: the write of HCR_EL2 is a store, after which the block goes on.
#[test]
fn a_register_of_el2_that_is_memory_ends_no_block() {
    let run = run(",gic-version=3,virtualization=on");
    run.expect(
        "stored-register",
        &[(DIRECT, EL1, "STORE_SRC", "STORE_TGT")],
    );
}
