//! Whatever happens, the model and a deliberately naive implementation of the
//! same specification show software the same registers.

mod naive;
mod operation;
mod pair;

use proptest::prelude::*;
use proptest::test_runner::RngAlgorithm;

use operation::{cpus, implementations, operations};
use pair::Pair;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 4000,
        // The minimal sequence is printed: it belongs into a unit test.
        failure_persistence: None,
        // In a debug build, this is ten times as fast as the default.
        rng_algorithm: RngAlgorithm::XorShift,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_model_and_the_naive_one_agree(
        config in implementations(),
        cpu in cpus(),
        operations in operations(120),
    ) {
        let mut pair = Pair::new(config, cpu);
        for (n, operation) in operations.iter().enumerate() {
            pair.apply(operation)
                .and_then(|()| pair.compare_registers())
                .map_err(|error| TestCaseError::fail(format!("{operation:?}: {error}")))?;
            // A difference in the records stays there, and there are many records to
            // read.
            if n % 16 == 0 {
                pair.compare_records()?;
            }
        }
        pair.compare_records()?;
        pair.compare_restored()?;
    }
}
