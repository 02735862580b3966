mod tails;

use super::*;
use crate::image::ImageOptions;
use crate::image::backing::twin::{Call, CutBacking, Watched};
use zonal_core::ZoneCondition;

/// Action during the next sync.
type Hook = Box<dyn FnOnce() + Send>;

/// Zones of a ledger without a device, with states set by the test.
struct Zones {
    backing: Arc<CutBacking>,
    in_sync: Arc<Mutex<Option<Hook>>>,
    ledger: Ledger,
    states: Vec<Mutex<ZoneState>>,
}

fn options() -> ImageOptions {
    ImageOptions {
        // Three pages of zones.
        size: Some(1200 * 4096),
        zone_size: Some(4096),
        blocksize: Some(512),
        creation: Some([1; 16]),
        ..Default::default()
    }
}

fn zones() -> Zones {
    keeping(0)
}

/// Zones that keep at most `kept_max` bytes of the file allocated after a reset.
fn keeping(kept_max: u64) -> Zones {
    let backing = Arc::new(CutBacking::new(1));
    options().format(&*backing).unwrap();
    read_keeping(backing, kept_max)
}

fn read(backing: Arc<CutBacking>) -> Zones {
    read_keeping(backing, 0)
}

fn read_keeping(backing: Arc<CutBacking>, kept_max: u64) -> Zones {
    let header = options().header().unwrap();
    let in_sync = Arc::default();
    let hook: Arc<Mutex<Option<Hook>>> = Arc::clone(&in_sync);
    let watched = Watched::new(backing.clone(), move |call| {
        let hook = if call == Call::Sync { hook.lock().take() } else { None };
        hook.into_iter().for_each(|hook| hook());
    });
    let Ok((ledger, states)) = Ledger::read(Arc::new(watched), &header, kept_max) else {
        panic!("a sound ledger")
    };
    Zones { backing, in_sync, ledger, states: states.into_iter().map(Mutex::new).collect() }
}

impl Zones {
    fn sample(&self) -> impl Fn(ZoneIndex) -> ZoneState {
        |zone| *self.states[zone.0 as usize].lock()
    }

    /// Sets the state of a zone like a command with data.
    fn set(&self, zone: u32, condition: ZoneCondition, written: u32) {
        *self.states[zone as usize].lock() = ZoneState { condition, written };
        self.ledger.wrote_data();
        self.ledger.changed(ZoneIndex(zone));
    }

    fn reset(&self, zone: u32) {
        self.ledger.resetting(ZoneIndex(zone), self.states[zone as usize].lock().written);
        self.set(zone, ZoneCondition::Empty, 0);
    }

    fn flush(&self) -> Result<(), Failure> {
        self.ledger.flush(&self.sample())
    }

    fn before_write(&self, zone: u32, offset: u32) -> Result<(), Failure> {
        self.ledger.before_write(ZoneIndex(zone), offset, &self.sample())
    }

    /// Number of calls to the backing during `action`.
    fn calls<R>(&self, action: impl FnOnce() -> R) -> u64 {
        let before = self.backing.calls();
        action();
        self.backing.calls() - before
    }

    /// States of some zones after a power cut.
    fn after_cut<const N: usize>(&self, zones: [usize; N]) -> [ZoneState; N] {
        let after = read(Arc::new(self.backing.restart(7)));
        zones.map(|z| *after.states[z].lock())
    }
}

use ZoneCondition::{Closed, Empty, Full};

fn state(condition: ZoneCondition, written: u32) -> ZoneState {
    ZoneState { condition, written }
}

#[test]
fn flush_writes_only_pages_that_changed() {
    let z = zones();
    z.set(3, Closed, 2);
    z.set(700, Closed, 2);
    // Session and its sync, two anchors, sync of data, two pages, sync.
    assert_eq!(z.calls(|| z.flush().unwrap()), 2 + 2 + 1 + 2 + 1);
    z.set(3, Closed, 3);
    z.set(4, Full, 0);
    assert_eq!(z.calls(|| z.flush().unwrap()), 2, "one page, sync");
    assert_eq!(z.calls(|| z.flush().unwrap()), 0, "nothing changed");
    z.ledger.wrote_data();
    assert_eq!(z.calls(|| z.flush().unwrap()), 1, "data of a conventional zone");
    assert_eq!(
        z.after_cut([3, 4, 700, 1199]),
        [state(Closed, 3), state(Full, 0), state(Closed, 2), ZoneState::EMPTY]
    );
}

