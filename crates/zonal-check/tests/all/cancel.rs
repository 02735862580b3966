//! Cancellation: a waiting request ends as cancelled wherever it waits, and no part of it is issued
//! later.

use rand::prelude::*;
use rand_pcg::Pcg64Mcg;
use std::collections::BTreeMap;
use std::sync::Arc;
use zonal_check::rig::{DONE, Rig};
use zonal_check::script::{Answer, Style, info};
use zonal_core::{DeviceError, Geometry, Nanos, Op, RequestError, Sector, Sectors, ZoneIndex};
use zonal_io::buffer::IoBuf;
use zonal_io::device::{Device, DeviceInfo, Output};
use zonal_io::emulated::{CompleteMode, Emulated, EmulatedOptions, Null};
use zonal_io::fault::{Fault, Plan};
use zonal_io::sync::Mutex;
use zonal_io::volume::{Channel, Request, Volume, VolumeOptions, WriteMode, report};

const CANCELLED: Result<Output, RequestError> = Err(RequestError::Cancelled);

/// Submits a request on a channel of its own, which can be cancelled.
fn submit(rig: &Rig, request: Request) -> (u64, Channel) {
    let (token, channel) = (rig.token(), rig.also(|_| {}));
    rig.volume.submit(rig.now(), &channel, request.token(token));
    (token, channel)
}

fn cancel(rig: &Rig, channel: &Channel) {
    rig.volume.cancel(rig.now(), channel);
}

#[test]
fn write_that_waits_is_cancelled_and_the_pointer_stays() {
    let rig = Rig::per_zone();
    let first = rig.write(1, 0, 4);
    let (second, channel) = submit(&rig, rig.write_request(1, 4, 4));
    let third = rig.write(1, 8, 4);
    cancel(&rig, &channel);
    assert_eq!(rig.end(second), Some(CANCELLED));
    rig.step(Answer::Obey);
    rig.rest();
    assert_eq!(rig.end(first), Some(DONE));
    let lost = RequestError::PredecessorLost { zone: ZoneIndex(1), lost_at: 4, offset: 8 };
    assert_eq!(rig.end(third), Some(Err(lost)), "it counted on the cancelled one");
    assert_eq!(rig.volume.write_pointer(ZoneIndex(1)), Some(rig.sector(1, 4)));
    let again = rig.write(1, 4, 4);
    rig.step(Answer::Obey);
    assert_eq!(rig.end(again), Some(DONE), "its place is free");
}

#[test]
fn appends_after_a_cancelled_append_go_on() {
    let rig = Rig::per_zone();
    let first = rig.append(1, 4);
    let (second, channel) = submit(&rig, Request::append(rig.sector(1, 0), 4, IoBuf::zeroed(4 * 512)));
    let third = rig.append(1, 4);
    cancel(&rig, &channel);
    rig.step(Answer::Obey);
    rig.step(Answer::Obey);
    let [first, second, third] = rig.ends([first, second, third]);
    assert_eq!(first, Ok(Output::Appended(rig.sector(1, 0))));
    assert_eq!(second, CANCELLED);
    assert_eq!(third, Ok(Output::Appended(rig.sector(1, 4))));
}

#[test]
fn chained_write_is_cancelled_before_it_is_issued() {
    let rig = Rig::per_zone();
    let first = rig.append(1, 1);
    let waiting: Vec<u64> = (0..3).map(|_| rig.append(1, 1)).collect();
    let (victim, channel) = submit(&rig, Request::append(rig.sector(1, 0), 1, IoBuf::zeroed(512)));
    let last = rig.append(1, 1);
    // From here on, the others follow the second one as a chain.
    rig.step(Answer::Obey);
    cancel(&rig, &channel);
    (0..4).for_each(|_| _ = rig.step(Answer::Obey));
    assert_eq!(rig.end(first), Some(Ok(Output::Appended(rig.sector(1, 0)))));
    assert!(waiting.iter().all(|&token| rig.end(token).is_some_and(|end| end.is_ok())));
    assert_eq!(rig.end(victim), Some(CANCELLED));
    assert_eq!(rig.end(last), Some(Ok(Output::Appended(rig.sector(1, 4)))));
}

