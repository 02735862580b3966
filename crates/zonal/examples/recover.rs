//! A failed append affects no other one. The drive tears the third append: after two of its blocks,
//! it reports a medium error. The write path rereads the write pointer, resubmits what was not
//! executed, and returns the error to the caller of the lost append.
//! `cargo run -p zonal --example recover`.

use std::sync::Arc;
use zonal::fault::{Fault, Plan};
use zonal::{Clock, IoBuf, Request, Sector, Volume, VolumeOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = Plan::parse("[[rule]]\non = 'writes'\nnth = 3\nfault = 'torn'\nblocks = 2")?;
    // Commands complete in polls, so all eight are in flight or waiting when the third fails.
    let drive = zonal::open("ram:size=64M,zone_size=16M,complete=poll")?;
    let volume = Volume::open(Arc::new(Fault::new(drive, plan)), VolumeOptions::default())?;
    let clock = Clock::start();

    let inbox = volume.inbox();
    for number in 1..=8 {
        let mut record = IoBuf::zeroed(4 * 4096);
        record.fill(number);
        volume.submit(
            clock.now(),
            inbox.channel(),
            Request::append(Sector(0), 32, record).token(number.into()),
        );
    }
    let mut failed = Vec::new();
    for _ in 1..=8 {
        let end = loop {
            volume.poll(clock.now());
            if let Some(end) = inbox.take() {
                break end;
            }
        };
        match end.result {
            Ok(output) => println!("append {}: {output:?}", end.token),
            Err(error) => {
                println!("append {}: {error}", end.token);
                failed.push(end.token);
            }
        }
    }
    assert_eq!(failed.len(), 1, "{failed:?}");
    Ok(())
}

#[test]
fn one_write_fails_and_the_others_do_not() {
    main().unwrap();
}
