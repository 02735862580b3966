//! Queues: many commands at once, several threads, sleep, and changes that no command caused.

use super::Options;
use super::data::{Shadow, Writing, read_order, write};
use super::host::{Broken, Host, Memory, Offered, Order, done, payload};
use super::rules::{Zones, restore};
use crate::changes::{Changes, ZoneSetting};
use crate::device::Output;
use crate::volume::keeps_data;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use zonal_core::{DeviceError, Op, SECTOR_BYTES, Sector, ZoneCondition, ZoneIndex};

const SECTOR: usize = SECTOR_BYTES as usize;

/// What `done` calls a command that changes nothing.
const COMMAND: &str = "read of a block, or flush";

/// Commands that a check has in flight at most.
const FLIGHTS_MAX: usize = 2048;

/// A queue is filled: it takes commands until it is full, returns each once, and is idle afterwards.
pub(super) fn full(host: &Host<'_>, options: &Options) -> Result<(), Broken> {
    let (info, zone) = (host.device.info(), written(host, options)?);
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    for queue in 0..info.queues {
        let mut tokens = Vec::new();
        for _ in 0..FLIGHTS_MAX {
            let order = read_order(info, &mut chance, zone).on(queue);
            match host.offer(order)? {
                Offered::Taken(token) => tokens.push(token),
                Offered::Done(answered) => done(&answered.0, COMMAND)?,
                Offered::Busy(_) => break,
            }
        }
        // A completion that is held back makes the queue no more idle than a command.
        let since = Instant::now();
        for (n, token) in tokens.iter().enumerate() {
            while !host.has_answer(*token) && since.elapsed() < host.patience() {
                // Only threads of other queues ask, so a device with one queue need not know.
                if info.queues > 1 && host.device.is_idle(queue) {
                    return Err(format!("queue {queue} is idle with {} commands", tokens.len() - n));
                }
                host.rest(queue)?;
            }
        }
        for token in tokens {
            done(&host.wait_for(token, queue)?.0, COMMAND)?;
        }
        if info.queues > 1 && !host.device.is_idle(queue) {
            return Err(format!("queue {queue} has returned all commands, and is not idle"));
        }
        let (count, _) = host.poll(queue)?;
        if count > 0 {
            return Err(format!("queue {queue} returned {count} completions without commands"));
        }
    }
    Ok(())
}

/// A zone whose first block is written: a device may complete reads of others inline.
fn written(host: &Host<'_>, options: &Options) -> Result<ZoneIndex, Broken> {
    let mut zones = Zones::new(host, options)?;
    let zone = zones.first()?;
    zones.act(zone, Op::Write, 0, zones.block())?;
    Ok(zone)
}

/// A refused command has had no effect: writes to several zones at once, each submitted again after
/// a refusal, leave every zone as one write each does.
pub(super) fn busy(host: &Host<'_>, options: &Options) -> Result<(), Broken> {
    let mut zones = Zones::new(host, options)?;
    let info = zones.info;
    let mut shadows = zones.shadows()?;
    // Written from the second round on; a device may complete reads of an empty zone inline.
    let read = shadows[0].zone;
    let block = info.block_sectors;
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    let keeps_data = keeps_data(host.device);
    let rounds =
        shadows.iter().map(|shadow| info.geometry.capacity_of(shadow.zone) / block).min().unwrap_or(0);
    for round in 0..rounds.min(16) {
        for queue in 0..info.queues {
            let mut waiting = Vec::new();
            for shadow in shadows.iter_mut().filter(|shadow| shadow.zone.0 as usize % info.queues == queue) {
                let bytes =
                    payload(block as usize * SECTOR, u64::from(round) << 8 | u64::from(shadow.zone.0));
                let memory = Memory::holding(&bytes, &mut chance);
                // Leaves no room for the write.
                for _ in 0..READS_MAX {
                    match host.offer(read_order(info, &mut chance, read).on(queue))? {
                        Offered::Taken(token) => waiting.push((Err(token), read)),
                        Offered::Done(answered) => done(&answered.0, COMMAND)?,
                        Offered::Busy(_) => break,
                    }
                }
                let pushed = host.push(Order::new(Op::Write, shadow.end(), block).on(queue).with(memory))?;
                shadow.bytes.extend(bytes);
                waiting.push((pushed, shadow.zone));
            }
            for (pushed, zone) in waiting {
                let (answer, _) = pushed.or_else(|token| host.wait_for(token, queue))?;
                done(&answer, format_args!("a read or write of zone {zone}, one of many at once"))?;
            }
        }
    }
    for shadow in &shadows {
        let found = host.zone(shadow.zone)?;
        let pointer = found.write_pointer.unwrap_or(found.start + found.capacity);
        if pointer != shadow.end() {
            return Err(format!("zone {} was written up to {}, and is {found:?}", shadow.zone, shadow.end()));
        }
        if keeps_data {
            shadow.verify_all(host, &mut chance, 0)?;
        }
    }
    zones.reset_all()
}

