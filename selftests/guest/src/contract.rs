//! Calls the helper, `bpf_get_branch_snapshot()`, with arguments that a test chooses.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use branch_records::record::RawRecord;
use libbpf_rs::skel::OpenSkel as _;
use libbpf_rs::{Link, OpenObject, ProgramInput, ProgramMut};

use crate::path::Paths;
use crate::skeleton::contract::{
    ContractProgs, ContractSkel, ContractSkelBuilder, OpenContractSkel, types,
};
use crate::skeleton::{self, of_this_process};

/// The number of records that the BPF program has room for, and so the most it asks for.
pub(crate) const MAX_RECORDS: usize = 64;
/// The size of memory with room for all records, in bytes.
pub(crate) const WHOLE: usize = RawRecord::SIZE * MAX_RECORDS;
/// The word that memory is filled with before the helper writes there.
pub(crate) const STALE: u64 = u64::MAX;

/// What tells the program for system calls that none of them is the one.
const NOT_YET: i64 = 1;
/// The most system calls that are made for one snapshot.
pub(crate) const CALLS: u32 = 100;
/// How long other tasks have between two of these system calls.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// The file that says whether programs are compiled that are loaded from now on.
const JIT: &str = "/proc/sys/net/core/bpf_jit_enable";

/// The loaded BPF program that calls the helper.
pub(crate) struct Helper<'object> {
    skeleton: ContractSkel<'object>,
    paths: Paths,
}

/// What one call of the helper did.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What the helper returned: the number of bytes that it wrote, or a negative error.
    pub(crate) returned: i64,
    /// The memory that the helper was given, and one record more. All of it was stale
    /// before.
    memory: Vec<RawRecord>,
}

impl<'object> Helper<'object> {
    /// The program, compiled.
    pub(crate) fn load(object: &'object mut MaybeUninit<OpenObject>) -> Result<Self> {
        Self::of(Self::open(object)?)
    }

    /// The program as it is, not compiled, for [`Self::call`] alone. `None` where the kernel
    /// only compiles.
    pub(crate) fn interpreted(
        object: &'object mut MaybeUninit<OpenObject>,
    ) -> Result<Option<Self>> {
        let mut open = Self::open(object)?;
        for mut program in open.open_object_mut().progs_mut() {
            program.set_autoload(program.name() == "take");
        }
        let before = fs::read_to_string(JIT).with_context(|| format!("reading {JIT}"))?;
        if fs::write(JIT, "0").is_err() {
            return Ok(None);
        }
        let loaded = Self::of(open);
        fs::write(JIT, before).with_context(|| format!("writing {JIT}"))?;
        loaded.map(Some)
    }

