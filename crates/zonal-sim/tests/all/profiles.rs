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
            append_sectors_max,
            rotational,
            spindles,
            personality,
            // Specific to an image, not to its profile.
            identity,
            cache: _,
            // Options of the device's name.
            name: _,
            command_sectors_max,
            verify_sectors_max: _,
            keeps_order,
            queues,
            read_only,
            // Properties of the emulation. Equal in both, except for the cache.
            volatile_cache,
            write_zeroes_sectors_max,
            discard_sectors_max,
            fua,
        } = image.info().clone();
        assert_eq!(geometry, simulated.geometry, "{name}");
        assert_eq!(block_sectors, simulated.block_sectors, "{name}");
        assert_eq!((open_max, active_max), (simulated.open_max, simulated.active_max), "{name}");
        assert_eq!(append_sectors_max, simulated.append_sectors_max, "{name}");
        assert_eq!((rotational, personality), (simulated.rotational, simulated.personality), "{name}");
        assert!(spindles.is_empty() && simulated.spindles.is_empty(), "{name}");
        assert_eq!(
            (queues, read_only, fua),
            (simulated.queues, simulated.read_only, simulated.fua),
            "{name}"
        );
        let default = OpenOptions::default();
        assert_eq!((command_sectors_max, keeps_order), (default.max_sectors, false), "{name}");
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

/// An image opened with these options equals the simulated drive in everything relevant to a
/// volume.
#[test]
fn image_of_a_profile_can_be_opened_with_its_command_size_and_order() {
    for name in Profile::names() {
        let simulated = Profile::open(name, &[]).unwrap().simulated("sim:").unwrap().info().clone();
        let backing = Arc::new(CutBacking::new(1));
        ImageOptions::default().with_profile(name.to_owned()).format(&*backing).unwrap();
        let options = OpenOptions::default()
            .with_max_sectors(simulated.command_sectors_max)
            .with_preserves_write_order(simulated.keeps_order);
        let image = ImageDevice::open_backing(Path::new("x"), backing, &options).unwrap();
        let info = image.info();
        assert_eq!(info.command_sectors_max, simulated.command_sectors_max, "{name}");
        assert_eq!(info.keeps_order, simulated.keeps_order, "{name}");
    }
}
