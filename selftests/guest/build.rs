//! Compiles the BPF programs and generates their skeletons.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let sources = Path::new("../bpf");
    bpf_skeletons::generate(
        sources,
        sources,
        &[
            "board",
            "contract",
            "cost",
            "crossing",
            "cycles",
            "identify",
            "kvm",
            "overflow",
            "nested",
            "pending",
            "raw_section",
            "shared",
            "stress",
            "suspend",
            "symbol",
            "unknown_level",
            "unset_flags",
            "refuse",
            "waste",
        ],
    )
}
