//! What can be said of a model, its firmware and a kernel without booting.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use host::process::ProcessGroup;

use super::command::{Start, parameters};
use super::{Firmware, Fvp, Settings};
use crate::backend::Checks;

/// How long a model may take to list its parameters.
const PATIENCE: Duration = Duration::from_secs(120);
/// The most bytes of a list of parameters. Arm's models list some 20,000 of them.
const MAX_LIST: u64 = 64 << 20;

/// Where a program at EL3 can be: the trusted SRAM, as large as TF-A can make it, and the trusted
/// DRAM (TF-A, plat/arm/board/fvp/include/platform_def.h).
const SECURE: [Range<u64>; 2] = [0x0400_0000..0x0408_0000, 0x0600_0000..0x0800_0000];
/// The first 2 GB of the DRAM, whose last 32 MB TF-A takes (same file: `ARM_NS_DRAM1`).
const DRAM: Range<u64> = 0x8000_0000..0xfe00_0000;
/// A kernel's and a device tree's place, by Documentation/arch/arm64/booting.rst: the kernel
/// begins at a multiple of 2 MB, the tree at one of 8 bytes, and is at most 2 MB long.
const MB2: u64 = 2 << 20;
const TREE_ALIGNMENT: u64 = 8;

impl Checks for Fvp {
    fn program(&self) -> Result<String> {
        let Self(settings) = self;
        let list = list_of(settings)?;
        let known = known(&list);
        ensure!(
            !known.is_empty(),
            "{} --list-params lists no parameter: is it a Fast Model?",
            settings.model.display()
        );
        let nowhere = Path::new("");
        let start = Start {
            image: nowhere,
            device_tree: nowhere,
            elf: nowhere,
            root: nowhere,
            cpus: 8,
        };
        let wanted = parameters(settings, &start);
        let wrong: Vec<_> = wanted
            .iter()
            .filter_map(|(name, value)| problem(&known, name, value))
            .collect();
        ensure!(
            wrong.is_empty(),
            "{}: set other names or values in [parameters], or take another version of the model",
            wrong.join("; ")
        );
        Ok(format!(
            "{} of {} parameters are set",
            wanted.len(),
            known.len()
        ))
    }

    fn memory(&self, image: &Path, device_tree: &Path) -> Result<String> {
        let Self(settings) = self;
        let kernel_size = kernel_size(image)?;
        match &settings.firmware {
            Firmware::TfA {
                bl31,
                bl31_at,
                kernel_at,
                device_tree_at,
            } => {
                let firmware = place(*bl31_at, length(bl31)?, "the firmware")?;
                ensure!(
                    SECURE.iter().any(|memory| is_within(&firmware, memory)),
                    "bl31-at: the firmware, at {}, is not in the secure memory",
                    shown(&firmware)
                );
                ensure!(
                    kernel_at.is_multiple_of(MB2),
                    "kernel-at: {kernel_at:#x} is no multiple of 2 MB"
                );
                ensure!(
                    device_tree_at.is_multiple_of(TREE_ALIGNMENT),
                    "device-tree-at: {device_tree_at:#x} is no multiple of 8"
                );
                let tree = length(device_tree)?;
                ensure!(
                    tree <= MB2,
                    "the device tree has {tree} bytes, more than 2 MB"
                );
                let kernel = place(*kernel_at, kernel_size, "the kernel")?;
                let tree = place(*device_tree_at, tree, "the device tree")?;
                for (what, place) in [
                    ("kernel-at: the kernel", &kernel),
                    ("device-tree-at: the device tree", &tree),
                ] {
                    ensure!(
                        is_within(place, &DRAM),
                        "{what}, at {}, is not in the model's first 2 GB",
                        shown(place)
                    );
                }
                ensure!(
                    kernel.end <= tree.start || tree.end <= kernel.start,
                    "the kernel, at {}, and the device tree, at {}, overlap",
                    shown(&kernel),
                    shown(&tree)
                );
                Ok(format!(
                    "firmware at {}, device tree at {}, kernel at {}",
                    shown(&firmware),
                    shown(&tree),
                    shown(&kernel)
                ))
            }
            Firmware::BootWrapper { make } => {
                let program = make.first().context("firmware: make names no program")?;
                let found = Command::new("sh")
                    .args(["-c", "command -v \"$1\"", "sh", program])
                    .stdout(Stdio::null())
                    .status()
                    .context("starting sh")?;
                ensure!(found.success(), "firmware: there is no program {program}");
                Ok(format!("{program} puts the kernel where it belongs"))
            }
        }
    }
}

