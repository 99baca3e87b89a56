//! Compares the plugin's log with what was executed: the log has to have all of that, and
//! nothing else.

use std::collections::BTreeMap;
use std::fmt;

use crate::event::Event;
use crate::plugin_log::{LoggedRecord, PluginEntry, parse};

/// How many differences are described in words.
const KEPT: usize = 10;

/// The result of comparing the plugin's log with what was executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogComparison {
    /// How many records agree with what was executed, by type.
    pub records: BTreeMap<String, u64>,
    /// How many conditional branches have the next instruction as their target: whether they
    /// were taken cannot be judged.
    pub undecidable: u64,
    /// How many freezes and resets there were. From each to the next unpausing nothing is to
    /// be recorded.
    pub freezes: u64,
    /// How many differences there are.
    pub differences: u64,
    /// The first differences, in words.
    pub examples: Vec<String>,
}

impl LogComparison {
    /// How many records of all types agree with what was executed.
    pub fn agreeing(&self) -> u64 {
        self.records.values().sum()
    }

    fn differ(&mut self, what: impl fmt::Display) {
        self.differences += 1;
        if self.examples.len() < KEPT {
            self.examples.push(what.to_string());
        }
    }
}

/// BRBE's registers, as far as they say what is to be recorded on a machine
/// without EL2 and EL3.
#[derive(Debug, Default)]
struct Recorder {
    brbcr: u64,
    brbfcr: u64,
    el: u8,
}

const E0BRE: u64 = 1 << 0;
const E1BRE: u64 = 1 << 1;
const ERTN: u64 = 1 << 22;
const EXCEPTION: u64 = 1 << 23;
const PAUSED: u64 = 1 << 7;
const ENI: u64 = 1 << 16;

impl Recorder {
    fn allows(&self, el: u8) -> bool {
        let enable = if el == 0 { E0BRE } else { E1BRE };
        self.brbfcr & PAUSED == 0 && self.brbcr & enable != 0
    }

    fn selects(&self, kind: &str) -> bool {
        let bit = match kind {
            "DIRECT" => 17,
            "INDIRECT" => 18,
            "RET" => 19,
            "INDIRECT_LINK" => 20,
            "DIRECT_LINK" => 21,
            _ => 22,
        };
        (self.brbfcr & (1 << bit) != 0) != (self.brbfcr & ENI != 0)
    }

    /// The record that BRBE makes of `event`, if any, and the Exception level after the
    /// event.
    fn record(&self, event: Event) -> (Option<LoggedRecord<'static>>, u8) {
        match event {
            Event::Branch { kind, src, tgt } if self.selects(kind) && self.allows(self.el) => {
                let record = LoggedRecord {
                    kind,
                    el: Some(self.el),
                    src: Some(src),
                    tgt: Some(tgt),
                };
                (Some(record), self.el)
            }
            Event::Exception {
                kind,
                from,
                to,
                src,
                tgt,
            } => (self.transition(EXCEPTION, kind, from, to, src, tgt), to),
            Event::Return { from, to, src, tgt } => {
                (self.transition(ERTN, "ERET", from, to, src, tgt), to)
            }
            _ => (None, self.el),
        }
    }

    fn transition(
        &self,
        gate: u64,
        kind: &'static str,
        from: u8,
        to: u8,
        src: u64,
        tgt: u64,
    ) -> Option<LoggedRecord<'static>> {
        let (src, tgt) = (
            self.allows(from).then_some(src),
            self.allows(to).then_some(tgt),
        );
        let recorded = self.brbcr & gate != 0 && (src.is_some() || tgt.is_some());
        recorded.then_some(LoggedRecord {
            kind,
            el: tgt.and(Some(to)),
            src,
            tgt,
        })
    }
}

