//! Drives of the same name: simulated, and as an image.

use std::path::Path;
use std::sync::Arc;
use zonal_io::device::{Device, DeviceInfo};
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_sim::Profile;

/// Image of a profile, opened with default options. In memory, since not all file systems support
/// files of 30 TB.
fn image(profile: &str) -> ImageDevice {
    let backing = Arc::new(CutBacking::new(1));
    let options = ImageOptions::default().with_profile(profile.to_owned());
    options.format(&*backing).unwrap();
    ImageDevice::open_backing(Path::new("x"), backing, &OpenOptions::default()).unwrap()
}

/// Destructures every field, so that a new one must be classified.
#[test]
fn image_of_a_profile_is_the_drive_that_is_simulated_under_its_name() {
    let names: Vec<&str> = Profile::names().collect();
    assert_eq!(names, zonal_io::image::Profile::all().iter().map(|p| p.name).collect::<Vec<_>>());
    for name in names {
        let profile = Profile::open(name, &[]).unwrap();
        let drive = profile.simulated("sim:").unwrap();
        let simulated = drive.info().clone();
        let image: Arc<dyn Device> = Arc::new(image(name));
        let DeviceInfo {
            // Properties of the drive.
            geometry,
            block_sectors,
            open_max,
            active_max,
            command_sectors_max,
            append_sectors_max,
            verify_sectors_max,
            rotational,
            spindles,
            keeps_order,
            personality,
            // Specific to an image, not to its profile.
            identity,
            cache: _,
            label: _,
            // Options of the device's name.
            name: _,
            queues,
            read_only,
            // Properties of the emulation. Equal in both, except for the cache.
            volatile_cache,
            write_zeroes_sectors_max,
            discard_sectors_max,
            fua,
            memory_align,
        } = image.info().clone();
        assert_eq!(geometry, simulated.geometry, "{name}");
        assert_eq!(block_sectors, simulated.block_sectors, "{name}");
        assert_eq!((open_max, active_max), (simulated.open_max, simulated.active_max), "{name}");
        assert_eq!(append_sectors_max, simulated.append_sectors_max, "{name}");
        assert_eq!((rotational, personality), (simulated.rotational, simulated.personality), "{name}");
        assert!(spindles.is_empty() && simulated.spindles.is_empty(), "{name}");
        assert_eq!(
            (queues, read_only, fua, memory_align),
            (simulated.queues, simulated.read_only, simulated.fua, simulated.memory_align),
            "{name}"
        );
        assert_eq!(
            (command_sectors_max, verify_sectors_max, keeps_order),
            (simulated.command_sectors_max, simulated.verify_sectors_max, simulated.keeps_order),
            "{name}"
        );
        // An image loses unflushed data on a power loss, whatever its profile. For a simulated
        // drive the timing decides.
        assert!(volatile_cache, "{name}");
        assert_eq!(write_zeroes_sectors_max, simulated.write_zeroes_sectors_max, "{name}");
        assert_eq!(discard_sectors_max, simulated.discard_sectors_max, "{name}");
        assert_eq!((identity.is_some(), simulated.identity), (true, None), "{name}");
        // The image runs in real time.
        assert_eq!([&image, &drive].map(|device| device.insight().virtual_time), [false, true], "{name}");
    }
}

#[test]
fn command_size_and_order_of_an_image_are_those_of_its_profile_unless_given() {
    let info = |profile: Option<&str>, options: &OpenOptions| {
        let backing = Arc::new(CutBacking::new(1));
        let image = ImageOptions::default().with_profile(profile.map(str::to_owned)).with_size(64 << 30);
        image.format(&*backing).unwrap();
        let image = ImageDevice::open_backing(Path::new("x"), backing, options).unwrap();
        (image.info().command_sectors_max, image.info().keeps_order)
    };
    let given = OpenOptions::default().with_max_sectors(256).with_preserves_write_order(false);
    assert_eq!(info(Some("ufs-zoned"), &given), (256, false));
    assert_eq!(info(Some("ufs-zoned"), &OpenOptions::default()), (2048, true));
    assert_eq!(info(Some("smr-hdd-30t"), &OpenOptions::default()), (2560, false));
    assert_eq!(info(None, &OpenOptions::default()), (2048, false));
}

#[test]
fn option_given_twice_is_refused() {
    let mut registry = zonal_io::registry::Registry::default();
    zonal_sim::register(&mut registry);
    for name in ["sim:zns-1t,keep=data,keep=none", "timing:smr-hdd-30t,turn_us=1,turn_us=2+null:size=64M"] {
        let error = registry.open(name).err().unwrap().to_string();
        assert!(error.contains("is given twice"), "{name}: {error}");
    }
}
