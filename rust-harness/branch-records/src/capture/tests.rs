use proptest::prelude::*;

use super::*;
use crate::record::RawRecord;

fn capture() -> Capture {
    let mut capture = Capture::new(
        "array map without entries",
        CapturedKernel {
            release: "7.3.4".to_owned(),
            machine: "aarch64".to_owned(),
            build_id: None,
            anchor: Anchor {
                symbol: "_stext".to_owned(),
                address: 0xffff_8000_8001_0000,
            },
        },
    );
    capture.symbols.push(GuestSymbol {
        address: 0xffff_8000_7a00_0000,
        end: 0xffff_8000_7a00_0100,
        name: "bpf_trampoline_6442".to_owned(),
        module: "bpf".to_owned(),
        lines: vec![Line {
            address: 0xffff_8000_7a00_0010,
            file: "on_exit.bpf.c".to_owned(),
            line: 7,
            text: "\tif (ret)".replace('\t', " "),
        }],
    });
    capture.code.push(CodeRange {
        address: 0xffff_8000_8001_0000,
        words: vec![0xd503_201f, 0x1400_0001],
    });
    capture.code_missing = Some("cannot open /proc/kcore".to_owned());
    capture.processes.push(Process {
        pid: 42,
        mappings: vec![Mapping {
            start: 0x40_0000,
            end: 0x41_0000,
            offset: 0,
            path: "/usr/bin/true".to_owned(),
            build_id: None,
        }],
    });
    capture.dropped = 3;
    capture.snapshots.push(Snapshot {
        function: "array_map_alloc_check".to_owned(),
        moment: Moment::Return,
        returned: Some(Returned::Signed(-22)),
        cpu: 1,
        pid: 42,
        tid: 43,
        comm: "loader".to_owned(),
        time: 1_000_000,
        duration: Some(12_345),
        asked: 64,
        errno: None,
        stack: vec![0xffff_8000_8001_0010, 0x40_1000],
        arguments: vec![Argument {
            name: "attr".to_owned(),
            value: ArgumentValue::Pointer {
                address: 0x1000,
                to: Some(Box::new(ArgumentValue::List(vec![
                    ArgumentValue::Signed(-1),
                    ArgumentValue::Enumerator {
                        name: "ONE".to_owned(),
                        value: 1,
                    },
                    ArgumentValue::Unknown,
                ]))),
            },
        }],
        records: vec![RawRecord {
            from: 0xffff_8000_8001_0004,
            to: 0,
            flags: 1 << 20,
        }],
    });
    capture
}

/// The error that reading the document yields after `change` was applied to it.
fn damaged(change: impl FnOnce(&mut serde_json::Value)) -> CaptureError {
    let mut document = serde_json::to_value(capture()).unwrap();
    change(&mut document);
    Capture::from_reader(document.to_string().as_bytes()).unwrap_err()
}

#[test]
fn the_document_is_this() {
    let text = serde_json::to_string_pretty(&capture()).unwrap();
    insta::assert_snapshot!(text);
}

