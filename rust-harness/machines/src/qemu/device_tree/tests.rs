use super::heterogeneous::tests::{node, qemu};
use super::tree::{Error, MAX_DEPTH, MAX_SIZE};
use super::*;

/// What all that can be changed is changed for.
fn all() -> MachineSpec {
    MachineSpec {
        idle_states: true,
        ..MachineSpec::heterogeneous()
    }
}

#[test]
fn changes_go_together() {
    let dtb = changed(&qemu().to_dtb(), &all(), None).unwrap();
    let tree = tree::parse(&dtb).unwrap();
    for node in ["/pmu-0", "/pmu-1", "/cpus/idle-states/cpu-sleep"] {
        assert!(tree.find_node(node).is_some(), "{node}");
    }
}

#[test]
fn input_is_bounded() {
    let whole = qemu().to_dtb();
    for end in 0..whole.len() {
        let found = changed(&whole[..end], &all(), None);
        assert!(matches!(found, Err(Error::Malformed(_))), "{end}");
    }
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0xff;
        // Whether this is an error or not, it has to end.
        let _ = changed(&damaged, &all(), None);
    }
    let large = vec![0; MAX_SIZE as usize + 1];
    assert!(matches!(
        changed(&large, &all(), None),
        Err(Error::TooLarge)
    ));
    let mut deep = node("leaf", &[], Vec::new());
    for _ in 0..MAX_DEPTH {
        deep = node("node", &[], vec![deep]);
    }
    let mut tree = qemu();
    tree.root.add_child(deep);
    let found = changed(&tree.to_dtb(), &all(), None);
    assert!(matches!(found, Err(Error::TooLarge)));
}
