//! The memory of this machine.

use std::fs;
use std::path::Path;

/// Where the tree of control groups (version 2) is mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// How much memory programs can take without swapping, in MiB: what the machine has, or what the
/// control groups of this process still allow, as in a container. `None` where the kernel does
/// not say so.
pub fn available_mib() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = kib.trim().strip_suffix("kB")?.trim().parse().ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let allowed = group.and_then(|group| allowed_mib(Path::new(GROUPS), group));
    Some(allowed.unwrap_or(u64::MAX).min(kib / 1024))
}

/// How much memory a control group may still take, in MiB: the least of what it and those above
/// it may. `root` is where the tree is mounted. `None` if none of them has a limit.
fn allowed_mib(root: &Path, group: &str) -> Option<u64> {
    let group = root.join(group);
    let own_and_above = group.ancestors().take_while(|dir| dir.starts_with(root));
    let left = own_and_above.filter_map(|dir| {
        let number = |name| {
            let text = fs::read_to_string(dir.join(name)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        // `memory.max` is `max` where there is no limit.
        let limit = number("memory.max")?;
        Some(limit.saturating_sub(number("memory.current")?.saturating_sub(cached(dir))))
    });
    left.min().map(|bytes| bytes / 1024 / 1024)
}

/// How many bytes of files the kernel keeps in memory for a control group, and drops when programs
/// need the memory. After a build, that is most of what `memory.current` counts.
fn cached(group: &Path) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let number = |name: &str| -> Option<u64> {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
    };
    let files = ["active_file", "inactive_file"].map(number);
    let not_written = ["file_dirty", "file_writeback"].map(number);
    let sum =
        |numbers: [Option<u64>; 2]| numbers.into_iter().flatten().fold(0, u64::saturating_add);
    sum(files).saturating_sub(sum(not_written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_memory() {
        assert!(available_mib().unwrap() > 100);
    }

    #[test]
    fn the_tightest_group_counts() {
        const MIB: u64 = 1024 * 1024;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        assert_eq!(allowed_mib(root, "a/b"), None);
        for (group, max, current) in [
            ("a", (5000 * MIB).to_string(), 2000 * MIB),
            ("a/b", "max".to_owned(), 1000 * MIB),
        ] {
            fs::write(root.join(group).join("memory.max"), max).unwrap();
            fs::write(
                root.join(group).join("memory.current"),
                format!("{current}\n"),
            )
            .unwrap();
        }
        assert_eq!(allowed_mib(root, "a/b"), Some(3000));
        let stat = format!(
            "anon 1\nactive_file {}\ninactive_file {}\nfile_dirty {}\n",
            600 * MIB,
            500 * MIB,
            100 * MIB
        );
        fs::write(root.join("a/memory.stat"), stat).unwrap();
        assert_eq!(allowed_mib(root, "a/b"), Some(4000));
        fs::remove_file(root.join("a/memory.stat")).unwrap();
        assert_eq!(allowed_mib(root, ""), None);
        fs::write(root.join("a/b/memory.max"), (1500 * MIB).to_string()).unwrap();
        assert_eq!(allowed_mib(root, "a/b"), Some(500));
        // More is used than is allowed by now.
        fs::write(root.join("a/memory.max"), "1").unwrap();
        assert_eq!(allowed_mib(root, "a/b"), Some(0));
    }
}
