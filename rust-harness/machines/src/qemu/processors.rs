//! Where the processors of a machine are, asked of QEMU: what is left to be told of
//! a guest that says nothing any more.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use qapi::{Qmp, qmp};

/// How long QEMU may take for all of its answers: seconds on a busy host.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is asked: what loops is seen to, and what is stuck.
const SAMPLES: usize = 3;
/// From one sample to the next.
const INTERVAL: Duration = Duration::from_millis(100);
/// Program counter, link register, stack pointer, condition flags and masks.
const TELLING: [&str; 4] = ["PC=", "X30=", "SP=", "PSTATE="];
/// What asking takes at most.
pub(super) const ASKING: Duration = Duration::from_secs(11);

/// A socket of QEMU's, of this process's machine.
#[derive(Clone, Debug)]
pub(super) struct Monitor(PathBuf);

impl Monitor {
    /// One that is not there yet.
    pub(super) fn new() -> Self {
        Self(std::env::temp_dir().join(format!("brbe-qmp-{}.sock", std::process::id())))
    }

    /// What has QEMU make it.
    pub(super) fn args(&self) -> [String; 2] {
        let socket = format!("unix:{},server=on,wait=off", self.0.display());
        ["-qmp".to_owned(), socket]
    }

    /// Program counter, link register, stack pointer and state of each processor,
    /// at a few moments, in QEMU's words; or why they are not known.
    pub(super) fn processors(&self) -> Vec<String> {
        ask(&self.0).unwrap_or_else(|error| {
            vec![format!(
                "QEMU does not tell where its processors are: {error}"
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

/// Of all registers, those that say where a processor is, a line for each.
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
    fn only_what_says_where_a_processor_is_is_told() {
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
    fn a_machine_that_is_not_there_is_told() {
        let [said] = &Monitor(PathBuf::from("/nonexistent/socket")).processors()[..] else {
            panic!("not one line")
        };
        assert!(said.starts_with("QEMU does not tell"), "{said}");
    }
}
