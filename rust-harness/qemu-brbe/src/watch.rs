//! `watch=ADDRESS`, `watch-log=FILE`: all that is executed from each call of a function to its
//! return, and what a counter overflow and an interrupt hit there.
//!
//! ```text
//! 0 call 0xffff800080b5d398
//! 0 block 0xffff800080b5d398 5
//! 0 overflow 0x80000000
//! 0 block 0xffff800080b5d3ac 1
//! 0 read BRBFCR_EL1 0x0 at 0xffff800080b5d3ac
//! 0 interrupt 0xffff800080b5d3b0 0x1
//! 0 block 0xffff800080b5d3b0 4
//! 0 pmcr 0x40
//! 0 block 0xffff800080b5d3c0 2
//! 0 return 0xffff800080012340
//! ```
//!
//! A line `block` has the block's address and its number of instructions. Lines `read`, `write`
//! and `execute` are accesses to BRBE, as `log=` has them; such an instruction is the last one of
//! its block. A line `overflow` has the value of PMOVSSET_EL0. It comes before the first block
//! that finds a bit set there that was not set for the block before it; a bit that is set when
//! the function is called counts as new. Where QEMU ends a block at each event (`-icount`), the
//! line comes right after an instruction. A line `pmcr` has the value of PMCR_EL0, and comes
//! before the first block that finds another one than the block before it. A line `interrupt` has
//! the address of the instruction that an exception came before, and the value of PMOVSSET_EL0;
//! if it is the function's first instruction, the line comes before that of the call.
//!
//! What handles an exception is no part of the call. A call goes on where the exception returns
//! to, on the same stack. A function that is called again on the same stack before it has
//! returned has been left in another way.

use std::ffi::c_void;
use std::fmt::Display;

use crate::log::Log;

/// A block: the offset of its first instruction in the page, and its number of instructions. The
/// block's address is known when it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WatchedBlock {
    offset: u16,
    instructions: u16,
}

impl WatchedBlock {
    pub(crate) fn new(first: u64, instructions: usize) -> Self {
        Self {
            offset: (first & 0xfff) as u16,
            instructions: u16::try_from(instructions).unwrap_or(u16::MAX),
        }
    }

    pub(crate) fn into_userdata(self) -> *mut c_void {
        let packed = usize::from(self.offset) << 16 | usize::from(self.instructions);
        qemu_plugin::userdata(packed as u64)
    }

    pub(crate) fn from_userdata(userdata: *mut c_void) -> Self {
        let packed = userdata.addr();
        Self {
            offset: (packed >> 16) as u16,
            instructions: packed as u16,
        }
    }

    /// The block's address, where `pc` is in the same page.
    pub(crate) fn address(self, pc: u64) -> u64 {
        pc & !0xfff | u64::from(self.offset)
    }
}

/// The values of the PMU's registers that a watch looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PmuState {
    /// PMOVSSET_EL0.
    pub(crate) overflow: u64,
    /// PMCR_EL0.
    pub(crate) pmcr: u64,
}

/// An instruction, and the stack that it executes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) sp: u64,
}

/// Where a call goes on that an exception has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GoesOn {
    pub(crate) address: u64,
    /// `None` if the handler has another stack pointer.
    pub(crate) sp: Option<u64>,
}

/// A call of the watched function that has not returned.
#[derive(Debug)]
pub(crate) struct WatchedCall {
    /// The stack pointer when it began.
    sp: u64,
    /// The address that the call returns to.
    returns_to: u64,
    /// Set while an exception is handled.
    goes_on: Option<GoesOn>,
    pmu: PmuState,
}

impl WatchedCall {
    /// Whether the call executes, and not a handler.
    pub(crate) fn is_executing(&self) -> bool {
        self.goes_on.is_none()
    }

    /// An exception was taken that returns to there.
    pub(crate) fn leave(&mut self, goes_on: GoesOn) {
        self.goes_on = Some(goes_on);
    }

    /// Whether the call executes what is at `place`. It may go on there.
    fn executes(&mut self, place: Place) -> bool {
        let goes_on = |there: GoesOn| {
            there.address == place.address && there.sp.is_none_or(|sp| sp == place.sp)
        };
        if self.goes_on.is_some_and(goes_on) {
            self.goes_on = None;
        }
        self.is_executing()
    }
}

/// The watch of one vCPU: the function whose calls it follows, and its log.
#[derive(Debug)]
pub(crate) struct Watch {
    log: Log,
    function: u64,
}

impl Watch {
    pub(crate) fn new(log: Log, function: u64) -> Self {
        Self { log, function }
    }

    /// Follows a block that starts at `place`. `call` is the call that has not returned, and is
    /// set to what it is after this; `returns_to` is where a call that begins here returns to.
    pub(crate) fn block(
        &self,
        call: &mut Option<WatchedCall>,
        place: Place,
        block: WatchedBlock,
        returns_to: u64,
        pmu: PmuState,
    ) {
        let is_open_elsewhere = call.as_ref().is_some_and(|call| call.sp != place.sp);
        if place.address == self.function && !is_open_elsewhere {
            self.log.line(format_args!("call {:#x}", place.address));
            let none = PmuState { overflow: 0, ..pmu };
            *call = Some(WatchedCall {
                sp: place.sp,
                returns_to,
                goes_on: None,
                pmu: none,
            });
        }
        let Some(open) = call else { return };
        if !open.executes(place) {
            return;
        }
        if place.address == open.returns_to && place.sp == open.sp {
            self.log.line(format_args!("return {:#x}", place.address));
            *call = None;
            return;
        }
        let before = std::mem::replace(&mut open.pmu, pmu);
        if pmu.overflow & !before.overflow != 0 {
            self.log.line(format_args!("overflow {:#x}", pmu.overflow));
        }
        if pmu.pmcr != before.pmcr {
            self.log.line(format_args!("pmcr {:#x}", pmu.pmcr));
        }
        self.log.line(format_args!(
            "block {:#x} {}",
            place.address, block.instructions
        ));
    }

