//! What this program may do on this machine, and why the machine may record no branches.

use std::fs;

use anyhow::{Result, bail};
use rustix::thread::CapabilitySet;

/// Checks that this program may trace the kernel. Where its capabilities cannot be read,
/// it is let try.
///
/// # Errors
///
/// When the program has neither CAP_SYS_ADMIN nor all of CAP_BPF, CAP_PERFMON and
/// CAP_SYSLOG.
pub(crate) fn check_privilege() -> Result<()> {
    let Ok(sets) = rustix::thread::capabilities(None) else {
        return Ok(());
    };
    let has = |capability| sets.effective.contains(capability);
    let may = has(CapabilitySet::SYS_ADMIN)
        || has(CapabilitySet::BPF) && has(CapabilitySet::PERFMON) && has(CapabilitySet::SYSLOG);
    if !may {
        bail!(
            "no permission to trace the kernel: run as root (sudo branch-trace …), or with \
             CAP_BPF, CAP_PERFMON and CAP_SYSLOG"
        );
    }
    Ok(())
}

/// Advice on what to do where no branches are recorded, if that is because this is a
/// virtual machine.
pub(crate) fn advice() -> Option<String> {
    let name = hypervisor()?;
    Some(format!(
        "this is a virtual machine ({name}), which gets no branch records from its hypervisor: run \
         it on the host, or see `./brbe trace`, whose machine has BRBE"
    ))
}

/// The hypervisor that this machine runs on, if any, by the signs that
/// systemd-detect-virt looks for.
fn hypervisor() -> Option<String> {
    let text = |path: &str| {
        fs::read(path)
            .ok()
            .map(|b| String::from_utf8_lossy(&b).into_owned())
    };
    if let Some(kind) = text("/sys/hypervisor/type") {
        return Some(kind.trim().to_owned());
    }
    let vendor = text("/sys/class/dmi/id/sys_vendor");
    if let Some(name) = vendor.as_deref().and_then(of_vendor) {
        return Some(name.to_owned());
    }
    if let Some(tree) = text("/proc/device-tree/hypervisor/compatible") {
        return Some(tree.trim_end_matches('\0').to_owned());
    }
    if text("/proc/device-tree/compatible").is_some_and(|tree| tree.contains("linux,dummy-virt")) {
        return Some("QEMU".to_owned());
    }
    let flags = text("/proc/cpuinfo")?;
    let mut flags = flags.lines().filter(|line| line.starts_with("flags"));
    let is_guest = flags.any(|line| line.split_whitespace().any(|flag| flag == "hypervisor"));
    is_guest.then(|| "x86".to_owned())
}

/// The hypervisor whose virtual machines have this vendor (DMI), if there is one.
fn of_vendor(vendor: &str) -> Option<&'static str> {
    const VENDORS: [(&str, &str); 7] = [
        ("QEMU", "QEMU"),
        ("VMware", "VMware"),
        ("innotek GmbH", "VirtualBox"),
        ("Xen", "Xen"),
        ("Parallels", "Parallels"),
        ("Microsoft Corporation", "Hyper-V"),
        ("Google", "Google Compute Engine"),
    ];
    let known = VENDORS
        .iter()
        .find(|(begins, _)| vendor.starts_with(begins));
    known.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_of_virtual_machines_are_known() {
        assert_eq!(of_vendor("QEMU\n"), Some("QEMU"));
        assert_eq!(of_vendor("innotek GmbH\n"), Some("VirtualBox"));
        assert_eq!(of_vendor("Ampere(R)\n"), None);
    }
}
