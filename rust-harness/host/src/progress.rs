//! Shows the user which steps are under way.
//!
//! On a terminal each step has one line with a spinner and the time that has passed, which
//! its result replaces. Elsewhere a step prints a line at its start, one every 30 s, and one
//! at its end.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

const HEARTBEAT: Duration = Duration::from_secs(30);
/// How long a step takes that is shown after [`hide_short_steps`].
const LONG: Duration = Duration::from_secs(2);

/// What stands before a step that is under way.
const UNDER_WAY: &str = "  … ";
/// What stands before a step that has succeeded.
const DONE: &str = "  ✓ ";

static HIDES_SHORT_STEPS: AtomicBool = AtomicBool::new(false);

/// The lines of all steps that are under way.
static LINES: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);

/// From now on shows of the steps that succeed only those that take two seconds and more: where
/// standard error is a command's, not this program's.
pub fn hide_short_steps() {
    HIDES_SHORT_STEPS.store(true, Ordering::Relaxed);
}

/// Whether a line of standard error tells of a step that is under way or has succeeded. How many of
/// them a run prints depends on how fast the machine is.
pub fn is_about_a_step(line: &str) -> bool {
    [UNDER_WAY, DONE].iter().any(|mark| line.starts_with(mark))
}

/// Prints a line on standard error, above the lines of the steps that are under way. If it cannot
/// be written, as on a full disk, the run goes on without it. What would do something to a terminal
/// is left out: much of what is said is a guest's, or another machine's.
pub fn say(line: &str) {
    let line = printable(line);
    LINES.suspend(|| {
        let _ = writeln!(io::stderr(), "{line}");
    });
}

/// A text without what would do something to a terminal, or turn the direction of what is on it
/// around. Ends of lines and tabs stay.
pub fn printable(text: &str) -> String {
    let acts = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|c| !acts(*c)).collect()
}

/// A step that is under way. If it is dropped without [`Step::done`], it has failed.
#[derive(Debug)]
pub struct Step {
    name: String,
    start: Instant,
    drawing: Option<Drawing>,
}

#[derive(Debug)]
enum Drawing {
    Spinner(ProgressBar),
    Lines {
        stop: Sender<()>,
        thread: JoinHandle<()>,
    },
}

impl Step {
    /// Starts the step `name`, and shows it.
    pub fn start(name: impl Into<String>) -> Self {
        let name = name.into();
        let drawing = if std::io::stderr().is_terminal() {
            // Above the overview, if there is one.
            let bar = ProgressBar::new_spinner().with_message(name.clone());
            let bar = LINES.insert(0, bar);
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            Drawing::Spinner(bar)
        } else {
            if !HIDES_SHORT_STEPS.load(Ordering::Relaxed) {
                say(&format!("{UNDER_WAY}{name}"));
            }
            let heard = name.clone();
            Drawing::lines(HEARTBEAT, move |seconds| {
                say(&format!("{UNDER_WAY}{heard}  {seconds} s"));
            })
        };
        Self {
            name,
            start: Instant::now(),
            drawing: Some(drawing),
        }
    }

    /// Shows on a terminal what the step is doing right now. Elsewhere nothing is printed.
    pub fn note(&self, text: &str) {
        if let Some(Drawing::Spinner(bar)) = &self.drawing {
            let line: String = printable(text).trim().chars().take(60).collect();
            bar.set_message(format!("{}: {line}", self.name));
        }
    }

    /// Ends the step, and shows that it has succeeded.
    pub fn done(mut self) {
        if HIDES_SHORT_STEPS.load(Ordering::Relaxed) && self.start.elapsed() < LONG {
            self.erase();
        } else {
            self.finish(DONE);
        }
    }

    /// Ends the step without a word.
    pub fn hide(mut self) {
        self.erase();
    }

    fn finish(&mut self, mark: &str) {
        if self.erase() {
            let seconds = self.start.elapsed().as_secs_f64();
            say(&format!("{mark}{}  {seconds:.1} s", self.name));
        }
    }

    /// Takes the step from the screen. Returns whether it was there.
    fn erase(&mut self) -> bool {
        let Some(drawing) = self.drawing.take() else {
            return false;
        };
        match drawing {
            Drawing::Spinner(bar) => {
                bar.finish_and_clear();
                LINES.remove(&bar);
            }
            Drawing::Lines { stop, thread } => {
                drop(stop);
                // If the thread that prints the lines has panicked, only its lines are lost.
                let _ = thread.join();
            }
        }
        true
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.finish("  ✗ ");
    }
}

impl Drawing {
    /// Calls `beat` at intervals, with the seconds that have passed.
    fn lines(interval: Duration, beat: impl Fn(u64) + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let start = Instant::now();
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(interval) {
                beat(start.elapsed().as_secs());
            }
        });
        Self::Lines { stop, thread }
    }
}

/// How far a run of many steps is: on a terminal a line below those of the steps, elsewhere a
/// line every two minutes.
#[derive(Debug)]
pub struct Overview {
    text: Arc<Mutex<String>>,
    drawing: Drawing,
}

impl Overview {
    /// Starts an overview, which shows nothing yet.
    pub fn start() -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let drawing = if std::io::stderr().is_terminal() {
            let bar = LINES.add(ProgressBar::new_spinner());
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            Drawing::Spinner(bar)
        } else {
            let text = text.clone();
            Drawing::lines(4 * HEARTBEAT, move |seconds| {
                let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
                say(&format!("{text}; {} min have passed", seconds / 60));
            })
        };
        Self { text, drawing }
    }

    /// Shows another text.
    pub fn show(&self, text: &str) {
        if let Drawing::Spinner(bar) = &self.drawing {
            bar.set_message(text.to_owned());
        }
        text.clone_into(&mut self.text.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Overview {
    fn drop(&mut self) {
        // The thread that prints lines ends when its channel is dropped.
        if let Drawing::Spinner(bar) = &self.drawing {
            bar.finish_and_clear();
            LINES.remove(bar);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_steps_are_told_from_others() {
        assert!(is_about_a_step("  … build x  30 s"));
        assert!(is_about_a_step("  ✓ build x  2.4 s"));
        assert!(!is_about_a_step("  ✗ build x  2.4 s"), "that one failed");
        assert!(!is_about_a_step("err"));
    }

    #[test]
    fn what_is_said_does_nothing_to_a_terminal() {
        assert_eq!(printable("a\u{1b}[2Jb\r\n\tc\u{7}\u{202e}d"), "a[2Jb\n\tcd");
    }
}
