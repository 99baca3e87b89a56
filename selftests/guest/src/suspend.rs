//! CPUs that come back from an idle state that has lost what they held, and from the machine's
//! suspension, have snapshots again.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::Skel as _;
use rustix::io::Errno;
use rustix::system::{RebootCommand, reboot};

use crate::contract::{Helper, WHOLE};
use crate::cpus;
use crate::entry::{self, Entry};
use crate::skeleton::{
    self,
    suspend::{SuspendSkel, SuspendSkelBuilder},
};
use crate::verdict::{self, Verdict, check};

/// Where the kernel is told to suspend, by a word for how deep.
const STATE: &str = "/sys/power/state";
/// Suspension in which all CPUs idle, as deep as they can (s2idle).
const TO_IDLE: &str = "freeze";
/// The number of events that would have woken the machine. Written back, it keeps the machine
/// awake if there is one more before it sleeps.
const WAKEUPS: &str = "/sys/power/wakeup_count";
/// The number of suspensions that succeeded.
const SUCCEEDED: &str = "/sys/power/suspend_stats/success";
/// Where the clock is told when it has to wake the machine.
const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";
/// In how many seconds the clock wakes the machine, at first. The first of them may be over at
/// once.
const LATER: u32 = 2;
/// The kernel's log, which takes lines.
const LOG: &str = "/dev/kmsg";
/// How often a suspension is tried: something else may wake the machine before it sleeps, and so
/// may the clock, which has twice as long each time.
const ATTEMPTS: u32 = 5;

pub(crate) fn run() -> Result<Verdict> {
    verdict::needs_snapshots()?;
    let states = fs::read_to_string(STATE).unwrap_or_default();
    if !states.split_whitespace().any(|state| state == TO_IDLE) || !Path::new(ALARM).exists() {
        return Ok(Verdict::Skip(
            "nothing suspends this machine, or no clock wakes it: no CONFIG_SUSPEND, or no \
             CONFIG_RTC_CLASS"
                .to_owned(),
        ));
    }
    let events = verdict::record_everywhere()?;
    let able: Vec<u32> = events.iter().map(|(cpu, _)| *cpu).collect();
    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    let entry = Entry::find()?;
    if let Some(wrong) = problem(&mut helper, &entry, &able)? {
        return Ok(Verdict::Fail(format!("before the suspension, {wrong}")));
    }
    let mut object = MaybeUninit::uninit();
    let skeleton = watch_idle(&mut object)?;
    let before = idled(&able)?;
    suspend()?;
    if let Some(wrong) = problem(&mut helper, &entry, &able)? {
        return Ok(Verdict::Fail(format!("after the suspension, {wrong}")));
    }
    let after = idled(&able)?;
    let data = skeleton.maps.bss_data.as_deref();
    let returns = &data
        .context("the program has no memory in common with us")?
        .returns;
    // Without a state that loses anything, `after` is empty. A counter may overflow then while its
    // CPU idles, and until its interrupt is handled there are no snapshots.
    for (cpu, _) in able.iter().zip(&after) {
        let Some(returns) = returns.get(*cpu as usize) else {
            continue;
        };
        check!(
            returns.with > 0 && returns.without == 0,
            "CPU {cpu} came back from an idle state, before anything else ran there: {} snapshots \
             had records, and {} had none",
            returns.with,
            returns.without
        );
    }
    let without = able.iter().zip(before.iter().zip(&after));
    let without = without.filter(|(_, (before, after))| after <= before);
    let without: Vec<_> = without.map(|(cpu, _)| cpu).collect();
    check!(
        without.is_empty(),
        "CPUs {without:?} did not idle in the machine's idle state"
    );
    let idle = match after.iter().sum::<u64>() {
        0 => "the machine has no idle state that loses anything".to_owned(),
        times => format!("{times} times in an idle state that loses what a CPU holds"),
    };
    Ok(Verdict::Seen(idle))
}

