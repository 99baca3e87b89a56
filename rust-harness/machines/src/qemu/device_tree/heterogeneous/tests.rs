use super::*;
use dtoolkit::model::DeviceTree;

const GIC_PHANDLE: u32 = 0x8005;

pub(in crate::qemu::device_tree) fn node(
    name: &str,
    cells: &[(&str, &[u32])],
    children: Vec<DeviceTreeNode>,
) -> DeviceTreeNode {
    let mut node = DeviceTreeNode::new(name).unwrap();
    for (name, cells) in cells {
        node.add_property(DeviceTreeProperty::new(*name, bytes(cells)).unwrap());
    }
    for child in children {
        node.add_child(child);
    }
    node
}

/// A device tree with what matters here of QEMU's own.
pub(in crate::qemu::device_tree) fn qemu() -> DeviceTree {
    let cpu = |number: u32, phandle: u32| {
        let cells: [(&str, &[u32]); 2] = [("reg", &[number]), ("phandle", &[phandle])];
        node(&format!("cpu@{number}"), &cells, Vec::new())
    };
    let mut gic = node(
        "intc@8000000",
        &[
            ("phandle", &[GIC_PHANDLE]),
            ("#interrupt-cells", &[3]),
            ("#address-cells", &[2]),
        ],
        vec![node("its@8080000", &[("phandle", &[0x8006])], Vec::new())],
    );
    gic.add_property(DeviceTreeProperty::new("compatible", "arm,gic-v3").unwrap());
    let pcie = node(
        "pcie@10000000",
        &[
            ("#address-cells", &[3]),
            ("#interrupt-cells", &[1]),
            (
                "interrupt-map",
                &[
                    0,
                    0,
                    0,
                    1,
                    GIC_PHANDLE,
                    0,
                    0,
                    0,
                    3,
                    4, //
                    0,
                    0,
                    0,
                    2,
                    GIC_PHANDLE,
                    0,
                    0,
                    0,
                    4,
                    4,
                ],
            ),
        ],
        Vec::new(),
    );
    let mut tree = DeviceTree::new();
    tree.root = node(
        "",
        &[("interrupt-parent", &[GIC_PHANDLE])],
        vec![
            pcie,
            node(
                "timer",
                &[("interrupts", &[1, 13, 4, 1, 14, 4])],
                Vec::new(),
            ),
            node("pmu", &[("interrupts", &[1, 7, 4])], Vec::new()),
            gic,
            // As in QEMU's device tree, the last CPU has the first phandle.
            node(
                "cpus",
                &[],
                vec![
                    cpu(0, 0x8004),
                    cpu(1, 0x8003),
                    cpu(2, 0x8002),
                    cpu(3, 0x8001),
                ],
            ),
        ],
    );
    tree
}

fn at(tree: &DeviceTree, path: &str, property: &'static str) -> Vec<u32> {
    cells(tree.find_node(path).unwrap(), property)
        .unwrap()
        .unwrap()
}

fn fails(change: impl FnOnce(&mut DeviceTreeNode)) -> String {
    let mut tree = qemu();
    change(&mut tree.root);
    split(&mut tree.root, &BrbeCpus::first(2))
        .unwrap_err()
        .to_string()
}

#[test]
fn there_are_two_pmus_with_cpus_of_their_own() {
    let mut tree = qemu();
    split(&mut tree.root, &"0,2".parse().unwrap()).unwrap();
    assert!(tree.find_node("/pmu").is_none());
    for (number, affinity, compatible) in [
        (0, vec![0x8004, 0x8002], RECORDING),
        (1, vec![0x8003, 0x8001], COUNTING),
    ] {
        let partition = format!("/intc@8000000/ppi-partitions/interrupt-partition-{number}");
        assert_eq!(at(&tree, &partition, "affinity"), affinity);
        let phandle = at(&tree, &partition, "phandle")[0];
        assert!(phandle > 0x8006);
        let pmu = format!("/pmu-{number}");
        assert_eq!(at(&tree, &pmu, "interrupts"), [1, 7, 4, phandle]);
        let pmu = tree
            .find_node(&pmu)
            .unwrap()
            .property("compatible")
            .unwrap();
        assert_eq!(pmu.value_as::<&str>().unwrap(), compatible);
    }
}

#[test]
fn every_interrupt_of_the_gic_is_longer() {
    let mut tree = qemu();
    split(&mut tree.root, &BrbeCpus::first(2)).unwrap();
    assert_eq!(at(&tree, "/intc@8000000", "#interrupt-cells"), [4]);
    assert_eq!(
        at(&tree, "/timer", "interrupts"),
        [1, 13, 4, 0, 1, 14, 4, 0]
    );
    assert_eq!(
        at(&tree, "/pcie@10000000", "interrupt-map"),
        [
            0,
            0,
            0,
            1,
            GIC_PHANDLE,
            0,
            0,
            0,
            3,
            4,
            0, //
            0,
            0,
            0,
            2,
            GIC_PHANDLE,
            0,
            0,
            0,
            4,
            4,
            0,
        ]
    );
}

#[test]
fn both_kinds_have_cpus() {
    for brbe_cpus in ["0-3", "4", "1,4", "0-254"] {
        let found = split(&mut qemu().root, &brbe_cpus.parse().unwrap());
        assert!(
            matches!(found, Err(Error::Cpus { all: 4, .. })),
            "{brbe_cpus}"
        );
    }
}

#[test]
fn what_is_not_known_is_not_changed() {
    let set = |node: &mut DeviceTreeNode, name: &str, cells: &[u32]| {
        node.add_property(DeviceTreeProperty::new(name, bytes(cells)).unwrap());
    };
    let child = |root: &mut DeviceTreeNode, name: &str, property: &str, cells: &[u32]| {
        set(root.child_mut(name).unwrap(), property, cells);
    };
    let timer = "the device tree's timer: cannot make sense of";
    for (property, cells, expected) in [
        ("interrupts", &[1, 13][..], "interrupts"),
        (
            "interrupts-extended",
            &[GIC_PHANDLE, 1, 13, 4],
            "interrupts-extended",
        ),
        ("interrupt-parent", &[7], "interrupt-parent"),
        ("interrupt-parent", &[7, 7], "interrupt-parent"),
    ] {
        let said = fails(|root| child(root, "timer", property, cells));
        assert_eq!(said, format!("{timer} {expected}"));
    }
    let pcie = "the device tree's pcie@10000000: cannot make sense of";
    for (property, cells) in [
        ("interrupt-map", &[0, 0, 0, 1, 7, 0, 0, 0, 3, 4][..]),
        ("interrupt-map", &[0, 0, 0, 1, GIC_PHANDLE]),
        ("#address-cells", &[u32::MAX]),
    ] {
        let said = fails(|root| child(root, "pcie@10000000", property, cells));
        assert_eq!(said, format!("{pcie} interrupt-map"));
    }
    let said = fails(|root| child(root, "intc@8000000", "#interrupt-cells", &[4]));
    assert!(said.ends_with("#interrupt-cells"), "{said}");
    let said = fails(|root| child(root, "timer", "phandle", &[u32::MAX - 1]));
    assert_eq!(said, "the device tree has no phandle that is free");
    for (name, what) in [("pmu", "PMU"), ("cpus", "CPUs"), ("intc@8000000", "GIC")] {
        let said = fails(|root| drop(root.remove_child(name)));
        assert_eq!(said, format!("the device tree has no {what}"));
    }
}
