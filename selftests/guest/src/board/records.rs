//! What many records look like, and which of them the architecture has no explanation for.

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use branch_records::record::{Cycles, RawRecord};
use guest_reports::board::{Odd, Records};

use crate::contract::{self, Answer, STALE};
use crate::cpus;
use crate::kallsyms::Kallsyms;
use crate::path::{NoPath, Paths};
use crate::skeleton::board::{BoardSkel, BoardSkelBuilder, types};
use crate::skeleton::{self, of_this_process};
use crate::stale_bits;
use crate::verdict;

/// How many snapshots are taken of each system call, on each CPU.
const TIMES: usize = 50;
/// On how many CPUs at the most: those of one kind are alike.
const CPUS: usize = 16;
/// How many odd snapshots are kept.
const EXAMPLES: usize = 8;

/// System calls whose ways through the kernel have different branches: some succeed, some fail.
const CALLS: [fn(); 8] = [
    || {
        black_box(std::os::unix::process::parent_id());
    },
    || {
        let _ = std::fs::metadata("/proc/self/no such file");
    },
    || {
        let _ = std::fs::read("/proc/self/stat");
    },
    || {
        let _ = UdpSocket::bind("127.0.0.1:0");
    },
    || {
        if let Ok((mut reader, mut writer)) = std::io::pipe() {
            let _ = writer.write_all(b"x");
            let _ = reader.read_exact(&mut [0]);
        }
    },
    || {
        let _ = rustix::fs::memfd_create("brbe", rustix::fs::MemfdFlags::CLOEXEC);
    },
    || thread::sleep(Duration::from_micros(1)),
    || {
        let _ = std::fs::read_dir("/proc/self/fd").map(Iterator::count);
    },
];

/// Takes a snapshot as each of the system calls returns, and checks its records.
pub(super) fn look() -> Result<Records> {
    let events = verdict::record_everywhere()?;
    let symbols = Kallsyms::read()?;
    let mut memory = MaybeUninit::uninit();
    let mut open = skeleton::open(BoardSkelBuilder::default(), &mut memory)?;
    of_this_process!(open);
    let mut skeleton = skeleton::loaded(open)?;
    let _link = skeleton
        .progs
        .take_at_exit
        .attach()
        .context("cannot attach to sys_exit: the kernel needs CONFIG_FTRACE_SYSCALLS")?;
    let paths = Paths::open();
    let mut seen = Records::default();
    for (cpu, _) in events.iter().take(CPUS) {
        cpus::pin_to(*cpu)?;
        for call in CALLS {
            for _ in 0..TIMES {
                let answer = take(&mut skeleton, call)?;
                let odd = match paths.check(answer.records()) {
                    Ok(findings) => {
                        seen.followed += findings.possible as u64;
                        stale_bits::problem(&answer)
                    }
                    Err(error) if error.is::<NoPath>() => Some(format!("{error:#}")),
                    Err(error) => return Err(error),
                };
                add(&mut seen, answer.records(), odd, &symbols);
            }
        }
    }
    Ok(seen)
}

/// Takes a snapshot as the first system call of `call` returns.
fn take(skeleton: &mut BoardSkel<'_>, call: fn()) -> Result<Answer> {
    let data = skeleton.maps.bss_data.as_deref_mut();
    let data = data.context("the program has no memory in common with us")?;
    data.buffer.fill_with(|| types::record {
        from: STALE,
        to: STALE,
        flags: STALE,
    });
    data.taken = i64::MIN;
    // The kernel writes there meanwhile.
    let mut data = black_box(data);
    // The kernel runs no program of a kind on a CPU while another task, preempted there, is in the
    // midst of one.
    for _ in 0..contract::CALLS {
        call();
        data = black_box(data);
        if data.taken != i64::MIN {
            break;
        }
        thread::sleep(contract::PAUSE);
        // The pause was a system call, too.
        data.taken = i64::MIN;
    }
    ensure!(data.taken != i64::MIN, "the program did not run");
    ensure!(data.taken >= 0, "the helper returned {}", data.taken);
    let memory = data.buffer.iter().map(RawRecord::from).collect();
    Ok(Answer::new(data.taken, memory))
}

/// Adds a snapshot, of which `what` is odd if anything is.
fn add(seen: &mut Records, records: &[RawRecord], what: Option<String>, symbols: &Kallsyms) {
    seen.snapshots += 1;
    seen.records += records.len() as u64;
    for record in records.iter().map(RawRecord::decode) {
        *seen.types.entry(record.kind.name().to_owned()).or_default() += 1;
        seen.with_cycles += u64::from(record.cycles != Cycles::Unknown);
        seen.mispredicted += u64::from(record.mispredicted);
    }
    let Some(what) = what else { return };
    seen.odd += 1;
    if seen.examples.len() < EXAMPLES {
        let words = |raw: &RawRecord| [raw.from, raw.to, raw.flags].map(|word| format!("{word:x}"));
        let names = |raw: &RawRecord| [raw.from, raw.to].map(|at| symbols.describe(at));
        seen.examples.push(Odd {
            what,
            records: records.iter().map(words).collect(),
            names: records.iter().map(names).collect(),
        });
    }
}