#[test]
fn another_version_is_named_before_its_fields_are_looked_at() {
    let error = Capture::from_reader(&br#"{"format":"branch-capture","version":8,"new":1}"#[..]);
    assert!(matches!(error, Err(CaptureError::Version(8))));
    let error = Capture::from_reader(&br#"{"format":"other","version":1}"#[..]);
    assert!(matches!(error, Err(CaptureError::Format(_))));
}

#[test]
fn a_document_without_end_is_not_read_to_its_end() {
    let error = Capture::from_reader(std::io::repeat(b' ')).unwrap_err();
    assert!(matches!(error, CaptureError::TooLong(_)));
}

#[test]
fn broken_promises_are_named() {
    for (path, value, message) in [
        ("/kernel/anchor/address", "\"0x0\"", "hides addresses"),
        ("/kernel/anchor/address", "\"0x1g\"", "hexadecimal"),
        ("/kernel/anchor/address", "\"0x+1\"", "hexadecimal"),
        (
            "/kernel/anchor/address",
            "\"0x11112222333344445\"",
            "64 bits",
        ),
        ("/scenario", "\"\\u001b[2J\"", "scenario"),
        ("/symbols/0/name", "\"a b\"", "symbols[0].name"),
        ("/symbols/0/end", "\"0x1\"", "symbols[0]: is empty"),
        (
            "/snapshots/0/asked",
            "0",
            "more records than were asked for",
        ),
        ("/snapshots/0/asked", "4000000000", "asked: more than"),
        ("/snapshots/0/records/0", "[\"0x1\",\"0x2\"]", "length 2"),
        ("/snapshots/0/function", "\"\"", "function"),
        ("/snapshots/0/comm", "\"\\n\"", "comm"),
        ("/branches", "[]", "branches: none"),
        ("/branches/0", "\"a b\"", "branches[0]"),
        (
            "/symbols/0/lines/0/address",
            "\"0x1\"",
            "lines[0]: not behind",
        ),
        ("/symbols/0/lines/0/text", "\"\\u0007\"", "lines[0].text"),
        (
            "/processes/0/mappings/0/end",
            "\"0x1\"",
            "mappings[0]: is empty",
        ),
        ("/code/0/words", "\"\"", "code[0]: empty"),
        ("/code/0/words", "\"d503201\"", "8 hexadecimal digits"),
        ("/code/0/words", "\"d503201g\"", "8 hexadecimal digits"),
        ("/code/0/words", "\"+503201f\"", "8 hexadecimal digits"),
        ("/code/0/address", "\"0x1002\"", "multiple of 4"),
        (
            "/code/0/address",
            "\"0xfffffffffffffffc\"",
            "past the last address",
        ),
        ("/code_missing", "\"\\u001b[2J\"", "code_missing"),
    ] {
        let error = damaged(|document| {
            *document.pointer_mut(path).expect(path) = serde_json::from_str(value).unwrap();
        });
        assert!(
            error.to_string().contains(message),
            "{path} = {value}: {error}"
        );
    }
}

#[test]
fn code_is_there_once_and_in_order() {
    let range = |address| CodeRange {
        address,
        words: vec![0xd503_201f, 0x1400_0001],
    };
    let written = |addresses: &[u64]| {
        let mut capture = capture();
        capture.code = addresses.iter().copied().map(range).collect();
        capture.to_writer(Vec::new())
    };
    assert!(written(&[0x1000, 0x1008, 0xffff_ffff_ffff_fff4]).is_ok());
    for addresses in [[0x1000, 0x1004], [0x1000, 0x1000], [0x1000, 0xff8]] {
        let error = written(&addresses).unwrap_err();
        assert!(error.to_string().contains("code[1]"), "{error}");
    }
    let mut long = range(0x1000);
    long.words = vec![0; (MAX_CODE_BYTES / 4 + 2) as usize];
    let mut capture = capture();
    capture.code = vec![long];
    let error = capture.to_writer(Vec::new()).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[cfg(feature = "path")]
#[test]
fn code_is_found_by_its_address() {
    use crate::path::Code as _;

    let range = |address, words| CodeRange { address, words };
    let code = vec![
        range(0x1000, vec![1, 2]),
        range(0x1008, vec![3]),
        range(0xffff_ffff_ffff_fff8, vec![4]),
    ];
    for (address, expected) in [
        (0xffc, None),
        (0x1000, Some(1)),
        (0x1002, None),
        (0x1004, Some(2)),
        (0x1008, Some(3)),
        (0x100c, None),
        (0xffff_ffff_ffff_fff8, Some(4)),
        (0xffff_ffff_ffff_fffc, None),
    ] {
        assert_eq!(code.fetch(address), expected, "{address:#x}");
    }
}

#[test]
fn an_error_comes_alone() {
    let error = damaged(|document| document["snapshots"][0]["errno"] = 2.into());
    assert!(error.to_string().contains("records beside it"), "{error}");
}

#[test]
fn what_no_reader_takes_is_not_written() {
    let mut capture = capture();
    capture.kernel.anchor.address = 0;
    let mut written = Vec::new();
    assert!(capture.to_writer(&mut written).is_err());
    assert!(written.is_empty());
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::File::create("/dev/full").unwrap();
    let error = capture().to_writer(full).unwrap_err();
    assert!(matches!(error, CaptureError::Write(_)), "{error}");
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        returned: i64,
        address: u64,
        cpu: u32,
        records in prop::collection::vec(any::<(u64, u64, u64)>(), 0..=64),
    ) {
        let mut capture = capture();
        let snapshot = &mut capture.snapshots[0];
        snapshot.returned = Some(match cpu % 2 {
            0 => Returned::Signed(returned),
            _ => Returned::Pointer(address),
        });
        snapshot.cpu = cpu;
        snapshot.records = records
            .into_iter()
            .map(|(from, to, flags)| RawRecord { from, to, flags })
            .collect();
        let mut written = Vec::new();
        capture.to_writer(&mut written).unwrap();
        prop_assert_eq!(Capture::from_reader(written.as_slice()).unwrap(), capture);
    }

    #[test]
    fn no_input_makes_the_reader_panic(text: Vec<u8>) {
        prop_assert!(Capture::from_reader(&text[..]).is_err());
    }
}

#[test]
fn only_any_is_every_branch() {
    let mut capture = capture();
    for (branches, all) in [
        (&[][..], false),
        (&["any"], true),
        (&["any_call", "any"], true),
        (&["any_call"], false),
    ] {
        capture.branches = branches.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(capture.has_all_branches(), all, "{branches:?}");
    }
}

#[test]
fn what_is_not_there_is_left_out() {
    let mut capture = capture();
    capture.dropped = 0;
    assert!(!serde_json::to_string(&capture).unwrap().contains("dropped"));
    capture.dropped = 1;
    assert!(
        serde_json::to_string(&capture)
            .unwrap()
            .contains("\"dropped\":1")
    );
}

#[test]
fn a_symbol_without_a_length_is_refused() {
    let mut capture = capture();
    capture.symbols[0].end = capture.symbols[0].address;
    capture.symbols[0].lines.clear();
    assert!(capture.validate().is_err());
}

#[test]
fn the_release_is_no_path() {
    for release in ["../../..", "..", ".", "7.3.4/x"] {
        let mut capture = capture();
        capture.kernel.release = release.to_owned();
        let error = capture.validate().unwrap_err().to_string();
        assert!(error.contains("is a path"), "{error}");
    }
}

#[test]
fn no_two_modules_have_one_name() {
    let module = Module {
        name: "m".to_owned(),
        build_id: "ab01ff".to_owned(),
    };
    let mut capture = capture();
    capture.modules = vec![module.clone()];
    capture.validate().unwrap();
    capture.modules.push(module);
    let error = capture.validate().unwrap_err().to_string();
    assert!(error.contains("is there twice"), "{error}");
}

#[test]
fn what_is_wrong_with_a_document_does_nothing_to_a_terminal() {
    let document = serde_json::json!({ "\u{1b}]52;c;\u{7}": 1 }).to_string();
    let error = Capture::from_reader(document.as_bytes()).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("?]52;c;?"), "{said}");
}
