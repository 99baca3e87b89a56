//! Choices of the branches to record, by the names that `perf record -j` has.

use std::str::FromStr;

use perf_event_open_sys::bindings as sys;

/// perf's names of branch filters, and the bit of each.
const NAMES: [(&str, u32); 15] = [
    ("any", sys::PERF_SAMPLE_BRANCH_ANY),
    ("any_call", sys::PERF_SAMPLE_BRANCH_ANY_CALL),
    ("any_ret", sys::PERF_SAMPLE_BRANCH_ANY_RETURN),
    ("ind_call", sys::PERF_SAMPLE_BRANCH_IND_CALL),
    ("ind_jmp", sys::PERF_SAMPLE_BRANCH_IND_JUMP),
    ("cond", sys::PERF_SAMPLE_BRANCH_COND),
    ("call", sys::PERF_SAMPLE_BRANCH_CALL),
    ("in_tx", sys::PERF_SAMPLE_BRANCH_IN_TX),
    ("no_tx", sys::PERF_SAMPLE_BRANCH_NO_TX),
    ("abort_tx", sys::PERF_SAMPLE_BRANCH_ABORT_TX),
    ("call_stack", sys::PERF_SAMPLE_BRANCH_CALL_STACK),
    ("u", sys::PERF_SAMPLE_BRANCH_USER),
    ("k", sys::PERF_SAMPLE_BRANCH_KERNEL),
    ("hv", sys::PERF_SAMPLE_BRANCH_HV),
    ("priv", sys::PERF_SAMPLE_BRANCH_PRIV_SAVE),
];
/// Longer names, as perf's documents and retsnoop have them, each with the name in
/// [`NAMES`] that it stands for.
const ALIASES: [(&str, &str); 3] = [("any_return", "any_ret"), ("user", "u"), ("kernel", "k")];

/// The bits that say where branches are recorded, and not which.
const LEVELS: u32 =
    sys::PERF_SAMPLE_BRANCH_USER | sys::PERF_SAMPLE_BRANCH_KERNEL | sys::PERF_SAMPLE_BRANCH_HV;
/// The bits that say how much is recorded of each branch.
const HOW: u32 = sys::PERF_SAMPLE_BRANCH_PRIV_SAVE;

/// A choice of branches: bits of `PERF_SAMPLE_BRANCH_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branches(u32);

/// The error for a word that is not the name of a branch filter.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{0:?} is none of perf's branch filters: any, any_call, any_ret, ind_call, ind_jmp, cond, call, u, k, hv"
)]
pub(crate) struct NotBranches(String);

impl FromStr for Branches {
    type Err = NotBranches;

    fn from_str(list: &str) -> Result<Self, NotBranches> {
        let names = list.split(',').map(str::trim);
        let bits = names.map(|name| {
            let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
            let name = alias.map_or(name, |(_, name)| name);
            let known = NAMES.iter().find(|(known, _)| *known == name);
            known
                .map(|(_, bit)| *bit)
                .ok_or_else(|| NotBranches(name.to_owned()))
        });
        bits.collect::<Result<Vec<_>, _>>()
            .map(|bits| Self(bits.iter().fold(0, |all, bit| all | bit)))
    }
}

impl Branches {
    /// All branches that `lists` ask for. If none of them names a privilege level, those
    /// are recorded at `default_levels`. If none names a type of branch, all types are
    /// recorded.
    pub(crate) fn of(lists: &[Self], default_levels: u32) -> Self {
        let mut bits = lists.iter().fold(0, |all, list| all | list.0);
        if bits & LEVELS == 0 {
            bits |= default_levels;
        }
        if bits & !(LEVELS | HOW) == 0 {
            bits |= sys::PERF_SAMPLE_BRANCH_ANY;
        }
        Self(bits)
    }

    /// The value of `perf_event_attr.branch_sample_type`: the choice of branches,
    /// recorded with their types and privilege levels.
    pub(crate) fn sample_type(self) -> u32 {
        self.0 | sys::PERF_SAMPLE_BRANCH_TYPE_SAVE | sys::PERF_SAMPLE_BRANCH_PRIV_SAVE
    }

    /// perf's names of the kinds of branches that there are filters for.
    pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
        let kinds = NAMES.iter().filter(|(_, bit)| bit & (LEVELS | HOW) == 0);
        kinds.map(|(name, _)| *name)
    }

    /// perf's names of the branches that are chosen.
    pub(crate) fn names(self) -> Vec<String> {
        let chosen = NAMES.iter().filter(|(_, bit)| self.0 & bit != 0);
        chosen.map(|(name, _)| (*name).to_owned()).collect()
    }
}

/// The privilege level of the kernel's branches.
pub(crate) const KERNEL: u32 = sys::PERF_SAMPLE_BRANCH_KERNEL;
/// The privilege level of user space's branches.
pub(crate) const USER: u32 = sys::PERF_SAMPLE_BRANCH_USER;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_names_are_all_of_them() {
        let list = |text: &str| text.parse::<Branches>().unwrap();
        let names = |lists: &[&str]| {
            let lists: Vec<_> = lists.iter().map(|text| list(text)).collect();
            Branches::of(&lists, KERNEL).names()
        };
        assert_eq!(names(&[]), ["any", "k"]);
        assert_eq!(names(&["cond"]), ["cond", "k"]);
        assert_eq!(
            names(&["any_call,user", "ind_jmp"]),
            ["any_call", "ind_jmp", "u"]
        );
        assert_eq!(names(&["any_return, kernel"]), ["any_ret", "k"]);
        assert_eq!(names(&["u"]), ["any", "u"]);
        assert!("any,such".parse::<Branches>().is_err());
        assert!("".parse::<Branches>().is_err());
    }
}