#[test]
fn sequential_writes_never_wait_for_the_ledger() {
    let z = zones();
    assert_eq!(z.calls(|| z.before_write(3, 0).unwrap()), 0);
    z.set(3, Closed, 2);
    z.flush().unwrap();
    assert_eq!(z.calls(|| z.before_write(3, 2).unwrap()), 0);
}

#[test]
fn first_write_after_a_reset_makes_the_reset_durable() {
    let z = zones();
    z.set(3, Closed, 2);
    z.set(4, Closed, 2);
    z.set(5, Closed, 2);
    z.flush().unwrap();
    z.reset(3);
    z.reset(4);
    z.set(5, Closed, 4);
    assert_eq!(z.after_cut([3, 4]), [state(Closed, 2); 2], "a reset may be lost until then");
    // One page and a sync; the twin may ignore either discard.
    assert!((2..=4).contains(&z.calls(|| z.before_write(3, 0).unwrap())));
    let after = z.after_cut([3, 4, 5]);
    assert_eq!(after, [ZoneState::EMPTY, ZoneState::EMPTY, state(Closed, 2)], "all resets, no data");
    assert_eq!(z.calls(|| z.before_write(4, 0).unwrap()), 0);
    z.flush().unwrap();
    assert_eq!(z.after_cut([5]), [state(Closed, 4)], "what was left out is not forgotten");
}

#[test]
fn reset_of_never_durable_data_needs_no_sync() {
    let z = zones();
    z.set(3, Closed, 2);
    z.reset(3);
    assert!(z.calls(|| z.before_write(3, 0).unwrap()) <= 1, "at most a discard");
}

#[test]
fn failure_at_any_call_of_a_flush_stands() {
    for at in 0..8 {
        let z = zones();
        z.set(3, Closed, 2);
        z.set(700, Closed, 2);
        z.backing.fail_at(z.backing.calls() + at);
        let failure = z.flush().unwrap_err();
        assert_eq!(failure.errno, 5);
        assert_eq!((z.flush(), z.before_write(9, 0)), (Err(failure), Err(failure)));
        assert_eq!(z.calls(|| z.ledger.close(&z.sample()).unwrap_err()), 0, "nothing more is written");
        let after = read(z.backing.clone());
        after.flush().unwrap();
        assert!(after.ledger.failure().is_none(), "until it is opened again");
    }
}

#[test]
fn unclean_opener_is_not_believed_before_its_pages_are_written_again() {
    let z = zones();
    z.set(3, Closed, 2);
    z.flush().unwrap();
    let z = read(z.backing.clone());
    // Session and sync, the active page and sync; the twin may ignore the discards below and above
    // the zone's data.
    assert!((4..=6).contains(&z.calls(|| z.before_write(3, 2).unwrap())));
    assert_eq!(z.calls(|| z.before_write(9, 0).unwrap()), 0);
}

#[test]
fn closed_image_is_believed() {
    let z = zones();
    z.set(3, Closed, 2);
    z.ledger.close(&z.sample()).unwrap();
    let z = read(z.backing.clone());
    assert_eq!(z.calls(|| z.before_write(3, 2).unwrap()), 0);
}

#[test]
fn torn_slot_is_repaired_before_the_image_counts_as_closed() {
    let z = zones();
    // Its word is in another sector of the page than the header.
    z.set(100, Closed, 2);
    z.set(700, Closed, 1);
    z.flush().unwrap();
    z.set(100, Closed, 3);
    z.backing.cut_at(z.backing.calls());
    z.flush().unwrap_err();
    let torn = (0..200)
        .map(|seed| read(Arc::new(z.backing.restart(seed))))
        .find(|z| z.ledger.committer.lock().pages[1].torn)
        .expect("some cut tears the page");
    assert_eq!(*torn.states[100].lock(), state(Closed, 2));
    torn.ledger.close(&torn.sample()).unwrap();
    let z = read(torn.backing.clone());
    assert!(z.ledger.committer.lock().pages.iter().all(|p| !p.torn));
    assert_eq!(*z.states[100].lock(), state(Closed, 2));
    assert_eq!(*z.states[700].lock(), state(Closed, 1));
}

