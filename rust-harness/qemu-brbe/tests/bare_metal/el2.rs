//! EL2 as a hypervisor's level, and what runs below it.

use crate::run::*;

/// A machine without EL3, and one with it.
const EL2: &str = ",gic-version=3,virtualization=on";
const EL3: &str = ",gic-version=3,secure=on,virtualization=on";

const EL1: Option<u64> = Some(1);

/// Runs the guest with deterministic time: QEMU then begins without a vCPU that is idle.
fn run(machine: &str) -> Run {
    let more = ["-smp", "1", "-icount", "shift=0"];
    Run::with("el2.S", machine, "", &more)
}

/// EL2 is there, although MDCR_EL2 has no value that a reset gives it any more.
#[test]
fn el2_is_known_before_software_writes_mdcr_el2() {
    for machine in [EL2, EL3] {
        let run = run(machine);
        assert_eq!(run.values("brbcr_el2"), [1 << 3], "{machine}");
    }
}

/// FEAT_NV2: the write of HCR_EL2 is a store, after which the block goes on.
#[test]
fn a_register_of_el2_that_is_memory_ends_no_block() {
    let run = run(EL2);
    run.expect(
        "stored-register",
        &[(DIRECT, EL1, "STORE_SRC", "STORE_TGT")],
    );
}

/// Table D19-11: with BRBCR_EL2.TS of 0b10, the time stamp is the physical count less the
/// physical offset. The count itself is small.
#[test]
fn the_physical_offset_counts_where_it_is_enabled() {
    for machine in [EL2, EL3] {
        let run = run(machine);
        let high: Vec<_> = run.values("time").iter().map(|ts| ts >> 40).collect();
        assert_eq!(high, [0, 0xff_ffff], "{machine}");
    }
}

/// FEAT_NV: an exception from EL1 to EL1 is one, although SPSR_EL1.M shows EL2.
#[test]
fn nested_virtualisation_does_not_change_where_an_exception_is_from() {
    let run = run(EL2);
    run.expect("nested", &[(DEBUG, EL1, "NESTED", "VECTOR_SAME")]);
    assert_eq!(run.values("nested")[0] >> 2 & 3, 2);
}
