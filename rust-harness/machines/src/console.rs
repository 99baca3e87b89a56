//! Finds the report of a dying kernel on its console.

/// How many lines of a report are kept.
const LIMIT: usize = 60;

/// The texts of which the first line of a dying kernel's report has one.
const BEGINNINGS: [&str; 7] = [
    "Unable to handle kernel",
    "Internal error:",
    "kernel BUG at",
    "Kernel panic - not syncing",
    "BUG: ",
    "watchdog: BUG:",
    "Unexpected kernel ",
];

/// Whether a line of the console says that the kernel has given up.
pub(crate) fn is_panic(line: &str) -> bool {
    line.contains("Kernel panic - not syncing")
}

/// The report of a kernel that died: its lines from the first one to the panic and the call
/// trace after that, without time stamps. `None` if the kernel did not die.
pub fn death<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<Vec<String>> {
    let mut report = Vec::new();
    let mut panicked = false;
    for line in lines {
        let line = without_stamp(line);
        if report.is_empty() && !BEGINNINGS.iter().any(|beginning| line.contains(beginning)) {
            continue;
        }
        panicked |= is_panic(line);
        if line.contains("---[ end Kernel panic") {
            break;
        }
        if report.len() < LIMIT {
            report.push(line.to_owned());
        }
    }
    panicked.then_some(report)
}

/// A line of the console without time stamps: `[   12.345678] text` becomes `text`, and so
/// does `[ 1.2][ T1] text`, with a caller id.
fn without_stamp(line: &str) -> &str {
    let mut rest = line.trim_end();
    while let Some((stamp, after)) = rest
        .strip_prefix('[')
        .and_then(|inside| inside.split_once(']'))
    {
        let plain = |c: char| c.is_ascii_digit() || " .TC".contains(c);
        if stamp.is_empty() || !stamp.chars().all(plain) {
            break;
        }
        rest = after;
    }
    rest.strip_prefix(' ').unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OOPS: &str = "\
[    1.170000] Run /init as init process
[    2.101010] Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000
[    2.101020] Mem abort info:
[    2.101030] Internal error: Oops: 0000000096000004 [#1]  SMP
[    2.101040] pc : armv8pmu_sched_task+0x18/0x60
[    2.101050] lr : perf_pmu_sched_task+0xac/0x108
[    2.101060] Call trace:
[    2.101070]  armv8pmu_sched_task+0x18/0x60 (P)
[    2.101080] Kernel panic - not syncing: Oops: Fatal exception
[    2.101090] SMP: stopping secondary CPUs
[    2.101100] ---[ end Kernel panic - not syncing: Oops: Fatal exception ]---
[    2.101110] and more
";

    #[test]
    fn an_oops_is_kept_from_its_first_line_to_the_panic() {
        let report = death(OOPS.lines()).unwrap();
        assert!(
            report[0].starts_with("Unable to handle kernel NULL pointer"),
            "{report:?}"
        );
        assert_eq!(report[3], "pc : armv8pmu_sched_task+0x18/0x60");
        assert_eq!(report.last().unwrap(), "SMP: stopping secondary CPUs");
    }

    #[test]
    fn a_warning_is_no_death_and_a_healthy_console_neither() {
        assert_eq!(
            death(["[ 1.0] BUG: sleeping function called", "[ 1.1] Call trace:"]),
            None
        );
        assert_eq!(death(["[ 1.0] reboot: Power down"]), None);
    }

    #[test]
    fn a_flood_is_bounded() {
        let flood = std::iter::once("Kernel panic - not syncing: x")
            .chain(std::iter::repeat_n("y", 10_000));
        assert_eq!(death(flood).unwrap().len(), LIMIT);
    }

    #[test]
    fn stamps_go_and_other_brackets_stay() {
        assert_eq!(without_stamp("[    1.5][    T1] pc : f"), "pc : f");
        assert_eq!(without_stamp("[<0>] x"), "[<0>] x");
    }
}