    fn open(object: &'object mut MaybeUninit<OpenObject>) -> Result<OpenContractSkel<'object>> {
        let mut open = skeleton::open(ContractSkelBuilder::default(), object)?;
        of_this_process!(open);
        Ok(open)
    }

    fn of(open: OpenContractSkel<'object>) -> Result<Self> {
        let skeleton = skeleton::loaded(open)?;
        let paths = Paths::open();
        Ok(Self { skeleton, paths })
    }

    /// Fills the memory with ones and calls the helper on this CPU. This thread keeps the CPU from
    /// before the system call to the helper, so that all branches of the call are recorded.
    pub(crate) fn call(&mut self, size: usize, flags: u64) -> Result<Answer> {
        self.run_undisturbed(|programs| &programs.take, [size as u64, flags])?;
        self.first()
    }

    /// Calls the helper without flags. Returns the CPU that the program ran on, too: this
    /// process need not be bound to one.
    pub(crate) fn call_anywhere(&mut self, size: usize) -> Result<(Answer, u32)> {
        self.fill(i64::MIN)?;
        run(&self.skeleton.progs.take_and_note_cpu, [size as u64, 0])?;
        let cpu = self.data()?.cpu;
        Ok((self.first()?, cpu))
    }

    /// Calls the helper twice, without anything between the two calls. This thread keeps the CPU
    /// from before the system call to the second call of the helper.
    pub(crate) fn call_twice(&mut self, sizes: [usize; 2]) -> Result<[Answer; 2]> {
        let arguments = sizes.map(|size| size as u64);
        self.run_undisturbed(|programs| &programs.take_twice, arguments)?;
        let data = self.data()?;
        let second = Answer::of(data.taken2, &data.buffer2)?;
        self.paths.check(second.records())?;
        Ok([self.first()?, second])
    }

    /// Calls the helper, and goes on in the BPF program until a timer tick has come, or
    /// for `turns` of a loop. Returns also how many turns those were.
    pub(crate) fn call_and_wait(&mut self, size: usize, turns: u32) -> Result<(Answer, i64)> {
        self.fill(i64::MIN)?;
        run(
            &self.skeleton.progs.take_and_wait,
            [size as u64, turns.into()],
        )?;
        let waited = self.data()?.waited;
        Ok((self.first()?, waited))
    }

    /// Calls the helper as the kernel enters a system call of this process's first thread.
    pub(crate) fn call_at_system_call(&mut self) -> Result<Answer> {
        let _link = self.attach_at_call()?;
        let answer = self.take_at_call(|| Ok(()))?;
        self.check(&answer)?;
        Ok(answer)
    }

    /// Calls the helper some times, each as the kernel enters the first system call of this process's
    /// first thread after `then`. Next to nothing of this program runs in between. Whether the
    /// records are a path is for [`Self::check`].
    pub(crate) fn call_after(
        &mut self,
        times: usize,
        mut then: impl FnMut() -> Result<()>,
    ) -> Result<Vec<Answer>> {
        let _link = self.attach_at_call()?;
        (0..times).map(|_| self.take_at_call(&mut then)).collect()
    }

    fn attach_at_call(&mut self) -> Result<Link> {
        self.data()?.taken = NOT_YET;
        let program = &self.skeleton.progs.take_at_call;
        program
            .attach()
            .context("cannot attach to sys_enter: the kernel needs CONFIG_FTRACE_SYSCALLS")
    }

    /// The snapshot of a system call right after `then`, which an attached program takes.
    ///
    /// The kernel leaves a program out while another task on the CPU is preempted in it. So other
    /// tasks have time then, and all begins anew.
    fn take_at_call(&mut self, mut then: impl FnMut() -> Result<()>) -> Result<Answer> {
        for _ in 0..CALLS {
            self.fill(NOT_YET)?;
            then()?;
            self.data()?.taken = 0;
            // The program writes to our memory meanwhile. So the compiler must not know that the call
            // does not, as it does of rustix's.
            let _ = unix::process::parent_id();
            let data = self.data()?;
            if data.taken != 0 {
                return Answer::of(data.taken, &data.buffer);
            }
            data.taken = NOT_YET;
            thread::sleep(PAUSE);
        }
        bail!("the program did not run at any of {CALLS} system calls")
    }

    /// Makes all the memory stale and runs a program, anew until this thread keeps the CPU
    /// meanwhile.
    ///
    /// The drivers of both architectures empty the CPU's branch records as a task is switched in.
    /// After that there may be fewer than the test expects.
    fn run_undisturbed(
        &mut self,
        program: impl for<'a> Fn(&'a ContractProgs<'object>) -> &'a ProgramMut<'object>,
        arguments: [u64; 2],
    ) -> Result<()> {
        for _ in 0..CALLS {
            let before = switches()?;
            self.fill(i64::MIN)?;
            run(program(&self.skeleton.progs), arguments)?;
            if switches()? == before {
                return Ok(());
            }
        }
        bail!("another task had the CPU in the midst of each of {CALLS} calls")
    }

    /// Makes all the memory stale, and sets the results of the helper to `taken`, which
    /// shows later whether the program ran.
    fn fill(&mut self, taken: i64) -> Result<()> {
        let data = self.data()?;
        for record in data.buffer.iter_mut().chain(&mut data.buffer2) {
            record.from = STALE;
            record.to = STALE;
            record.flags = STALE;
        }
        (data.taken, data.taken2) = (taken, taken);
        Ok(())
    }

    fn first(&mut self) -> Result<Answer> {
        let data = self.data()?;
        let answer = Answer::of(data.taken, &data.buffer)?;
        self.check(&answer)?;
        Ok(answer)
    }

    /// Checks that the records of an answer are a path.
    pub(crate) fn check(&self, answer: &Answer) -> Result<()> {
        self.paths.check(answer.records()).map(|_| ())
    }

    fn data(&mut self) -> Result<&mut types::bss> {
        self.skeleton
            .maps
            .bss_data
            .as_deref_mut()
            .context("the program has no memory in common with us")
    }
}

/// How often this thread was switched out.
fn switches() -> Result<u64> {
    const STATUS: &str = "/proc/thread-self/status";
    let status = fs::read_to_string(STATUS).with_context(|| format!("reading {STATUS}"))?;
    let counts = ["voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"].map(|name| {
        let count = status.lines().find_map(|line| line.strip_prefix(name))?;
        count.trim().parse::<u64>().ok()
    });
    let sum = counts.into_iter().sum::<Option<u64>>();
    sum.with_context(|| format!("{STATUS} does not say how often this thread was switched out"))
}

/// Runs a BPF program that takes two numbers.
fn run(program: &ProgramMut<'_>, arguments: [u64; 2]) -> Result<()> {
    let mut context = arguments.map(u64::to_ne_bytes).concat();
    let input = ProgramInput {
        context_in: Some(&mut context),
        ..Default::default()
    };
    let output = program
        .test_run(input)
        .context("cannot run a BPF program")?;
    ensure!(
        output.return_value == 0,
        "the program refused its arguments {arguments:?}"
    );
    Ok(())
}

impl Answer {
    fn of(returned: i64, memory: &[types::record]) -> Result<Self> {
        ensure!(returned != i64::MIN, "the program did not run");
        let memory = memory.iter().map(RawRecord::from).collect();
        Ok(Self::new(returned, memory))
    }

