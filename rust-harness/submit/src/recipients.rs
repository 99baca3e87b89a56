//! The recipients of a series: those whom the tree's own `get_maintainer.pl` names, the
//! authors of the commits that the series fixes, and people who have been involved before.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use host::paths::Paths;
use host::process;
use kernels::source::Tree;

/// The addresses that a series is sent to, each once, in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recipients {
    /// The addresses in `To:`, of maintainers and supporters.
    pub to: Vec<String>,
    /// The addresses in `Cc:`, of reviewers, lists, and all others.
    pub cc: Vec<String>,
}

impl Recipients {
    /// The recipients of all `patches`, by the files that they touch, as the tree at `commit`
    /// names them. People who have only touched those files before are left out.
    ///
    /// # Errors
    ///
    /// When the script fails, when it prints a line that has no role, or when it names no
    /// maintainer.
    pub fn of(paths: &Paths, tree: &Tree, commit: &str, patches: &[&Path]) -> Result<Self> {
        let mut found = Self::default();
        tree.at(paths, commit, |_| {
            // The script is run for one patch at a time. Of several patches it names each
            // person once, in the first role that it comes to, and a maintainer of one may be
            // a reviewer of another.
            for patch in patches {
                // Another run has other patches, and no log may have both.
                let scratch = tempfile::tempdir().context("creating a directory for a log")?;
                let log = scratch.path().join("get-maintainer.log");
                let mut script = Command::new("perl");
                script.current_dir(&tree.path);
                script.args(["scripts/get_maintainer.pl", "--no-git", "--no-git-fallback"]);
                // The authors of commits that are fixed are not known in a tree without
                // history.
                script.args(["--no-fixes", "--roles", "--no-rolestats"]);
                process::logged("get_maintainer.pl", &log, script.arg(patch))?;
                let said = fs::read_to_string(&log);
                let said = said.with_context(|| format!("reading {}", log.display()))?;
                found.add(&said)?;
            }
            Ok(())
        })?;
        ensure!(
            !found.to.is_empty(),
            "get_maintainer.pl names no maintainer of any patch"
        );
        Ok(found)
    }

    /// Adds others who get a copy, unless they are there already.
    #[must_use]
    pub fn and(mut self, others: impl IntoIterator<Item = String>) -> Self {
        for other in others {
            self.copy(other);
        }
        self
    }

    fn copy(&mut self, address: String) {
        let Self { to, cc } = self;
        if !to.iter().chain(&*cc).any(|known| are_one(known, &address)) {
            cc.push(address);
        }
    }

    fn address(&mut self, address: String) {
        let Self { to, cc } = self;
        cc.retain(|known| !are_one(known, &address));
        if !to.iter().any(|known| are_one(known, &address)) {
            to.push(address);
        }
    }

    /// Adds the addresses that the script prints, in lines such as
    /// `Name <mail> (maintainer:SUBSYSTEM)`.
    fn add(&mut self, said: &str) -> Result<()> {
        for line in said.lines() {
            // The name may have parentheses, too: the role is what follows the address.
            let Some(at) = line.find('@') else {
                continue;
            };
            let role = line[at..].find(" (").map(|place| at + place);
            let role = role.with_context(|| format!("get_maintainer.pl says {line:?}"))?;
            let (address, role) = (line[..role].trim(), &line[role + 2..]);
            let is_maintainer = role.starts_with("maintainer") || role.starts_with("supporter");
            if is_maintainer {
                self.address(address.to_owned());
            } else {
                self.copy(address.to_owned());
            }
        }
        Ok(())
    }
}

/// Whether two addresses are of one mailbox, whatever the names before it.
fn are_one(one: &str, other: &str) -> bool {
    mailbox(one).eq_ignore_ascii_case(mailbox(other))
}

fn mailbox(address: &str) -> &str {
    let behind = address.rsplit_once('<').map_or(address, |(_, mail)| mail);
    behind.trim_end_matches('>').trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maintainers_are_addressed_and_lists_get_copies() {
        let said = "\
            Will Deacon <will@kernel.org> (maintainer:ARM PMU PROFILING AND DEBUGGING)\n\
            Mark Rutland <mark.rutland@arm.com> (maintainer:ARM PMU PROFILING AND DEBUGGING)\n\
            Will Deacon <will@kernel.org> (reviewer:ELSEWHERE)\n\
            \"Rob Herring (Arm)\" <robh@kernel.org> (reviewer:ARM PMU)\n\
            linux-arm-kernel@lists.infradead.org (moderated list:ARM PMU (ALL))\n\
            linux-kernel@vger.kernel.org (open list)\n\
            linux-kernel@vger.kernel.org (open list:ALL)\n\
            bad divisor (line 3)\n";
        let mut found = Recipients::default();
        found.add(said).unwrap();
        assert_eq!(
            found.to,
            [
                "Will Deacon <will@kernel.org>",
                "Mark Rutland <mark.rutland@arm.com>"
            ]
        );
        assert_eq!(
            found.cc,
            [
                "\"Rob Herring (Arm)\" <robh@kernel.org>",
                "linux-arm-kernel@lists.infradead.org",
                "linux-kernel@vger.kernel.org"
            ]
        );
        assert!(found.add("ada@example.org\n").is_err());
    }

    #[test]
    fn a_maintainer_of_any_patch_is_addressed() {
        let mut found = Recipients::default();
        found
            .add("Mark <m@arm.com> (reviewer:ARM64)\nWill <w@k.org> (maintainer:ARM64)\n")
            .unwrap();
        found
            .add("Mark <m@arm.com> (maintainer:ARM PMU)\n")
            .unwrap();
        assert_eq!(found.to, ["Will <w@k.org>", "Mark <m@arm.com>"]);
        assert_eq!(found.cc, [""; 0]);
    }

    #[test]
    fn others_get_a_copy_once() {
        let found = Recipients {
            to: vec!["Will <w@k.org>".to_owned()],
            cc: vec!["list@k.org".to_owned()],
        };
        let others = [
            "W. <W@k.org>",
            "<list@k.org>",
            "Leo <leo@k.org>",
            "leo@k.org",
        ];
        let found = found.and(others.map(str::to_owned));
        assert_eq!(found.cc, ["list@k.org", "Leo <leo@k.org>"]);
    }
}
