//! The command line of Arm's model.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::{Firmware, Settings};

/// The tag of the 9P directory that is the guest's root.
pub(super) const TAG: &str = "brbe";
/// The number of cores in a cluster of the model.
const CLUSTER: u8 = 4;

/// The files and the number of CPUs that a kernel is started with.
pub(super) struct Start<'a> {
    pub(super) image: &'a Path,
    pub(super) device_tree: &'a Path,
    /// Path of the file that the boot wrapper's command makes.
    pub(super) elf: &'a Path,
    /// Path of the directory that the guest sees as its root.
    pub(super) root: &'a Path,
    pub(super) cpus: u8,
}

/// The parameters that make of the model a machine with so many CPUs, each with so many branch
/// records, and their values. Which firmware starts it, and what disk it has, is not among them. The
/// names are those of `FVP_Base_RevC-2xAEMvA --list-params`.
pub fn machine(cpus: u8, records: u8) -> BTreeMap<String, String> {
    let mut parameters = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        parameters.insert(name.to_owned(), value.to_owned());
    };
    // The model shows no window, and ends when the guest powers off.
    set("bp.vis.disable_visualisation", "1");
    set("bp.ve_sysregs.exit_on_shutdown", "1");
    for terminal in 0..4 {
        set(&format!("bp.terminal_{terminal}.start_telnet"), "0");
        set(&format!("bp.terminal_{terminal}.mode"), "raw");
    }
    set("bp.refcounter.non_arch_start_at_default", "1");
    set("bp.secure_memory", "0");
    set("cache_state_modelled", "0");
    // One core is on. The kernel asks PSCI for the others.
    set("pctl.startup", "0.0.0.0");
    for (cluster, cores) in clusters(cpus) {
        set(&format!("cluster{cluster}.NUM_CORES"), &cores.to_string());
        for version in ["v8-7", "v9-0", "v9-1", "v9-2"] {
            set(&format!("cluster{cluster}.has_arm_{version}"), "1");
        }
        set(&format!("cluster{cluster}.has_brbe"), "1");
        set(&format!("cluster{cluster}.has_brbe_v1p1"), "1");
        for core in 0..cores {
            let name = format!("cluster{cluster}.cpu{core}.number-of-branch-records");
            set(&name, &records.to_string());
        }
    }
    parameters
}

/// The clusters of the model, by number, and how many cores each has. A cluster has one core at
/// least. One that has no CPU of the guest stays off.
fn clusters(cpus: u8) -> [(usize, u8); 2] {
    let rest = cpus.saturating_sub(CLUSTER);
    [(0, cpus.clamp(1, CLUSTER)), (1, rest.max(1))]
}

/// All parameters of the machine that is asked for. The user's parameters replace those that are
/// set here.
pub(super) fn parameters(settings: &Settings, start: &Start<'_>) -> BTreeMap<String, String> {
    let mut parameters = machine(start.cpus, settings.records);
    let mut set = |name: &str, value: &str| {
        parameters.insert(name.to_owned(), value.to_owned());
    };
    set(
        "bp.virtiop9device.root_path",
        &start.root.display().to_string(),
    );
    set("bp.virtiop9device.mount_tag", TAG);
    if let Firmware::TfA { bl31_at, .. } = &settings.firmware {
        for (cluster, cores) in clusters(start.cpus) {
            for core in 0..cores {
                let name = format!("cluster{cluster}.cpu{core}.RVBAR");
                set(&name, &format!("{bl31_at:#x}"));
            }
        }
    }
    for (name, value) in &settings.parameters {
        let value = match value {
            toml::Value::String(text) => text.clone(),
            toml::Value::Boolean(value) => u8::from(*value).to_string(),
            other => other.to_string(),
        };
        parameters.insert(name.clone(), value);
    }
    parameters
}

