use super::*;
use crate::image::{ImageDevice, OpenOptions as DeviceOptions, inspect};
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

fn options(size: u64, zone_size: u64) -> ImageOptions {
    ImageOptions { size: Some(size), zone_size: Some(zone_size), ..Default::default() }
}

#[test]
fn create_14_tib_is_quick_and_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large.img");
    let begin = Instant::now();
    options(14 << 40, 256 << 20).create(&path).unwrap();
    assert!(begin.elapsed().as_secs_f64() < 1.0, "{:?}", begin.elapsed());
    let metadata = path.metadata().unwrap();
    assert!(metadata.len() > 14 << 40);
    assert!(metadata.blocks() * 512 < 8 << 20, "{} blocks", metadata.blocks());
    ImageDevice::open(&path, &DeviceOptions::default()).unwrap().close().unwrap();
}

#[test]
fn create_over_anything_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("taken");
    std::fs::write(&path, "precious").unwrap();
    let refused = options(1 << 30, 1 << 20).create(&path).unwrap_err();
    assert!(matches!(refused, ImageError::Exists { .. }));
    assert!(refused.to_string().contains("taken: already exists"), "{refused}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    let link = dir.path().join("dangling");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    assert!(matches!(options(1 << 30, 1 << 20).create(&link), Err(ImageError::Exists { .. })));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left behind");
}

