use super::*;
use crate::capture::CodeRange;
use crate::made_up::{
    self, ALLOC_CHECK, CALL, COND, IRQ, MAP_CREATE, MIGRATE, MadeUp, RETURN, record,
};
use crate::report::TraceReport;
use crate::text::{TextForm, instructions};

const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const ERET: u32 = 0xd69f_03e0;
const SVC: u32 = 0xd400_0001;

/// A call of array_map_alloc_check() that is interrupted, and its code. One instruction of it is
/// not known.
fn capture() -> Capture {
    let exception_return = 11;
    let path = vec![
        record(MAP_CREATE + 0x100, ALLOC_CHECK, CALL),
        record(ALLOC_CHECK + 8, ALLOC_CHECK + 0x24, COND),
        record(ALLOC_CHECK + 0x2c, MIGRATE, IRQ),
        record(MIGRATE + 4, ALLOC_CHECK + 0x2c, exception_return),
        record(ALLOC_CHECK + 0x3c, MAP_CREATE + 0x104, RETURN),
    ];
    let mut capture = made_up::capture(vec![made_up::snapshot(path)]);
    let range = |address, words: &[u32]| CodeRange {
        address,
        words: words.to_vec(),
    };
    // cbz w0, 28 bytes on; bl to the function.
    capture.code = vec![
        range(ALLOC_CHECK, &[NOP, 0x1100_0400, 0x3400_00e0]),
        range(ALLOC_CHECK + 0x24, &[NOP, NOP]),
        range(ALLOC_CHECK + 0x30, &[NOP, NOP]),
        range(ALLOC_CHECK + 0x3c, &[RET]),
        range(MAP_CREATE + 0x100, &[0x97fb_ffc0]),
        range(MIGRATE, &[NOP, ERET]),
    ];
    capture
}

/// The text of a source file of which each line says its number.
fn source(name: &str) -> Option<String> {
    let lines = |count: u32| {
        (1..=count)
            .map(|line| format!("\tline {line};\n"))
            .collect()
    };
    (name == "kernel/bpf/arraymap.c").then(|| lines(40))
}

#[test]
fn people_see_instructions_below_their_lines() {
    let capture = capture();
    let report = TraceReport::new(&capture, &MadeUp).with_instructions(&capture, &MadeUp);
    let mut out = anstream::StripStream::new(Vec::new());
    instructions::write(&report, TextForm::default(), &source, &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out.into_inner()).unwrap());
}

