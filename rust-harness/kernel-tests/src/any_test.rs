//! Any test by its name, to be run on any commit: for mutants, and to find the patch with
//! which it passes.

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
    /// In the guest.
    Guest(GuestTest),
    /// An overflow at each instruction.
    Overflow(overflow::Kind),
    /// By the code.
    Pause,
    /// By the source.
    RawMemory,
    /// The kernel's own, in the guest.
    Kunit(&'static kunit::Kind),
    /// The kernel's own of the helper.
    Selftest,
    /// That the kernel can be built.
    Compiler,
}

/// What a list of mutants calls the last one.
const COMPILER: &str = "the compiler";

impl AnyTest {
    /// The test of a name.
    ///
    /// # Errors
    ///
    /// When there is none.
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

    /// What builds the kernels that it runs on.
    pub fn builder(self, subject: &Subject) -> &Builder {
        match self {
            Self::Guest(test) => test.builder(subject),
            _ => &subject.builder,
        }
    }

    /// Runs it on the kernel of a commit.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, or the guest does not come to its end.
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