#[test]
fn concurrent_flushes_share_commits() {
    let z = zones();
    let threads = 8;
    let barrier = std::sync::Barrier::new(threads);
    let calls = z.calls(|| {
        std::thread::scope(|s| {
            for zone in 0..threads as u32 {
                let (z, barrier) = (&z, &barrier);
                s.spawn(move || {
                    z.set(zone, Closed, 1);
                    barrier.wait();
                    z.flush().unwrap();
                });
            }
        });
    });
    assert!(calls <= 8, "{calls} calls: one commit, and for later ones nothing was left");
    assert_eq!(z.after_cut([0, 7]), [state(Closed, 1); 2]);
    assert_eq!(z.after_cut([8]), [state(Empty, 0)]);
}

#[test]
fn write_after_a_reset_waits_for_a_flush_that_may_still_promise_the_old_bytes() {
    let z = Arc::new(zones());
    z.set(3, Closed, 4);
    let writer = Arc::new(Mutex::new(None));
    let (z2, writer2) = (z.clone(), writer.clone());
    // The zone was sampled with 4 sectors; its page is not written yet.
    *z.in_sync.lock() = Some(Box::new(move || {
        z2.reset(3);
        let z3 = z2.clone();
        let thread = std::thread::spawn(move || {
            z3.before_write(3, 0).unwrap();
            z3.after_cut([3])
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!thread.is_finished(), "the flush under way still promises the old bytes");
        *writer2.lock() = Some(thread);
    }));
    z.flush().unwrap();
    let thread = writer.lock().take().unwrap();
    assert_eq!(thread.join().unwrap(), [ZoneState::EMPTY], "the reset is durable before the write");
}

#[test]
fn discard_spares_data_written_above_the_bound() {
    let z = zones();
    // Several zones, because the twin ignores some discards.
    let zones = 3..30;
    for zone in zones.clone() {
        z.set(zone, Closed, 1);
    }
    z.flush().unwrap();
    zones.clone().for_each(|zone| z.reset(zone));
    // Two writes in flight after the reset: the second one is above the bound, so it does not wait.
    let at = |zone: u32| (1 << 20) + u64::from(zone) * 4096 + 512;
    for zone in zones.clone() {
        assert_eq!(z.calls(|| z.before_write(zone, 1).unwrap()), 0);
        z.backing.write_at(&[7; 512], at(zone)).unwrap();
    }
    z.before_write(3, 0).unwrap();
    let mut byte = [0];
    for zone in zones {
        z.backing.read_at(&mut byte, at(zone)).unwrap();
        assert_eq!(byte, [7], "zone {zone}");
    }
}

#[test]
fn reset_zones_keep_their_blocks_until_the_image_is_closed() {
    let (z, discards) = noting(1 << 20);
    for _ in 0..3 {
        z.set(3, Closed, 4);
        z.flush().unwrap();
        z.reset(3);
        assert_eq!(z.calls(|| z.before_write(3, 0).unwrap()), 2, "the page and its sync");
    }
    z.set(3, Closed, 1);
    z.flush().unwrap();
    assert_eq!(*discards.lock(), []);
    z.ledger.close(&z.sample()).unwrap();
    let start = (1 << 20) + 3 * 4096;
    assert_eq!(*discards.lock(), [(start + 512, 3 * 512)], "what lies above the data");
}

/// Offset and length of each discard.
type Discards = Arc<Mutex<Vec<(u64, u64)>>>;

/// Records discards, some of which the twin ignores.
struct Noting {
    twin: Arc<CutBacking>,
    discards: Discards,
}

impl Backing for Noting {
    fn len(&self) -> io::Result<u64> {
        self.twin.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.twin.set_len(len)
    }

    fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.twin.read_at(buf, at)
    }

    fn write_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.twin.write_at(buf, at)
    }

    fn zero(&self, at: u64, len: u64) -> io::Result<()> {
        self.twin.zero(at, len)
    }

    fn discard(&self, at: u64, len: u64) {
        self.discards.lock().push((at, len));
    }

    fn sync(&self) -> io::Result<()> {
        self.twin.sync()
    }
}