#[test]
fn create_race_has_one_winner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("contested");
    let won: usize = std::thread::scope(|s| {
        let create = || usize::from(options(1 << 30, 1 << 20).create(&path).is_ok());
        let threads: Vec<_> = (0..4).map(|_| s.spawn(create)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(won, 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    inspect(&path).unwrap();
}

#[test]
fn creating_a_too_large_image_fails_and_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huge");
    // 4 EiB in zones of 1 TiB: more than ext4 and tmpfs support in a file.
    match options(1 << 62, 1 << 40).create(&path) {
        Err(e @ ImageError::TooLarge { .. }) => {
            let message = e.to_string();
            assert!(message.contains("huge: this file system cannot hold 46116860185"), "{message}");
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        }
        // XFS and btrfs support it.
        Ok(_) => println!("skipped: this file system holds files of 4 EiB"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn create_in_no_directory_names_the_path() {
    let e = options(1 << 30, 1 << 20).create(Path::new("/nonexistent/dir/x.img")).unwrap_err();
    assert!(e.to_string().contains("/nonexistent/dir/x.img: creating the image: No such file"), "{e}");
}

#[test]
fn system_errors_give_distinct_messages() {
    let header = options(1 << 30, 1 << 20).header().unwrap();
    let describe = |errno: Errno| describe(Path::new("p"), &header, errno.into()).to_string();
    assert!(describe(Errno::NOSPC).contains("p: no space left"));
    assert!(describe(Errno::DQUOT).contains("p: no space left"));
    assert!(describe(Errno::FBIG).contains("p: this file system cannot hold 1074"));
    assert!(describe(Errno::IO).contains("p: creating the image: Input/output error"));
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let refused = |o: ImageOptions| o.header().unwrap_err().to_string();
    let base = || options(1 << 30, 1 << 20);
    assert_eq!(refused(ImageOptions::default()), "neither a size nor a profile is given");
    let no_such = refused(ImageOptions { profile: Some("zns-2t".into()), ..Default::default() });
    assert!(no_such.contains("no such profile \"zns-2t\"; known profiles: smr-hdd-26t, "), "{no_such}");
    assert_eq!(refused(options(1000, 1 << 20)), "size of 1000 bytes is not a multiple of 512");
    assert!(refused(options(1 << 30, 3 << 20)).contains("not a power of two"));
    assert!(refused(options(1 << 30, 0)).contains("zone size of 0"));
    assert!(refused(ImageOptions { blocksize: Some(1000), ..base() }).starts_with("blocksize of 1000"));
    assert!(refused(ImageOptions { blocksize: Some(0), ..base() }).starts_with("blocksize of 0"));
    let odd = ImageOptions { zone_capacity: Some((1 << 20) - 512), ..base() };
    assert!(refused(odd).starts_with("blocksize of 4096"));
    assert!(refused(ImageOptions { zone_nr_conv: Some(1024), ..base() }).contains("1024 of 1024 zones"));
    assert!(
        refused(ImageOptions { zone_max_open: Some(4), zone_max_active: Some(3), ..base() })
            .contains("max open 4")
    );
    assert!(refused(options(1 << 40, 4096)).contains("the number of zones of 268435456"));
}

#[test]
fn image_profiles_have_their_documented_geometry_and_limits() {
    let of = |name: &str| {
        let header = ImageOptions { profile: Some(name.into()), ..Default::default() }.header().unwrap();
        let g = header.geometry;
        assert_eq!(header.profile, name);
        (g.zones(), g.conventional_zones(), header.open_max, header.active_max, header.append_sectors_max)
    };
    assert_eq!(of("smr-hdd-30t"), (111_758, 0, 128, 0, 0));
    assert_eq!(of("smr-hdd-26t"), (96_857, 0, 128, 0, 0));
    assert_eq!(of("zns-1t"), (905, 0, 14, 14, 256));
    assert_eq!(of("ufs-zoned"), (476, 0, 6, 6, 0));
    assert_eq!(Profile::all().len(), 4, "a new profile belongs here");
}

#[test]
fn explicit_options_override_the_profile() {
    let header = ImageOptions {
        profile: Some("zns-1t".into()),
        size: Some(64 << 30),
        zone_size: Some(1 << 30),
        zone_max_open: Some(3),
        rotational: Some(true),
        ..Default::default()
    }
    .header()
    .unwrap();
    assert_eq!(header.geometry.zones(), 64);
    assert_eq!(header.geometry.zone_capacity().bytes(), 1 << 30, "the preset's goes with its zone size");
    assert_eq!((header.open_max, header.active_max, header.rotational), (3, 14, true));
    let small = ImageOptions {
        profile: Some("smr-hdd-30t".into()),
        size: Some(16 << 30),
        zone_nr_conv: Some(1),
        zone_append_max_sectors: Some(64),
        ..Default::default()
    };
    let small = small.header().unwrap();
    assert_eq!((small.geometry.zones(), small.geometry.conventional_zones()), (64, 1));
    assert_eq!((small.open_max, small.append_sectors_max), (0, 64), "128 of 63 sequential zones is no limit");
}

#[test]
fn creation_numbers_differ() {
    let header = || options(1 << 30, 1 << 20).header().unwrap();
    assert_ne!(header().creation, header().creation);
}

#[test]
fn create_with_states_is_as_after_a_power_cycle() {
    use zonal_core::ZoneCondition::*;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copied.img");
    // Three ledger pages; all zones of the second are new.
    let zones = 1200;
    let at = |condition, written| ZoneState { condition, written };
    let mut states = vec![ZoneState::EMPTY; zones];
    states[0] = ZoneState::CONVENTIONAL;
    let kept = [at(Closed, 8), at(Full, 2048), at(Full, 16), at(ReadOnly, 64), at(Offline, 0)];
    states[1..6].copy_from_slice(&kept);
    states[1100..1103].copy_from_slice(&[at(ImpOpen, 24), at(ExpOpen, 0), at(Closed, 0)]);
    let options = options(zones as u64 * (1 << 20), 1 << 20).with_zone_nr_conv(1).with_states(states.clone());
    options.create(&path).unwrap();
    for mode in [crate::device::OpenMode::Reading, crate::device::OpenMode::Writing] {
        let device = ImageDevice::open(&path, &DeviceOptions::default().with_mode(mode)).unwrap();
        let found = |zone| device.zones().state(ZoneIndex(zone));
        assert_eq!([1, 2, 3, 4, 5].map(found), kept);
        assert_eq!([1100, 1101, 1102].map(found), [at(Closed, 24), ZoneState::EMPTY, ZoneState::EMPTY]);
        assert_eq!([0, 6, 600, 1199].map(found), [0, 6, 600, 1199].map(|n| states[n as usize]));
        device.close().unwrap();
    }
}

#[test]
fn create_with_impossible_states_is_refused() {
    use zonal_core::ZoneCondition::*;
    let at = |condition, written| ZoneState { condition, written };
    let create = |states: Vec<ZoneState>| {
        let options = options(4 << 20, 1 << 20).with_zone_nr_conv(1).with_zone_max_active(2);
        options
            .with_states(states)
            .format(&crate::image::backing::FileBacking::new(tempfile::tempfile().unwrap()))
    };
    let (conventional, empty) = (ZoneState::CONVENTIONAL, ZoneState::EMPTY);
    create(vec![conventional, at(Closed, 8), at(ExpOpen, 0), at(ImpOpen, 8)]).unwrap();
    for states in [
        vec![conventional, empty, empty],
        vec![empty, empty, empty, empty],
        vec![conventional, conventional, empty, empty],
        vec![conventional, at(Closed, 2048), empty, empty],
        vec![conventional, at(Full, 2056), empty, empty],
        vec![conventional, at(Empty, 8), empty, empty],
        vec![conventional, at(Closed, 4), empty, empty],
        vec![conventional, at(Closed, 8), at(Closed, 8), at(ImpOpen, 8)],
    ] {
        let refused = create(states.clone()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{states:?}");
    }
}
