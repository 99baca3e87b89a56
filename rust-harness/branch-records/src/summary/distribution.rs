//! How numbers are distributed.

use serde::Serialize;

/// The distribution of some numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Distribution {
    /// How many numbers there are. If there are none, all else is 0.
    pub count: u64,
    /// The least.
    pub least: u64,
    /// That which half of the numbers do not exceed.
    pub median: u64,
    /// That which 90 % of the numbers do not exceed.
    pub p90: u64,
    /// That which 99 % of the numbers do not exceed.
    pub p99: u64,
    /// The greatest.
    pub greatest: u64,
    /// How many numbers are in each power of two, from that of the least to that of the greatest.
    pub buckets: Vec<Bucket>,
}

/// The numbers of one power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// The least number that is in it: 0, 1, 2, 4, 8, ….
    pub from: u64,
    /// How many there are.
    pub count: u64,
}

impl Distribution {
    /// The distribution of these numbers.
    pub fn of(mut numbers: Vec<u64>) -> Self {
        numbers.sort_unstable();
        let (Some(&least), Some(&greatest)) = (numbers.first(), numbers.last()) else {
            return Self::default();
        };
        // The least number that this share of all do not exceed.
        let share = |percent: usize| numbers[(numbers.len() * percent).div_ceil(100) - 1];
        let power = |number: u64| number.checked_ilog2().map_or(0, |power| power + 1);
        let mut buckets: Vec<_> = (power(least)..=power(greatest))
            .map(|power| Bucket {
                from: power.checked_sub(1).map_or(0, |power| 1 << power),
                count: 0,
            })
            .collect();
        for number in &numbers {
            buckets[(power(*number) - power(least)) as usize].count += 1;
        }
        Self {
            count: numbers.len() as u64,
            least,
            median: share(50),
            p90: share(90),
            p99: share(99),
            greatest,
            buckets,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_told_by_their_ranks() {
        let all = Distribution::of((1..=1000).rev().collect());
        assert_eq!((all.count, all.least, all.greatest), (1000, 1, 1000));
        assert_eq!((all.median, all.p90, all.p99), (500, 900, 990));
        let buckets: Vec<_> = all.buckets.iter().map(|it| (it.from, it.count)).collect();
        assert_eq!(buckets[..3], [(1, 1), (2, 2), (4, 4)]);
        assert_eq!(buckets.last(), Some(&(512, 489)));
        assert_eq!(Distribution::of(Vec::new()), Distribution::default());
        assert_eq!(
            Distribution::of(vec![0]).buckets,
            [Bucket { from: 0, count: 1 }]
        );
    }

    proptest! {
        #[test]
        fn each_number_is_in_one_bucket(numbers in prop::collection::vec(any::<u64>(), 1..50)) {
            let all = Distribution::of(numbers.clone());
            prop_assert_eq!(all.buckets.iter().map(|it| it.count).sum::<u64>(), all.count);
            for (index, bucket) in all.buckets.iter().enumerate() {
                let next = all.buckets.get(index + 1).map_or(u64::MAX, |next| next.from - 1);
                let within = numbers.iter().filter(|it| (bucket.from..=next).contains(it));
                prop_assert_eq!(within.count() as u64, bucket.count);
            }
            prop_assert!(all.least <= all.median && all.median <= all.p90);
            prop_assert!(all.p90 <= all.p99 && all.p99 <= all.greatest);
        }
    }
}
