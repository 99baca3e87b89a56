//! Tests of `brbe vm`: its streams, its terminal, and how it ends.

mod kexec;
mod sitting;
mod suspend;

use std::io::{self, BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::processes::{WORDY, children_of, ensure_whole_though_late, wait_for_the_end};
use host::arch::Arch;
use host::files::copy_into;
use host::paths::Paths;
use host::process::{self, ProcessGroup};
use host::progress::is_about_a_step;
use kernel_tests::context::{Context, Revision};
use kernel_tests::registry::{Batch, Scope, Test};
use kernel_tests::selftests;
use kernels::guest_root;
use kernels::kernel::Kernel;
use kernels::subject::Configuration;
use machines::alone::Running;
use machines::speed;
use nix::sys::signal::Signal;
use report::{Artefact, Verdict};
use sitting::Sitting;

/// The function that takes a snapshot on arm64.
const SNAPSHOT: &str = "arm_brbe_snapshot_branch_stack";
/// How long a machine may take for each thing that it is asked, on a fast host.
const PATIENCE: Duration = Duration::from_secs(60);

/// The exit status of a guest's test that is skipped.
const SKIPPED: i32 = 77;

/// How long one machine may be there at the most, on a fast host.
const LIMIT: Duration = Duration::from_secs(240);

/// A test, by its name: given the kernel, it says what it has seen.
type Check = fn(&Kernel) -> Result<String>;

/// The name of the test of what comes from a kernel's source.
const OF_SOURCE: &str = "brbe vm: the kernel's selftests, and its commands for gdb";

/// The name of the test of packages that are not in the guest's root.
const WITH_PACKAGES: &str = "brbe vm: bpftool, bpftrace, strace, a static program";
/// Those packages.
const PACKAGES: [&str; 4] = ["bpftool", "bpftrace", "strace", "gdbserver"];

const CHECKS: [(&str, Check); 9] = [
    ("brbe vm: pipes, and the exit status", pipes),
    ("brbe vm: a terminal, its size and its keys", terminal),
    ("brbe vm: a network", network),
    ("brbe vm: a kernel that dies", death),
    ("brbe vm: BRBE on some CPUs", some_cpus),
    ("brbe vm: a kernel that lacks something", lacking),
    ("brbe vm: gdb stops in a snapshot", debugged),
    ("brbe vm: the command that it prints", printed),
    ("brbe vm: nothing is left when it is killed", killed),
];

/// The tests.
pub fn tests() -> Vec<Batch> {
    let test = |name| Test {
        needs_plugin: true,
        ..Test::new(name, Scope::DEFAULT)
    };
    let verdict = |seen: Result<String>| {
        Ok(match seen {
            Ok(seen) => Verdict::Pass(seen),
            Err(error) => Verdict::Fail(format!("{error:#}")),
        })
    };
    let on_kernel = |(name, check): (&'static str, Check)| {
        Batch::of_one(test(name), move |context: &Context<'_>, _| {
            let kernel = context.kernel()?;
            let _machine = Running::beside_others();
            verdict(check(&kernel))
        })
    };
    let of_source = Batch::of_one(test(OF_SOURCE), move |context: &Context<'_>, _| {
        let subject = context.subject()?;
        if subject.is_user_tree {
            let why = "on the bases' own source trees alone";
            return Ok(Verdict::Skip(why.to_owned()));
        }
        let _machine = Running::beside_others();
        verdict(of_source(&subject.base.name))
    });
    let of_source = of_source.needing(|context, _| {
        if context.subject().is_ok_and(|subject| subject.is_user_tree) {
            return Vec::new();
        }
        let scripts =
            context.made_of_source("scripts for gdb of", Configuration::Ordinary, |context| {
                let Revision { subject, commit } = context.revision()?;
                subject.builder().gdb_scripts(commit).map(|_| ())
            });
        vec![
            selftests::artefact_at(context, Configuration::Ordinary),
            scripts,
        ]
    });
    let with_packages =
        on_kernel((WITH_PACKAGES, tools)).needing(|context, _| vec![root_with_packages(context)]);
    let on_kernel = CHECKS.into_iter().map(on_kernel);
    let all = on_kernel.chain([with_packages, of_source]);
    let all = all.map(|batch| batch.about("machine"));
    all.chain([kexec::test(), suspend::test()]).collect()
}

