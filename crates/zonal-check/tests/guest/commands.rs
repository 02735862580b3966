//! Expected results of the nvme-cli and blkzone commands that `commands.sh` runs.

use std::fs;
use zonal_check::guest::{self, Guest};
use zonal_check::program::served::Served;

/// Drive of `commands.sh`.
const DRIVE: &str = "fault:plan=plan.toml+ram:size=128M,zone_size=8M,zone_capacity=6M,zone_nr_conv=4,blocksize=4096,\
                     zone_max_open=4,zone_max_active=6 --uuid 67e55044-10b1-426f-9247-bb680e5fe0c8";

/// Zones 9, 10 and 11 of the namespace become read-only on their second write.
const WORN: [u32; 3] = [13, 14, 15];

const EXPECTED: &[(&str, &str)] = &[
    ("connected", "ok"),
    ("disks", "2"),
    (
        "id-ctrl",
        "[1,102,68,2,8,140,6,134217984,3,3,63,3,10,\"nqn.2014-08.org.nvmexpress:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8\"]",
    ),
    ("id-ns.zoned", "[24576,24576,24576,0,12,0,1,1,0]"),
    ("id-ns.conventional", "[8192,8192,8192,12]"),
    ("id-ns.absent", "[0,0]"),
    ("zns.id-ctrl", "8"),
    ("zns.id-ns", "[0,1,5,3,2048,0]"),
    // Invalid Field: not a zoned namespace.
    ("zns.id-ns.conventional", "0x4002"),
    ("list-ns", "[1,2] [1]"),
    (
        "ns-descs",
        "NVME Namespace Identification Descriptors NS 1: nguid : 67e5504410b1426f9247bb680e5fe0c8 uuid : 67e55044-10b1-426f-9247-bb680e5fe0c8 csi : 0x2",
    ),
    ("id-iocs", "NVMe Identify I/O Command Set: I/O Command Set Combination[0]:5"),
    ("independent", "[32,1,0,1]"),
    ("show-regs", "0x80008201401007f 0x20100 0x460061 0x1"),
    ("states.opened", "ok ok ok ok ok"),
    // The second write finds the zone read-only.
    ("states.worn", "ok 0x41ba ok 0x41ba ok"),
    (
        "report.all",
        "0:EMPTY:0 1:IMP_OPENED:3 2:EXP_OPENED:0 3:CLOSED:2 4:FULL:1536 5:EMPTY:0 6:EMPTY:0 7:EMPTY:0 8:EMPTY:0 9:READONLY:1536 10:OFFLINE:1536 11:EMPTY:0",
    ),
    ("report.state1", "0:EMPTY:0 5:EMPTY:0 6:EMPTY:0 7:EMPTY:0 8:EMPTY:0 11:EMPTY:0"),
    ("report.state2", "1:IMP_OPENED:3"),
    ("report.state3", "2:EXP_OPENED:0"),
    ("report.state4", "3:CLOSED:2"),
    ("report.state5", "4:FULL:1536"),
    ("report.state6", "9:READONLY:1536"),
    ("report.state7", "10:OFFLINE:1536"),
    ("report.from", "8:EMPTY:0 9:READONLY:1536 10:OFFLINE:1536 11:EMPTY:0"),
    ("report.within", "8:EMPTY:0 9:READONLY:1536"),
    // LBA Out of Range.
    ("report.end", "0x4080"),
    // Invalid Field: there are no descriptor extensions.
    ("report.extended", "0x4002"),
    ("report.conventional", "0x4002"),
    ("receive", "12 2 1 1"),
    ("receive.action", "0x4002"),
    // For an empty, a full, a read-only and an offline zone: Invalid Zone State Transition. `-` is
    // not tested.
    ("refused.open", "- 0x41bf 0x41bf 0x41bf "),
    ("refused.close", "0x41bf 0x41bf 0x41bf 0x41bf "),
    ("refused.finish", "- - 0x41bf 0x41bf "),
    ("refused.reset", "- - 0x41bf 0x41bf "),
    ("refused.offline", "0x41bf 0x41bf - - "),
    ("act.closed", "ok 2:EXP_OPENED:0 3:EXP_OPENED:2"),
    ("act.opened", "ok 1:CLOSED:3"),
    ("act.finished", "ok ok 1:FULL:1536 4:FULL:1536"),
    ("act.reset", "ok ok ok ."),
    ("act.not-start", "0x4002"),
    ("act.beyond", "0x4080"),
    ("act.send", "ok ok 0x4002 2:EXP_OPENED:0 3:EXP_OPENED:2"),
    ("act.description", "failed: zone format does not provide descriptor extension 0x4002"),
    ("act.flush-window", "0x4002"),
    // Invalid Command Opcode.
    ("act.conventional", "0x4001"),
    ("all.before", "ok 6:IMP_OPENED:1 / 2:EXP_OPENED:0 3:EXP_OPENED:2"),
    ("all.close", "ok 2:CLOSED:0 3:CLOSED:2 5:CLOSED:0 6:CLOSED:1"),
    ("all.open", "ok 2:EXP_OPENED:0 3:EXP_OPENED:2 5:EXP_OPENED:0 6:EXP_OPENED:1"),
    ("all.finish", "ok 2:FULL:1536 3:FULL:1536 5:FULL:1536 6:FULL:1536"),
    (
        "all.reset",
        "ok 0:EMPTY:0 1:EMPTY:0 2:EMPTY:0 3:EMPTY:0 4:EMPTY:0 5:EMPTY:0 6:EMPTY:0 7:EMPTY:0 8:EMPTY:0 9:READONLY:1536 10:OFFLINE:1536 11:EMPTY:0",
    ),
    ("all.offline", "ok 9:OFFLINE:1536 10:OFFLINE:1536"),
    ("append", "0 2 0x4002 0:IMP_OPENED:3"),
    // Zone Is Full.
    ("append.full", "ok 0x41b9"),
    ("append.conventional", "0x4001"),
    // Zone Invalid Write.
    ("write.pointer", "ok 0x41bc 0x41bc"),
    ("zeroes", "ok 0x41bc 1:IMP_OPENED:6"),
    ("zeroes.read", "zeroes"),
    ("zeroes.conventional", "ok ok"),
    ("zeroes.conventional.read", "zeroes same"),
    // The last one is beyond the end.
    ("verify", "ok ok 0x4080"),
    // Zone Is Offline.
    ("read.offline", "0x41bb"),
    ("flush", "ok ok"),
    ("dsm", "ok ok"),
    // Compare, Write Uncorrectable, Copy.
    ("unsupported", "0x4001 0x4001 0x4001"),
    // Format, Device Self-test; Reservation Report.
    ("unsupported.admin", "0x4001 0x4001 0x4001"),
    // The zones that have become read-only, without changes made by the host.
    ("changed-zone-list", "18432 20480"),
    ("changed-zone-list.read", "18432 20480 / "),
    ("smart-log", "[0,100,0,true,true,true,false,0,true]"),
    // Zone Invalid Write, in units of blocks.
    ("error-log", "[true,16828,2148,1,null]"),
    ("error-log.count", "[1,64]"),
    (
        "effects-log.zns",
        "ACS2=1 ACS6=1 ACS8=1 ACS9=1 ACS10=1 ACS12=1 ACS24=1 IOCS0=1 IOCS1=3 IOCS2=1 IOCS8=3 IOCS9=3 IOCS12=1 IOCS121=3 IOCS122=1 IOCS125=3",
    ),
    (
        "effects-log.nvm",
        "ACS2=1 ACS6=1 ACS8=1 ACS9=1 ACS10=1 ACS12=1 ACS24=1 IOCS0=1 IOCS1=3 IOCS2=1 IOCS8=3 IOCS9=3 IOCS12=1",
    ),
    ("fw-log", "0x1 0x202020302e322e30"),
    ("supported-log-pages", "0 0x1 0x2 0x3 0x4 0x5 0xbf"),
    ("changed-ns-list-log", "no ns changed"),
    // Invalid Log Page.
    ("get-log.unknown", "0x4109"),
    ("endurance-log", "0x4109"),
    ("get-feature.1", "00000000"),
    ("get-feature.2", "00000000"),
    ("get-feature.4", "0x0000ffff"),
    ("get-feature.5", "00000000"),
    ("get-feature.6", "00000000"),
    ("get-feature.7", "0x007f007f"),
    ("get-feature.0xa", "00000000"),
    ("get-feature.0xb", "0x00000100"),
    ("get-feature.0xf", "0x00001388"),
    ("get-feature.0x19", "00000000"),
    ("get-feature.3", "0x4002"),
    ("get-feature.0x20", "0x4002"),
    // Feature Identifier Not Saveable.
    ("set-feature", "ok ok 0x410d 0x4002"),
    ("set-feature.kept", "0x00000160"),
    ("blkzone.report", "0x000020000 0x000000 1(em) 0x000024000 N/A 15(of) 0x000028000 N/A 15(of)"),
    ("blkzone.capacity", "0x000024000 0x000006000"),
    ("blkzone.open", "ok 5:EXP_OPENED:0 6:EXP_OPENED:0"),
    ("blkzone.close", "ok 5:CLOSED:0 6:CLOSED:0"),
    ("blkzone.written", "ok ok ok 5:CLOSED:1 6:CLOSED:1"),
    ("blkzone.finish", "ok 0:FULL:1536 5:FULL:1536 6:FULL:1536 7:FULL:1536"),
    ("blkzone.reset", "ok 0:FULL:1536 7:FULL:1536"),
    ("blkzone.reset.all", "ok ."),
    ("blkzone.misaligned", "failed: blkzone: DISK: offset 8 is not aligned to zone size 16384"),
    ("blkzone.beyond", "failed: blkzone: DISK: BLKOPENZONE ioctl failed: Invalid argument"),
    ("blkzone.conventional", "failed: blkzone: DISK: unable to determine zone size"),
    ("messages", "0"),
    ("disconnected", "disconnected 1 "),
];

#[test]
#[ignore = "a minute"]
fn commands_of_nvme_cli_and_blkzone_have_their_answers() {
    let dir = tempfile::tempdir().unwrap();
    let rule = |zone| format!("[[rule]]\non = \"writes\"\nzones = {zone}\nnth = 2\nfault = \"read-only\"\n");
    fs::write(dir.path().join("plan.toml"), WORN.map(rule).concat()).unwrap();
    let share = guest::share();
    let served = Served::start(dir.path(), DRIVE);
    let guest = Guest::script("commands.sh", 600).share(share.path());
    let lines = guest.set("PORT", served.address.port()).set("NQN", &served.nqn).lines();
    let found = crate::differences(&lines, EXPECTED);
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert_eq!(served.terminate(), Some(0));
}
