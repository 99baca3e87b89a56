//! Any test of a kernel, found by its name, to be run on the kernel of any commit. Proofs run
//! such a test on mutants. Bisecting uses one to find the patch with which it passes.

use anyhow::{Result, bail};

use crate::entry_code;
use crate::guest_tests::{self, GuestTest};
use crate::kunit;
use crate::overflow;
use crate::raw_memory;
use crate::selftests;
use host::paths::Paths;
use host::process::Failed;
use kernels::kernel::Builder;
use kernels::subject::Subject;
use machines::guest::Guest;
use report::Verdict;

/// A test that can tell one kernel from another.
#[derive(Clone, Copy)]
pub enum AnyTest {
    /// A test that `branch-guest` decides in the guest.
    Guest(GuestTest),
    /// An overflow at each instruction of a snapshot.
    Overflow(overflow::Kind),
    /// BRBE is paused before any branch is taken: decided by the kernel's machine code.
    Pause,
    /// The snapshot in Rust makes no reference to the helper's memory: decided by its source.
    RawMemory,
    /// A KUnit suite, which the kernel decides itself in the guest.
    Kunit(&'static kunit::Kind),
    /// The kernel tree's own selftest of the helper.
    Selftest,
    /// The kernel can be built.
    Compiler,
}

/// The name of [`AnyTest::Compiler`] in a list of mutants.
const COMPILER: &str = "the compiler";

impl AnyTest {
    /// The test of this name.
    ///
    /// # Errors
    ///
    /// When there is no test of this name.
    pub fn named(name: &str) -> Result<Self> {
        if let Some(test) = guest_tests::ALL.iter().find(|test| test.name == name) {
            return Ok(Self::Guest(*test));
        }
        match name {
            entry_code::TEST => return Ok(Self::Pause),
            raw_memory::TEST => return Ok(Self::RawMemory),
            name if name == selftests::DECIDED[0] => return Ok(Self::Selftest),
            COMPILER => return Ok(Self::Compiler),
            _ => {}
        }
        if let Some(kind) = kunit::KINDS.iter().find(|kind| kind.name == name) {
            return Ok(Self::Kunit(kind));
        }
        match overflow::KINDS.iter().find(|kind| kind.name == name) {
            Some(kind) => Ok(Self::Overflow(*kind)),
            None => bail!("there is no test {name:?}"),
        }
    }

    /// What builds the kernels that the test runs on.
    pub fn builder(self, subject: &Subject) -> &Builder {
        match self {
            Self::Guest(test) => test.builder(subject),
            _ => &subject.builder,
        }
    }

    /// Runs the test on the kernel of `commit`, which is called `title`.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or the guest dies or does not end in time. For
    /// [`AnyTest::Compiler`] a kernel that does not build is a FAIL and no error.
    pub fn run(
        self,
        paths: &Paths,
        guest: &Guest,
        subject: &Subject,
        commit: &str,
        title: &str,
    ) -> Result<Verdict> {
        match self {
            Self::Guest(test) => test.run(paths, guest, subject, commit, title),
            Self::Kunit(kind) => {
                let kernel = subject.kernel(&subject.builder, commit, title)?;
                kind.run(paths, guest, &kernel, title)
            }
            Self::Compiler => match subject.kernel(&subject.builder, commit, title) {
                Ok(_) => Ok(Verdict::pass()),
                Err(error) if error.is::<Failed>() => Ok(Verdict::Fail(format!("{error:#}"))),
                Err(error) => Err(error),
            },
            Self::Selftest => {
                let kernel = subject.kernel(&subject.builder, commit, title)?;
                selftests::helper(paths, guest, subject, &kernel, title)
            }
            Self::Pause => {
                entry_code::check(&subject.kernel(&subject.builder, commit, title)?.vmlinux)
            }
            Self::RawMemory => raw_memory::check(&subject.tree.git(), commit),
            Self::Overflow(kind) => {
                let kernel = subject.kernel(&subject.builder, commit, title)?;
                overflow::sweep(paths, guest, &kernel, title, kind)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_name() {
        assert!(matches!(AnyTest::named("twice"), Ok(AnyTest::Guest(_))));
        let kind = overflow::KINDS[0].name;
        assert!(matches!(AnyTest::named(kind), Ok(AnyTest::Overflow(_))));
        assert!(AnyTest::named("gone").is_err());
    }
}