fn noting(kept_max: u64) -> (Zones, Discards) {
    let discards = Discards::default();
    let z = keeping(kept_max);
    let backing = Arc::new(Noting { twin: z.backing.clone(), discards: discards.clone() });
    (Zones { ledger: Ledger { backing, ..z.ledger }, ..z }, discards)
}

#[test]
fn space_beyond_the_bound_is_discarded_at_once_in_merged_calls() {
    let (z, discards) = noting(12 * 512);
    for zone in 3..6 {
        z.set(zone, Full, 8);
    }
    z.flush().unwrap();
    (3..6).for_each(|zone| z.reset(zone));
    z.flush().unwrap();
    let start = (1 << 20) + 3 * 4096;
    assert_eq!(*discards.lock(), [(start + 12 * 512, 12 * 512)]);
}

#[test]
fn blocks_kept_above_a_rewrite_go_with_its_reset() {
    let (z, discards) = noting(8 * 512);
    z.set(3, Full, 8);
    z.flush().unwrap();
    z.reset(3);
    z.flush().unwrap();
    z.set(3, Closed, 2);
    z.set(4, Closed, 2);
    z.flush().unwrap();
    z.reset(4);
    z.flush().unwrap();
    assert_eq!(
        *discards.lock(),
        [],
        "two sectors are in use again, and two of another zone are kept for them"
    );
    z.reset(3);
    // The second of two writes in flight: the commit may free the blocks above the old data.
    assert_eq!(z.calls(|| z.before_write(3, 4).unwrap()), 2, "it waits for the reset to be durable");
    assert_eq!(*discards.lock(), [((1 << 20) + 3 * 4096 + 6 * 512, 2 * 512)]);
}

#[test]
fn give_back_spares_writes_in_flight_and_non_durable_resets() {
    let (z, discards) = noting(1 << 20);
    for zone in 3..6 {
        z.set(zone, Full, 8);
    }
    z.flush().unwrap();
    (3..6).for_each(|zone| z.reset(zone));
    z.flush().unwrap();
    z.set(4, Closed, 2);
    z.flush().unwrap();
    z.reset(4);
    // Zone 3 has a write in flight, and zone 4 a reset that is not durable.
    assert!(z.ledger.give_back(&|zone| if zone == ZoneIndex(3) { 6 } else { 0 }));
    let at = |zone: u64, sector: u64| (1 << 20) + zone * 4096 + sector * 512;
    assert_eq!(*discards.lock(), [(at(3, 6), 2 * 512), (at(5, 0), 8 * 512)]);
    assert_eq!(z.calls(|| z.before_write(3, 6).unwrap()), 0, "the bound is what it was");
    assert_eq!(z.calls(|| z.before_write(4, 0).unwrap()), 2, "the reset has to be durable as before");
    assert!(z.ledger.give_back(&|_| 0));
    assert_eq!(discards.lock()[2..], [(at(4, 0), 8 * 512)], "zone 4 kept its blocks at its commit");
    assert!(!z.ledger.give_back(&|_| 0), "nothing is left");
}

#[test]
fn opener_after_an_unclean_one_gives_back_all_above_the_data() {
    let z = keeping(1 << 20);
    z.set(3, Full, 8);
    z.set(7, Closed, 3);
    z.flush().unwrap();
    z.reset(3);
    z.flush().unwrap();
    let discards = Discards::default();
    let backing = Arc::new(Noting { twin: z.backing.clone(), discards: discards.clone() });
    let Ok((ledger, _)) = Ledger::read(backing, &options().header().unwrap(), 0) else { panic!("sound") };
    assert_eq!(*discards.lock(), [], "opening changes nothing");
    ledger.before_write(ZoneIndex(9), 0, &z.sample()).unwrap();
    let at = |zone: u64, sector: u64| (1 << 20) + zone * 4096 + sector * 512;
    let (first, second) = ((at(0, 0), at(7, 0) - at(0, 0)), (at(7, 3), at(1200, 0) - at(7, 3)));
    assert_eq!(*discards.lock(), [first, second]);
}