    /// An answer made of what a BPF program reports: what the helper returned, and the
    /// memory that it was given. That memory was all ones, and has a record more than the
    /// helper may write.
    pub(crate) fn new(returned: i64, memory: Vec<RawRecord>) -> Self {
        Self { returned, memory }
    }

    /// The records that the helper returned.
    pub(crate) fn records(&self) -> &[RawRecord] {
        let bytes = usize::try_from(self.returned).unwrap_or(0);
        &self.memory[..self.memory.len().min(bytes / RawRecord::SIZE)]
    }

    /// What is wrong behind the returned records, if anything: the helper has written there. The
    /// memory has to have been stale.
    pub(crate) fn written_behind(&self) -> Option<String> {
        let index = self.overwritten()?;
        let returned = self.returned;
        Some(format!(
            "the helper returned {returned} and wrote record {index}"
        ))
    }

    /// The index of the first record after the returned ones that was written all the
    /// same.
    pub(crate) fn overwritten(&self) -> Option<usize> {
        let stale = RawRecord {
            from: STALE,
            to: STALE,
            flags: STALE,
        };
        let returned = self.records().len();
        let written = self.memory[returned..]
            .iter()
            .position(|record| *record != stale)?;
        Some(returned + written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(returned: i64, written: usize) -> Answer {
        let mut memory = vec![RawRecord::from_ne_bytes(&[0xff; 24]); 4];
        memory[..written].fill(RawRecord::default());
        Answer { returned, memory }
    }

    #[test]
    fn what_is_written_behind_the_records_is_seen() {
        assert_eq!(answer(48, 2).records().len(), 2);
        assert_eq!(answer(48, 2).overwritten(), None);
        assert_eq!(answer(48, 3).overwritten(), Some(2));
        let said = answer(48, 3).written_behind().unwrap();
        assert_eq!(said, "the helper returned 48 and wrote record 2");
        assert_eq!(answer(-2, 0).overwritten(), None);
        assert_eq!(answer(-2, 1).overwritten(), Some(0));
        assert_eq!(answer(24 * 9, 4).records().len(), 4);
    }
}
