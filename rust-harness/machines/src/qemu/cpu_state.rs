//! Asks QEMU which code the CPUs of a machine execute. That is what can still be reported of
//! a guest that prints nothing any more.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use qapi::{Qmp, qmp};

/// How long QEMU may take for all of its answers, which takes seconds on a busy host.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often QEMU is asked. Several answers tell a CPU that loops from one that is stuck.
const SAMPLES: usize = 3;
/// The time from one question to QEMU to the next.
const INTERVAL: Duration = Duration::from_millis(100);
/// The registers that are reported, by QEMU's names: program counter, link register, stack
/// pointer, and condition flags with masks.
const TELLING: [&str; 4] = ["PC=", "X30=", "SP=", "PSTATE="];
/// How long all questions to QEMU take at the most.
pub(super) const ASKING: Duration = Duration::from_secs(11);

/// The socket of QEMU's monitor (QMP), for the machine of this process.
#[derive(Clone, Debug)]
pub(super) struct Monitor(PathBuf);

impl Monitor {
    /// The path of a socket that does not exist yet. The machine's `share` names it: its name is like
    /// no other's, where the number of a process is that of another one in another namespace.
    pub(super) fn new(share: &Path) -> Self {
        let name = share.file_name().unwrap_or_default().display();
        Self(std::env::temp_dir().join(format!("brbe-qmp-{name}.sock")))
    }

    /// The arguments that have QEMU make the socket.
    pub(super) fn args(&self) -> [String; 2] {
        let socket = format!("unix:{},server=on,wait=off", self.0.display());
        ["-qmp".to_owned(), socket]
    }

    /// Program counter, link register, stack pointer and state of each CPU, at a few moments,
    /// in QEMU's words: a line for each CPU and moment. Or one line that says why they are
    /// not known.
    pub(super) fn cpu_state(&self) -> Vec<String> {
        ask(&self.0).unwrap_or_else(|error| {
            vec![format!(
                "QEMU does not report the state of its CPUs: {error}"
            )]
        })
    }
}

fn ask(socket: &Path) -> io::Result<Vec<String>> {
    let deadline = Instant::now() + PATIENCE;
    let stream = UnixStream::connect(socket)?;
    let wait_until_deadline = || {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Some(left.max(Duration::from_millis(1)));
        stream.set_read_timeout(left)?;
        stream.set_write_timeout(left)
    };
    wait_until_deadline()?;
    let mut monitor = Qmp::new(qapi::Stream::new(io::BufReader::new(&stream), &stream));
    monitor.handshake()?;
    let mut said = Vec::new();
    for _ in 0..SAMPLES {
        wait_until_deadline()?;
        let registers = monitor.execute(&qmp::human_monitor_command {
            command_line: "info registers -a".to_owned(),
            cpu_index: None,
        })?;
        said.extend(paths(&registers));
        thread::sleep(INTERVAL);
    }
    Ok(said)
}

/// A line for each CPU with those of its registers that say where it is.
fn paths(registers: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for word in registers.split_whitespace() {
        if word.starts_with("CPU#") {
            paths.push(word.to_owned());
        } else if let Some(place) = paths.last_mut()
            && TELLING.iter().any(|name| word.starts_with(name))
        {
            *place += " ";
            *place += word;
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_with_a_program_counter_are_reported() {
        let registers = "\nCPU#0\n PC=ffff800080012344 X00=0 X01=1\nX02=2 X03=3\n\
                         X29=ffff X30=ffff800080010000  SP=ffff8000813c3d50\n\
                         PSTATE=604003c5 -ZC- EL1h     FPCR=00000000\nQ00=0:0\n\
                         \nCPU#1\n PC=1 X00=0\n";
        assert_eq!(
            paths(registers),
            [
                "CPU#0 PC=ffff800080012344 X30=ffff800080010000 SP=ffff8000813c3d50 \
                 PSTATE=604003c5",
                "CPU#1 PC=1",
            ]
        );
    }

    #[test]
    fn a_machine_that_is_not_there_is_reported() {
        let [said] = &Monitor(PathBuf::from("/nonexistent/socket")).cpu_state()[..] else {
            panic!("not one line")
        };
        assert!(said.starts_with("QEMU does not report"), "{said}");
    }
}
