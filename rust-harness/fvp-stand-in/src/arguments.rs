//! The model's arguments: `-C name=value`, `--data`, `-a`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

/// Parameters of `FVP_Base_RevC-2xAEMvA` that the stand-in knows, and what their values are in the
/// list that it prints. There is one for each number of a terminal, a cluster and a core.
const PARAMETERS: [(&str, &str); 26] = [
    ("bp.refcounter.non_arch_start_at_default", BOOL),
    ("bp.secure_memory", BOOL),
    ("bp.terminal_{terminal}.mode", STRING),
    ("bp.terminal_{terminal}.start_telnet", BOOL),
    ("bp.ve_sysregs.exit_on_shutdown", BOOL),
    ("bp.virtiop9device.mount_tag", STRING),
    ("bp.virtiop9device.root_path", STRING),
    ("bp.vis.disable_visualisation", BOOL),
    ("cache_state_modelled", BOOL),
    (
        "cluster{cluster}.NUM_CORES",
        "0x4  # (int   , init-time) default = '0x4' : Number of cores : [0x1..0x4]",
    ),
    ("cluster{cluster}.cpu{core}.RVBAR", INT),
    (
        "cluster{cluster}.cpu{core}.number-of-branch-records",
        "0x20  # (int   , init-time) default = '0x20' : Branch records : [0x8..0x40]",
    ),
    ("cluster{cluster}.has_arm_v8-7", BOOL),
    ("cluster{cluster}.has_arm_v8-8", BOOL),
    ("cluster{cluster}.has_arm_v8-9", BOOL),
    ("cluster{cluster}.has_arm_v9-0", BOOL),
    ("cluster{cluster}.has_arm_v9-1", BOOL),
    ("cluster{cluster}.has_arm_v9-2", BOOL),
    ("cluster{cluster}.has_brbe", BOOL),
    ("cluster{cluster}.has_brbe_v1p1", BOOL),
    ("pctl.startup", STRING),
    // A parameter of the stand-in alone: to do what the model does without a licence.
    ("stand_in.unlicensed", BOOL),
    // Parameters that users set themselves, and that change nothing here.
    ("bp.dram_size", INT),
    ("bp.hostbridge.userNetworking", BOOL),
    ("cluster{cluster}.max_32bit_el", INT),
    ("cluster{cluster}.max_64bit_el", INT),
];
const BOOL: &str = "0  # (bool  , init-time) default = '0' : A switch";
const INT: &str = "0x0  # (int   , init-time) default = '0x0' : A number";
const STRING: &str = "\"\"  # (string, init-time) default = '' : A text";

/// The parameters by their full names, and what the list has of each.
fn known() -> BTreeMap<String, &'static str> {
    let mut known: Vec<_> = PARAMETERS
        .map(|(name, rest)| (name.to_owned(), rest))
        .into();
    for (place, count) in [("{terminal}", 4), ("{cluster}", 2), ("{core}", 4)] {
        let numbered = |(name, rest): (String, &'static str)| {
            let numbers = if name.contains(place) { 0..count } else { 0..1 };
            numbers.map(move |number| (name.replace(place, &number.to_string()), rest))
        };
        known = known.into_iter().flat_map(numbered).collect();
    }
    known.into_iter().collect()
}

/// The list that the model prints for `--list-params`.
pub(crate) fn list() -> String {
    let mut list = "Parameters:\n# instance.parameter=value       #(type, mode) default = \
                    'def value' : description : [min..max]\n"
        .to_owned();
    for (name, rest) in known() {
        list += &format!("{name}={rest}\n");
    }
    list
}

/// The arguments of the stand-in.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    parameters: BTreeMap<String, String>,
    /// The files of `--data`, and the addresses that they are put at.
    data: Vec<(PathBuf, u64)>,
    application: Option<PathBuf>,
}

/// What the machine starts with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Firmware, kernel and device tree in memory.
    Preloaded {
        firmware: PathBuf,
        image: PathBuf,
        device_tree: PathBuf,
    },
    /// One file, in which the boot wrapper has everything.
    Wrapped { elf: PathBuf },
}

