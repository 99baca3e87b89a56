//! How operations are chosen: likely enough to be recorded that a sequence fills
//! the buffer, and unlikely enough that it meets every reason not to be.

use brbe_model::{
    BranchKind, Config, ExceptionKind, ExceptionLevel, FineGrainedTraps, Hcr, Instruction,
    NumRecords, Register, Version,
};
use proptest::prelude::*;
use proptest::sample::select;

use super::{Branch, Cpu, Operation, Setting};

pub(crate) fn implementations() -> impl Strategy<Value = Config> {
    let records = select(vec![
        NumRecords::R8,
        NumRecords::R16,
        NumRecords::R32,
        NumRecords::R64,
    ]);
    let version = select(vec![Version::V1_0, Version::V1_1]);
    let feature = || prop::bool::weighted(0.9);
    (records, version, feature(), feature(), feature()).prop_map(
        |(records, version, pmu, cycle_counts, pmu_snapshot)| Config {
            records,
            version,
            pmu,
            cycle_counts,
            pmu_snapshot,
        },
    )
}

pub(crate) fn cpus() -> impl Strategy<Value = Cpu> {
    (any::<bool>(), any::<bool>(), counters(), any::<bool>()).prop_map(
        |(el2, el3, counters, icntr)| Cpu {
            el2,
            el3,
            counters,
            icntr,
        },
    )
}

/// Numbers of counters: few, so that a flag is likely to be one of a counter, or as many
/// as there can be.
fn counters() -> impl Strategy<Value = u8> {
    prop_oneof![3 => 0..=6_u8, 1 => Just(31)]
}

/// Sequences of operations: firmware and software set everything up, and then anything
/// happens.
pub(crate) fn operations(max: usize) -> impl Strategy<Value = Vec<Operation>> {
    let settings =
        (hcr(), counters(), mdcr(), any::<bool>()).prop_map(|(hcr, hpmn, mdcr, secure_el2)| {
            [
                Setting::Hcr(hcr),
                Setting::Hpmn(hpmn),
                mdcr,
                Setting::SecureEl2(secure_el2),
            ]
            .map(Operation::Configure)
        });
    let writes = (brbcr(), brbcr(), brbfcr()).prop_map(|(el1, el2, fcr)| {
        [
            Operation::Write(Register::CrEl2, el2),
            Operation::Write(Register::CrEl1, el1),
            Operation::Write(Register::Fcr, fcr),
        ]
    });
    let rest = prop::collection::vec(operation(), 0..max);
    (settings, writes, rest)
        .prop_map(|(settings, writes, rest)| [&settings[..], &writes, &rest].concat())
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        20 => branches(),
        12 => exception(),
        12 => exception_return(),
        4 => any::<u64>().prop_map(Operation::Debug),
        8 => register().prop_map(Operation::Read),
        20 => write(),
        1 => Just(Operation::Brb(Instruction::Iall)),
        4 => Just(Operation::Brb(Instruction::Inj)),
        6 => overflow_flags(),
        1 => Just(Operation::Capture),
        1 => Just(Operation::WarmReset),
        10 => setting().prop_map(Operation::Configure),
        4 => setting().prop_map(Operation::ConfigureForAMoment),
        4 => cycles().prop_map(Operation::Cycles),
    ]
}

fn branches() -> impl Strategy<Value = Operation> {
    let kind = select(vec![
        BranchKind::Direct,
        BranchKind::Indirect,
        BranchKind::Return,
        BranchKind::IndirectCall,
        BranchKind::DirectCall,
        BranchKind::Conditional,
    ]);
    let branch =
        (kind, any::<u64>(), any::<u64>(), cycles()).prop_map(|(kind, src, tgt, cycles)| Branch {
            kind,
            src,
            tgt,
            cycles,
        });
    prop::collection::vec(branch, 1..12).prop_map(Operation::Branches)
}

fn cycles() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..300_u64, 4 => 0..5000_u64, 2 => 0..1_u64 << 21, 1 => Just(1 << 20)]
}

fn level() -> impl Strategy<Value = ExceptionLevel> {
    (0..4_u64).prop_map(ExceptionLevel::from_bits)
}

fn exception() -> impl Strategy<Value = Operation> {
    let kind = select(vec![
        ExceptionKind::Call,
        ExceptionKind::Trap,
        ExceptionKind::SError,
        ExceptionKind::InstructionDebug,
        ExceptionKind::DataDebug,
        ExceptionKind::Alignment,
        ExceptionKind::InstructionFault,
        ExceptionKind::DataFault,
        ExceptionKind::Irq,
        ExceptionKind::Fiq,
        ExceptionKind::ImplementationDefined,
    ]);
    let aarch32 = prop::bool::weighted(0.05);
    (level(), aarch32, kind, any::<u64>(), any::<u64>()).prop_map(
        |(to, to_aarch32, kind, src, tgt)| Operation::Exception {
            to,
            to_aarch32,
            kind,
            src,
            tgt,
        },
    )
}

