//! More writers than open zones: the drive may have four open zones, and sixteen zones are written
//! at the same time. The write path counts open zones, and holds back writes to a zone until
//! another one is full or closed. `cargo run -p zonal --example budget`.

use zonal::{Clock, IoBuf, Request, Volume, VolumeOptions, ZoneIndex};

const ZONES: u32 = 16;
const WRITE: u32 = 256 << 10;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = zonal::open("ram:size=64M,zone_size=1M,zone_max_open=4,zone_max_active=4,complete=poll")?;
    let volume = Volume::open(device, VolumeOptions::default())?;
    let (clock, geometry) = (Clock::start(), volume.info().geometry);

    let inbox = volume.inbox();
    let mut writes = 0;
    for piece in 0..geometry.zone_capacity().bytes() / u64::from(WRITE) {
        for zone in (0..ZONES).map(ZoneIndex) {
            let mut place = geometry.start_of(zone);
            place.0 += piece * u64::from(WRITE / 512);
            volume.submit(
                clock.now(),
                inbox.channel(),
                Request::write(place, WRITE / 512, IoBuf::zeroed(WRITE)),
            );
            writes += 1;
        }
    }
    let status = volume.budget_status().expect("the drive has limits");
    println!(
        "{} of {} open zones in use, {} zones wait",
        status.open.len(),
        status.open_max,
        status.waiting.len()
    );
    for _ in 0..writes {
        while inbox.is_empty() {
            volume.poll(clock.now());
        }
        inbox.take().expect("it is not empty").result?;
    }
    println!("{writes} writes to {ZONES} zones are done, in order, and none failed");
    Ok(())
}

#[test]
fn all_zones_are_written_with_four_open() {
    main().unwrap();
}
