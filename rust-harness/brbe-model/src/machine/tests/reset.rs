//! Warm reset (S_YLMQQ, I_FPJPQ).

use super::*;

/// S_YLMQQ, I_FPJPQ.
#[test]
fn warm_reset_stops_recording_and_keeps_records() {
    for version in [Version::V1_0, Version::V1_1] {
        let (mut brbe, el1) = (
            Brbe::new(Config {
                version,
                ..Config::default()
            }),
            only(El1),
        );
        brbe.write(&el1, Register::CrEl1, EXBRE | E0BRE | CC)
            .unwrap();
        brbe.write(&el1, Register::Fcr, ALL_TYPES | 1 << 28)
            .unwrap();
        brbe.write(&el1, Register::Ts, 5).unwrap();
        branches(&mut brbe, &el1);
        let record = youngest(&brbe);
        brbe.warm_reset();
        assert!(!brbe.allowed(&el1));
        assert_eq!(youngest(&brbe), record);
        let kept = version == Version::V1_1;
        assert_eq!(
            brbe.read(&el1, Register::CrEl1),
            Ok(if kept { CC } else { 0 })
        );
        assert_eq!(
            brbe.read(&el1, Register::Fcr),
            Ok(if kept { ALL_TYPES } else { 0 })
        );
        assert_eq!(brbe.read(&el1, Register::Ts), Ok(if kept { 5 } else { 0 }));
    }
}

/// FZPSS resets on a Cold reset only, with and without FEAT_BRBEv1p1.
#[test]
fn s_ylmqq_fzpss_survives_a_warm_reset() {
    for version in [Version::V1_0, Version::V1_1] {
        let mut brbe = Brbe::new(Config {
            version,
            pmu_snapshot: true,
            ..Config::default()
        });
        let hyp = at(Hyp, false);
        for register in [Register::CrEl1, Register::CrEl2] {
            brbe.write(&hyp, register, FZPSS | EXBRE | E0BRE).unwrap();
        }
        brbe.warm_reset();
        for register in [Register::CrEl1, Register::CrEl2] {
            assert_eq!(brbe.read(&hyp, register), Ok(FZPSS), "{version:?}");
        }
    }
}

/// What resets to an UNKNOWN value is zero, and the cycle count of the next record is
/// unknown.
#[test]
fn s_ylmqq_a_warm_reset_clears_the_injection_registers_and_the_count() {
    for version in [Version::V1_0, Version::V1_1] {
        let mut brbe = Brbe::new(Config {
            version,
            ..Config::default()
        });
        let el1 = only(El1);
        let enable = |brbe: &mut Brbe| {
            brbe.write(&el1, Register::CrEl1, EXBRE | CC).unwrap();
            brbe.write(&el1, Register::Fcr, ALL_TYPES).unwrap();
        };
        enable(&mut brbe);
        for register in [Register::InfInj, Register::SrcInj, Register::TgtInj] {
            brbe.write(&el1, register, 3).unwrap();
        }
        cycles_at(&mut brbe, &el1, 0);
        brbe.warm_reset();
        for register in [Register::InfInj, Register::SrcInj, Register::TgtInj] {
            assert_eq!(brbe.read(&el1, register), Ok(0));
        }
        enable(&mut brbe);
        assert_eq!(cycles_at(&mut brbe, &el1, 1), None);
    }
}

/// PAUSED, EnI and the filters are unchanged with FEAT_BRBEv1p1 only.
#[test]
fn i_fpjpq_brbfcr_over_a_warm_reset() {
    for (version, expected) in [(Version::V1_0, 0), (Version::V1_1, 0x007f_0080)] {
        let mut brbe = Brbe::new(Config {
            version,
            ..Config::default()
        });
        brbe.write(&only(El1), Register::Fcr, u64::MAX).unwrap();
        brbe.warm_reset();
        assert_eq!(brbe.read(&only(El1), Register::Fcr), Ok(expected));
    }
}

/// E3BREC survives a Warm reset and E3BREW does not: EL3 goes on recording.
#[test]
fn r_jwwfy_el3_records_across_a_warm_reset() {
    let mon = Pe {
        el3: el3(0b00, true, false, true),
        ..only(Mon)
    };
    let mut brbe = brbe(0, 0);
    assert!(branches(&mut brbe, &mon));
    brbe.warm_reset();
    assert!(branches(&mut brbe, &mon));
}
