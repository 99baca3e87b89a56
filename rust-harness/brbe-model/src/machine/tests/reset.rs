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
