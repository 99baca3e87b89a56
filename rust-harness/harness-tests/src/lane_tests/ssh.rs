//! Test of the ssh lane, against an sshd in a guest. The connections of the sshd come in over
//! a virtio port of the guest. This side has the port at an address of the loopback device.

mod forwarding;

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use board_kit::kit::{self, NAME};

use crate::as_user::{brbe, brbe_until};
use forwarding::join;
use guest_runner::SHARE;
use host::arch::Arch;
use host::cargo;
use host::logs::Log;
use host::paths::Paths;
use host::{process, retries};
use kernel_tests::context::Context;
use kernels::kernel::Kernel;
use machines::backend::End;
use machines::guest::{self, Task};
use machines::machine_spec::MachineSpec;
use machines::share::Share;
use machines::speed;
use machines::ssh::Ssh;
use report::Verdict;

/// How long the guest may take for everything.
const TIMEOUT: Duration = Duration::from_secs(1200);
/// The time between two checks for a guest that is ready, or for a connection.
const LOOK: Duration = Duration::from_millis(20);
/// How long one command over ssh may take, on a fast host.
const COMMAND: Duration = Duration::from_secs(60);
/// How long a connection may take.
const CONNECTING: Duration = Duration::from_secs(30);
/// How often ssh asks a machine that says nothing whether it is there: the third question without an
/// answer ends the connection.
const SILENT: Duration = Duration::from_secs(5);
/// How long it may take from the start of a trace to the command that it traces, on a fast host.
const TRACED: Duration = Duration::from_secs(120);
/// A part of the names of the guest tests that run there. Other rows have all of them.
const SOME: &str = "nested";
/// The most bytes of sshd's log that are read.
const LOG: u64 = 1 << 20;

/// The name of the file that the guest makes in the shared directory when it waits for the
/// connection of this number, from 0. By then it has seen the connection before end. No file
/// is made twice or removed, so that guest and host never work on the same file.
fn ready(connection: u32) -> String {
    format!("ready.{connection}")
}

/// The guest's script: it runs an sshd for each connection, until the file `/run/done` is
/// there.
const GUEST: &str = r#"
mkdir -p /run/sshd
cp host_key /run/host_key && chmod 600 /run/host_key
for name in /sys/class/virtio-ports/*/name; do
    [ "$(cat "$name")" != brbe-ssh ] || port=/dev/$(basename "$(dirname "$name")")
done
is_connected() {
    grep -q '^host_connected: 1' "/sys/kernel/debug/virtio-ports/${port##*/}"
}
connection=0
until [ -e /run/done ]; do
    touch ready.$connection
    connection=$((connection + 1))
    until is_connected; do sleep 0.1; done
    /usr/sbin/sshd -i -f $PWD/sshd_config -E $PWD/sshd.log \
        $(cat /run/sshd_options 2>/dev/null) <>"$port" >&0
    # What the next one says is not for this connection.
    while is_connected; do sleep 0.1; done
done
ls -d /tmp/brbe.* 2>/dev/null
exit 0
"#;

/// Lines of shell after which, from the next connection on, a command finds nothing but
/// busybox, as on small boards.
const BUSYBOX_ALONE: &str = "mkdir /run/busybox && busybox --install -s /run/busybox && \
                             echo -o SetEnv=PATH=/run/busybox >/run/sshd_options";

const SSHD: &str = "\
HostKey /run/host_key
AuthorizedKeysFile /mnt/vmtest/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
PrintMotd no
";

/// A guest with an sshd, and what it takes to log in there.
struct Machine {
    share: Share,
    socket: PathBuf,
    listener: TcpListener,
    port: u16,
    over: AtomicBool,
}