    /// Whether an exception that is taken from `address` interrupts a call: the one that has not
    /// returned, or one that is about to begin.
    pub(crate) fn is_interrupted(&self, call: Option<&WatchedCall>, address: u64) -> bool {
        call.map_or(address == self.function, WatchedCall::is_executing)
    }

    /// Logs an exception.
    pub(crate) fn interrupt(&self, address: u64, overflow: u64) {
        self.log
            .line(format_args!("interrupt {address:#x} {overflow:#x}"));
    }

    /// Logs what the call did.
    pub(crate) fn line(&self, what: impl Display) {
        self.log.line(what);
    }

    pub(crate) fn flush(&self) {
        self.log.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::log::LogFile;

    const FUNCTION: u64 = 0x1000;
    const CALLER: u64 = 0x9004;
    const QUIET: PmuState = PmuState {
        overflow: 0,
        pmcr: 0x41,
    };

    /// A watch, what it has of its call, and its log.
    struct Watched {
        watch: Watch,
        call: Option<WatchedCall>,
        path: PathBuf,
    }

    impl Watched {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("{name}.{}", std::process::id()));
            let log = Log::new(0, LogFile::create("watch-log", &path).unwrap());
            Self {
                watch: Watch::new(log, FUNCTION),
                call: None,
                path,
            }
        }

        fn block(&mut self, address: u64, sp: u64, pmu: PmuState) {
            let place = Place { address, sp };
            let block = WatchedBlock::new(address, 2);
            self.watch.block(&mut self.call, place, block, CALLER, pmu);
        }

        fn text(self) -> String {
            self.watch.flush();
            let text = fs::read_to_string(&self.path).unwrap();
            fs::remove_file(self.path).unwrap();
            text
        }
    }

    #[test]
    fn a_call_is_followed_wherever_it_goes_until_it_returns() {
        let mut watched = Watched::new("followed");
        for address in [CALLER - 8, FUNCTION, 0x5000, CALLER, 0x5000] {
            let sp = if address == 0x5000 { 0x70 } else { 0x80 };
            watched.block(address, sp, QUIET);
        }
        let expected = "0 call 0x1000\n0 block 0x1000 2\n0 block 0x5000 2\n0 return 0x9004\n";
        assert_eq!(watched.text(), expected);
    }

    #[test]
    fn what_handles_an_exception_is_no_part_of_the_call() {
        let mut watched = Watched::new("handled");
        watched.block(FUNCTION, 0x80, QUIET);
        let goes_on = GoesOn {
            address: 0x5000,
            sp: Some(0x70),
        };
        assert!(watched.watch.is_interrupted(watched.call.as_ref(), 0x5000));
        watched.call.as_mut().unwrap().leave(goes_on);
        assert!(!watched.watch.is_interrupted(watched.call.as_ref(), 0x5000));
        // The handler executes the same code, calls the function, and returns to its caller.
        for (address, sp) in [
            (0x5000, 0x40),
            (FUNCTION, 0x40),
            (CALLER, 0x40),
            (0x5000, 0x70),
        ] {
            watched.block(address, sp, QUIET);
        }
        let expected = "0 call 0x1000\n0 block 0x1000 2\n0 block 0x5000 2\n";
        assert_eq!(watched.text(), expected);
    }

    #[test]
    fn a_call_that_never_returns_is_over_when_the_next_one_begins() {
        let mut watched = Watched::new("over");
        for _ in 0..2 {
            watched.block(FUNCTION, 0x80, QUIET);
        }
        let expected = "0 call 0x1000\n0 block 0x1000 2\n".repeat(2);
        assert_eq!(watched.text(), expected);
    }

    #[test]
    fn what_the_pmu_does_comes_before_the_block_that_finds_it() {
        let mut watched = Watched::new("pmu");
        let overflowed = PmuState {
            overflow: 1,
            ..QUIET
        };
        let stopped = PmuState {
            pmcr: 0x40,
            ..overflowed
        };
        for pmu in [overflowed, overflowed, stopped] {
            watched.block(if pmu == stopped { 0x5000 } else { FUNCTION }, 0x80, pmu);
        }
        // What is pending when the function is called counts each time.
        let call = "0 call 0x1000\n0 overflow 0x1\n0 block 0x1000 2\n";
        let expected = format!("{call}{call}0 pmcr 0x40\n0 block 0x5000 2\n");
        assert_eq!(watched.text(), expected);
    }

    #[test]
    fn an_exception_before_the_first_instruction_is_of_the_call_that_begins() {
        let watched = Watched::new("begins");
        assert!(watched.watch.is_interrupted(None, FUNCTION));
        assert!(!watched.watch.is_interrupted(None, FUNCTION + 4));
        assert_eq!(watched.text(), "");
    }

    #[test]
    fn a_block_comes_back_from_user_data() {
        let block = WatchedBlock::new(0xffff_8000_8001_2ffc, 512);
        assert_eq!(WatchedBlock::from_userdata(block.into_userdata()), block);
        assert_eq!(block.address(0xffff_8000_8001_2ffc), 0xffff_8000_8001_2ffc);
    }
}