/// The guest's root with [`PACKAGES`], as an artefact: it takes longer than a machine may.
fn root_with_packages<'a>(context: &Context<'a>) -> Artefact<'a> {
    let (paths, arch) = (context.paths, context.guest.arch());
    Artefact::new("guest's root, more packages", move || {
        let packages = PACKAGES.iter().map(|name| name.parse());
        let packages = packages.collect::<Result<Vec<_>, _>>()?;
        guest_root::root_with(paths, arch, &packages).map(|_| ())
    })
}

/// `brbe vm` on a kernel, with these arguments.
fn vm(kernel: &Kernel, arguments: &[&str]) -> Command {
    let mut command = any_vm(&["--kernel"]);
    command.arg(&kernel.image).args(arguments);
    command
}

/// `brbe vm` with these arguments. It is ended where it takes too long.
fn any_vm(arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    let limit = speed::scaled(LIMIT).as_secs().to_string();
    command.args(["--foreground", "--kill-after=5", &limit]);
    command.arg(process::this_program());
    command.arg("vm").args(arguments);
    command
}

/// What a command in a machine printed, given this input.
fn run(kernel: &Kernel, arguments: &[&str], input: &[u8]) -> Result<Output> {
    let mut command = vm(kernel, arguments);
    command.stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = ProcessGroup::spawn(&mut command)?;
    let mut to = group.child().stdin.take().context("a pipe")?;
    thread::scope(|scope| {
        // Not before it is read, where it is longer than a pipe.
        let typed = scope.spawn(move || to.write_all(input));
        let output = group.finish()?;
        // A command need not read all.
        let _ = typed.join();
        Ok(output)
    })
}

/// The lines of standard error, but those about the steps that `brbe vm` itself took.
fn without_steps(stderr: &[u8]) -> Vec<String> {
    let lines = String::from_utf8_lossy(stderr);
    let lines = lines.lines().filter(|line| !is_about_a_step(line));
    lines.map(str::to_owned).collect()
}