/// What the model prints for `--list-params`.
fn list_of(settings: &Settings) -> Result<String> {
    let name = settings.model.display();
    let file = tempfile::NamedTempFile::new().context("a file for the model's parameters")?;
    let output = file.reopen().context("a file for the model's parameters")?;
    let mut command = settings.command();
    command.arg("--list-params").stderr(
        output
            .try_clone()
            .context("a file for the model's parameters")?,
    );
    let mut group = ProcessGroup::spawn(command.stdout(output))?;
    let status = group
        .wait_within(PATIENCE)?
        .with_context(|| format!("{name} --list-params did not end within {PATIENCE:?}"))?;
    let mut list = Vec::new();
    file.as_file()
        .take(MAX_LIST)
        .read_to_end(&mut list)
        .context("reading the model's parameters")?;
    let list = String::from_utf8_lossy(&list).into_owned();
    ensure!(
        status.success(),
        "{name} --list-params: {status}\n{}",
        list.lines().take(10).collect::<Vec<_>>().join("\n")
    );
    Ok(list)
}

/// The parameters in a model's list, by name, and the values that they take, if the list says it.
fn known(list: &str) -> BTreeMap<&str, Option<Range<i64>>> {
    let mut known = BTreeMap::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('=') else {
            continue;
        };
        let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
        if is_name && rest.contains('#') {
            known.insert(name, range(rest));
        }
    }
    known
}

/// The values that a line of the list gives at its end: `[0x0..0x40]`. The range has its last
/// value.
fn range(line: &str) -> Option<Range<i64>> {
    let (_, range) = line.trim_end().strip_suffix(']')?.rsplit_once('[')?;
    let (first, last) = range.split_once("..")?;
    Some(number(first)?..number(last)?.checked_add(1)?)
}

fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// What is wrong with a parameter that the lane sets, if anything is.
fn problem(known: &BTreeMap<&str, Option<Range<i64>>>, name: &str, value: &str) -> Option<String> {
    let Some(values) = known.get(name) else {
        return Some(format!("the model does not know {name}"));
    };
    let (values, value) = (values.as_ref()?, number(value)?);
    (!values.contains(&value)).then(|| {
        let last = values.end - 1;
        format!("{name}={value} is not from {} to {last}", values.start)
    })
}

/// How much memory a kernel takes, by the header of its image.
fn kernel_size(image: &Path) -> Result<u64> {
    let name = image.display();
    let mut header = [0; 64];
    File::open(image)
        .and_then(|mut file| file.read_exact(&mut header))
        .with_context(|| format!("reading {name}"))?;
    ensure!(
        header[56..60] == *b"ARM\x64",
        "{name} is no kernel image for arm64: it has no magic number"
    );
    let mut size = [0; 8];
    size.copy_from_slice(&header[16..24]);
    match u64::from_le_bytes(size) {
        0 => bail!("{name} does not say how much memory the kernel takes"),
        size => Ok(size),
    }
}

fn length(file: &Path) -> Result<u64> {
    let metadata = fs::metadata(file).with_context(|| format!("reading {}", file.display()))?;
    ensure!(metadata.len() > 0, "{} is empty", file.display());
    Ok(metadata.len())
}

