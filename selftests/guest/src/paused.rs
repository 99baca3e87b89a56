//! Programs that ask for the branch records to be paused before they are entered, by a
//! flag that only the series in kernel-patches/7.3/low-waste has: what they leave behind.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context as _, Result};
use branch_records::record::RawRecord;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{ProgramInput, ProgramMut};

use crate::contract::{Answer, Helper, MAX_RECORDS};
use crate::kallsyms::Kallsyms;
use crate::path::Paths;
use crate::skeleton::paused::{PausedSkel, PausedSkelBuilder};
use crate::twice::begins_at_entry;
use crate::verdict::{self, Verdict, check};
use crate::{cpus, perf};

/// The function of the kernel that stops the recorder.
pub(crate) const PAUSES: &str = "arm_brbe_pause_branch_stack";
/// `BPF_F_TRACE_PAUSE_BRANCHES`.
const FLAG: u32 = 1;
/// Room for all there is.
const WHOLE: usize = RawRecord::SIZE * MAX_RECORDS;
/// Calls of a program that takes no snapshot; and runs of the long one, during one of
/// which another task runs.
const ATTEMPTS: usize = 20;
/// Turns of its loop, some 30 ms on an emulated machine.
const TURNS: u32 = 500_000;

/// Attaches a program of a trampoline with the flag.
pub(crate) fn attach_paused(program: BorrowedFd<'_>, attach_type: u32) -> Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: FLAG,
        ..Default::default()
    };
    // SAFETY: the program is open, and the options say their size.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), 0, attach_type, &raw const options)
    };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link)).context("BPF_LINK_CREATE failed");
    }
    // SAFETY: the system call returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// The kernel has not got [`PAUSES`].
pub(crate) fn unsupported() -> Verdict {
    Verdict::Skip(
        "this kernel cannot pause branch records for programs: that is in the series low-waste"
            .to_owned(),
    )
}

pub(crate) fn run() -> Result<Verdict> {
    let symbols = Kallsyms::read()?;
    if !symbols.has(PAUSES) {
        return Ok(unsupported());
    }
    let events = match perf::open_everywhere(&cpus::online()?, perf::FOR_SNAPSHOTS) {
        Ok(events) => events,
        Err(error) => return verdict::cannot_record(error),
    };
    let mut memory = MaybeUninit::uninit();
    let mut open = PausedSkelBuilder::default()
        .open(&mut memory)
        .context("cannot open the BPF programs")?;
    let constants = open.maps.rodata_data.as_deref_mut();
    let constants = constants.context("the programs have no constants")?;
    constants.turns = TURNS;
    let function = symbols.address_of(Kallsyms::SNAPSHOT_FUNCTION);
    constants.snapshot_function = function.context("no function takes snapshots of BRBE")?;
    let skeleton = open.load().context("cannot load the BPF programs")?;
    let programs = &skeleton.progs;
    let (cpu, _) = events.first().context("no CPU records branches")?;
    cpus::pin_to(*cpu)?;

    let mut object = MaybeUninit::uninit();
    let mut helper = Helper::load(&mut object)?;
    for (name, program, attach_type) in [
        (
            "fentry",
            &programs.idle_fentry,
            libbpf_sys::BPF_TRACE_FENTRY,
        ),
        ("fexit", &programs.idle_fexit, libbpf_sys::BPF_TRACE_FEXIT),
    ] {
        let link = attach_paused(program.as_fd(), attach_type)?;
        for _ in 0..ATTEMPTS {
            // A task switch in between would have it record again.
            call(&programs.call_function)?;
            let answer = helper.call(WHOLE, 0)?;
            check!(
                begins_at_entry(&answer, &symbols),
                "after a program by {name} that took no snapshot, the newest of {} branches is \
                 not the one into the next snapshot: the recorder is still paused",
                answer.records().len()
            );
        }
        drop(link);
    }
    for verdict in [
        across_a_pause(&skeleton)?,
        inside_one_another(&skeleton, &symbols)?,
    ] {
        if verdict != Verdict::Pass {
            return Ok(verdict);
        }
    }
    let link = attach_paused(programs.slow_fentry.as_fd(), libbpf_sys::BPF_TRACE_FENTRY)?;
    let verdict = meanwhile(&symbols, *cpu, || call(&programs.call_function))?;
    if verdict != Verdict::Pass {
        return Ok(verdict);
    }
    let interrupt = programs.in_interrupt.attach();
    let interrupt = interrupt.context("cannot trace interrupts")?;
    let verdict = in_interrupts(&skeleton);
    drop((interrupt, link));
    verdict
}