#[test]
fn write_that_would_be_sent_again_is_cancelled_once_its_zone_is_known() {
    let rig = Rig::per_zone();
    let (victim, channel) = submit(&rig, rig.write_request(1, 0, 4));
    cancel(&rig, &channel);
    assert_eq!(rig.end(victim), None, "it is at the device");
    rig.step(Answer::Reply(Err(DeviceError::Busy)));
    // Completes the report.
    rig.step(Answer::Obey);
    assert_eq!(rig.end(victim), Some(CANCELLED));
    assert_eq!(rig.script.pending().len(), 0, "nothing of it is sent again");
    let next = rig.write(1, 0, 4);
    rig.step(Answer::Obey);
    assert_eq!(rig.end(next), Some(DONE));
}

#[test]
fn cancel_does_not_affect_a_write_at_the_device() {
    let rig = Rig::per_zone();
    let (victim, channel) = submit(&rig, rig.write_request(1, 0, 4));
    cancel(&rig, &channel);
    rig.step(Answer::Obey);
    assert_eq!(rig.end(victim), Some(DONE));
}

#[test]
fn write_of_several_commands_is_cancelled_midway_and_reports_its_progress() {
    let most = 8;
    let rig = Rig::new(DeviceInfo { command_sectors_max: most, ..info() }, WriteMode::PerZone);
    let (victim, channel) = submit(&rig, rig.write_request(1, 0, 3 * most));
    cancel(&rig, &channel);
    rig.step(Answer::Obey);
    // The zone is asked for its write pointer.
    rig.step(Answer::Obey);
    let Some(Err(error)) = rig.end(victim) else { panic!("{:?}", rig.end(victim)) };
    let landed =
        RequestError::InPart { sector: rig.sector(1, most), written: most, error: DeviceError::Aborted };
    assert_eq!(error, landed);
    assert!(error.is_uncertain());
    let next = rig.write(1, most, 4);
    rig.step(Answer::Obey);
    assert_eq!(rig.end(next), Some(DONE));
}

#[test]
fn read_that_waits_for_a_retry_is_cancelled() {
    let rig = Rig::per_zone();
    let (read, channel) = submit(&rig, Request::read(rig.sector(0, 0), 8, IoBuf::zeroed(4096)));
    // The first retry is immediate, the second one follows after a pause.
    let first = rig.script.pending().pop().expect("the read is at the device");
    rig.script.style(|_| Style::Now(Answer::Reply(Err(DeviceError::Busy))));
    rig.script.finish(first.id, Answer::Reply(Err(DeviceError::Busy)));
    rig.poll();
    assert_eq!(rig.end(read), None, "its pause is not over");
    cancel(&rig, &channel);
    assert_eq!(rig.end(read), Some(CANCELLED));
}

/// Cancels one request of a channel: those before and after it continue.
#[test]
fn one_append_of_a_channel_is_cancelled_alone() {
    let rig = Rig::per_zone();
    let channel = rig.also(|_| {});
    let submit = || {
        let (token, append) = (rig.token(), Request::append(rig.sector(1, 0), 1, IoBuf::zeroed(512)));
        rig.volume.submit(rig.now(), &channel, append.token(token));
        token
    };
    let [first, waits, chained, last] = std::array::from_fn(|_| submit());
    let waiting = rig.volume.cancel_request(rig.now(), &channel, waits);
    assert_eq!(rig.end(waits), Some(CANCELLED));
    drop(waiting);
    // From here on, the others follow as a chain.
    rig.step(Answer::Obey);
    let more = submit();
    rig.step(Answer::Obey);
    let behind = rig.volume.cancel_request(rig.now(), &channel, more);
    assert_eq!(rig.end(more), Some(CANCELLED));
    drop(behind);
    rig.step(Answer::Obey);
    let [first, chained, last] = rig.ends([first, chained, last]);
    let appended = |at| Ok(Output::Appended(rig.sector(1, at)));
    assert_eq!((first, chained, last), (appended(0), appended(1), appended(2)));
    let again = submit();
    rig.step(Answer::Obey);
    assert_eq!(rig.end(again), Some(appended(3)), "the channel takes more");
}