impl Arguments {
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut arguments = Self::default();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let value = words
                .next()
                .with_context(|| format!("{word} has no value"))?;
            match word.as_str() {
                "-C" => arguments.set(&value)?,
                "--data" => arguments.load(&value)?,
                "-a" => arguments.application = Some(value.into()),
                _ => bail!("unknown option {word}"),
            }
        }
        Ok(arguments)
    }

    fn set(&mut self, text: &str) -> Result<()> {
        let (name, value) = text.split_once('=').context("a parameter has a value")?;
        ensure!(known().contains_key(name), "unknown parameter {name}");
        self.parameters.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Takes in the value of `--data`: `cluster0.cpu0=FILE@ADDRESS`.
    fn load(&mut self, text: &str) -> Result<()> {
        let parse = || {
            let (file, address) = text.strip_prefix("cluster0.cpu0=")?.rsplit_once('@')?;
            let address = address.strip_prefix("0x")?;
            Some((PathBuf::from(file), u64::from_str_radix(address, 16).ok()?))
        };
        let (file, address) = parse().with_context(|| format!("--data {text}"))?;
        ensure!(file.is_file(), "cannot open {}", file.display());
        self.data.push((file, address));
        Ok(())
    }

    /// What the machine starts with. The addresses of the parts in memory show what they
    /// are: TF-A is in trusted SRAM, the device tree below the kernel.
    pub(crate) fn start(&self) -> Result<Start> {
        if let Some(elf) = &self.application {
            return Ok(Start::Wrapped { elf: elf.clone() });
        }
        let mut parts = self.data.clone();
        parts.sort_by_key(|(_, address)| *address);
        let [(firmware, at), (device_tree, _), (image, _)] = &parts[..] else {
            bail!(
                "{} files in memory instead of firmware, device tree and kernel",
                parts.len()
            );
        };
        let entry = self.get("cluster0.cpu0.RVBAR");
        ensure!(
            entry == Some(&format!("{at:#x}")),
            "the firmware is at {at:#x}, and the model is reset to {entry:?}"
        );
        Ok(Start::Preloaded {
            firmware: firmware.clone(),
            image: image.clone(),
            device_tree: device_tree.clone(),
        })
    }

    fn get(&self, name: &str) -> Option<&String> {
        self.parameters.get(name)
    }

    /// The number of cores of cluster 0. Cluster 1 is left out: with up to four CPUs the
    /// kernel is not to use it, and its one core has no place in the device tree that
    /// QEMU makes.
    pub(crate) fn cores(&self) -> u8 {
        let cores = self.get("cluster0.NUM_CORES");
        cores.and_then(|cores| cores.parse().ok()).unwrap_or(4)
    }

    /// The number of branch records of a core, if it has BRBE.
    pub(crate) fn records(&self) -> Option<&str> {
        self.get("cluster0.has_brbe").filter(|has| *has != "0")?;
        let records = self.get("cluster0.cpu0.number-of-branch-records");
        Some(records.map_or("64", String::as_str))
    }

    pub(crate) fn root(&self) -> Result<PathBuf> {
        let root = self.get("bp.virtiop9device.root_path");
        Ok(root
            .context("bp.virtiop9device.root_path is not set")?
            .into())
    }

    pub(crate) fn tag(&self) -> &str {
        let tag = self.get("bp.virtiop9device.mount_tag");
        tag.map_or("FM", String::as_str)
    }

    pub(crate) fn is_unlicensed(&self) -> bool {
        self.get("stand_in.unlicensed")
            .is_some_and(|value| value != "0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments> {
        Arguments::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn parameters_that_the_model_does_not_have_are_refused() {
        for name in [
            "cluster1.cpu3.RVBAR",
            "cluster0.has_arm_v9-2",
            "bp.virtiop9device.root_path",
            "bp.terminal_3.mode",
            "cluster0.has_brbe_v1p1",
        ] {
            assert!(parse(&["-C", &format!("{name}=1")]).is_ok(), "{name}");
        }
        for name in ["cluster0.has_brbf", "bp.terminal.mode", "x"] {
            let error = parse(&["-C", &format!("{name}=1")]).unwrap_err();
            assert!(error.to_string().contains("unknown parameter"), "{name}");
        }
    }

    #[test]
    fn the_parts_are_known_by_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let data = |path: &PathBuf, at: &str| format!("cluster0.cpu0={}@{at}", path.display());
        let (bl31, image, tree) = (file("bl31"), file("Image"), file("dtb"));
        let words = |entry: &str| {
            vec![
                "--data".to_owned(),
                data(&image, "0x84000000"),
                "--data".to_owned(),
                data(&tree, "0x82000000"),
                "--data".to_owned(),
                data(&bl31, "0x4001000"),
                "-C".to_owned(),
                format!("cluster0.cpu0.RVBAR={entry}"),
            ]
        };
        let start = Arguments::parse(words("0x4001000"))
            .unwrap()
            .start()
            .unwrap();
        let expected = Start::Preloaded {
            firmware: bl31.clone(),
            image: image.clone(),
            device_tree: tree.clone(),
        };
        assert_eq!(start, expected);
        assert!(Arguments::parse(words("0x0")).unwrap().start().is_err());
        let two = Arguments::parse(words("0x4001000").into_iter().take(4)).unwrap();
        assert!(two.start().is_err());
        assert!(parse(&["--data", "cluster0.cpu0=/none@0x1"]).is_err());
    }

    #[test]
    fn a_core_has_the_records_that_it_was_given() {
        let records = |words: &[&str]| parse(words).unwrap().records().map(str::to_owned);
        assert_eq!(records(&[]), None);
        assert_eq!(records(&["-C", "cluster0.has_brbe=0"]), None);
        assert_eq!(
            records(&["-C", "cluster0.has_brbe=1"]),
            Some("64".to_owned())
        );
        let few = [
            "-C",
            "cluster0.has_brbe=1",
            "-C",
            "cluster0.cpu0.number-of-branch-records=8",
        ];
        assert_eq!(records(&few), Some("8".to_owned()));
    }
}
