//! Whatever happens, the model and a deliberately naive implementation of the
//! same specification show software the same registers.

mod naive;
mod operation;
mod pair;

use proptest::prelude::*;

use operation::{implementations, operations, processors};
use pair::Pair;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        // The minimal sequence is printed: it belongs into a unit test.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_model_and_the_naive_one_agree(
        config in implementations(),
        processor in processors(),
        operations in operations(120),
    ) {
        let mut pair = Pair::new(config, processor);
        for operation in &operations {
            pair.apply(operation)
                .and_then(|()| pair.compare())
                .map_err(|error| TestCaseError::fail(format!("{operation:?}: {error}")))?;
        }
        pair.compare_restored()?;
    }
}
