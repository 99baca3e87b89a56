//! Who gets a series, by the tree's own `get_maintainer.pl`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::exec;
use crate::places::Places;
use crate::source::Tree;

/// Addresses, each once, in the order in which they were named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recipients {
    /// Maintainers and supporters.
    pub to: Vec<String>,
    /// Reviewers and lists.
    pub cc: Vec<String>,
}

impl Recipients {
    /// Those of all patches, by the files that they touch. Who only has touched those
    /// files before is left alone.
    ///
    /// # Errors
    ///
    /// When the script fails, or names nobody.
    pub fn of(places: &Places, tree: &Tree, commit: &str, patches: &[&Path]) -> Result<Self> {
        let said = tree.at(places, commit, |_| {
            let log = exec::fresh(places.log("get-maintainer"))?;
            let mut script = Command::new("perl");
            script.current_dir(&tree.path);
            script.args(["scripts/get_maintainer.pl", "--no-git", "--no-git-fallback"]);
            script.args(["--roles", "--no-rolestats"]).args(patches);
            exec::logged("get_maintainer.pl", &log, &mut script)?;
            fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))
        })?;
        let found = Self::parse(&said)?;
        ensure!(
            !found.to.is_empty(),
            "get_maintainer.pl names no maintainer:\n{said}"
        );
        Ok(found)
    }

    /// Lines such as `Name <mail> (maintainer:SUBSYSTEM)`.
    fn parse(said: &str) -> Result<Self> {
        let mut found = Self::default();
        for line in said.lines() {
            // The name may have parentheses, too: the role is what follows the address.
            let Some(at) = line.find('@') else {
                continue;
            };
            let role = line[at..].find(" (").map(|place| at + place);
            let role = role.with_context(|| format!("get_maintainer.pl says {line:?}"))?;
            let (address, role) = (line[..role].trim(), &line[role + 2..]);
            let is_maintainer = role.starts_with("maintainer") || role.starts_with("supporter");
            let list = match is_maintainer {
                true => &mut found.to,
                false => &mut found.cc,
            };
            if !list.iter().any(|known| known == address) {
                list.push(address.to_owned());
            }
        }
        let Self { to, cc } = &mut found;
        cc.retain(|address| !to.contains(address));
        Ok(found)
    }
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
        let found = Recipients::parse(said).unwrap();
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
        assert!(Recipients::parse("ada@example.org\n").is_err());
    }
}