/// A snapshot right after a program that paused the recorder and took none: what was
/// recorded before the pause is no path to what was after it.
fn across_a_pause(skeleton: &PausedSkel<'_>) -> Result<Verdict> {
    let programs = &skeleton.progs;
    let _idle = attach_paused(programs.idle_fentry.as_fd(), libbpf_sys::BPF_TRACE_FENTRY)?;
    let taking = programs.take_at_exit.attach();
    let _taking = taking.context("cannot attach a program to a function's exit")?;
    call(&programs.call_function)?;
    let answer = last_answer(skeleton)?;
    check!(
        !answer.records().is_empty(),
        "after a program that took no snapshot, the helper returned {}",
        answer.returned
    );
    Paths::open().check(answer.records())?;
    Ok(Verdict::Pass)
}

/// A program that is run inside another one, with a pause for each: the records are still
/// those that led to the outer one.
fn inside_one_another(skeleton: &PausedSkel<'_>, symbols: &Kallsyms) -> Result<Verdict> {
    let programs = &skeleton.progs;
    let fentry = libbpf_sys::BPF_TRACE_FENTRY;
    let _outer = attach_paused(programs.outer.as_fd(), fentry)?;
    let _inner = attach_paused(programs.inner.as_fd(), fentry)?;
    call(&programs.call_function)?;
    let data = skeleton.maps.bss_data.as_deref();
    let runs = data.context("the programs have no variables")?.inner_runs;
    check!(runs > 0, "the inner program was not run: nothing was seen");
    let answer = last_answer(skeleton)?;
    let newest = answer.records().first().map(|record| record.to);
    check!(
        newest.is_some() && newest == symbols.address_of(PAUSES),
        "the outer program's snapshot ({}) does not begin with its pause: the inner one ended \
         its pause",
        answer.returned
    );
    Ok(Verdict::Pass)
}

/// What the helper returned to the last program that took a snapshot.
fn last_answer(skeleton: &PausedSkel<'_>) -> Result<Answer> {
    let data = skeleton.maps.bss_data.as_deref();
    let data = data.context("the programs have no variables")?;
    let memory = data.taken.iter().map(RawRecord::from).collect();
    Ok(Answer::new(data.returned, memory))
}

/// Has the long program run with the recorder paused, and interrupts of it take snapshots.
fn in_interrupts(skeleton: &PausedSkel<'_>) -> Result<Verdict> {
    for _ in 0..ATTEMPTS {
        call(&skeleton.progs.call_function)?;
        let counts = skeleton.maps.bss_data.as_deref();
        let counts = counts.context("the programs have no variables")?;
        let (without, own, another) = (counts.without, counts.of_their_own, counts.of_another);
        check!(
            another == 0,
            "{another} snapshots in interrupts have the records of the program that asked for the \
             pause, which they interrupt ({without} have none, {own} their own)"
        );
        if without > 0 {
            return Ok(Verdict::Pass);
        }
    }
    Ok(Verdict::Fail(format!(
        "in {ATTEMPTS} runs of a long program none was interrupted while the recorder was paused"
    )))
}

/// Has `paused` run with the recorder paused, and another thread take snapshots on the
/// same CPU whenever that is interrupted.
fn meanwhile(symbols: &Kallsyms, cpu: u32, paused: impl Fn() -> Result<()>) -> Result<Verdict> {
    let (taken, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<Verdict> {
            cpus::pin_to(cpu)?;
            let mut object = MaybeUninit::uninit();
            let mut helper = Helper::load(&mut object)?;
            while !done.load(Ordering::Relaxed) {
                let answer = helper.call(WHOLE, 0)?;
                check!(
                    begins_at_entry(&answer, symbols),
                    "another task's snapshot {} has {} records, and the newest is not the branch \
                     into the snapshot: they are of the task that paused the recorder",
                    taken.load(Ordering::Relaxed),
                    answer.records().len()
                );
                taken.fetch_add(1, Ordering::Relaxed);
            }
            Ok(Verdict::Pass)
        });
        let mut interrupted = false;
        for _ in 0..ATTEMPTS {
            let before = taken.load(Ordering::Relaxed);
            paused()?;
            interrupted |= before > 0 && taken.load(Ordering::Relaxed) > before;
            if interrupted || other.is_finished() {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
        let verdict = other.join().ok().context("a thread panicked")??;
        check!(
            interrupted || verdict != Verdict::Pass,
            "in {ATTEMPTS} runs of a long program no other task ran: nothing was seen"
        );
        Ok(verdict)
    })
}

/// Has a program call the function that is traced.
pub(crate) fn call(program: &ProgramMut<'_>) -> Result<()> {
    program
        .test_run(ProgramInput::default())
        .context("cannot run a BPF program")?;
    Ok(())
}
