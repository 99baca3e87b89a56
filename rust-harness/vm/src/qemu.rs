//! The command that starts QEMU.

use std::path::Path;

use host::arch::Arch;
use machines::qemu::arguments::Described;
use vm_session::{PORT, ROOT};

use crate::machine::Machine;

/// Files that one boot of a machine needs.
pub(crate) struct Files<'a> {
    pub(crate) initramfs: &'a Path,
    pub(crate) console: Console<'a>,
}

/// Where the machine's console is.
pub(crate) enum Console<'a> {
    /// Its lines go to a file, and the session through a socket.
    Log { file: &'a Path, socket: &'a Path },
    /// It is the terminal that QEMU is started on.
    Terminal,
}

/// The program and the arguments that start `machine`.
pub(crate) fn command(machine: &Machine, described: &Described, files: &Files<'_>) -> Vec<String> {
    let mut words = vec![format!("qemu-system-{}", machine.arch.machine())];
    let mut add = |new: &[&str]| words.extend(new.iter().map(|word| (*word).to_owned()));
    add(&["-nodefaults", "-no-reboot"]);
    match machine.arch {
        Arch::Arm64 => add(&["-machine", "virt,gic-version=3", "-cpu", "max"]),
        Arch::X86_64 => add(&["-machine", "q35"]),
    }
    add(&["-smp", &machine.spec.cpus.to_string()]);
    add(&["-m", &format!("{}M", machine.spec.memory_mib)]);
    add(&["-kernel", &text(&machine.kernel)]);
    add(&["-initrd", &text(files.initramfs)]);
    add(&["-append", &kernel_command_line(machine, described, files)]);
    match &files.console {
        Console::Log { file, socket } => {
            add(&["-display", "none"]);
            add(&[
                "-chardev",
                &format!("file,id=console,path={}", escaped(file)),
            ]);
            add(&["-serial", "chardev:console"]);
            let socket = escaped(socket);
            add(&["-chardev", &format!("socket,id=session,path={socket}")]);
            add(&["-device", "virtio-serial-pci"]);
            let port = format!("virtserialport,chardev=session,name={PORT}");
            add(&["-device", &port]);
        }
        // QEMU's monitor is there too, behind Ctrl-A.
        Console::Terminal => add(&["-display", "none", "-serial", "mon:stdio"]),
    }
    let root = format!(
        "local,mount_tag={ROOT},path={},security_model=none,readonly=on,multidevs=remap",
        escaped(&machine.root)
    );
    add(&["-virtfs", &root]);
    for directory in &machine.directories {
        let seen_as = &directory.seen_as;
        let read_only = if seen_as.is_read_only {
            ",readonly=on"
        } else {
            ""
        };
        let options = format!(
            "local,mount_tag={},path={},security_model=none,multidevs=remap{read_only}",
            seen_as.tag,
            escaped(&directory.path)
        );
        add(&["-virtfs", &options]);
    }
    words.extend(described.arguments());
    words.extend(machine.spec.all_qemu_args());
    words
}

fn kernel_command_line(machine: &Machine, described: &Described, files: &Files<'_>) -> String {
    let console = match machine.arch {
        Arch::Arm64 => "console=ttyAMA0",
        Arch::X86_64 => "console=ttyS0",
    };
    // A kernel that dies ends the machine at once.
    let mut words = [console, "panic=-1"].map(str::to_owned).to_vec();
    if matches!(files.console, Console::Terminal) {
        words.push("quiet".to_owned());
    }
    words.extend(described.kernel_words.iter().cloned());
    words.extend(machine.spec.command_line());
    words.join(" ")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A path as the value of one of QEMU's options, where a comma ends the value.
fn escaped(path: &Path) -> String {
    text(path).replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::HostDirectory;
    use machines::backend::PluginFile;
    use machines::machine_spec::MachineSpec;
    use vm_session::config::SharedDirectory;

    fn words(arch: Arch, console: Console<'_>) -> String {
        let machine = Machine {
            arch,
            kernel: "/k/Image".into(),
            root: "/r".into(),
            program: "/p".into(),
            spec: MachineSpec {
                pseudo_nmi: true,
                kernel_args: vec!["nokaslr".to_owned()],
                qemu_args: vec!["-s".to_owned()],
                ..MachineSpec::default()
            },
            firmware: None,
            plugin: None,
            directories: vec![HostDirectory {
                path: "/a,b".into(),
                seen_as: SharedDirectory {
                    tag: "share0".to_owned(),
                    path: "/mnt/b".to_owned(),
                    is_read_only: true,
                },
            }],
        };
        let plugin = PluginFile {
            path: "/brbe.so".into(),
            options: Vec::new(),
        };
        let described = Described::of(arch, &machine.spec, Some(&plugin), None).unwrap();
        let files = Files {
            initramfs: Path::new("/i"),
            console,
        };
        command(&machine, &described, &files).join(" ")
    }

    #[test]
    fn the_machine_is_described_as_asked() {
        let [file, socket] = ["/log", "/socket"].map(Path::new);
        let words = words(Arch::Arm64, Console::Log { file, socket });
        for part in [
            "qemu-system-aarch64 ",
            " -kernel /k/Image ",
            "panic=-1 kpti=off irqchip.gicv3_pseudo_nmi=1 nokaslr ",
            "path=/a,,b,security_model=none,multidevs=remap,readonly=on ",
            " -plugin /brbe.so ",
            "name=org.brbe.session ",
        ] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(words.ends_with(" -s"), "{words}");
    }

    #[test]
    fn a_console_on_the_terminal_has_no_port() {
        let words = words(Arch::X86_64, Console::Terminal);
        assert!(words.contains(" -serial mon:stdio "), "{words}");
        assert!(words.contains("console=ttyS0 panic=-1 quiet "), "{words}");
        assert!(!words.contains("virtserialport"), "{words}");
    }
}
