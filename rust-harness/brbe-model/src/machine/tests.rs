//! Tests of the rules, grouped by the chapter that they are from.

mod branches;
mod cycles;
mod debug;
mod exceptions;
mod freezing;
mod injection;
mod records;
mod regions;
mod registers;
mod reset;
mod returns;

use super::*;
use crate::branch::BranchKind;
use crate::config::NumRecords;
use crate::exception::ExceptionKind;
use crate::freeze::{Counter, Pmu};
use crate::pe::{El2, El3, ExceptionLevel, Hcr, Pe};
use crate::record::Valid;
use crate::sysreg::{Denied, Instruction, Register};
use ExceptionLevel::{El0, El1, El2 as Hyp, El3 as Mon};

const E0BRE: u64 = 1 << 0;
const EXBRE: u64 = 1 << 1;
const CC: u64 = 1 << 3;
const TS_PHYSICAL: u64 = 3 << 5;
const FZP: u64 = 1 << 8;
const FZPSS: u64 = 1 << 9;
const ERTN: u64 = 1 << 22;
const EXCEPTION: u64 = 1 << 23;
const ALL_TYPES: u64 = 0x7e << 16;
const PAUSED: u64 = 1 << 7;
const CCU: u64 = 1 << 46;

/// BRBE with these control registers, and every branch type selected.
fn brbe(el1: u64, el2: u64) -> Brbe {
    let mut brbe = Brbe::new(Config {
        pmu_snapshot: true,
        ..Config::default()
    });
    let el2_host = at(Hyp, false);
    brbe.write(&el2_host, Register::CrEl1, el1).unwrap();
    brbe.write(&el2_host, Register::CrEl2, el2).unwrap();
    brbe.write(&el2_host, Register::Fcr, ALL_TYPES).unwrap();
    brbe
}

/// A PE at `el`, with EL2 implemented and enabled, and EL3 not implemented.
fn at(el: ExceptionLevel, tge: bool) -> Pe {
    let hcr = Hcr {
        tge,
        ..Hcr::default()
    };
    let el2 = Some(El2 {
        enabled: true,
        hcr,
        hpmn: 6,
        fgt: None,
    });
    Pe {
        el,
        el2,
        ..Pe::default()
    }
}

/// A PE at `el`, with neither EL2 nor EL3 implemented.
fn only(el: ExceptionLevel) -> Pe {
    Pe {
        el,
        ..Pe::default()
    }
}

fn el3(sbrbe: u8, e3brec: bool, e3brew: bool, secure: bool) -> Option<El3> {
    Some(El3 {
        sbrbe,
        e3brec,
        e3brew,
        secure,
    })
}

fn youngest(brbe: &Brbe) -> BrbeRecord {
    brbe.buffer.get(0)
}

fn branches(brbe: &mut Brbe, pe: &Pe) -> bool {
    brbe.branch(pe, BranchKind::Direct, 0x1000, 0x2000, 0)
}

fn cycles_at(brbe: &mut Brbe, pe: &Pe, now: u64) -> Option<u64> {
    assert!(brbe.branch(pe, BranchKind::Direct, 1, 2, now));
    let inf = youngest(brbe).inf;
    (inf & CCU == 0).then_some(inf >> 32 & 0x3fff)
}

const OVERFLOW: Pmu = Pmu {
    overflow: 1,
    counters: 6,
    icntr: false,
};

fn clock() -> Counter {
    Counter {
        physical: 1234,
        virtual_offset: 4,
        physical_offset: 0,
    }
}
