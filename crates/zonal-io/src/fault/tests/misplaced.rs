//! Lost and misdirected writes, in memory and on images.

use super::*;
use crate::device::Landing;
use crate::image::backing::twin::CutBacking;
use crate::image::{ImageDevice, ImageOptions, OpenOptions};

fn backing() -> Arc<CutBacking> {
    backing_with(1)
}

fn backing_with(conventional: u32) -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::new(1));
    let options = ImageOptions::default()
        .with_size(8 * 64 * 512)
        .with_zone_size(64 * 512)
        .with_zone_nr_conv(conventional)
        .with_blocksize(1024)
        .with_creation([7; 16]);
    options.format(&*backing).unwrap();
    backing
}

fn image(backing: &Arc<CutBacking>, threads: usize) -> Arc<dyn Device> {
    let options = OpenOptions::default().with_threads(threads);
    Arc::new(ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options).unwrap())
}

/// All devices that keep data.
fn each() -> [(&'static str, Arc<dyn Device>); 4] {
    let in_threads = image(&backing(), 2);
    [
        ("ram", ram(&options())),
        ("ram, polled", ram(&polled())),
        ("image", image(&backing(), 0)),
        ("image, threads", in_threads),
    ]
}

fn once(effect: Effect, nth: u64) -> Rule {
    Rule::new(effect).nth(nth)
}

/// First byte of each sector of all zones.
fn all(device: &dyn Device) -> Vec<u8> {
    (0..8).flat_map(|zone| fills(device, zone * 64, 64).unwrap()).collect()
}

/// Sectors that differ.
fn changed(before: &[u8], after: &[u8]) -> Vec<usize> {
    (0..before.len()).filter(|n| before[*n] != after[*n]).collect()
}

#[test]
fn lost_write_is_acknowledged_and_stores_nothing() {
    for (name, inner) in each() {
        let device = Fault::new(inner, Plan::of(1, [Rule::new(Effect::Lost).every(2)]));
        assert_eq!(write(&device, START, 4, 1), Ok(()), "{name}");
        assert_eq!(write(&device, START + 4, 2, 2), Ok(()), "{name}");
        assert_eq!(append(&device, START, 2, 3), Ok(START + 6), "{name}");
        assert_eq!(append(&device, START, 2, 4), Ok(START + 8), "{name}");
        assert_eq!(fills(&device, START, 12), Ok(vec![1, 1, 1, 1, 0, 0, 3, 3, 0, 0, 0, 0]), "{name}");
        assert_eq!(shape(&device, 1).1, Some(10), "{name}");
        // A conventional zone keeps its previous contents.
        assert_eq!(write(&device, 0, 4, 5), Ok(()));
        assert_eq!(write(&device, 0, 2, 6), Ok(()));
        assert_eq!(fills(&device, 0, 4), Ok(vec![5; 4]), "{name}");
        assert_eq!(run(&device, Op::WriteZeroes, 2, 2, 0), DONE);
        assert_eq!(run(&device, Op::WriteZeroes, 0, 2, 0), DONE);
        assert_eq!(fills(&device, 0, 4), Ok(vec![5, 5, 0, 0]), "{name}");
        assert_eq!(device.fired_each(), [4], "{name}");
    }
}

/// Memory is cleared by a reset, a file is not.
#[test]
fn lost_write_to_a_reused_zone_leaves_the_retained_data() {
    for (name, inner) in each() {
        let device = Fault::new(inner, Plan::of(1, [once(Effect::Lost, 2)]));
        assert_eq!(write(&device, START, 8, 1), Ok(()));
        assert_eq!(act(&device, Op::Flush, 0), Ok(()));
        assert_eq!(act(&device, Op::ZoneReset, START), Ok(()));
        assert_eq!(fills(&device, START, 8), Ok(vec![0; 8]), "{name}");
        assert_eq!(write(&device, START, 4, 2), Ok(()));
        let kept = if name.starts_with("image") { 1 } else { 0 };
        assert_eq!(fills(&device, START, 8), Ok(vec![kept, kept, kept, kept, 0, 0, 0, 0]), "{name}");
    }
}

#[test]
fn misdirected_write_overwrites_other_blocks_of_its_length() {
    for (name, inner) in each() {
        for (op, sector, fill) in [(Op::Write, 192, 9), (Op::Append, 192, 9), (Op::WriteZeroes, 192, 0)] {
            assert_eq!(act(&*inner, Op::ResetAll, 0), Ok(()));
            assert_eq!(write(&*inner, 64, 8, 1), Ok(()));
            assert_eq!(append(&*inner, 128, 6, 2), Ok(128));
            // The conventional zone may be hit as well as the written parts of others.
            assert_eq!(write(&*inner, 0, 64, 3), Ok(()));
            let before = all(&*inner);
            let device = Fault::new(inner.clone(), Plan::of(4, [Rule::new(Effect::Misdirected)]));
            assert!(run(&device, op, sector, 4, 9).is_ok(), "{name}");
            let after = all(&*inner);
            let hit = changed(&before, &after);
            assert_eq!(hit.len(), 4, "{name}: {op:?}: {hit:?}");
            assert!(hit[3] == hit[0] + 3 && hit[0].is_multiple_of(2), "{name}: {hit:?}");
            assert!(hit.iter().all(|sector| after[*sector] == fill && before[*sector] != 0), "{name}");
            assert_eq!(shape(&device, 3).1, Some(4), "{name}");
            assert_eq!(device.fired_each(), [1]);
        }
    }
}

#[test]
fn every_place_that_is_written_can_be_hit_and_no_other() {
    let device = Fault::new(ram(&EmulatedOptions { zone_nr_conv: 0, ..options() }), Plan::default());
    assert_eq!(write(&device, 0, 4, 1), Ok(()));
    assert_eq!(write(&device, 128, 8, 1), Ok(()));
    let rule = device.inject(Rule::new(Effect::Misdirected));
    let places = [0, 2, 128, 130, 132, 134];
    let mut hits = [0; 6];
    for n in 0..32 {
        assert_eq!(append(&device, 64, 2, 10 + n), Ok(64 + 2 * u64::from(n)));
        let all = all(&device);
        let hit: Vec<usize> = (0..places.len()).filter(|at| all[places[*at]] == 10 + n).collect();
        // From the second write on, the zone itself has written places too.
        let own = (64..64 + 2 * usize::from(n)).step_by(2).filter(|at| all[*at] == 10 + n).count();
        assert_eq!(hit.len() + own, 1, "{n}");
        assert_eq!(all[64 + 2 * usize::from(n)], 0);
        hit.into_iter().for_each(|at| hits[at] += 1);
    }
    assert_eq!(device.fired(rule), 32);
    assert!(hits.iter().filter(|hits| **hits > 0).count() > 3, "{hits:?}");
}

#[test]
fn misdirected_write_is_lost_where_nothing_is_as_long() {
    for (name, inner) in each().into_iter().filter(|(name, _)| name.starts_with("ram")) {
        let device = Fault::new(inner, Plan::of(1, [once(Effect::Misdirected, 2)]));
        assert_eq!(write(&device, START, 2, 1), Ok(()));
        // The conventional zone has 64 sectors, and the write would need as many others.
        assert_eq!(write(&device, 0, 64, 2), Ok(()));
        assert_eq!(fills(&device, 0, 64), Ok(vec![0; 64]), "{name}");
        assert_eq!(fills(&device, START, 4), Ok(vec![1, 1, 0, 0]), "{name}");
    }
}

#[test]
fn misdirected_write_of_a_conventional_zone_spares_its_own_place() {
    let options = EmulatedOptions { zone_nr_conv: 7, ..options() };
    for seed in 0..64 {
        let device = Fault::new(ram(&options), Plan::of(seed, [Rule::new(Effect::Misdirected)]));
        assert_eq!(write(&device, 32, 16, 7), Ok(()));
        let hit = changed(&[0; 512], &all(&device));
        assert_eq!(hit.len(), 16, "{seed}");
        assert!(hit[0] >= 48 || hit[15] < 32, "{seed}: {hit:?}");
    }
}

#[test]
fn seed_decides_where_misdirected_writes_go() {
    let course = |seed| {
        let text = "[rates]\nlost = '1/8'\nmisdirected = '1/2'";
        let device = Fault::new(ram(&options()), Plan { seed, ..Plan::parse(text).unwrap() });
        for n in 0..60 {
            append(&device, 64 * (1 + n % 7), 4, n as u8 + 1).unwrap();
        }
        (all(&device), device.fired_each())
    };
    let (contents, fired) = course(5);
    assert!(fired.iter().all(|fired| *fired > 3), "{fired:?}");
    assert_eq!((contents, fired), course(5));
    assert_ne!(course(5), course(6));
}

/// An image detects data lost in a power cut by checksums of what its last flush made durable. It
/// must not detect what a drive misplaced.
#[test]
fn image_keeps_all_that_was_flushed_after_a_power_cut() {
    for effect in [Effect::Lost, Effect::Misdirected] {
        let mut hits = 0;
        for seed in 0..16 {
            let backing = backing_with(0);
            let device = Fault::new(image(&backing, 0), Plan::of(seed, [once(effect, 3)]));
            write(&device, 64, 8, 1).unwrap();
            act(&device, Op::Flush, 0).unwrap();
            // The first flush has no checksums yet.
            write(&device, 128, 32, 2).unwrap();
            act(&device, Op::Flush, 0).unwrap();
            write(&device, 192, 8, 3).unwrap();
            hits += u32::from(all(&device).contains(&3));
            // With a flush, all of it survives the cut; without one, part of the data written since
            // then.
            let is_flushed = seed % 2 == 0;
            if is_flushed {
                act(&device, Op::Flush, 0).unwrap();
            }
            let contents = all(&device);
            assert_eq!(run_alone(&device, &command(Op::Verify, 128, 32)), DONE);
            backing.cut();
            drop(device);
            let device = image(&Arc::new(backing.restart(seed)), 0);
            assert_eq!([1, 2].map(|zone| shape(&*device, zone).1), [Some(8), Some(32)], "{effect:?}, {seed}");
            assert!(!is_flushed || all(&*device) == contents, "{effect:?}, {seed}");
        }
        assert_eq!(hits, if effect == Effect::Misdirected { 16 } else { 0 });
    }
}

#[test]
fn closed_image_is_the_same_when_it_is_opened_again() {
    let backing = backing();
    let plan = "[rates]\nlost = 0.2\nmisdirected = 0.4";
    let device = Fault::new(image(&backing, 0), Plan::parse(plan).unwrap());
    for n in 0..60 {
        append(&device, 64 * (1 + n % 7), 4, n as u8 + 1).unwrap();
        if n % 9 == 0 {
            act(&device, Op::Flush, 0).unwrap();
        }
        if n % 23 == 0 {
            act(&device, Op::ZoneReset, 64 * (1 + n % 7)).unwrap();
        }
    }
    let contents = all(&device);
    drop(device);
    assert!(all(&*image(&backing, 0)) == contents);
}

#[test]
fn lost_and_misdirected_faults_need_device_support() {
    for (name, fault) in [
        ("fault:lost=0.1+null:size=1M,zone_size=64k", "`lost`"),
        ("fault:misdirected=0.1+fault+null:size=1M,zone_size=64k", "`misdirected`"),
    ] {
        let error = Registry::default().open(name).err().unwrap().to_string();
        assert!(error.contains("null:size=1M,zone_size=64k: cannot have the fault"), "{error}");
        assert!(error.contains(fault) && error.contains("of rule 1"), "{error}");
    }
    for name in ["fault:lost=0.1+fault+ram:size=1M,zone_size=64k", "fault:misdirected=1+ram:size=1M"] {
        assert!(Registry::default().open(name).is_ok(), "{name}");
    }
    // Rules added later are checked, too.
    let null = Fault::new(Registry::default().open("null:size=1M,zone_size=64k").unwrap(), Plan::default());
    null.inject(Rule::new(Effect::Lost));
    assert_eq!(write(&null, 0, 2, 1), Err(DeviceError::Unsupported));
}

/// The landing set by an outer wrapper passes an inner one.
#[test]
fn faults_over_faults_each_misplace_their_writes() {
    let inner = Fault::new(ram(&options()), Plan::of(1, [once(Effect::Lost, 1)]));
    let (traced, _) = crate::trace::Trace::to_memory(Arc::new(inner));
    let device = Fault::new(Arc::new(traced), Plan::of(1, [once(Effect::Lost, 2)]));
    for n in 1..4 {
        assert_eq!(append(&device, START, 2, n), Ok(START + 2 * u64::from(n) - 2));
    }
    assert_eq!(fills(&device, START, 6), Ok(vec![0, 0, 0, 0, 3, 3]));
}

/// Blocks are never torn, and no old data reappears in a zone that was reset.
#[test]
fn misdirected_writes_among_resets_and_reads_tear_nothing() {
    for (name, device) in each() {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..300u32 {
                    let reset = act(&*device, Op::ZoneReset, 64);
                    assert_eq!(reset, Ok(()), "{name}");
                    for _ in 0..4 {
                        append(&*device, 64, 4, n as u8 | 1).unwrap();
                    }
                }
                is_over.store(true, Ordering::Release);
            });
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    for zone in 2..8 {
                        let mut bytes = vec![200; 2048];
                        // SAFETY: the bytes outlive the command, because this waits for its
                        // completion.
                        let data = unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) };
                        let landing = Landing::Misdirected(zone as u8);
                        let write = Command { data, landing, ..command(Op::Append, zone * 64, 4) };
                        if run_alone(&*device, &write).is_err() {
                            act(&*device, Op::ZoneReset, zone * 64).unwrap();
                        }
                    }
                }
            });
            while !is_over.load(Ordering::Acquire) {
                let mut bytes = vec![0u8; 1024];
                // SAFETY: the bytes outlive the command, because this waits for its completion.
                let data = unsafe { Data::one(Segment::new(bytes.as_mut_ptr(), bytes.len())) };
                run_alone(&*device, &Command { data, ..command(Op::Read, 64, 2) }).unwrap();
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{name}");
            }
        });
        act(&*device, Op::ZoneReset, 64).unwrap();
        assert_eq!(append(&*device, 64, 2, 255), Ok(64));
        let expected = [vec![255; 2], vec![0; 62]].concat();
        assert_eq!(fills(&*device, 64, 64), Ok(expected), "{name}");
    }
}