/// Reads with which a queue is filled at most.
const READS_MAX: usize = 256;

/// Writes of one zone, submitted without waiting, take effect in order.
pub(super) fn order(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    if !host.device.info().keeps_order {
        return Ok(Some("the device does not keep order".into()));
    }
    let mut zones = Zones::new(host, options)?;
    let info = zones.info;
    let zone = zones.first()?;
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    let mut shadow = Shadow::of(info, zone);
    let block = info.block_sectors;
    let count = (info.geometry.capacity_of(zone) / block).min(64);
    let mut waiting = Vec::new();
    for n in 0..count {
        let bytes = payload(block as usize * SECTOR, u64::from(n));
        let memory = Memory::holding(&bytes, &mut chance);
        waiting.push(host.push(Order::new(Op::Write, shadow.end(), block).with(memory))?);
        shadow.bytes.extend(bytes);
    }
    for (n, pushed) in waiting.into_iter().enumerate() {
        let (answer, _) = pushed.or_else(|token| host.wait_for(token, 0))?;
        done(&answer, format_args!("write {n} of {count} to zone {zone}, submitted in order"))?;
    }
    if keeps_data(host.device) {
        shadow.verify_all(host, &mut chance, 0)?;
    }
    zones.reset_all()?;
    Ok(None)
}