pub(super) fn check(context: &Context<'_>) -> Result<Verdict> {
    let (paths, kernel) = (context.paths, context.kernel()?);
    let machine = Machine::prepare(paths)?;
    thread::scope(|scope| {
        let forwarding = scope.spawn(|| machine.forward());
        let booted = scope.spawn(|| {
            let run = context.run_within(TIMEOUT, &machine.spec(), "sshd", GUEST, &machine.share);
            // From here on, nothing waits for the guest any more.
            machine.over.store(true, Ordering::SeqCst);
            (run, retries::take())
        });
        let checked = machine.wait().and_then(|()| machine.use_it(paths, &kernel));
        let ended = machine.end(paths);
        let (run, again) = booted
            .join()
            .map_err(|_| anyhow!("the guest's thread died"))?;
        retries::note_all(again);
        forwarding
            .join()
            .map_err(|_| anyhow!("forwarding died"))??;
        let said = checked.with_context(|| machine.keep_log(paths))?;
        ended?;
        let run = run?;
        ensure!(
            guest::status(&run)? == 0,
            "the guest ended with {:?}",
            run.end
        );
        ensure!(run.output.trim().is_empty(), "left behind: {}", run.output);
        Ok(Verdict::Pass(said))
    })
}

impl Machine {
    fn prepare(paths: &Paths) -> Result<Self> {
        let share = Share::new(paths)?;
        let log = Log::fresh(paths.log("lane-ssh-keys"))?;
        let dir = share.path().to_owned();
        for key in ["host_key", "user_key"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(key));
            process::logged("making a key", &log, &mut keygen)?;
        }
        fs::write(dir.join("sshd_config"), SSHD).context("writing sshd's configuration")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening")?;
        listener.set_nonblocking(true).context("listening")?;
        let port = listener.local_addr().context("listening")?.port();
        let key = fs::read_to_string(dir.join("host_key.pub")).context("the host's key")?;
        fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{port} {key}"))
            .context("writing the known hosts")?;
        Ok(Self {
            socket: dir.join("port"),
            share,
            listener,
            port,
            over: AtomicBool::new(false),
        })
    }

    fn spec(&self) -> MachineSpec {
        let chardev = format!(
            "socket,id=ssh,server=on,wait=off,path={}",
            self.socket.display()
        );
        let qemu = [
            "-chardev",
            &chardev,
            "-device",
            "virtio-serial-pci,id=ssh-bus",
            "-device",
            "virtserialport,bus=ssh-bus.0,chardev=ssh,name=brbe-ssh",
        ];
        MachineSpec {
            qemu_args: qemu.map(str::to_owned).into(),
            ..MachineSpec::default()
        }
    }

    /// Hands connections on to the guest, one after the other, until the guest has ended.
    fn forward(&self) -> Result<()> {
        let mut next = 0;
        while !self.over.load(Ordering::SeqCst) {
            if !self.share.path().join(ready(next)).exists() {
                thread::sleep(LOOK);
                continue;
            }
            match self.listener.accept() {
                Ok((connection, _)) => {
                    connection.set_nonblocking(false).context("a connection")?;
                    next += 1;
                    // The other end may go at any time.
                    let _ = join(&connection, &self.socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    thread::sleep(LOOK);
                }
                Err(error) => return Err(error).context("accepting a connection"),
            }
        }
        Ok(())
    }

    /// Waits until the guest has an sshd for the first connection, or has ended.
    fn wait(&self) -> Result<()> {
        while !self.share.path().join(ready(0)).exists() {
            ensure!(!self.over.load(Ordering::SeqCst), "the guest has ended");
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Keeps sshd's log among the logs, and says where it is.
    fn keep_log(&self, paths: &Paths) -> String {
        let kept = paths.log("lane-ssh-sshd");
        let log = self.share.open("sshd.log", LOG);
        let copied = log.and_then(|mut log| Ok(io::copy(&mut log, &mut File::create(&kept)?)?));
        match copied {
            Ok(_) => format!("sshd's log is {}", kept.display()),
            Err(error) => format!("without sshd's log: {error:#}"),
        }
    }

    fn destination(&self) -> String {
        format!("ssh://root@127.0.0.1:{}", self.port)
    }

    /// Options of ssh with the user's key and with `known_hosts` as the file of known hosts. ssh's own
    /// limits are for machines that are not emulated: these follow the speed of this one.
    fn options(&self, known_hosts: &Path) -> Vec<String> {
        vec![
            format!("ConnectTimeout={}", speed::scaled(CONNECTING).as_secs()),
            format!("ServerAliveInterval={}", speed::scaled(SILENT).as_secs()),
            format!(
                "IdentityFile={}",
                self.share.path().join("user_key").display()
            ),
            "IdentitiesOnly=yes".to_owned(),
            format!("UserKnownHostsFile={}", known_hosts.display()),
        ]
    }

    fn ssh(&self) -> Result<Ssh> {
        Ok(Ssh {
            to: self.destination().parse()?,
            options: self.options(&self.share.path().join("known_hosts")),
        })
    }

    /// Uses the lane as a user does, and then checks what users do not see. Returns what was
    /// seen, in words.
    fn use_it(&self, paths: &Paths, kernel: &Kernel) -> Result<String> {
        let to = self.destination();
        let options = self.options(&self.share.path().join("known_hosts"));
        let reach: Vec<_> = ["--on", &to]
            .into_iter()
            .chain(options.iter().flat_map(|option| ["--ssh-option", option]))
            .collect();
        let test = brbe(
            paths,
            "lane-ssh-test",
            &[&["test", "--json", SOME], &reach[..]].concat(),
        )?;
        test.expect_passed("nested")?;
        let (passed, _, skipped) = test.report()?.counts();

        let vmlinux = kernel.vmlinux()?.display().to_string();
        let words = ["--errors", "array_map_alloc_check", "--"];
        let provoke = ["./branch-guest", "provoke", "refused-map"];
        let here = [
            &["trace"],
            &reach[..],
            &["--vmlinux", &vmlinux],
            &words,
            &provoke,
        ]
        .concat();
        let there = [&["trace"], &reach[..], &words, &provoke].concat();
        for (arguments, shown) in [(here, "arraymap.c:"), (there, "array_map_alloc_check")] {
            let trace = brbe(paths, "lane-ssh-trace", &arguments)?;
            ensure!(
                trace.status == Some(0) && trace.stdout.contains(shown),
                "no {shown} in {}\n{}",
                trace.stdout,
                trace.stderr
            );
        }

        self.stop_a_trace(
            paths,
            &[&["trace"], &reach[..], &["--vmlinux", &vmlinux]].concat(),
        )?;

        // A machine whose key is not known has to be refused.
        let other = self.share.path().join("other_hosts");
        fs::write(&other, "").context("writing other known hosts")?;
        let stranger = Ssh {
            options: self.options(&other),
            ..self.ssh()?
        };
        match self.run(paths, &stranger, "true", COMMAND)? {
            (End::Failed(why), _) if why.contains("compare the key") => {}
            end => bail!("an unknown host key was accepted: {end:?}"),
        }

        // Status, output and files come back; nothing is left of a command that hangs, nor of
        // what it has started in another session.
        let ssh = self.ssh()?;
        self.expect(paths, "echo one; echo two >there; exit 7", 7, "one")?;
        let hangs = "setsid sleep 1234 & sleep 1234";
        match self.run(paths, &ssh, hangs, Duration::from_secs(10))? {
            (End::TimedOut(_), _) => {}
            end => bail!("{end:?} instead of a time-out"),
        }
        // guest-runner kills what is left once the connection has ended. One directory stays: that
        // of the command that looks.
        let left = "left() { ls -d /tmp/brbe.* | wc -l; pgrep -fc 'sleep 123[4]'; }; \
                    for i in $(seq 30); do [ \"$(left | tr '\\n' ' ')\" = '1 0 ' ] && break; sleep 1; done; left";
        // pgrep fails where it counts none.
        self.expect(paths, left, 1, "1\n0")?;
        match self.run(paths, &ssh, BUSYBOX_ALONE, COMMAND)? {
            (End::Exited(0), _) => {}
            end => bail!("there is no busybox: {end:?}"),
        }
        let alone = "echo $PATH; echo two >there; exit 7";
        self.expect(paths, alone, 7, "/run/busybox")?;
        self.run_kit(paths)?;
        Ok(format!(
            "{passed} guest tests passed, {skipped} skipped; trace, and stopped; busybox; \
             the kit for boards; nothing left there"
        ))
    }

    /// Runs the first steps of the kit for boards, and checks what comes back.
    fn run_kit(&self, paths: &Paths) -> Result<()> {
        let share = Share::new(paths)?;
        let runner = cargo::guest_runner(paths, Arch::Arm64)?;
        let tests = cargo::guest(paths, Arch::Arm64)?.tests;
        kit::write(paths, &tests, &share.path().join("kit.tar.gz"))?;
        let task = Task {
            name: "lane-ssh",
            command: &format!(
                "tar -xzf kit.tar.gz && sh {NAME}/run.sh --within 5 board.json && rm -r {NAME}"
            ),
            share: &share,
            timeout: speed::scaled(COMMAND),
        };
        let log = Log::fresh(paths.log("lane-ssh"))?;
        let run = self.ssh()?.run(&runner, &task, &log, &mut |_| {})?;
        ensure!(
            run.end == End::Exited(0),
            "the kit for boards: {:?}\n{}",
            run.end,
            run.output
        );
        let said = kit::written(&share, "board.json")?;
        let brbidr = said
            .brbidr
            .seen()
            .map_err(|why| anyhow!("no BRBIDR: {why}"))?;
        ensure!(!said.complete && brbidr[0].value == 0x5040, "{said:?}");
        Ok(())
    }

    /// Stops a trace by Ctrl-C, and checks that what was recorded until then is shown.
    /// `trace` is the command without the target.
    fn stop_a_trace(&self, paths: &Paths, trace: &[&str]) -> Result<()> {
        const MARK: &str = "traced";
        let command = format!("touch {SHARE}/{MARK}; exec sleep 1234");
        let words = ["tracepoint:sched:sched_process_exec", "--"];
        let arguments = [trace, &words, &["sh", "-c", &command]].concat();
        let mark = self.share.path().join(MARK);
        let deadline = Instant::now() + speed::scaled(TRACED);
        let trace = brbe_until(paths, "lane-ssh-stopped", &arguments, || {
            mark.exists() || Instant::now() > deadline
        })?;
        ensure!(
            trace.status == Some(0) && trace.stdout.contains("sched_process_exec"),
            "stopped, with status {:?}: {}\n{}",
            trace.status,
            trace.stdout,
            trace.stderr
        );
        Ok(())
    }

    /// Runs a command, which is to end with this status and to print this.
    fn expect(&self, paths: &Paths, command: &str, status: i32, printed: &str) -> Result<()> {
        let (end, output) = self.run(paths, &self.ssh()?, command, COMMAND)?;
        let is_it = end == End::Exited(status) && output.trim() == printed;
        ensure!(is_it, "{command}: {end:?}, and it printed {output:?}");
        Ok(())
    }

    fn run(
        &self,
        paths: &Paths,
        ssh: &Ssh,
        command: &str,
        timeout: Duration,
    ) -> Result<(End, String)> {
        let share = Share::new(paths)?;
        let log = Log::fresh(paths.log("lane-ssh"))?;
        let task = Task {
            name: "lane-ssh",
            command,
            share: &share,
            timeout: speed::scaled(timeout),
        };
        let runner = cargo::guest_runner(paths, Arch::Arm64)?;
        let run = ssh.run(&runner, &task, &log, &mut |_| {})?;
        if command.contains(">there") {
            let there = io::read_to_string(share.open("there", 100)?);
            ensure!(
                there.is_ok_and(|text| text == "two\n"),
                "the file did not come back"
            );
        }
        Ok((run.end, run.output))
    }

    /// Tells the guest to end, if it has not ended yet.
    fn end(&self, paths: &Paths) -> Result<()> {
        if self.over.load(Ordering::SeqCst) || process::interrupted() {
            return Ok(());
        }
        let (end, _) = self.run(paths, &self.ssh()?, "touch /run/done", COMMAND)?;
        ensure!(end == End::Exited(0), "ending the guest: {end:?}");
        Ok(())
    }
}
