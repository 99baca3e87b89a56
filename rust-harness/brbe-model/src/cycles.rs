//! BRBINF.CC: a cycle count as an 8-bit mantissa and a 6-bit exponent (D19.1.2).

/// An encoded cycle count, the 14 bits of BRBINF\<n\>_EL1.CC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CycleCount(u16);

impl CycleCount {
    /// "Exceeded": all ones, for a count of 2^20 or more (BRBIDR0_EL1.CC says
    /// that the counter has 20 bits).
    pub const SATURATED: Self = Self(0x3fff);

    /// BranchEncCycleCount (J1.3.1): below 256 exactly, above with the 9 most
    /// significant bits kept.
    #[inline]
    pub const fn encode(cycles: u64) -> Self {
        if cycles >= 1 << 20 {
            return Self::SATURATED;
        }
        if cycles < 256 {
            return Self(cycles as u16);
        }
        // The leading one is implied: it is bit 8 of the shifted count.
        let shift = (63 - cycles.leading_zeros()) - 8;
        let mantissa = (cycles >> shift) as u16 & 0xff;
        Self(((shift as u16) + 1) << 8 | mantissa)
    }

    /// The cycle count with these 14 bits of BRBINF.CC. The bits above those are not
    /// looked at.
    pub const fn from_bits(bits: u64) -> Self {
        Self((bits & 0x3fff) as u16)
    }

    /// The count that the encoding stands for, `None` where it is saturated.
    pub const fn decode(self) -> Option<u64> {
        let (exponent, mantissa) = (self.0 >> 8, self.0 as u64 & 0xff);
        match exponent {
            0 => Some(mantissa),
            0x3f => None,
            e => Some((256 + mantissa) << (e - 1)),
        }
    }

    /// The 14 bits: exponent in 13:8, mantissa in 7:0.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of D19.1.2: count, encoding, what it decodes to.
    #[test]
    fn encoding_table() {
        for (count, code, value) in [
            (0, 0x000, Some(0)),
            (255, 0x0ff, Some(255)),
            (256, 0x100, Some(256)),
            (511, 0x1ff, Some(511)),
            (512, 0x200, Some(512)),
            (513, 0x200, Some(512)),
            (1023, 0x2ff, Some(1022)),
            (65536, 0x900, Some(65536)),
            (1_048_575, 0xcff, Some(1_046_528)),
            (1_048_576, 0x3fff, None),
            (u64::MAX, 0x3fff, None),
        ] {
            let cc = CycleCount::encode(count);
            assert_eq!((cc.bits(), cc.decode()), (code, value), "{count}");
        }
    }

    #[test]
    fn decoding_loses_less_than_one_part_in_256() {
        for count in (0..1 << 20).step_by(37) {
            let back = CycleCount::encode(count).decode().unwrap();
            assert!(
                back <= count && count - back <= count / 256,
                "{count} {back}"
            );
        }
    }
}
