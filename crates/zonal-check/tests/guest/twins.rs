//! QEMU's zoned drive and a served one receive equal commands, as described in `twins.py`.

use std::fs;
use zonal_check::guest::{self, Guest};
use zonal_check::program::served::Served;

/// Intended differences, as listed in docs/GUEST.md: the words of a difference, and the reason.
const KNOWN: &[(&str, &str)] = &[
    (
        "status open-all 0x41be 0x0",
        "to open all, QEMU also opens zones that it has closed for the first of them",
    ),
    (
        "zones open-all",
        "of an open of all that fails QEMU leaves the first zones open; ZNS 3.4.3.1 has all or none",
    ),
];

/// Sends both drives `commands` commands drawn from `seed`, and returns the lines of differences
/// and the others.
fn twins(seed: u64, commands: u32) -> (Vec<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let share = guest::share();
    fs::copy(guest::scripts().join("twins.py"), share.path().join("twins.py")).unwrap();
    let served = Served::start(
        dir.path(),
        "ram:size=16M,zone_size=1M,zone_capacity=768K,blocksize=4096,zone_max_open=4,zone_max_active=6",
    );
    let guest = Guest::script("twins.sh", 1800).share(share.path()).qemu_drive(
        "16M,logical_block_size=4096,physical_block_size=4096,zoned.zone_size=1M,zoned.zone_capacity=768K,\
         zoned.max_open=4,zoned.max_active=6,zoned.cross_read=on",
    );
    let guest = guest.set("PORT", served.address.port()).set("NQN", &served.nqn);
    let lines = guest.set("SEED", seed).set("COMMANDS", commands).lines();
    lines.into_iter().partition(|line| line.starts_with("difference "))
}

#[test]
#[ignore = "two minutes"]
fn qemu_drive_given_the_same_commands_answers_the_same() {
    let (differences, facts) = twins(1, 10_000);
    for line in facts.iter().chain(&differences) {
        eprintln!("{line}");
    }
    let fact = |key: &str| facts.iter().find_map(|line| line.strip_prefix(key)).unwrap_or("missing");
    for attribute in
        ["nr_zones ", "chunk_sectors ", "max_open_zones ", "max_active_zones ", "logical_block_size "]
    {
        let (theirs, ours) = fact(attribute).split_once(' ').expect("two values");
        assert_eq!(theirs, ours, "{attribute}of QEMU's drive and of the served one");
    }
    assert_eq!((fact("ended "), fact("sent ")), ("0", "10000"));
    // Every possible status occurs, so that it was compared.
    for status in [
        "0x0:", "0x4002:", "0x4001:", "0x4080:", "0x41b8:", "0x41b9:", "0x41bc:", "0x41bd:", "0x41be:",
        "0x41bf:",
    ] {
        assert!(fact("statuses ").contains(status), "no command ended with {status}");
    }
    let unknown: Vec<_> =
        differences.iter().filter(|line| !KNOWN.iter().any(|(words, _)| line.contains(words))).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
    for (words, reason) in KNOWN {
        assert!(
            differences.iter().any(|line| line.contains(words)),
            "no longer different: {words} ({reason})"
        );
    }
}
