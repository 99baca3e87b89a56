use proptest::prelude::*;

use super::*;

fn flags(fields: &[(u64, u32)]) -> u64 {
    fields
        .iter()
        .fold(0, |word, (value, shift)| word | value << shift)
}

#[test]
fn every_field_is_where_the_abi_puts_it() {
    let raw = RawRecord {
        from: 0xffff_8000_8001_0000,
        to: 0xffff_8000_8001_0040,
        flags: flags(&[(1, 1), (0x1234, 4), (6, 20), (2, 24), (2, 30)]),
    };
    let record = raw.decode();
    assert_eq!(record.from.map(NonZeroU64::get), Some(raw.from));
    assert_eq!(record.to.map(NonZeroU64::get), Some(raw.to));
    assert!(!record.mispredicted && record.predicted);
    assert!(!record.in_transaction && !record.abort);
    assert_eq!(record.cycles, Cycles::Count(0x1234));
    assert_eq!(record.kind, BranchType::Return);
    assert_eq!(record.speculation, Speculation::NonSpeculativeCorrectPath);
    assert_eq!(record.privilege, Privilege::Kernel);
    assert_eq!(record.illegal_field(), None);
}

#[test]
fn a_zero_address_is_unknown() {
    let record = RawRecord {
        from: 0x1000,
        ..RawRecord::default()
    };
    assert_eq!(record.decode().to, None);
    assert_eq!(record.decode().illegal_field(), None);
}

#[test]
fn extended_types_come_from_new_type() {
    let kind = |new_type| {
        RawRecord {
            from: 1,
            to: 1,
            flags: flags(&[(15, 20), (new_type, 26)]),
        }
        .decode()
    };
    assert_eq!(
        kind(1).kind,
        BranchType::Extended(NewType::DataFault),
        "PERF_BR_NEW_FAULT_DATA"
    );
    assert_eq!(kind(7).kind, BranchType::Extended(NewType::DebugData));
    assert_eq!(kind(7).illegal_field(), None);
    assert!(kind(8).illegal_field().is_some());
}

#[test]
fn memory_full_of_ones_is_illegal() {
    let raw = RawRecord::from_ne_bytes(&[0xff; RawRecord::SIZE]);
    assert_eq!(raw.decode().cycles, Cycles::AtLeast(0xffff));
    assert!(raw.decode().illegal_field().is_some());
}

#[test]
fn one_stale_field_is_enough() {
    let complain = |flags| {
        RawRecord {
            from: 1,
            to: 1,
            flags,
        }
        .decode()
        .illegal_field()
    };
    assert_eq!(complain(2 << 30 | 1 << 20), None);
    assert!(complain(1 << 33).is_some_and(|why| why.contains("reserved")));
    assert!(complain(1 << 63).is_some_and(|why| why.contains("reserved")));
    assert!(complain(1 << 26 | 1 << 20).is_some_and(|why| why.contains("new_type")));
    assert!(complain(7 << 30).is_some_and(|why| why.contains("priv")));
    assert!(complain(3).is_some_and(|why| why.contains("mispred")));
}

proptest! {
    /// No bit of the word is decoded twice, and none is left out: the fields put together
    /// are the word.
    #[test]
    fn decoding_loses_nothing(from: u64, to: u64, word: u64) {
        let record = RawRecord { from, to, flags: word }.decode();
        let kind = match record.kind {
            BranchType::Unknown => 0,
            BranchType::Conditional => 1,
            BranchType::Unconditional => 2,
            BranchType::Indirect => 3,
            BranchType::Call => 4,
            BranchType::IndirectCall => 5,
            BranchType::Return => 6,
            BranchType::Syscall => 7,
            BranchType::SyscallReturn => 8,
            BranchType::ConditionalCall => 9,
            BranchType::ConditionalReturn => 10,
            BranchType::ExceptionReturn => 11,
            BranchType::Irq => 12,
            BranchType::SystemError => 13,
            BranchType::NotInTransaction => 14,
            BranchType::Extended(_) => 15,
        };
        let cycles = match record.cycles {
            Cycles::Unknown => 0,
            Cycles::Count(count) | Cycles::AtLeast(count) => u64::from(count),
        };
        let privilege = match record.privilege {
            Privilege::Unknown => 0,
            Privilege::User => 1,
            Privilege::Kernel => 2,
            Privilege::Hypervisor => 3,
            Privilege::Undefined(value) => u64::from(value),
        };
        let speculation = record.speculation as u64;
        prop_assert_eq!(word, flags(&[
            (u64::from(record.mispredicted), 0),
            (u64::from(record.predicted), 1),
            (u64::from(record.in_transaction), 2),
            (u64::from(record.abort), 3),
            (cycles, 4),
            (kind, 20),
            (speculation, 24),
            (u64::from(record.new_type), 26),
            (privilege, 30),
            (u64::from(record.reserved), 33),
        ]));
    }
}

#[test]
fn names_are_read_back() {
    for (name, kind) in [
        ("COND", BranchType::Conditional),
        ("IND_CALL", BranchType::IndirectCall),
        ("NO_TX", BranchType::NotInTransaction),
        (
            "FAULT_INST",
            BranchType::Extended(NewType::InstructionFault),
        ),
        ("ARM64_DEBUG_DATA", BranchType::Extended(NewType::DebugData)),
    ] {
        assert_eq!(BranchType::from_name(name), Some(kind));
        assert_eq!(kind.name(), name);
    }
    assert_eq!(BranchType::from_name(""), Some(BranchType::Unknown));
    for unknown in ["cond", "COND ", "undefined", "N/A"] {
        assert_eq!(BranchType::from_name(unknown), None);
    }
}