/// As [`run`], where nothing but memory comes back from the suspension: the verdict goes to the
/// kernel's log, and the machine is powered off.
pub(crate) fn run_and_power_off() -> Result<Verdict> {
    let mut log = File::options()
        .write(true)
        .open(LOG)
        .with_context(|| format!("opening {LOG}"))?;
    // All that this process needs is in memory from here on.
    // SAFETY: nothing of this process's memory changes by that.
    let done = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if done != 0 {
        return Err(io::Error::last_os_error()).context("cannot keep this program in memory");
    }
    let outcome = run();
    if let Ok(Verdict::Skip(_)) = outcome {
        return outcome;
    }
    let line = verdict::line_of("suspend", &outcome);
    log.write_all(line.as_bytes())
        .context("writing the verdict")?;
    reboot(RebootCommand::PowerOff).context("cannot power off")?;
    outcome
}

/// The program that takes a snapshot whenever a CPU comes back from an idle state, attached.
fn watch_idle(object: &mut MaybeUninit<OpenObject>) -> Result<SuspendSkel<'_>> {
    let mut skeleton = skeleton::load(SuspendSkelBuilder::default(), object)?;
    skeleton
        .attach()
        .context("cannot attach to cpu_idle: the kernel needs its tracepoints")?;
    Ok(skeleton)
}

/// What is wrong with the snapshots of `cpus`, if anything.
fn problem(helper: &mut Helper<'_>, entry: &Entry, cpus: &[u32]) -> Result<Option<String>> {
    for &cpu in cpus {
        cpus::pin_to(cpu)?;
        let answer = helper.call(WHOLE, 0)?;
        if let Some(wrong) = entry::wrong(entry, &answer) {
            return Ok(Some(format!("CPU {cpu}: {wrong}")));
        }
    }
    Ok(None)
}

/// How often each of `cpus` was in an idle state that the firmware knows. Empty if there is none.
fn idled(cpus: &[u32]) -> Result<Vec<u64>> {
    let mut all = Vec::new();
    for cpu in cpus {
        let states = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        let Ok(states) = fs::read_dir(&states) else {
            return Ok(Vec::new());
        };
        let mut times = 0;
        for state in states {
            let state = state?.path();
            // The driver is listed there, too. And a CPU has a state by itself, of its instruction
            // WFI.
            let name = fs::read_to_string(state.join("name")).unwrap_or_default();
            if name.trim().is_empty() || name.trim() == "WFI" {
                continue;
            }
            for usage in ["usage", "s2idle/usage"] {
                let usage = state.join(usage);
                times += if usage.exists() { number(&usage)? } else { 0 };
            }
        }
        all.push(times);
    }
    Ok(all)
}

/// Suspends the machine until its clock wakes it.
fn suspend() -> Result<()> {
    let before = number(Path::new(SUCCEEDED))?;
    for attempt in 0..ATTEMPTS {
        let wakeups = read(Path::new(WAKEUPS))?;
        write(ALARM, "0")?;
        write(ALARM, &format!("+{}", LATER << attempt))?;
        // From here on, the clock either wakes the machine or keeps it awake.
        let done = fs::write(WAKEUPS, wakeups.trim()).and_then(|()| fs::write(STATE, TO_IDLE));
        match done {
            Ok(()) if number(Path::new(SUCCEEDED))? > before => return Ok(()),
            Ok(()) => {}
            Err(error) if is_awake(&error) => {}
            Err(error) => return Err(error).context("the kernel does not suspend the machine"),
        }
    }
    bail!("something kept the machine awake {ATTEMPTS} times")
}

/// Whether the kernel did not suspend the machine because something would have woken it.
fn is_awake(error: &io::Error) -> bool {
    let error = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(error, Some(Errno::BUSY | Errno::INVAL))
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))
}

fn number(file: &Path) -> Result<u64> {
    let text = read(file)?;
    let number = text.trim().parse();
    number.with_context(|| format!("{} has {text:?}", file.display()))
}

fn write(file: &str, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("writing {text} to {file}"))
}