#[test]
fn programs_see_what_perf_prints() {
    let mut out = Vec::new();
    perf::write(&capture(), &MadeUp, &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

#[test]
fn a_system_call_is_before_its_source() {
    let mut capture = capture();
    let syscall = 7;
    let records = vec![
        record(MAP_CREATE, ALLOC_CHECK, CALL),
        record(ALLOC_CHECK + 8, MIGRATE, syscall),
    ];
    capture.snapshots = vec![made_up::snapshot(records)];
    capture.code = vec![CodeRange {
        address: ALLOC_CHECK,
        words: vec![NOP, SVC, NOP],
    }];
    let blocks = Disassembler::new(&capture, &MadeUp).of_snapshot(&capture.snapshots[0]);
    let texts = blocks[1].iter().map(|it| &*it.text);
    assert_eq!(texts.collect::<Vec<_>>(), ["nop", "svc #0x0"]);
    let last = blocks[1].last().unwrap();
    assert!(last.branches(ALLOC_CHECK + 8));
}

#[test]
fn code_is_of_known_machines_and_bounded() {
    let mut capture = capture();
    capture.snapshots[0].records = vec![record(ALLOC_CHECK + 4 * 0x3fff, 0, RETURN); 8];
    for older in &mut capture.snapshots[0].records {
        older.to = ALLOC_CHECK;
    }
    capture.code = vec![CodeRange {
        address: ALLOC_CHECK,
        words: vec![NOP; 0x4000],
    }];
    let count = |capture: &Capture| {
        let blocks = Disassembler::new(capture, &MadeUp).of_snapshot(&capture.snapshots[0]);
        blocks.iter().map(Vec::len).sum::<usize>()
    };
    assert_eq!(count(&capture), MAX_INSTRUCTIONS);
    capture.kernel.machine = "riscv64".to_owned();
    assert_eq!(count(&capture), 0);
}

/// What `path` executes of code of x86, each instruction with its address from
/// `ALLOC_CHECK` on and with a mark if it comes after a gap. The records are newest first.
fn of_x86(code: &[u8], path: Vec<RawRecord>) -> Vec<Vec<(u64, String)>> {
    let mut capture = made_up::capture(vec![made_up::snapshot(path)]);
    capture.kernel.machine = "x86_64".to_owned();
    let words = code.as_chunks().0.iter();
    capture.code = vec![CodeRange {
        address: ALLOC_CHECK,
        words: words.map(|word| u32::from_le_bytes(*word)).collect(),
    }];
    let blocks = Disassembler::new(&capture, &MadeUp).of_snapshot(&capture.snapshots[0]);
    let shown = |it: &ExecutedInstruction| {
        let gap = if it.after_gap { "… " } else { "" };
        (
            it.address.wrapping_sub(ALLOC_CHECK),
            format!("{gap}{}", it.text),
        )
    };
    let blocks = blocks.iter().map(|block| block.iter().map(shown).collect());
    blocks.collect()
}

#[test]
fn instructions_of_x86_follow_each_other() {
    // push %rbp; mov %rsp,%rbp; nop; jmp; ret.
    let code = [0x55, 0x48, 0x89, 0xe5, 0x90, 0xeb, 0x7f, 0xc3];
    let at = |offset| ALLOC_CHECK + offset;
    let blocks = of_x86(
        &code,
        vec![
            // In the order of the path: a call, an interrupt before the jump, the jump.
            record(0, at(0), CALL),
            record(at(5), MIGRATE, CALL),
            record(MIGRATE, at(5), CALL),
            record(at(5), at(0x86), CALL),
        ],
    );
    let shown = |block: &[(u64, String)]| {
        let texts = block.iter().map(|(at, text)| format!("{at}: {text}"));
        texts.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(shown(&blocks[1]), "0: push %rbp; 1: mov %rsp,%rbp; 4: nop");
    assert_eq!(blocks[2], [], "code that is not known");
    assert_eq!(shown(&blocks[3]), "5: jmp array_map_alloc_check+0x86");
    let to = |code: &[u8], from| {
        let path = vec![record(0, at(2), CALL), record(at(from), MIGRATE, CALL)];
        let blocks = of_x86(code, path);
        shown(&blocks[1])
    };
    // What comes after a jump was not executed after it, but for the branch.
    assert_eq!(
        to(&code, 7),
        "2: mov %esp,%ebp; 4: nop; 5: jmp array_map_alloc_check+0x86; 7: … ret"
    );
    // A branch is where it was recorded, whatever the bytes before it seem to be.
    let overlapping = [0x55, 0x48, 0x89, 0xe5, 0x90, 0xb8, 0x7f, 0xc3, 0, 0, 0, 0];
    assert_eq!(to(&overlapping, 7), "2: mov %esp,%ebp; 4: nop; 7: … ret");
    // Code that is no branch has changed since.
    assert_eq!(to(&code, 4), "2: mov %esp,%ebp");
}

#[test]
fn an_instruction_may_be_in_two_ranges_of_code() {
    let path = vec![
        record(0, ALLOC_CHECK, CALL),
        record(ALLOC_CHECK + 5, MIGRATE, CALL),
    ];
    let mut capture = made_up::capture(vec![made_up::snapshot(path)]);
    capture.kernel.machine = "x86_64".to_owned();
    // mov $1,%eax; ret.
    let words = [0x0000_01b8, 0x0000_c300];
    capture.code = [0, 1]
        .map(|index| CodeRange {
            address: ALLOC_CHECK + 4 * index,
            words: vec![words[index as usize]],
        })
        .into();
    let blocks = Disassembler::new(&capture, &MadeUp).of_snapshot(&capture.snapshots[0]);
    let texts: Vec<_> = blocks[1].iter().map(|it| &*it.text).collect();
    assert_eq!(texts, ["mov $1,%eax", "ret"]);
}

#[test]
fn between_some_of_the_branches_there_were_others() {
    let mut capture = capture();
    capture.branches = vec!["ind_call".to_owned()];
    let blocks = Disassembler::new(&capture, &MadeUp).of_snapshot(&capture.snapshots[0]);
    assert!(blocks.iter().all(|block| block.len() <= 1), "{blocks:?}");
}

/// The instruction of x86 that `bytes` begin with.
fn x86(bytes: &[u8]) -> Encoding {
    Encoding::X86(X86Bytes::first(bytes.iter().copied()).unwrap())
}

#[test]
fn an_encoding_is_shown_and_has_bytes() {
    let word = Encoding::A64(RET);
    assert_eq!(
        (word.length(), word.to_string()),
        (4, "d65f03c0".to_owned())
    );
    assert_eq!(word.to_bytes(), [0xc0, 0x03, 0x5f, 0xd6]);
    // mov $1,%eax, and what comes behind it.
    let mov = x86(&[0xb8, 1, 0, 0, 0, 0xc3]);
    assert_eq!(
        (mov.length(), mov.to_string()),
        (5, "b801000000".to_owned())
    );
    assert_eq!(mov.to_bytes(), [0xb8, 1, 0, 0, 0]);
}

#[test]
fn only_some_branches_encode_their_target() {
    let [je, call_rax] = [&[0x74, 0x05][..], &[0xff, 0xd0]].map(x86);
    assert!(je.has_target() && Encoding::A64(0x3400_00e0).has_target());
    assert!(!call_rax.has_target() && !Encoding::A64(RET).has_target());
}

#[test]
fn only_some_branches_go_on() {
    let [cbz, branch] = [0x3400_00e0, 0x1400_0002];
    for (word, goes_on) in [
        (NOP, true),
        (SVC, true),
        (cbz, true),
        (branch, false),
        (RET, false),
    ] {
        assert_eq!(Encoding::A64(word).goes_on(), goes_on, "{word:#x}");
    }
}

#[test]
fn the_branch_is_shown_where_what_comes_before_it_is_not_known() {
    let path = |from| {
        vec![
            record(0, ALLOC_CHECK, CALL),
            record(ALLOC_CHECK + from, 0, RETURN),
        ]
    };
    // No instruction, two of them, and a ret.
    let blocks = of_x86(&[0x06, 0x90, 0x90, 0xc3], path(3));
    assert_eq!(blocks[1], [(3, "… ret".to_owned())]);
    // The branch is not known either.
    assert_eq!(of_x86(&[0x06, 0x90, 0x90, 0x06], path(3))[1], []);
    assert_eq!(of_x86(&[0x06, 0x90, 0x90, 0xc3], path(0))[1], []);
}

#[test]
fn instructions_for_each_cycle_are_told_of_blocks_that_are_whole() {
    let mut capture = capture();
    for record in &mut capture.snapshots[0].records {
        record.flags |= 2 << 4;
    }
    let mut out = Vec::new();
    perf::write(&capture, &MadeUp, &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}