/// A cancelled request in a chain is found by its mark.
#[test]
fn one_write_of_a_chain_is_cancelled_by_its_mark() {
    let rig = Rig::per_zone();
    let (first, channel) = submit(&rig, Request::append(rig.sector(1, 0), 1, IoBuf::zeroed(512)));
    let tokens: Vec<u64> = (0..4)
        .map(|_| {
            let token = rig.token();
            let append = Request::append(rig.sector(1, 0), 1, IoBuf::zeroed(512));
            rig.volume.submit(rig.now(), &channel, append.token(token));
            token
        })
        .collect();
    rig.step(Answer::Obey);
    let withdrawal = rig.volume.cancel_request(rig.now(), &channel, tokens[2]);
    assert_eq!(rig.end(tokens[2]), None, "it hangs on the write at the device");
    (0..3).for_each(|_| _ = rig.step(Answer::Obey));
    drop(withdrawal);
    assert!(rig.end(first).is_some_and(|end| end.is_ok()));
    assert_eq!(rig.end(tokens[2]), Some(CANCELLED));
    assert_eq!(rig.end(tokens[3]), Some(Ok(Output::Appended(rig.sector(1, 3)))));
}

#[test]
fn request_to_a_cancelled_channel_ends_at_once() {
    let rig = Rig::per_zone();
    let (_, channel) = submit(&rig, rig.write_request(1, 0, 4));
    cancel(&rig, &channel);
    let token = rig.token();
    rig.volume.submit(rig.now(), &channel, rig.write_request(2, 0, 4).token(token));
    assert_eq!(rig.end(token), Some(CANCELLED));
}

#[test]
fn partly_failed_split_write_reports_the_part_that_landed() {
    let size = 32;
    let geometry = Geometry::new(Sectors(8 * u64::from(size)), Sectors(size.into()), Sectors(0), 0).unwrap();
    let rig = Rig::new(DeviceInfo { geometry, command_sectors_max: size, ..info() }, WriteMode::PerZone);
    let (first, second) = (size - 4, 4);
    rig.script.style(|_| Style::Now(Answer::Obey));
    let fill = rig.write(1, 0, first);
    rig.rest();
    assert_eq!(rig.end(fill), Some(DONE));
    rig.script.style(|seen| match seen.zone == ZoneIndex(2) {
        true => Style::Now(Answer::Reply(Err(DeviceError::Medium))),
        false => Style::Now(Answer::Obey),
    });
    let whole = rig.write(1, first, 4 + second);
    rig.rest();
    let Some(Err(error)) = rig.end(whole) else { panic!("{:?}", rig.end(whole)) };
    let expected = RequestError::InPart { sector: rig.sector(2, 0), written: 4, error: DeviceError::Medium };
    assert_eq!(error, expected);
    assert!(error.is_uncertain(), "a part of it is on the medium");
}

/// Results of the requests of a campaign.
#[derive(Default)]
struct Tally {
    done: u64,
    cancelled: u64,
    lost: u64,
}

