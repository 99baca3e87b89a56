//! Tests that look at a mutant together, and the order in which they do.

use super::drivers::Drivers;
use crate::guest_tests::Watch;
use crate::kunit;
use kernels::subject::Configuration;

/// The sweeps, which find what only an overflow at a certain instruction shows.
const SWEEPS: [&str; 2] = [
    "overflow at each instruction",
    "overflow at each instruction, pseudo-NMI, interrupts off",
];

/// Tests that look at a mutant together.
#[derive(Clone, Debug)]
pub(super) enum Round {
    /// Tests in one boot.
    Boot(Configuration, Watch),
    /// A test of the registry.
    Test(&'static str),
}

impl Round {
    /// All of them, those first that take the shortest time.
    pub(super) fn all(drivers: &Drivers<'_>) -> Vec<Self> {
        let kunit = if drivers.are_in_rust() {
            &kunit::READING[..]
        } else {
            &[]
        };
        let of = |configuration| {
            let watches = Watch::all(configuration).into_iter();
            watches.map(move |watch| Self::Boot(configuration, watch))
        };
        let kunit = kunit.iter().copied().map(Self::Test);
        kunit
            .chain(of(Configuration::Ordinary))
            .chain(of(Configuration::Debug))
            .chain(SWEEPS.map(Self::Test))
            .collect()
    }

    /// The test `name` of this round by itself, if it is one of them.
    pub(super) fn alone(&self, name: &str) -> Option<Self> {
        match self {
            Self::Boot(configuration, watch) => {
                Some(Self::Boot(*configuration, watch.alone(name)?))
            }
            Self::Test(test) => (*test == name).then_some(Self::Test(test)),
        }
    }

    /// The tests of this round as far as the test `name`, if it is one of them.
    pub(super) fn up_to(&self, name: &str) -> Option<Self> {
        match self {
            Self::Boot(configuration, watch) => {
                Some(Self::Boot(*configuration, watch.up_to(name)?))
            }
            Self::Test(_) => self.alone(name),
        }
    }

    /// The configuration of the kernel.
    pub(super) fn configuration(&self) -> Configuration {
        match self {
            Self::Boot(configuration, _) => *configuration,
            Self::Test(_) => Configuration::Ordinary,
        }
    }
}
