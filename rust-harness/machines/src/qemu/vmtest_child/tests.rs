use super::*;
use crate::backend::PluginFile;
use crate::machine_spec::MachineSpec;
use std::time::Duration;

#[test]
fn the_machine_is_described_as_asked() {
    let boot = Boot {
        arch: Arch::Arm64,
        kernel: "/k/Image".into(),
        device_tree: None,
        root: "/r".into(),
        machine: MachineSpec {
            memory_mib: 512,
            vhe: true,
            ..MachineSpec::default()
        },
        kernel_args: vec!["oops=panic".into()],
        plugin: Some(PluginFile {
            path: "/p.so".into(),
            options: vec!["records=8".into()],
        }),
        firmware: None,
        qemu_args: vec!["-icount".into(), "shift=0".into()],
        share: "/s".into(),
        command: "true".into(),
        timeout: Duration::from_secs(1),
        console: "/c".into(),
    };
    let described = Described::of(boot.arch, &boot.machine, boot.plugin.as_ref(), None).unwrap();
    let target = target(&boot, &described);
    assert_eq!(
        target.vm.extra_args,
        [
            "-machine",
            "virtualization=on",
            "-plugin",
            "/p.so,records=8",
            "-icount",
            "shift=0"
        ]
    );
    assert_eq!(target.vm.memory, "512M");
    let kernel_args = target.kernel_args.unwrap();
    let first = "PATH=/usr/lib/brbe-init:/usr/sbin:/usr/bin init=/tmp/guest-runner -- with-agent";
    assert_eq!(kernel_args, format!("{ROOT} oops=panic {first}"));
    assert_eq!(target.command, "exec /mnt/vmtest/guest-runner in-vm");
}

/// The events that are reported for `outputs`, and what reported the end of the run.
fn reported(outputs: Vec<Output>) -> (Vec<RunEvent>, Ending) {
    let (sender, receiver) = mpsc::channel();
    for output in outputs {
        sender.send(output).unwrap();
    }
    drop(sender);
    let mut events = Vec::new();
    let later = Instant::now() + Duration::from_secs(3600);
    let ending = report(&receiver, later, Vec::new, |event| {
        events.push(event.clone());
        Ok(())
    });
    (events, ending.unwrap())
}

#[test]
fn the_end_is_reported_once_and_after_the_console() {
    let console = |line: &str| Output::Boot(line.to_owned());
    let last = || console(&format!("[ 9.9] {LAST_LINE}"));
    let output = |line: &str| Output::Command(line.to_owned());
    let exited = || output("{\"Exited\":7}");
    let warning = || console("[ 9.8] WARNING: late");
    let expected = [
        RunEvent::Console("[ 9.8] WARNING: late".to_owned()),
        RunEvent::Console(format!("[ 9.9] {LAST_LINE}")),
        RunEvent::Exited(7),
    ];
    // The console is late, and vmtest finds the end itself.
    let ended = Output::CommandEnd(Ok(7));
    let events = reported(vec![exited(), warning(), ended, last()]);
    assert_eq!(events, (expected.to_vec(), Ending::ByGuest));
    // The console comes first.
    let events = reported(vec![warning(), last(), exited()]);
    assert_eq!(events, (expected.to_vec(), Ending::ByGuest));
    // A child process of the command still prints.
    let (events, _) = reported(vec![exited(), output("late"), last()]);
    assert_eq!(events[0], RunEvent::Output("late".to_owned()));
}

#[test]
fn an_end_without_the_last_event_is_a_failure() {
    let events = reported(vec![Output::CommandEnd(Ok(0))]);
    let failed = RunEvent::Failed("guest-runner ended without an exit status".to_owned());
    assert_eq!(events, (vec![failed], Ending::ByVmtest));
    let late = Output::Command("{\"Exited\":3}".to_owned());
    let (events, _) = reported(vec![Output::CommandEnd(Ok(0)), late]);
    assert_eq!(events, [RunEvent::Exited(3)]);
}

#[test]
fn each_end_is_one_event() {
    let failed = event(Output::BootEnd(Err(anyhow::anyhow!("no").context("boot"))));
    assert_eq!(failed, Some(RunEvent::Failed("boot: no".to_owned())));
    assert_eq!(event(Output::CommandEnd(Ok(7))), None);
    assert_eq!(event(Output::BootEnd(Ok(()))), None);
}
