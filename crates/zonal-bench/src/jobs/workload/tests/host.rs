//! Zone ownership, step by step.

use super::*;

/// Two jobs that write zone 1, of 12 blocks, and continue in zone 2.
const TWO: &str = "--rw=write --zonemode=zbd --offset=1z --size=3z --numjobs=2";

impl Bench {
    fn steps(&mut self, workers: &[usize]) -> String {
        for &w in workers {
            self.step(w);
        }
        self.log()
    }
}

#[test]
fn zone_is_one_jobs_until_its_last_write_has_ended() {
    let mut bench = Bench::fio(TWO);
    assert_eq!(bench.steps(&[0, 0, 1]), "w1.0-1 wait");
    bench.end(0);
    assert_eq!(bench.steps(&[1, 0]), "wait w1.2", "one is in flight");
    bench.end(0);
    assert_eq!(bench.steps(&[1]), "wait", "the third is in flight");
    bench.end(0);
    assert_eq!(bench.zones.owner(ZoneIndex(1)), None);
    assert_eq!(bench.steps(&[1, 0, 1]), "w1.3 wait w1.4");
    assert_eq!(bench.zones.owner(ZoneIndex(1)), Some(1));
}

#[test]
fn zone_is_everybodys_by_the_rules_of_the_write_path() {
    let mut bench = Bench::new(&options(), Ordering::BySubmission, TWO);
    assert_eq!(bench.steps(&[0, 1, 0, 1]), "w1.0-3");
    assert_eq!(bench.zones.owner(ZoneIndex(1)), None);
}

#[test]
fn job_drains_its_writes_before_waiting_for_anothers_zone() {
    // The first worker writes zones 1 and 2, the second only zone 2.
    let mut bench =
        Bench::fio("--rw=write --zonemode=zbd --offset=1z --size=3z --numjobs=2 --offset_increment=1z");
    assert_eq!(bench.steps(&[0; 12]), "w1.0-11");
    assert_eq!(bench.steps(&[1, 0]), "w2.0 wait");
    bench.end(1);
    assert_eq!(bench.zones.owner(ZoneIndex(2)), None);
    assert_eq!(bench.steps(&[0]), "wait", "the zone is free, but it has writes in flight");
    (0..11).for_each(|_| bench.end(0));
    assert_eq!(bench.steps(&[0, 1]), "wait w2.1", "meanwhile the other goes on");
    bench.end(0);
    assert_eq!(bench.steps(&[0]), "wait", "it has drained, and waits");
    bench.end(1);
    assert_eq!(bench.steps(&[0, 1]), "w2.2 wait");
}

#[test]
fn waiting_workers_obtain_the_zone_in_arrival_order() {
    let mut bench = Bench::fio(&TWO.replace("numjobs=2", "numjobs=4"));
    assert_eq!(bench.steps(&[0, 2, 1, 3]), "w1.0 wait wait wait");
    bench.end(0);
    assert_eq!(bench.steps(&[3, 1, 2]), "wait wait w1.1");
    bench.end(2);
    assert_eq!(bench.steps(&[3, 2]), "wait w1.2", "who gave it back may have it again at once");
    bench.end(2);
    assert_eq!(bench.steps(&[3, 1]), "wait w1.3");
    bench.end(1);
    assert_eq!(bench.steps(&[3]), "w1.4");
}

#[test]
fn reads_have_their_zone_too_unless_they_look_at_no_pointer() {
    let jobs = "--rw=write --zonemode=zbd --offset=1z --size=1z --name=r --bs=4k --rw=read --zonemode=zbd --offset=1z --size=1z";
    let mut bench = Bench::fio(jobs);
    assert_eq!(bench.steps(&[0, 0]), "w1.0-1");
    bench.end_all(0);
    assert_eq!(bench.steps(&[1, 1, 0]), "r1.0-1 wait");
    bench.end(1);
    assert_eq!(bench.steps(&[0]), "wait");
    bench.end(1);
    assert_eq!(bench.steps(&[0, 1]), "w1.2 wait");
    let mut bench = Bench::fio(&format!("{jobs} --read_beyond_wp=1"));
    assert_eq!(bench.steps(&[0, 1, 0, 1]), "w1.0 r1.0 w1.1 r1.1");
}

#[test]
fn full_zone_is_reset_after_all_of_the_jobs_own_writes() {
    let mut bench = Bench::fio(
        "--rw=write --zonemode=zbd --offset=1z --size=1z --numjobs=2 --io_size=1M --time_based --runtime=9",
    );
    assert_eq!(bench.steps(&[0; 12]), "w1.0-11");
    assert_eq!(bench.steps(&[0, 1]), "wait wait");
    bench.end_all(0);
    assert_eq!(bench.steps(&[0, 0]), "reset1 wait", "the zone stays its own while it is reset");
    assert_eq!(bench.zones.owner(ZoneIndex(1)), Some(0));
    bench.end(0);
    assert_eq!(bench.steps(&[1, 0]), "wait w1.0");
}

#[test]
fn job_waits_for_its_chosen_zone_instead_of_taking_a_free_one() {
    let mut bench = Bench::fio(
        "--rw=randwrite --zonemode=zbd --offset=1z --size=7z --numjobs=2 --max_open_zones=1 --norandommap",
    );
    let first = bench.steps(&[0]);
    assert_eq!(bench.steps(&[1]), "wait", "{first} is the only zone that may be open");
    bench.end(0);
    let second = bench.steps(&[1]);
    assert_eq!(first.split('.').next(), second.split('.').next());
}

#[test]
fn worker_that_ends_leaves_zone_and_line() {
    let mut bench = Bench::fio(&TWO.replace("numjobs=2", "numjobs=3"));
    assert_eq!(bench.steps(&[0, 1, 2]), "w1.0 wait wait");
    let zones = &bench.zones;
    bench.workloads[1].end(zones);
    bench.end(0);
    assert_eq!(bench.steps(&[2]), "w1.1");
}

#[test]
fn only_workers_that_share_zones_hold_them() {
    let alone =
        Bench::fio("--rw=write --zonemode=zbd --offset=1z --size=1z --numjobs=3 --offset_increment=1z");
    assert!(alone.zones.holds().is_none());
    let mut bench = Bench::fio(TWO);
    bench.workloads.truncate(1);
    assert!(bench.workloads[0].plan().holds_zones);
}