/// All arguments of the model's program.
pub(super) fn arguments(settings: &Settings, start: &Start<'_>) -> Vec<OsString> {
    let mut arguments = Vec::new();
    for (name, value) in parameters(settings, start) {
        arguments.extend(["-C".into(), format!("{name}={value}").into()]);
    }
    match &settings.firmware {
        Firmware::TfA {
            bl31,
            bl31_at,
            kernel_at,
            device_tree_at,
        } => {
            for (file, address) in [
                (bl31.as_path(), bl31_at),
                (start.image, kernel_at),
                (start.device_tree, device_tree_at),
            ] {
                let data = format!("cluster0.cpu0={}@{address:#x}", file.display());
                arguments.extend(["--data".into(), data.into()]);
            }
        }
        Firmware::BootWrapper { .. } => {
            arguments.extend(["-a".into(), start.elf.into()]);
        }
    }
    arguments
}

/// The command that makes the boot wrapper's file. `None` for firmware that needs no such
/// file.
pub(super) fn make(settings: &Settings, start: &Start<'_>, cmdline: &str) -> Option<Vec<String>> {
    let Firmware::BootWrapper { make } = &settings.firmware else {
        return None;
    };
    let fill = |word: &String| {
        word.replace("{image}", &start.image.display().to_string())
            .replace("{device-tree}", &start.device_tree.display().to_string())
            .replace("{elf}", &start.elf.display().to_string())
            .replace("{cmdline}", cmdline)
    };
    Some(make.iter().map(fill).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(firmware: &str, parameters: &str) -> Settings {
        let text = format!("model = '/m'\nrecords = 16\n{firmware}\n[parameters]\n{parameters}");
        toml::from_str(&text).unwrap()
    }

    fn start(cpus: u8) -> Start<'static> {
        Start {
            image: Path::new("/k/Image"),
            device_tree: Path::new("/d.dtb"),
            elf: Path::new("/e.axf"),
            root: Path::new("/r"),
            cpus,
        }
    }

    fn line(settings: &Settings, cpus: u8) -> String {
        let words = arguments(settings, &start(cpus));
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ")
    }

    #[test]
    fn the_firmware_kernel_and_tree_are_put_into_memory() {
        let settings = settings("[firmware.tf-a]\nbl31 = '/b.bin'", "");
        let line = line(&settings, 2);
        for part in [
            "-C cluster0.NUM_CORES=2 ",
            "-C cluster1.NUM_CORES=1 ",
            "-C cluster0.has_brbe=1 ",
            "-C cluster0.cpu1.number-of-branch-records=16 ",
            "-C cluster0.cpu1.RVBAR=0x4001000 ",
            "-C bp.virtiop9device.root_path=/r ",
            "-C bp.terminal_0.start_telnet=0 ",
            "--data cluster0.cpu0=/b.bin@0x4001000 \
             --data cluster0.cpu0=/k/Image@0x84000000 \
             --data cluster0.cpu0=/d.dtb@0x82000000",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }

    #[test]
    fn the_users_parameters_count_more() {
        let more = "'cluster0.has_brbe_v1p1' = 0\n'bp.secure_memory' = true\nx = 'y'";
        let settings = settings("[firmware.tf-a]\nbl31 = '/b.bin'", more);
        let line = line(&settings, 6);
        for part in [
            "cluster0.has_brbe_v1p1=0 ",
            "bp.secure_memory=1 ",
            "-C x=y ",
            "cluster1.NUM_CORES=2 ",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(!line.contains("cluster0.has_brbe_v1p1=1"));
    }

    #[test]
    fn the_boot_wrapper_is_one_file() {
        let settings = settings(
            "[firmware.boot-wrapper]\nmake = ['mk', 'K={image}', 'D={device-tree}', 'C={cmdline}', '{elf}']",
            "",
        );
        assert!(line(&settings, 2).ends_with("-a /e.axf"));
        let made = make(&settings, &start(2), "a b").unwrap();
        assert_eq!(made, ["mk", "K=/k/Image", "D=/d.dtb", "C=a b", "/e.axf"]);
    }
}
