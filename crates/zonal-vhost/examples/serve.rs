//! Serves a device at a socket: `serve SOCKET DEVICE`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use zonal_io::clock::Clock;
use zonal_io::identity::Identity;
use zonal_io::registry::Registry;
use zonal_io::volume::{Volume, VolumeOptions};
use zonal_scsi::{Disk, DiskOptions};
use zonal_vhost::server::{VhostListener, VhostOptions, VhostServer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(device)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve SOCKET DEVICE".into());
    };
    let options = VolumeOptions::default().without_park().without_budget();
    let volume = Arc::new(Volume::open(Registry::default().open(&device)?, options)?);
    let identity = volume.info().identity.or_else(Identity::random).ok_or("no random numbers")?;
    let disk = Arc::new(Disk::new(volume, DiskOptions::new(identity))?);
    let listener = VhostListener::bind(Path::new(&socket))?;
    let has_to_end = Arc::new(AtomicBool::new(false));
    let options = VhostOptions::default().with_threads(2_usize);
    let server = VhostServer::start(disk, listener, Clock::start(), options, has_to_end)?;
    println!("ready vhost-user-scsi {socket}");
    let mut last = Vec::new();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let queues = server.queues();
        if queues != last {
            println!("{queues:?}");
            last = queues;
        }
    }
}