fn exception_return() -> impl Strategy<Value = Operation> {
    let aarch32 = prop::bool::weighted(0.05);
    (level(), aarch32, any::<bool>(), any::<u64>(), any::<u64>()).prop_map(
        |(to, to_aarch32, secure, src, tgt)| Operation::ExceptionReturn {
            to,
            to_aarch32,
            secure,
            src,
            tgt,
        },
    )
}

fn register() -> impl Strategy<Value = Register> {
    prop_oneof![
        (0..32_u8).prop_map(Register::Inf),
        (0..32_u8).prop_map(Register::Src),
        (0..32_u8).prop_map(Register::Tgt),
        Just(Register::CrEl1),
        Just(Register::CrEl2),
        Just(Register::CrEl12),
        Just(Register::Fcr),
        Just(Register::Ts),
        Just(Register::InfInj),
        Just(Register::SrcInj),
        Just(Register::TgtInj),
        Just(Register::Idr0),
    ]
}

fn write() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (select(vec![Register::CrEl1, Register::CrEl2, Register::CrEl12]), brbcr()),
        4 => (Just(Register::Fcr), brbfcr()),
        2 => (Just(Register::InfInj), any::<u64>()),
        2 => (register(), any::<u64>()),
    ]
    .prop_map(|(register, value)| Operation::Write(register, value))
}

/// Values in which each of `bits`, the bits that enable something, is likely to be 1.
fn mostly(bits: u64) -> impl Strategy<Value = u64> {
    (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(move |(a, b, c)| bits & (a | b | c))
}

fn brbcr() -> impl Strategy<Value = u64> {
    // EXCEPTION, ERTN, FZPSS, CC, ExBRE and E0BRE.
    const ENABLES: u64 = 1 << 23 | 1 << 22 | 1 << 9 | 1 << 3 | 3;
    (mostly(ENABLES), any::<u64>()).prop_map(|(enables, rest)| enables | rest & !ENABLES)
}

/// Values of BRBFCR_EL1: PAUSED now and then, any filters and banks, EnI or not.
fn brbfcr() -> impl Strategy<Value = u64> {
    const PAUSED: u64 = 1 << 7;
    (any::<u64>(), prop::bool::weighted(0.2)).prop_map(|(value, paused)| {
        if paused {
            value | PAUSED
        } else {
            value & !PAUSED
        }
    })
}

/// Overflow flags, mostly none: a flag that is set keeps BRBE paused.
fn overflow_flags() -> impl Strategy<Value = Operation> {
    let one = prop_oneof![4 => 0..8_u32, 2 => 29..34_u32].prop_map(|n| 1 << n);
    prop_oneof![6 => Just(0), 6 => one, 1 => any::<u64>()].prop_map(Operation::OverflowFlags)
}

fn setting() -> impl Strategy<Value = Setting> {
    prop_oneof![
        3 => hcr().prop_map(Setting::Hcr),
        1 => counters().prop_map(Setting::Hpmn),
        2 => fine_grained_traps().prop_map(Setting::FineGrainedTraps),
        3 => mdcr(),
        2 => any::<bool>().prop_map(Setting::SecureEl2),
    ]
}

fn hcr() -> impl Strategy<Value = Hcr> {
    let nested = || prop::bool::weighted(0.3);
    (
        any::<bool>(),
        any::<bool>(),
        nested(),
        nested(),
        any::<bool>(),
    )
        .prop_map(|(e2h, tge, nv, nv1, nv2)| Hcr {
            e2h,
            tge,
            nv,
            nv1,
            nv2,
        })
}

fn fine_grained_traps() -> impl Strategy<Value = Option<FineGrainedTraps>> {
    let some = (any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(hdfgrtr, hdfgwtr, hfgitr)| {
        FineGrainedTraps {
            hdfgrtr,
            hdfgwtr,
            hfgitr,
        }
    });
    prop::option::of(some)
}

fn mdcr() -> impl Strategy<Value = Setting> {
    let sbrbe = prop_oneof![3 => Just(3_u8), 2 => 0..4_u8];
    (sbrbe, any::<bool>(), any::<bool>()).prop_map(|(sbrbe, e3brec, e3brew)| Setting::Mdcr {
        sbrbe,
        e3brec,
        e3brew,
    })
}