/// Several threads on each queue, every thread with zones of its own. A thread may poll completions
/// of another.
pub(super) fn threads(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    let info = host.device.info();
    let conventional = info.geometry.conventional_zones();
    let limits = [info.open_max, info.active_max, info.geometry.sequential_zones()];
    let count =
        limits.into_iter().filter(|&max| max > 0).min().unwrap_or(1).min(2 * info.queues as u32).min(8);
    if count < 2 {
        return Ok(Some("the device has room for one zone only".into()));
    }
    let chosen: Vec<ZoneIndex> = (conventional..conventional + count).map(ZoneIndex).collect();
    let mut zones = Zones::of(host, options, &chosen)?;
    let keeps_data = keeps_data(host.device);
    let results: Vec<Result<(), Broken>> = std::thread::scope(|scope| {
        let worker =
            |(n, zone): (usize, ZoneIndex)| scope.spawn(move || thread(host, options, (n, zone), keeps_data));
        let workers: Vec<_> = zones.chosen().into_iter().enumerate().map(worker).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    results.into_iter().collect::<Result<(), Broken>>()?;
    zones.reset_all()?;
    Ok(None)
}

fn thread(
    host: &Host<'_>,
    options: &Options,
    (n, zone): (usize, ZoneIndex),
    keeps_data: bool,
) -> Result<(), Broken> {
    let info = host.device.info();
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed ^ n as u64);
    let mut shadow = Shadow::of(info, zone);
    let (queue, block) = (n % info.queues, info.block_sectors);
    for step in 0..options.steps {
        let op = if step % 3 == 2 && info.append_sectors_max >= block { Op::Append } else { Op::Write };
        if shadow.written() + block > info.geometry.capacity_of(zone) || step % 100 == 99 {
            let (answer, _) = host.run(Order::new(Op::ZoneReset, shadow.start, 0).on(queue))?;
            done(&answer, format_args!("reset of zone {zone} by its thread"))?;
            shadow.bytes.clear();
        }
        write(
            host,
            &mut shadow,
            &mut chance,
            &Writing { op, sectors: block, seed: u64::from(step) << 8 | n as u64, queue },
        )?;
        if keeps_data && step % 4 == 0 {
            shadow.verify(host, &mut chance, queue)?;
        }
        if step % 16 == 0 {
            let (answer, _) = host.run(Order::new(Op::Report, shadow.start, 1).on(queue))?;
            let Ok(Output::Zones(found)) = answer else {
                return Err(format!("report of zone {zone}: {answer:?}"));
            };
            let pointer = found[0].write_pointer;
            if pointer.is_some_and(|pointer| pointer != shadow.end()) {
                return Err(format!("zone {zone} was written up to {}, and is {:?}", shadow.end(), found[0]));
            }
        }
    }
    Ok(())
}

/// A poll returns at once while another thread polls the queue, which the check holds up in its
/// completion.
pub(super) fn polls(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    if host.is_virtual() {
        return Ok(Some("the device is in virtual time, where one thread polls".into()));
    }
    let mut later = later(host, options)?;
    let mut held_up = 0;
    for queue in 0..host.device.info().queues {
        let Err(token) = host.push(later(queue))? else { continue };
        let (in_poll, has_begun) = mpsc::channel();
        let (second, has_returned) = mpsc::channel();
        std::thread::scope(|scope| -> Result<(), Broken> {
            let other = scope.spawn(move || -> Result<(), Broken> {
                if has_begun.recv().is_ok() {
                    host.poll(queue)?;
                    // The first poll may have given up.
                    let _ = second.send(());
                }
                Ok(())
            });
            let (mut waited, since) = (Ok(()), Instant::now());
            while !host.has_answer(token) && waited.is_ok() && since.elapsed() < host.patience() {
                let polled = host.poll_and(queue, || {
                    if in_poll.send(()).is_ok() {
                        waited = has_returned.recv_timeout(host.patience());
                    }
                });
                polled?;
                host.rest(queue)?;
            }
            drop(in_poll);
            match (waited, other.join()) {
                (Ok(()), Ok(result)) => result,
                (Err(_), _) => {
                    Err(format!("a poll of queue {queue} waited for that of another thread to return"))
                }
                (_, Err(_)) => Err("a thread panicked".into()),
            }
        })?;
        done(&host.wait_for(token, queue)?.0, COMMAND)?;
        held_up += 1;
    }
    Ok((held_up == 0).then(|| "the device completes every command inline".into()))
}

/// Makes commands of the first kind that the device completes later: a read of a written zone, or
/// else a flush.
fn later<'h>(host: &'h Host<'_>, options: &Options) -> Result<impl FnMut(usize) -> Order + use<'h>, Broken> {
    let (info, zone) = (host.device.info(), written(host, options)?);
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    let reads = match host.push(read_order(info, &mut chance, zone))? {
        Ok(_) => false,
        Err(token) => {
            done(&host.wait_for(token, 0)?.0, COMMAND)?;
            true
        }
    };
    Ok(move |queue| match reads {
        true => read_order(info, &mut chance, zone).on(queue),
        false => Order::new(Op::Flush, Sector(0), 0).on(queue),
    })
}

/// A thread that sleeps before a command is submitted is woken by its completion.
pub(super) fn wakeups(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    if host.is_virtual() {
        return Ok(Some("the device is in virtual time, where no thread sleeps".into()));
    }
    let queues = host.device.info().queues;
    let mut later = later(host, options)?;
    let mut chance = Pcg64Mcg::seed_from_u64(options.seed);
    for round in 0..options.steps.min(20) {
        has_news(host, later(round as usize % queues))?;
    }
    let mut slept_through = 0;
    for round in 0..options.steps.min(200) {
        let queue = round as usize % queues;
        let order = later(queue);
        let pause = Duration::from_micros(chance.next_u64() % 200);
        let is_done = AtomicBool::new(false);
        let inline = std::thread::scope(|scope| -> Result<bool, Broken> {
            let sleeper = scope.spawn(|| -> Result<(), Broken> {
                while !is_done.load(Ordering::SeqCst) {
                    let (count, due) = host.poll(queue)?;
                    if count > 0 {
                        is_done.store(true, Ordering::SeqCst);
                        return Ok(());
                    }
                    // A deadline is asked for again at each poll, so that a sleep may last until it.
                    let now = host.now();
                    let left =
                        due.map_or(host.patience(), |due| Duration::from_nanos(due.0.saturating_sub(now.0)));
                    let since = Instant::now();
                    host.sleep(queue, left.min(host.patience()), || is_done.load(Ordering::SeqCst));
                    if due.is_none() && since.elapsed() >= host.patience() && host.poll(queue)?.0 > 0 {
                        return Err(format!(
                            "queue {queue}: a thread slept beside a completion, and was not rung"
                        ));
                    }
                }
                Ok(())
            });
            std::thread::sleep(pause);
            let pushed = host.push(order);
            host.device.commit(queue);
            let inline = match &pushed {
                Ok(Ok(_)) | Err(_) => {
                    is_done.store(true, Ordering::SeqCst);
                    host.device.wakeups().ring_all();
                    true
                }
                Ok(Err(_)) => false,
            };
            let slept = sleeper.join().unwrap_or_else(|_| Err("a thread panicked".into()));
            if let Err(token) = pushed? {
                slept?;
                done(&host.wait_for(token, queue)?.0, COMMAND)?;
            }
            Ok(inline)
        })?;
        slept_through += u32::from(!inline);
    }
    Ok((slept_through == 0).then(|| "the device completes every command inline".into()))
}

/// A completion that no poll has seen, and for which the last one named no time, is news.
fn has_news(host: &Host<'_>, order: Order) -> Result<(), Broken> {
    let queue = order.queue;
    let Err(token) = host.push(order)? else { return Ok(()) };
    let (count, due) = host.poll(queue)?;
    if count == 0 && due.is_none() {
        let since = Instant::now();
        while !host.device.has_news(queue) && since.elapsed() < host.patience() {
            std::thread::sleep(Duration::from_micros(50));
        }
        if since.elapsed() >= host.patience() && host.poll(queue)?.0 > 0 {
            return Err(format!("queue {queue} has a completion that no poll has seen, and no news"));
        }
    }
    done(&host.wait_for(token, queue)?.0, COMMAND)
}

/// Changes are those that no command of the host caused, and each is taken once.
pub(super) fn changes(host: &Host<'_>, options: &Options) -> Result<Option<String>, Broken> {
    let device = host.device;
    take(host);
    let mut zones = Zones::new(host, options)?;
    let zone = zones.first()?;
    let block = zones.block();
    zones.act(zone, Op::Write, 0, block)?;
    zones.act(zone, Op::ZoneFinish, 0, 0)?;
    zones.act(zone, Op::ZoneReset, 0, 0)?;
    if device.has_changes() || take(host) != Changes::default() {
        return Err("commands of the host are reported to it as changes".into());
    }
    if device.set_zone(zone, ZoneSetting::Restored) == Err(DeviceError::Unsupported) {
        return Ok(Some("no zone can be set, so that no change can be made".into()));
    }
    take(host);
    let mut expected = Changes::default();
    expected.add_zone(zone);
    for to in [ZoneSetting::ReadOnly, ZoneSetting::Restored, ZoneSetting::Offline, ZoneSetting::Restored] {
        rings(host, || zones.fail(zone, to))??;
        if !device.has_changes() {
            return Err(format!("zone {zone} was set to {to}, and there are no changes"));
        }
        let taken = take(host);
        if taken != expected || device.has_changes() || take(host) != Changes::default() {
            return Err(format!("zone {zone} was set to {to}, and the changes are {taken:?}, once"));
        }
        zones.fail(zone, to)?;
        if take(host) != Changes::default() {
            return Err(format!("zone {zone} was set to {to} again, which is no change, and is reported"));
        }
    }
    match host.zone(zone)?.condition {
        ZoneCondition::Empty => {}
        other => return Err(format!("zone {zone} was restored, and is {other}")),
    }
    restore(&mut zones)?;
    take(host);
    Ok(None)
}

fn take(host: &Host<'_>) -> Changes {
    let mut changes = Changes::default();
    host.device.take_changes(&mut changes);
    changes
}

/// Runs `change` while a thread sleeps on each queue, and checks that it wakes them.
fn rings<R>(host: &Host<'_>, change: impl FnOnce() -> R) -> Result<R, Broken> {
    if host.is_virtual() {
        return Ok(change());
    }
    let device = host.device;
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = (0..device.info().queues)
            .map(|queue| {
                scope.spawn(move || {
                    let since = Instant::now();
                    while !device.has_changes() && since.elapsed() < host.patience() {
                        host.sleep(queue, host.patience(), || device.has_changes());
                    }
                    since.elapsed()
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(5));
        let result = change();
        let slept: Vec<Duration> =
            sleepers.into_iter().map(|sleeper| sleeper.join().unwrap_or_default()).collect();
        match slept.iter().position(|&slept| slept >= host.patience()) {
            Some(queue) => Err(format!("queue {queue} was not rung when a zone changed")),
            None => Ok(result),
        }
    })
}
