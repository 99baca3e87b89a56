//! The records: a stack whose top is `IA32_LBR_0`.

/// One record, as its three registers read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbrRecord {
    /// `IA32_LBR_x_FROM_IP`.
    pub from: u64,
    /// `IA32_LBR_x_TO_IP`.
    pub to: u64,
    /// `IA32_LBR_x_INFO`.
    pub info: u64,
}

/// A number of records: a multiple of eight, up to 64 (`IA32_LBR_DEPTH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth(u8);

impl Depth {
    /// The greatest depth that the architecture has.
    pub const MAX: Self = Self(64);

    /// The depth of `count` records, if there is one.
    pub fn from_count(count: u64) -> Option<Self> {
        let count = u8::try_from(count).ok()?;
        (count.is_multiple_of(8) && (8..=64).contains(&count)).then_some(Self(count))
    }

    /// The number of records.
    pub fn count(self) -> usize {
        self.0.into()
    }
}

/// A stack of as many records as its depth says.
#[derive(Clone, Debug)]
pub(crate) struct Stack {
    records: [LbrRecord; Depth::MAX.0 as usize],
    depth: Depth,
    /// The index of the youngest record in `records`.
    top: usize,
}

impl Stack {
    /// A stack in which no record is valid: all are zero.
    pub(crate) fn new(depth: Depth) -> Self {
        Self {
            records: [LbrRecord::default(); Depth::MAX.0 as usize],
            depth,
            top: 0,
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        self.depth
    }

    fn place(&self, age: usize) -> usize {
        let depth = self.depth.count();
        (self.top + depth - age) % depth
    }

    /// The `age`-th youngest record, from 0.
    pub(crate) fn get(&self, age: usize) -> Option<&LbrRecord> {
        (age < self.depth.count()).then(|| &self.records[self.place(age)])
    }

    /// The `age`-th youngest record, from 0, to be written.
    pub(crate) fn get_mut(&mut self, age: usize) -> Option<&mut LbrRecord> {
        let place = (age < self.depth.count()).then(|| self.place(age))?;
        self.records.get_mut(place)
    }

    /// Adds a record. All other records grow older, and the oldest is lost.
    pub(crate) fn push(&mut self, record: LbrRecord) {
        self.top = (self.top + 1) % self.depth.count();
        self.records[self.top] = record;
    }

    /// Removes the youngest record. All others grow younger, and the oldest is none.
    pub(crate) fn pop(&mut self) {
        self.records[self.top] = LbrRecord::default();
        self.top = self.place(1);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::VecDeque;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn depths_are_multiples_of_eight() {
        let depths: Vec<_> = (0..=300).filter_map(Depth::from_count).collect();
        let expected = [8, 16, 24, 32, 40, 48, 56, 64].map(Depth);
        assert_eq!(depths, expected);
    }

    proptest! {
        /// The stack does the same as a queue that really moves its records.
        #[test]
        fn is_a_stack(pushed in prop::collection::vec(any::<bool>(), 0..200), eighths in 1u64..=8) {
            let depth = Depth::from_count(eighths * 8).unwrap();
            let mut stack = Stack::new(depth);
            let mut queue = VecDeque::from(std::vec![LbrRecord::default(); depth.count()]);
            for (n, push) in pushed.into_iter().enumerate() {
                let record = LbrRecord { from: n as u64 + 1, ..LbrRecord::default() };
                if push {
                    stack.push(record);
                    queue.push_front(record);
                    queue.pop_back();
                } else {
                    stack.pop();
                    queue.pop_front();
                    queue.push_back(LbrRecord::default());
                }
                for (age, expected) in queue.iter().enumerate() {
                    prop_assert_eq!(stack.get(age), Some(expected));
                    prop_assert_eq!(stack.get_mut(age).copied(), Some(*expected));
                }
                prop_assert_eq!(stack.get(depth.count()), None);
            }
        }
    }
}
