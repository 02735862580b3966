//! A killed server, and its successor on the same image, to which the host resubmits unanswered
//! commands.

use crate::host::{Queue, sqe, target_of};
use std::path::Path;
use std::sync::Arc;
use zonal_io::image::backing::twin::CutBacking;
use zonal_io::image::{ImageDevice, ImageOptions, OpenOptions};
use zonal_nvme::subsystem::Target;
use zonal_nvme::wire::{Sqe, io};

const BLOCK: u32 = 4096;
/// Blocks per zone.
const ZONE: u32 = 256;

fn image() -> Arc<CutBacking> {
    let backing = Arc::new(CutBacking::new(1));
    let options = ImageOptions::default().with_size(8 << 20).with_zone_size(1 << 20);
    options.format(&*backing).unwrap();
    backing
}

fn target(backing: &Arc<CutBacking>) -> Arc<Target> {
    let options = OpenOptions::default().with_threads(0);
    target_of(Arc::new(ImageDevice::open_backing(Path::new("twin"), backing.clone(), &options).unwrap()))
}

fn command(opcode: u8, lba: u32, blocks: u32) -> Sqe {
    let mut command = sqe(opcode, 1, [lba, 0, blocks - 1, 0, 0, 0]);
    command.data.len = (blocks * BLOCK).into();
    command
}

fn flush() -> Sqe {
    sqe(io::FLUSH, 1, [0; 6])
}

fn queue(target: &Arc<Target>) -> (Queue, Queue) {
    let admin = Queue::admin(target);
    let queue = admin.io(1);
    (admin, queue)
}

#[test]
fn flush_sent_again_to_the_next_server_covers_the_killed_one() {
    let payload: Vec<u8> = (0..2 * BLOCK).map(|n| (n / 7) as u8).collect();
    for calls in 0..9 {
        let image = image();
        let server = target(&image);
        let (admin, mut host) = queue(&server);
        assert_eq!(host.call(command(io::WRITE, 2 * ZONE, 2), &payload).status, 0);
        // Killed during the flush; the host never sees the response.
        image.kill_at(image.calls() + calls);
        host.submit(flush(), &[]);
        image.kill();
        drop((admin, host, server));

        image.revive();
        let server = target(&image);
        let (admin, mut host) = queue(&server);
        assert_eq!(host.call(flush(), &[]).status, 0, "sent again");
        image.kill();
        drop((admin, host, server));

        let server = target(&Arc::new(image.restart(calls)));
        let (_admin, mut host) = queue(&server);
        let read = host.call(command(io::READ, 2 * ZONE, 2), &[]);
        assert!(read.status == 0 && read.data == payload, "killed at call {calls} of the flush");
        // The write pointer is where the host expects it.
        assert_eq!(host.call(command(io::WRITE, 2 * ZONE + 2, 1), &payload[..BLOCK as usize]).status, 0);
    }
}
