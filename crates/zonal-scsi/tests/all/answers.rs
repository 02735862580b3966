//! Recorded bytes of answers: layout of all fields in commands, pages and sense data.

use crate::rig::{DRIVE, DRIVE_4K, GAPS, Rig, cdb};

/// One command per line: device, descriptor, and answer starting with the status.
const RECORDED: &str = include_str!("../data/answers.txt");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn answers_have_the_recorded_bytes() {
    let mut rigs = [("drive", DRIVE), ("4k", DRIVE_4K), ("gaps", GAPS)].map(|(name, device)| {
        let mut rig = Rig::new(device);
        let zone = rig.zone_blocks();
        rig.must_write(6 * zone, 3, 1);
        (name, rig)
    });
    for line in RECORDED.lines() {
        let [device, command, ..] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let (_, rig) = rigs.iter_mut().find(|(name, _)| *name == device).unwrap();
        let mut reply = rig.ask(cdb(&bytes(command)), &[], 1024);
        if command.starts_with("1200") {
            // Mask the version of this crate.
            reply.data[32..36].fill(0);
        }
        let sense = reply.sense.map_or(String::new(), |sense| hex(&sense.emit_fixed()));
        let data = hex(&reply.data[..reply.transferred as usize]);
        assert_eq!(format!("{device} {command} {:02x}{sense}{data}", reply.status), line);
    }
}
