//! A service without a thread for its volume: one epoll loop appends the records of a client to a
//! zone, and replies with the sector of each. `cargo run -p zonal --example event_loop` appends a
//! thousand records to an emulated drive in a file.
//!
//! The loop follows the contract of `zonal_io::news`: arm, look once more, sleep.

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use zonal::image::ImageOptions;
use zonal::{IoBuf, Nanos, Output, Request, Sector, Volume, VolumeOptions};

const RECORD: u32 = 4096;

/// Serves `client` until it has closed its side and received all its replies.
fn serve(volume: &Volume, mut client: UnixStream) -> std::io::Result<()> {
    let begin = Instant::now();
    let now = || Nanos(begin.elapsed().as_nanos() as u64);
    let (tell, told) = mpsc::channel();
    let channel = volume.channel(move |c| _ = tell.send(c.result));
    client.set_nonblocking(true)?;
    let mut news = volume.news()?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let (input, mut events) = (epoll::EventFlags::IN, Vec::with_capacity(2));
    epoll::add(&epoll, &client, epoll::EventData::new_u64(0), input)?;
    epoll::add(&epoll, &news, epoll::EventData::new_u64(1), input)?;
    let (mut record, mut filled, mut unanswered, mut is_open) = (IoBuf::zeroed(RECORD), 0, 0, true);
    while is_open || unanswered > 0 {
        news.arm();
        let due = volume.poll(now());
        // Progress in either direction is a reason to look once more before sleeping.
        let mut is_idle = due.is_none_or(|due| due > now());
        for result in told.try_iter() {
            let Ok(Output::Appended(Sector(sector))) = result else { panic!("an append: {result:?}") };
            client.write_all(&sector.to_le_bytes())?;
            (unanswered, is_idle) = (unanswered - 1, false);
        }
        match client.read(&mut record[filled..]) {
            Ok(0) if is_open => {
                epoll::delete(&epoll, &client)?;
                is_open = false;
            }
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            read => (filled, is_idle) = (filled + read?, false),
        }
        if filled == RECORD as usize {
            let full = std::mem::replace(&mut record, IoBuf::zeroed(RECORD));
            volume.submit(now(), &channel, Request::append(Sector(0), RECORD / 512, full));
            (filled, unanswered) = (0, unanswered + 1);
        }
        if is_idle && (is_open || unanswered > 0) {
            let sleep = due.map(|due| Duration::from_nanos(due.0.saturating_sub(now().0)));
            let sleep = sleep.and_then(|sleep| Timespec::try_from(sleep).ok());
            epoll::wait(&epoll, spare_capacity(&mut events), sleep.as_ref())?;
            events.clear();
        }
        news.disarm();
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("drive.img");
    ImageOptions::default().with_size(1 << 30).create(&path)?;
    // A helper thread does the I/O, so every command completes later.
    let device = zonal::open(&path.to_string_lossy())?;
    let volume = Arc::new(Volume::open(device, VolumeOptions::default())?);
    let (service, mut client) = UnixStream::pair()?;
    let served = std::thread::spawn(move || serve(&volume, service));
    let mut sectors = Vec::new();
    for _ in 0..1000 {
        client.write_all(&[7; RECORD as usize])?;
        let mut reply = [0; 8];
        client.read_exact(&mut reply)?;
        sectors.push(u64::from_le_bytes(reply));
    }
    client.shutdown(std::net::Shutdown::Write)?;
    served.join().expect("the service ends well")?;
    assert!(sectors.iter().eq((0..1000).map(|n| n * 8).collect::<Vec<_>>().iter()), "{sectors:?}");
    println!("{} records of {RECORD} bytes appended, one after the other", sectors.len());
    Ok(())
}

#[test]
fn event_loop_serves_its_client() {
    main().unwrap();
}