/// Compares the events that were executed with the lines of the plugin's log of the same
/// time.
pub fn compare<'a>(events: &[Event], log: impl Iterator<Item = &'a str>) -> LogComparison {
    let mut result = LogComparison::default();
    let mut log = log.peekable();
    let mut recorder = Recorder::default();
    for &event in events {
        // At which instruction a counter overflows is for QEMU to say, so freezes are taken
        // from the log.
        while let Some(PluginEntry::Freeze | PluginEntry::Reset) =
            log.peek().and_then(|line| parse(line))
        {
            log.next();
            result.freezes += 1;
            recorder.brbfcr |= PAUSED;
        }
        match event {
            Event::Lost { from, to } => {
                result.differ(format_args!("QEMU's log leaps from {from:#x} to {to:#x}"));
            }
            Event::Access { pc } => match log.next().map(|line| (line, parse(line))) {
                Some((
                    _,
                    Some(PluginEntry::Write {
                        register,
                        value,
                        pc: at,
                    }),
                )) if at == pc => {
                    recorder.el = 1;
                    match register {
                        "BRBCR_EL1" => recorder.brbcr = value,
                        "BRBFCR_EL1" => recorder.brbfcr = value,
                        _ => {}
                    }
                }
                Some((_, Some(PluginEntry::Other { pc: at }))) if at == pc => recorder.el = 1,
                other => {
                    let line = other.map_or("nothing", |(line, _)| line);
                    result.differ(format_args!(
                        "BRBE is accessed at {pc:#x}, logged is: {line}"
                    ));
                    return result;
                }
            },
            Event::Undecidable { src } => {
                result.undecidable += 1;
                let next = log.peek().and_then(|line| parse(line));
                if matches!(next, Some(PluginEntry::Record(record)) if record.src == Some(src)) {
                    log.next();
                }
            }
            _ => {
                let (record, el) = recorder.record(event);
                recorder.el = el;
                let Some(record) = record else { continue };
                let found = log.peek().copied();
                match found.and_then(parse) {
                    Some(PluginEntry::Record(logged)) if logged == record => {
                        *result.records.entry(record.kind.to_owned()).or_default() += 1;
                        log.next();
                    }
                    Some(PluginEntry::Record(_)) => {
                        log.next();
                        let line = found.unwrap_or_default();
                        result.differ(format_args!("executed: {event:x?}, logged: {line}"));
                    }
                    _ => {
                        let line = found.unwrap_or("nothing more");
                        result.differ(format_args!(
                            "executed and not recorded: {event:x?}; logged is: {line}"
                        ));
                    }
                }
            }
        }
    }
    for line in log {
        if let Some(PluginEntry::Record(_)) = parse(line) {
            result.differ(format_args!("recorded and not executed: {line}"));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 6] = [
        Event::Access { pc: 0x10 },
        Event::Access { pc: 0x14 },
        Event::Branch {
            kind: "DIRECT",
            src: 0x20,
            tgt: 0x40,
        },
        Event::Exception {
            kind: "IRQ",
            from: 1,
            to: 1,
            src: 0x44,
            tgt: 0x80,
        },
        Event::Return {
            from: 1,
            to: 0,
            src: 0x84,
            tgt: 0x44,
        },
        Event::Branch {
            kind: "RET",
            src: 0x48,
            tgt: 0x40,
        },
    ];

    const LOG: [&str; 5] = [
        "0 write BRBCR_EL1 0xc00002 at 0x10",
        "0 write BRBFCR_EL1 0x7e0000 at 0x14",
        "0 record DIRECT EL1 0x20 -> 0x40 cc=?",
        "0 record IRQ EL1 0x44 -> 0x80 cc=2",
        "0 record ERET - 0x84 -> - cc=2",
    ];

    #[test]
    fn what_agrees() {
        let result = compare(&EVENTS, LOG.into_iter());
        assert_eq!(
            (result.agreeing(), result.differences),
            (3, 0),
            "{result:?}"
        );
    }

    #[test]
    fn every_deviation_is_found() {
        for (line, instead) in [
            (2, Some("0 record DIRECT EL1 0x20 -> 0x44 cc=?")),
            (2, Some("0 record INDIRECT EL1 0x20 -> 0x40 cc=?")),
            (2, Some("0 record DIRECT EL0 0x20 -> 0x40 cc=?")),
            (2, Some("0 record DIRECT EL1 0x24 -> 0x40 cc=?")),
            (2, None),
            (4, None),
            (4, Some("0 record ERET EL0 0x84 -> 0x44 cc=2")),
            (1, Some("0 write BRBFCR_EL1 0x7e0000 at 0x18")),
        ] {
            let mut log = LOG.to_vec();
            match instead {
                Some(instead) => log[line] = instead,
                None => drop(log.remove(line)),
            }
            let result = compare(&EVENTS, log.into_iter());
            assert!(result.differences > 0, "{line} {instead:?}");
        }
        let once_more = LOG.into_iter().chain([LOG[2]]);
        assert_eq!(compare(&EVENTS, once_more).differences, 1);
    }

    #[test]
    fn after_a_freeze_nothing_is_recorded() {
        let log = [LOG[0], LOG[1], LOG[2], "0 freeze"];
        let result = compare(&EVENTS, log.into_iter());
        assert_eq!(
            (result.agreeing(), result.differences, result.freezes),
            (1, 0, 1)
        );
    }

    #[test]
    fn a_leap_is_a_difference() {
        let lost = Event::Lost { from: 1, to: 2 };
        assert_eq!(compare(&[lost], std::iter::empty()).differences, 1);
    }
}