fn place(start: u64, size: u64, what: &str) -> Result<Range<u64>> {
    let end = start.checked_add(size);
    Ok(start..end.with_context(|| format!("{what} has {size} bytes"))?)
}

fn is_within(place: &Range<u64>, memory: &Range<u64>) -> bool {
    memory.start <= place.start && place.end <= memory.end
}

fn shown(place: &Range<u64>) -> String {
    format!("{:#x}-{:#x}", place.start, place.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
Parameters:
# instance.parameter=value       #(type, mode) default = 'def value' : description : [min..max]
#------------------------------------------------------------------------------
bp.secure_memory=1               # (bool  , init-time) default = '1'      : Security checking
bp.x.fname=\"a=b\"                 # (string, init-time) default = ''       : Filename
cluster0.NUM_CORES=0x4           # (int   , init-time) default = '0x4'    : Cores : [0x1..0x4]
Fast Models [11.31.28]
";

    #[test]
    fn parameters_are_read_from_the_models_list() {
        let known = known(LIST);
        let expected = [
            ("bp.secure_memory", None),
            ("bp.x.fname", None),
            ("cluster0.NUM_CORES", Some(1..5)),
        ];
        assert_eq!(known, expected.into());
        assert_eq!(problem(&known, "bp.secure_memory", "7"), None);
        assert_eq!(problem(&known, "cluster0.NUM_CORES", "4"), None);
        assert_eq!(
            problem(&known, "cluster0.NUM_CORES", "0x5").unwrap(),
            "cluster0.NUM_CORES=5 is not from 1 to 4"
        );
        assert_eq!(
            problem(&known, "cluster0.has_brbe", "1").unwrap(),
            "the model does not know cluster0.has_brbe"
        );
    }

    /// An image with a header, a device tree and firmware, and the lane that has them at
    /// these addresses.
    fn layout(kernel_at: &str, tree_at: &str, bl31_at: &str) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let mut image = [0; 64];
        image[16..24].copy_from_slice(&0x0140_0000_u64.to_le_bytes());
        image[56..60].copy_from_slice(b"ARM\x64");
        for (name, contents) in [
            ("m", &b"x"[..]),
            ("b", b"x"),
            ("Image", &image),
            ("dtb", b"x"),
        ] {
            fs::write(dir.path().join(name), contents).unwrap();
        }
        let text = format!(
            "model = 'm'\n[firmware.tf-a]\nbl31 = 'b'\nkernel-at = {kernel_at}\n\
             device-tree-at = {tree_at}\nbl31-at = {bl31_at}\n"
        );
        let fvp = Fvp::parse(&text, dir.path()).unwrap();
        fvp.memory(&dir.path().join("Image"), &dir.path().join("dtb"))
    }

    #[test]
    fn what_does_not_fit_is_named() {
        assert_eq!(
            layout("0x84000000", "0x82000000", "0x4001000").unwrap(),
            "firmware at 0x4001000-0x4001001, device tree at 0x82000000-0x82000001, \
             kernel at 0x84000000-0x85400000"
        );
        for (kernel, tree, bl31, said) in [
            (
                "0x84100000",
                "0x82000000",
                "0x4001000",
                "no multiple of 2 MB",
            ),
            ("0x84000000", "0x82000004", "0x4001000", "no multiple of 8"),
            ("0x84000000", "0x84000008", "0x4001000", "overlap"),
            ("0x20000000", "0x82000000", "0x4001000", "kernel-at"),
            ("0xfd000000", "0x82000000", "0x4001000", "kernel-at"),
            ("0x84000000", "0x82000000", "0x80000000", "bl31-at"),
        ] {
            let error = layout(kernel, tree, bl31).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn what_is_no_kernel_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [0; 64]).unwrap();
        let error = kernel_size(file.path()).unwrap_err().to_string();
        assert!(error.contains("no kernel image for arm64"), "{error}");
        fs::write(file.path(), "x").unwrap();
        assert!(kernel_size(file.path()).is_err());
    }
}
