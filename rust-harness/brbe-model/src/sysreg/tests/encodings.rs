//! Encodings (D24.8, C5.7).

use super::*;

/// D24.8.4 to D24.8.12: n is CRm with op2[2] above.
#[test]
fn record_registers_are_numbered_by_crm_and_op2() {
    for n in 0..32_u8 {
        let (crm, high) = (n & 15, n >> 4 << 2);
        assert_eq!(Register::decode(2, 1, 8, crm, high), Some(Register::Inf(n)));
        assert_eq!(
            Register::decode(2, 1, 8, crm, high | 1),
            Some(Register::Src(n))
        );
        assert_eq!(
            Register::decode(2, 1, 8, crm, high | 2),
            Some(Register::Tgt(n))
        );
        assert_eq!(Register::decode(2, 1, 8, crm, high | 3), None);
    }
    assert_eq!(Register::decode(2, 1, 7, 0, 0), None); // the trace unit's
}

/// D24.8: every register but the records', and the neighbouring encodings, which are no
/// registers of BRBE.
#[test]
fn control_registers_by_their_encodings() {
    let known = [
        ((2, 1, 9, 0, 0), Register::CrEl1),
        ((2, 1, 9, 0, 1), Register::Fcr),
        ((2, 1, 9, 0, 2), Register::Ts),
        ((2, 1, 9, 1, 0), Register::InfInj),
        ((2, 1, 9, 1, 1), Register::SrcInj),
        ((2, 1, 9, 1, 2), Register::TgtInj),
        ((2, 1, 9, 2, 0), Register::Idr0),
        ((2, 4, 9, 0, 0), Register::CrEl2),
        ((2, 5, 9, 0, 0), Register::CrEl12),
    ];
    for op1 in 0..8 {
        for crm in 0..16 {
            for op2 in 0..8 {
                let expected = known
                    .iter()
                    .find(|(encoding, _)| *encoding == (2, op1, 9, crm, op2))
                    .map(|(_, register)| *register);
                assert_eq!(Register::decode(2, op1, 9, crm, op2), expected);
                assert_eq!(Register::decode(3, op1, 9, crm, op2), None);
            }
        }
    }
}

/// C5.7: the words of BRB IALL and BRB INJ.
#[test]
fn brb_instructions_by_their_words() {
    for (word, instruction) in [
        (0xd509_729f_u32, Some(Instruction::Iall)),
        (0xd509_72bf, Some(Instruction::Inj)),
        (0xd509_72df, None),
        (0xd509_727f, None),
        (0xd508_729f, None),
    ] {
        let field = |shift: u32, bits: u32| (word >> shift & ((1 << bits) - 1)) as u8;
        let decoded = Instruction::decode(
            field(19, 2),
            field(16, 3),
            field(12, 4),
            field(8, 4),
            field(5, 3),
        );
        assert_eq!(decoded, instruction, "{word:#x}");
    }
}