/// Random requests on channels that are cancelled at random. Afterwards the drive holds the writes
/// that succeeded, and possibly those with an uncertain result.
fn campaign(seed: u64, mode: WriteMode, tally: &mut Tally) {
    const ZONES: u32 = 4;
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let options = EmulatedOptions::default()
        .with_size(u64::from(ZONES) << 20)
        .with_zone_size(1 << 20)
        .with_complete(CompleteMode::Poll)
        .with_submit_queues(random.random_range(1..3))
        .with_hw_queue_depth(random.random_range(1..6))
        .with_max_sectors(16)
        .with_preserves_write_order(mode == WriteMode::Pipelined);
    let inner: Arc<dyn Device> = Arc::new(Emulated::new("null", &options, Null).unwrap());
    let plan = format!("seed = {seed}\n[[rule]]\non = \"writes\"\nrate = 0.03\nfault = \"busy\"\n");
    let device = Arc::new(Fault::new(inner, Plan::parse(&plan).unwrap()));
    let options = VolumeOptions::default().with_mode(mode).with_merge(random.random());
    let volume = Arc::new(Volume::open(device, options).unwrap());
    let ends: Arc<Mutex<BTreeMap<u64, Result<Output, RequestError>>>> = Arc::default();
    let open = || {
        let ends = ends.clone();
        volume.channel(move |c| {
            let before = ends.lock().insert(c.token, c.result);
            assert_eq!(before, None, "request {} ended twice", c.token);
        })
    };
    let (mut channels, mut submitted, mut now) = (vec![open(), open(), open()], Vec::new(), Nanos(0));
    let mut next = [0u32; ZONES as usize];
    for _ in 0..150 {
        let at = random.random_range(0..channels.len());
        match random.random_range(0..10) {
            0 => {
                volume.cancel(now, &channels[at]);
                channels[at] = open();
            }
            1..=3 => now = volume.poll(now).map_or(now, |due| due.max(now)),
            _ => {
                let zone = random.random_range(0..ZONES);
                let sectors = 8 * random.random_range(1..5);
                let start = volume.info().geometry.start_of(ZoneIndex(zone)).0;
                let buf = IoBuf::zeroed(sectors * 512);
                let token = submitted.len() as u64;
                let request = match random.random_range(0..3) {
                    0 if sectors <= volume.append_sectors_max() => {
                        Request::append(Sector(start), sectors, buf)
                    }
                    1 => Request::read(Sector(start), sectors, buf),
                    _ => Request::write(Sector(start + u64::from(next[zone as usize])), sectors, buf),
                };
                if request.op != Op::Read {
                    next[zone as usize] += sectors;
                }
                submitted.push((request.op, sectors));
                volume.submit(now, &channels[at], request.token(token));
            }
        }
    }
    zonal_sim::executor::run_until_idle(&volume, now).unwrap();
    let ends = ends.lock();
    assert_eq!(ends.len(), submitted.len(), "seed {seed}, {mode}: requests left: {:?}", volume.plugs());
    let (mut least, mut most) = (0, 0);
    for (token, end) in ends.iter() {
        let (op, sectors) = submitted[*token as usize];
        match end {
            Ok(_) => tally.done += 1,
            Err(RequestError::Cancelled) => tally.cancelled += 1,
            Err(_) => tally.lost += 1,
        }
        match end {
            _ if op == Op::Read => {}
            Ok(_) => (least, most) = (least + sectors, most + sectors),
            Err(error) if error.is_uncertain() => {
                (least, most) = (least + error.sectors_written(), most + sectors)
            }
            Err(_) => {}
        }
    }
    let zones = report(&**volume.device(), Sector(0), ZONES).unwrap();
    let held: u64 = zones.iter().map(|zone| zone.write_pointer.map_or(2048, |at| at.0 - zone.start.0)).sum();
    let (least, most) = (u64::from(least), u64::from(most));
    assert!(
        (least..=most).contains(&held),
        "seed {seed}, {mode}: the drive holds {held}, not {least}..={most}"
    );
    assert!(volume.plugs().iter().all(|plug| plug.pending == 0), "seed {seed}, {mode}: {:?}", volume.plugs());
}

#[test]
fn cancels_at_random_leave_no_request_and_write_nothing() {
    for mode in WriteMode::ALL.into_iter().filter(|mode| *mode != WriteMode::Direct) {
        let mut tally = Tally::default();
        (0..300).for_each(|seed| campaign(seed, mode, &mut tally));
        println!("{mode}: {} done, {} cancelled, {} lost", tally.done, tally.cancelled, tally.lost);
        assert!(tally.cancelled > 300 && tally.done > 3000, "{mode}: too few to tell");
    }
}