fn pipes(kernel: &Kernel) -> Result<String> {
    let input: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let output = run(kernel, &["--", "cat"], &input)?;
    ensure!(
        output.stdout == input && output.status.code() == Some(0),
        "cat returned {} of {} bytes, and ended with {}: {}",
        output.stdout.len(),
        input.len(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let script = "echo out; echo err >&2; cd /root && echo kept >file && cat file; exit 3";
    let output = run(kernel, &["--", "sh", "-c", script], b"")?;
    ensure!(
        output.status.code() == Some(3)
            && output.stdout == b"out\nkept\n"
            && without_steps(&output.stderr) == ["err"],
        "{script}: {output:?}"
    );
    slowly_read(kernel)?;
    let script = "yes & sleep 1; exit 4";
    let output = run(kernel, &["--", "sh", "-c", script], b"")?;
    ensure!(
        output.status.code() == Some(4),
        "{script}: {}",
        output.status
    );
    let mut full = vm(kernel, &["--", "echo", "x"]);
    let device = std::fs::File::options().write(true).open("/dev/full");
    full.stdin(Stdio::null())
        .stdout(device.context("/dev/full")?);
    let output = ProcessGroup::spawn(full.stderr(Stdio::piped()))?.finish()?;
    ensure!(output.status.code() == Some(3), "a full disk: {output:?}");
    let output = run(kernel, &["--", "no-such-program"], b"")?;
    ensure!(
        output.status.code() == Some(127),
        "no such program: {output:?}"
    );
    let dir = tempfile::tempdir().context("a directory to share")?;
    std::fs::write(dir.path().join("there"), "shared\n").context("a file to share")?;
    let share = dir.path().display().to_string();
    let script = "cat there; echo back >back; uname -m; branch-trace --version >/dev/null";
    let output = run(kernel, &["--share", &share, "--", "sh", "-c", script], b"")?;
    let back = std::fs::read_to_string(dir.path().join("back")).unwrap_or_default();
    unread(kernel)?;
    ensure!(
        output.status.success() && output.stdout == b"shared\naarch64\n" && back == "back\n",
        "{script}: {output:?}, and back came {back:?}"
    );
    Ok(
        "3,000,000 bytes to and fro; exit statuses; a slow reader, none, a full disk; a directory"
            .to_owned(),
    )
}

/// What is printed comes whole, also to who begins to read when the command has long ended.
fn slowly_read(kernel: &Kernel) -> Result<()> {
    ensure_whole_though_late(vm(kernel, &WORDY).stdin(Stdio::null()))
}

/// A command that prints to nobody has not done its work: its exit status is no success.
fn unread(kernel: &Kernel) -> Result<()> {
    let unread = [
        (Stdio::piped(), Stdio::null(), "yes"),
        (Stdio::null(), Stdio::piped(), "yes >&2"),
    ];
    for (out, errors, script) in unread {
        let mut command = vm(kernel, &["--", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(out).stderr(errors);
        let mut group = ProcessGroup::spawn(&mut command)?;
        let child = group.child();
        drop((child.stdout.take(), child.stderr.take()));
        let status = group.wait()?;
        ensure!(status.code() == Some(141), "{script}: {status}");
    }
    Ok(())
}

fn terminal(kernel: &Kernel) -> Result<String> {
    let mut sitting = Sitting::start(vm(kernel, &[]), (30, 100))?;
    sitting.expect("brbe:~# ")?;
    sitting.type_text("stty size; echo $((6 * 7))\r")?;
    sitting.expect("30 100")?;
    sitting.expect("42")?;
    sitting.resize((50, 132))?;
    // The guest hears of it a moment later.
    sitting
        .type_text("until [ \"$(stty size)\" = '50 132' ]; do sleep 0.1; done; echo re''sized\r")?;
    sitting.expect("resized")?;
    sitting.expect("brbe:~# ")?;
    // One process, which prints when it is there. Where a shell starts another one, Ctrl-C may be
    // lost between the two.
    sitting.type_text("busybox awk 'BEGIN { print \"be\" \"gun\" } 1'\r")?;
    sitting.expect("begun")?;
    sitting.type_text("\u{3}")?;
    // What is typed before the prompt is there may be lost: bash sets the terminal up anew.
    sitting.expect("brbe:~# ")?;
    sitting.type_text("echo st''atus=$?\r")?;
    sitting.expect("status=130")?;
    sitting.type_text("\u{1d}")?;
    sitting.expect("ended by Ctrl-]")?;
    let status = sitting.wait()?;
    ensure!(status.code() == Some(0), "the end key: {status}");
    ensure!(sitting.is_cooked()?, "the terminal was not set back");
    let mut sitting = Sitting::start(vm(kernel, &[]), (24, 80))?;
    sitting.expect("brbe:~# ")?;
    sitting.type_text("exit 5\r")?;
    let status = sitting.wait()?;
    ensure!(status.code() == Some(5), "exit 5: {status}");
    Ok("30x100, then 50x132; Ctrl-C, Ctrl-] and exit 5".to_owned())
}

fn network(kernel: &Kernel) -> Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a server")?;
    let port = listener
        .local_addr()
        .context("a server")?
        .port()
        .to_string();
    // It waits for as long as this program runs where the guest does not come.
    thread::spawn(move || {
        let (mut connection, _) = listener.accept()?;
        connection.write_all(b"hello\n")
    });
    // The address of this machine in QEMU's own network.
    let arguments = ["--net", "--", "busybox", "nc", "10.0.2.2", &port];
    let output = run(kernel, &arguments, b"")?;
    ensure!(output.stdout == b"hello\n", "{arguments:?}: {output:?}");
    linked_resolver(kernel)?;
    Ok("a server on this machine was reached".to_owned())
}

/// A root of somebody's own has a network, too, where its `/etc/resolv.conf` leads to nothing.
fn linked_resolver(kernel: &Kernel) -> Result<()> {
    let root = tempfile::tempdir().context("a root")?;
    let [home, programs, etc] = ["root", "usr/bin", "etc"].map(|dir| root.path().join(dir));
    for dir in [&home, &programs, &etc] {
        std::fs::create_dir_all(dir).context("a directory of a root")?;
    }
    let ours = guest_root::root(&Paths::from_env()?, Arch::Arm64)?;
    copy_into(&ours.join("usr/bin/busybox"), &programs)?;
    let there = "../run/systemd/resolve/stub-resolv.conf";
    symlink(there, etc.join("resolv.conf")).context("a link in a root")?;
    let root = root.path().display().to_string();
    let show = ["busybox", "cat", "/etc/resolv.conf"];
    let arguments = [&["--net", "--root", &root, "--"][..], &show].concat();
    let output = run(kernel, &arguments, b"")?;
    ensure!(
        output.stdout == b"nameserver 10.0.2.3\n",
        "{arguments:?}: {output:?}"
    );
    Ok(())
}

fn death(kernel: &Kernel) -> Result<String> {
    let script = "echo c >/proc/sysrq-trigger; sleep 100";
    let output = run(kernel, &["--", "sh", "-c", script], b"")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(255) && said.contains("sysrq triggered crash"),
        "{}: {said}",
        output.status
    );
    Ok("255, and the kernel's report".to_owned())
}

fn some_cpus(kernel: &Kernel) -> Result<String> {
    let script = "cd /sys/bus/event_source/devices && cat armv9_cortex_a720/cpus \
                  armv9_cortex_a520/cpus && branch-guest heterogeneous";
    let output = run(
        kernel,
        &["--brbe-cpus", "1,3", "--", "sh", "-c", script],
        b"",
    )?;
    let seen = String::from_utf8_lossy(&output.stdout);
    let seen: Vec<_> = seen.lines().collect();
    ensure!(
        output.status.success() && seen.starts_with(&["1,3", "0,2"]),
        "--brbe-cpus 1,3: {output:?}"
    );
    Ok(seen.last().copied().unwrap_or_default().to_owned())
}

/// Other people's tools as Debian has them, and what each is to say.
const TOOLS: [(&str, &str); 4] = [
    (
        "bpftool feature probe kernel | grep -A 200 'program type tracing'",
        "- bpf_get_branch_snapshot",
    ),
    (
        "bpftrace -e 'kfunc:vfs_read { @[comm] = count(); }' -c '/usr/bin/cat /proc/version'",
        "@[cat]: ",
    ),
    (
        "strace -e trace=openat cat /proc/version 2>&1",
        "openat(AT_FDCWD, \"/proc/version\", O_RDONLY)",
    ),
    ("gdbserver --version", "GNU gdbserver"),
];

fn tools(kernel: &Kernel) -> Result<String> {
    let dir = tempfile::tempdir().context("a directory to share")?;
    // A program of somebody's own: any static one does.
    let program = dir.path().join("mine");
    let copy = "cp /opt/brbe/branch-trace mine && echo copied";
    let share = dir.path().display().to_string();
    let copied = run(kernel, &["--share", &share, "--", "sh", "-c", copy], b"")?;
    ensure!(program.is_file(), "--share: {copied:?}");

    let scripts: Vec<_> = TOOLS.iter().map(|(script, _)| *script).collect();
    let scripts = format!("{}; ./mine --version", scripts.join("; "));
    let packages = PACKAGES.join(",");
    let arguments = [
        "--packages",
        &packages,
        "--share",
        &share,
        "--",
        "sh",
        "-c",
        &scripts,
    ];
    let output = run(kernel, &arguments, b"")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = TOOLS.iter().map(|(_, words)| *words);
    for words in expected.chain(["branch-trace "]) {
        ensure!(said.contains(words), "nothing says {words:?}: {output:?}");
    }
    Ok(format!("{packages}, and a program in a share"))
}

fn lacking(kernel: &Kernel) -> Result<String> {
    let dir = tempfile::tempdir().context("a directory for a configuration")?;
    let config = dir.path().join(".config");
    let write = |text: &str| std::fs::write(&config, text).context("writing a configuration");
    let file = config.display().to_string();
    write("CONFIG_NET_9P_VIRTIO=y\n")?;
    let refused = run(kernel, &["--config", &file, "--", "true"], b"")?;
    let said = without_steps(&refused.stderr);
    let expected = "does not run here: it lacks ";
    ensure!(
        refused.status.code() == Some(3)
            && matches!(&said[..], [line] if line.contains(expected) && line.contains(" 9P_FS for ")),
        "without 9P_FS: {refused:?}"
    );
    // The kernel itself says what it was built with, and lacks nothing.
    let output = run(kernel, &["--", "true"], b"")?;
    ensure!(
        output.status.success() && without_steps(&output.stderr).is_empty(),
        "{output:?}"
    );
    Ok("the options are named in one line".to_owned())
}

fn debugged(kernel: &Kernel) -> Result<String> {
    let vmlinux = kernel.vmlinux()?.display().to_string();
    // All calls of this test have room for records.
    let script = "while :; do branch-guest discarded; done";
    let arguments = ["--gdb", "--vmlinux", &vmlinux, "--", "sh", "-c", script];
    let mut machine = Debugged::start(vm(kernel, &arguments))?;
    // The guest is up when it has printed something.
    let mut out = machine.group.child().stdout.take().context("a pipe")?;
    out.read_exact(&mut [0]).context("waiting for the guest")?;
    let reading = thread::spawn(move || io::copy(&mut out, &mut io::sink()));
    let stop = format!("break {SNAPSHOT}");
    let gdb = machine.gdb(&[&stop, "continue", "delete", "finish", "kill"])?;
    machine.group.wait()?;
    // They end with the machine.
    let _ = (reading.join(), machine.errors.join());
    let stopped = gdb.contains(&format!("hit Breakpoint 1, {SNAPSHOT} ("));
    let (_, returned) = gdb
        .split_once("Value returned is $1 = ")
        .unwrap_or_default();
    let returned = returned.lines().next().unwrap_or_default();
    let records: u32 = returned.parse().unwrap_or(0);
    ensure!(stopped && records > 0, "{gdb}");
    Ok(format!("{SNAPSHOT}() is about to return {records} entries"))
}

/// Checks what comes from the source of the kernel of `base`: the kernel's own commands show gdb
/// its tasks, and the selftest of the helper passes. The selftest runs without its own watchdog, which
/// kills after 120 s by the host's clock (`-w 0`).
fn of_source(base: &str) -> Result<String> {
    let script = "echo up; read go && exec ./test_progs -w 0 -t get_branch_snapshot";
    let options = ["--base", base, "--gdb", "--selftests"];
    let arguments = [&options[..], &["--", "sh", "-c", script]].concat();
    let mut machine = Debugged::start(any_vm(&arguments))?;
    let mut out = BufReader::new(machine.group.child().stdout.take().context("a pipe")?);
    let mut said = String::new();
    out.read_line(&mut said).context("waiting for the guest")?;
    let gdb = machine.gdb(&["lx-version", "lx-ps", "detach"])?;
    let mut to = machine.group.child().stdin.take().context("a pipe")?;
    to.write_all(b"go\n").context("starting the selftest")?;
    out.read_to_string(&mut said)
        .context("reading its output")?;
    let status = machine.group.wait()?;
    for shown in ["Linux version ", "swapper/0"] {
        ensure!(gdb.contains(shown), "nowhere {shown}: {gdb}");
    }
    let passed = said
        .lines()
        .any(|line| line.ends_with(" get_branch_snapshot:OK"));
    let errors = machine.errors.join().unwrap_or_default();
    ensure!(passed && status.success(), "{status}: {said}\n{errors}");
    Ok("lx-version, lx-ps; get_branch_snapshot:OK".to_owned())
}

/// `brbe vm --gdb`, and the words that it has said gdb is started by.
struct Debugged {
    group: ProcessGroup,
    words: String,
    /// Reads what it says after those: a machine whose output nobody reads is ended.
    errors: JoinHandle<String>,
}

impl Debugged {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut group = ProcessGroup::spawn(&mut command)?;
        let errors = group.child().stderr.take().context("a pipe")?;
        let mut lines = BufReader::new(errors).lines();
        let mut before = String::new();
        let invitation = loop {
            let line = lines.next();
            let line =
                line.with_context(|| format!("it does not say how to start gdb:\n{before}"))??;
            if line.contains("target") {
                break line;
            }
            before += &line;
            before.push('\n');
        };
        let (_, words) = invitation.split_once("shell ").context("the command")?;
        let said = |lines: Lines<_>| lines.map_while(Result::ok).collect::<Vec<_>>().join("\n");
        Ok(Self {
            group,
            words: words.to_owned(),
            errors: thread::spawn(move || said(lines)),
        })
    }

    /// What gdb prints when it is given these commands, and then ends.
    fn gdb(&self, commands: &[&str]) -> Result<String> {
        let commands: String = commands.iter().map(|one| format!(" -ex '{one}'")).collect();
        let gdb = format!(
            "timeout --foreground {} {} -batch -iex 'set remotetimeout 60'{commands}",
            speed::scaled(PATIENCE).as_secs(),
            self.words
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", &gdb]).stdin(Stdio::null());
        shell.stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = ProcessGroup::spawn(&mut shell)?.finish()?;
        let [said, errors] = [output.stdout, output.stderr];
        let both = [gdb.as_bytes(), b": ", &said, &errors].concat();
        Ok(String::from_utf8_lossy(&both).into_owned())
    }
}

fn printed(kernel: &Kernel) -> Result<String> {
    let dir = tempfile::tempdir().context("a directory for the machine")?;
    let files = dir.path().join("vm").display().to_string();
    let output = run(kernel, &["--records", "16", "--dry-run", &files], b"")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "--dry-run: {}: {said}",
        output.status
    );
    let mut qemu = Command::new("sh");
    qemu.args(["-c", &printed]);
    let mut sitting = Sitting::start(qemu, (24, 80))?;
    sitting.expect("brbe:~# ")?;
    sitting.type_text("branch-guest twice && uname -m\r")?;
    sitting.expect("PASS twice")?;
    sitting.expect("aarch64")?;
    sitting.type_text("exit\r")?;
    let status = sitting.wait()?;
    ensure!(status.success(), "QEMU: {status}");
    Ok("a shell, a snapshot, and the end of QEMU".to_owned())
}

/// A boot that is interrupted says where the guest's console is.
fn interrupted(kernel: &Kernel) -> Result<()> {
    let dir = tempfile::tempdir().context("a directory for a file")?;
    let started = dir.path().join("qemu.pid");
    let file = started.display().to_string();
    // QEMU waits for gdb before the first instruction.
    let machine = ["-S", "-pidfile", &file].map(|word| ["--qemu-arg", word]);
    let mut command = vm(kernel, &[&machine.concat()[..], &["--", "true"]].concat());
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut group = ProcessGroup::spawn(&mut command)?;
    let until = Instant::now() + speed::scaled(PATIENCE);
    while !started.exists() {
        ensure!(Instant::now() < until, "QEMU has not been started");
        thread::sleep(Duration::from_millis(20));
    }
    let brbe = children_of(group.child().id())?.pop();
    brbe.context("no brbe vm was found")?
        .signal(Signal::SIGTERM)?;
    let output = group.finish()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(130) && said.contains("its console: /"),
        "a boot that is interrupted: {}: {said}",
        output.status
    );
    Ok(())
}

fn killed(kernel: &Kernel) -> Result<String> {
    interrupted(kernel)?;
    let mut command = vm(kernel, &["--", "sh", "-c", "echo up; sleep 1000"]);
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut group = ProcessGroup::spawn(&mut command)?;
    let mut up = [0; 3];
    let mut out = group.child().stdout.take().context("a pipe")?;
    out.read_exact(&mut up).context("waiting for the guest")?;
    let brbe = children_of(group.child().id())?
        .pop()
        .context("no brbe vm was found")?;
    let left = children_of(brbe.id())?;
    ensure!(!left.is_empty(), "no QEMU was found");
    brbe.signal(Signal::SIGKILL)?;
    group.wait()?;
    wait_for_the_end(&left)?;
    Ok(format!("{} processes went with it", left.len()))
}
