//! The conformance kit on every kind of device, and on devices that break the contract in one
//! point each.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zonal_core::{DeviceError, Nanos, Op, Sectors, ZoneError, ZoneIndex};
use zonal_io::changes::{Changes, ZoneSetting};
use zonal_io::data::Data;
use zonal_io::device::conformance::{Options, Report, check, check_timeouts};
use zonal_io::device::{Command, Completed, Context, Device, Output, Settled, Submitted, Wakeups, Wrapper};
use zonal_io::image::ImageOptions;
use zonal_io::registry::Registry;

fn registry() -> Registry {
    let mut registry = Registry::default();
    zonal_sim::register(&mut registry);
    registry
}

fn opened(name: &str) -> Arc<dyn Device> {
    registry().open(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn passes(report: &Report) {
    assert!(report.is_conformant(), "{report}");
}

/// Checks that did not apply.
fn left_out(report: &Report) -> Vec<&'static str> {
    let is_left = |outcome| matches!(outcome, &zonal_io::device::conformance::Outcome::NotApplicable(_));
    report.outcomes.iter().filter(|(_, outcome)| is_left(outcome)).map(|(name, _)| *name).collect()
}

#[test]
fn emulated_devices_conform() {
    let shape = "size=24M,zone_size=1M,zone_capacity=960k,zone_nr_conv=2,zone_max_open=4,zone_max_active=6";
    for personality in ["zns", "zbc"] {
        for (kind, options, without) in [
            ("null", "", &["payloads", "order", "polls", "wake-ups"][..]),
            ("ram", "", &["order", "polls", "wake-ups"]),
            ("ram", ",complete=poll,submit_queues=3,hw_queue_depth=4", &["order"]),
            ("ram", ",complete=poll,completion_nsec=20000,submit_queues=2,hw_queue_depth=8", &["order"]),
            ("ram", ",complete=poll,preserves_write_order=1,blocksize=4096", &[]),
        ] {
            let device = opened(&format!("{kind}:{shape},personality={personality}{options}"));
            let report = check(&*device, &Options::default());
            passes(&report);
            assert_eq!(left_out(&report), without, "{report}");
        }
    }
}

#[test]
fn images_conform_also_when_opened_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let options = ImageOptions::default().with_size(24 << 20).with_zone_size(1 << 20).with_zone_nr_conv(2);
    options.with_zone_max_open(4).with_zone_max_active(6).create(&path).unwrap();
    let name = path.display().to_string();
    for options in ["", ",preserves_write_order=1"] {
        let device = opened(&format!("image:{name}{options}"));
        passes(&check(&*device, &Options::default()));
    }
    let device = registry().open_to_read(&name).unwrap();
    let report = check(&*device, &Options::default());
    passes(&report);
    assert_eq!(report.outcomes.last().unwrap().0, "opened for reading");
}

/// Slow: one of the drives has the delays of a flash drive in real time.
#[test]
fn wrappers_and_simulated_drives_conform() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, (0..64).collect::<Vec<u8>>()).unwrap();
    let ram = "ram:size=24M,zone_size=1M,zone_nr_conv=2,zone_max_open=4,zone_max_active=6";
    for name in [
        format!("fault:busy=0.1+{ram}"),
        format!("fault:busy=0.1+{ram},complete=poll,submit_queues=2"),
        "linear:zone=2,zones=16+ram:size=24M,zone_size=1M,zone_nr_conv=4,complete=poll".into(),
        format!("concat:[{ram}][null:size=8M,zone_size=1M]"),
        "concat:[ram:size=8M,zone_size=1M,complete=poll,submit_queues=2][ram:size=8M,zone_size=1M,complete=poll]".into(),
        format!("timing:zns-1t+{ram}"),
        format!("crypt:key={}+{ram},complete=poll", key.display()),
        format!("crypt:key={}+null:size=8M,zone_size=1M", key.display()),
        "sim:zns-1t".into(),
        "sim:smr-hdd-30t".into(),
        "sim:ufs-zoned".into(),
    ] {
        let steps = if name.starts_with("timing") { 10 } else { 400 };
        let allows_more = name.starts_with("concat");
        passes(&check(&*opened(&name), &Options { steps, allows_more, ..Options::default() }));
    }
}

#[test]
fn commands_that_time_out_are_settled() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan");
    for executed in ["\"never\"", "\"before\"", "\"late\""] {
        let rule = format!(
            "[[rule]]\non = \"write\"\nevery = 5\nfault = \"time-out\"\ntime = \"1ms\"\nexecuted = {executed}\n"
        );
        std::fs::write(&plan, rule).unwrap();
        let name = format!("fault:plan={}+ram:size=24M,zone_size=1M", plan.display());
        let report = check_timeouts(&*opened(&name), &Options::default());
        passes(&report);
        assert_eq!(left_out(&report), [""; 0], "{report}");
    }
}

#[test]
fn zone_that_changes_after_it_was_settled_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan");
    let rule = "[[rule]]\non = \"write\"\nevery = 5\nfault = \"time-out\"\ntime = \"1ms\"\nexecuted = \"late\"\nlate = \"5ms\"\n";
    std::fs::write(&plan, rule).unwrap();
    let name = format!("fault:plan={}+ram:size=24M,zone_size=1M", plan.display());
    passes(&check_timeouts(&*opened(&name), &Options::default()));
    let report = check_timeouts(&Liar::over(Lie::SettlesEarly, opened(&name)), &Options::default());
    assert_eq!(report.violation().map(|(name, _)| name), Some("timeouts"), "{report}");
}

/// Point of the contract that a [`Liar`] breaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lie {
    /// Takes the context of a command that it completes inline.
    TakesContext,
    /// Returns completions on another queue.
    OtherQueue,
    /// Passes more completions than a poll asks for.
    OverBudget,
    /// Keeps a completion for ever.
    Loses,
    /// Rings no one.
    Silent,
    /// Is idle at all times.
    Idle,
    /// Executes writes whose queue is full, and refuses them all the same.
    BusyButDone,
    /// Fills one byte too many.
    Overrun,
    /// Gives the end of an append for its start.
    AppendEnd,
    /// Has written one block more than it reports.
    Pointer,
    /// Reports each zone twice.
    Twice,
    /// Answers a wrong position with another error.
    OtherError,
    /// Closes explicitly open zones of its own accord.
    ClosesOpen,
    /// Promises to keep the order of writes.
    NoOrder,
    /// Reports every reset as a change.
    OwnChange,
    /// Keeps changes that were taken.
    ChangeTwice,
    /// Answers for sectors behind its end.
    Beyond,
    /// Its name is empty.
    NoName,
    /// Does not move the pointer back at a reset of all zones.
    KeepsOnResetAll,
    /// Loses every tenth write.
    LosesData,
    /// Lets one thread at a time poll.
    OnePoll,
    /// Ends zones a block before their capacity.
    ShortZone,
    /// Aborts a command that is submitted beside another.
    Racy,
    /// Cannot settle any zone.
    Unsettled,
    /// Settles a zone at once, whatever may still happen to it.
    SettlesEarly,
    /// Says that it is opened for reading, and is not.
    ReadOnly,
    /// Never has news.
    NoNews,
    /// Holds completions back, and forgets them in `is_idle`.
    IdleWithHeld,
}

/// Drive with a defect.
struct Liar {
    lie: Lie,
    inner: Arc<dyn Device>,
    info: zonal_io::device::DeviceInfo,
    wakeups: Wakeups,
    count: AtomicU32,
    held: Mutex<VecDeque<(usize, Completed)>>,
    kept: Mutex<Changes>,
    one: Mutex<()>,
    submits: AtomicU32,
}

impl Liar {
    fn new(lie: Lie) -> Liar {
        let options = match lie {
            Lie::TakesContext | Lie::LosesData => "",
            _ => ",complete=poll,submit_queues=2,hw_queue_depth=4",
        };
        let name =
            format!("ram:size=24M,zone_size=1M,zone_nr_conv=1,zone_max_open=3,zone_max_active=5{options}");
        Liar::over(lie, opened(&name))
    }

    fn over(lie: Lie, inner: Arc<dyn Device>) -> Liar {
        let mut info = inner.info().clone();
        if lie == Lie::NoName {
            info.name.clear();
        }
        info.keeps_order |= lie == Lie::NoOrder;
        info.read_only |= lie == Lie::ReadOnly;
        let wakeups = Wakeups::new(info.queues);
        Liar {
            lie,
            inner,
            info,
            wakeups,
            count: AtomicU32::new(0),
            held: Mutex::default(),
            kept: Mutex::default(),
            one: Mutex::default(),
            submits: AtomicU32::new(0),
        }
    }

    fn nth(&self, every: u32) -> bool {
        self.count.fetch_add(1, Ordering::SeqCst) % every == every - 1
    }

    /// Completions that are returned a poll later than the drive did.
    fn held_of(&self, queue: usize) -> Vec<Completed> {
        let mut held = self.held.lock().unwrap();
        let all = std::mem::take(&mut *held);
        let (now, later): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|(of, _)| self.lie == Lie::IdleWithHeld && *of == queue);
        *held = later;
        now.into_iter().map(|(_, completed)| completed).collect()
    }

    /// Changes a result on its way to the host.
    fn bend(&self, result: Result<Output, DeviceError>) -> Result<Output, DeviceError> {
        match (self.lie, result) {
            (Lie::AppendEnd, Ok(Output::Appended(at))) => Ok(Output::Appended(at + Sectors(1))),
            (Lie::Pointer, Ok(Output::Zones(mut zones))) => {
                for zone in &mut zones {
                    zone.write_pointer = zone
                        .write_pointer
                        .filter(|&at| at == zone.start)
                        .or(zone.write_pointer.map(|at| zonal_core::Sector(at.0 - 1)));
                }
                Ok(Output::Zones(zones))
            }
            (Lie::Twice, Ok(Output::Zones(zones))) if zones.len() > 1 => {
                Ok(Output::Zones(zones.iter().flat_map(|zone| [*zone, *zone]).collect()))
            }
            (Lie::OtherError, Err(DeviceError::Zone(ZoneError::InvalidWrite))) => {
                Err(DeviceError::InvalidField)
            }
            (_, result) => result,
        }
    }
}

impl Wrapper for Liar {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn info(&self) -> &zonal_io::device::DeviceInfo {
        &self.info
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let end = self.info.geometry.sectors().0;
        let offset = self.info.geometry.offset_of(command.sector) + command.sectors;
        match (self.lie, command.op) {
            (Lie::ShortZone, Op::Write) if offset == self.info.geometry.zone_capacity().0 as u32 => {
                return Submitted::Done(Err(ZoneError::Boundary.into()));
            }
            (Lie::Racy, _) => {
                let is_beside = self.submits.fetch_add(1, Ordering::SeqCst) > 0;
                std::thread::yield_now();
                self.submits.fetch_sub(1, Ordering::SeqCst);
                if is_beside {
                    return Submitted::Done(Err(DeviceError::Aborted));
                }
            }
            (Lie::Beyond, Op::Read) if command.sector.0 >= end => return Submitted::Done(Ok(Output::Done)),
            (Lie::KeepsOnResetAll, Op::ResetAll) => return Submitted::Done(Ok(Output::Done)),
            (Lie::LosesData, Op::Write) if self.nth(10) => {
                let zeroes = Command { op: Op::WriteZeroes, data: Data::NONE, ..*command };
                return self.inner.submit(now, queue, &zeroes, context);
            }
            (Lie::ClosesOpen, Op::ZoneOpen) => {
                let answer = zonal_io::volume::run_alone(&*self.inner, command);
                if answer.is_ok() {
                    let _ = zonal_io::volume::run_alone(
                        &*self.inner,
                        &Command::new(Op::ZoneClose, command.sector, 0),
                    );
                }
                return Submitted::Done(answer);
            }
            (Lie::Overrun, Op::Read) => {
                if let Some(last) = command.data.segments().last() {
                    // SAFETY: the memory of the kit has guard bytes behind its payload.
                    unsafe { last.as_ptr().add(last.len()).write(0) };
                }
            }
            (Lie::OwnChange, Op::ZoneReset) => {
                let zone = self.info.geometry.zone_of(command.sector);
                self.kept.lock().unwrap().add_zone(zone);
            }
            _ => {}
        }
        let submitted = self.inner.submit(now, queue, command, context);
        match submitted {
            Submitted::Busy if self.lie == Lie::BusyButDone && command.op == Op::Write => {
                let _ = zonal_io::volume::run_alone(&*self.inner, command);
                Submitted::Busy
            }
            Submitted::Done(result) => {
                if self.lie == Lie::TakesContext {
                    *context = None;
                }
                Submitted::Done(self.bend(result))
            }
            other => other,
        }
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let budget = if self.lie == Lie::OverBudget { budget + 1 } else { budget };
        let queue = if self.lie == Lie::OtherQueue { 1 - queue } else { queue };
        let _one = (self.lie == Lie::OnePoll).then(|| self.one.lock().unwrap());
        let held = self.held_of(queue);
        let due = self.inner.poll(now, queue, budget, &mut |Completed { context, result }| {
            let completed = Completed { context, result: self.bend(result) };
            match self.lie == Lie::IdleWithHeld || self.lie == Lie::Loses && self.nth(50) {
                true => self.held.lock().unwrap().push_back((queue, completed)),
                false => done(completed),
            }
        });
        held.into_iter().for_each(done);
        match self.lie == Lie::IdleWithHeld {
            true => Some(now),
            false => due,
        }
    }

    fn has_news(&self, queue: usize) -> bool {
        self.lie != Lie::NoNews && self.inner.has_news(queue)
    }

    fn is_idle(&self, queue: usize) -> bool {
        self.lie == Lie::Idle || self.inner.is_idle(queue)
    }

    fn wakeups(&self) -> &Wakeups {
        if self.lie == Lie::Silent { &self.wakeups } else { self.inner.wakeups() }
    }

    fn settle(&self, now: Nanos, zone: ZoneIndex) -> Settled {
        match self.lie {
            Lie::Unsettled => Settled::Never(DeviceError::Aborted),
            Lie::SettlesEarly => Settled::Yes,
            _ => self.inner.settle(now, zone),
        }
    }

    fn has_changes(&self) -> bool {
        *self.kept.lock().unwrap() != Changes::default() || self.inner.has_changes()
    }

    fn take_changes(&self, into: &mut Changes) {
        self.inner.take_changes(into);
        let mut kept = self.kept.lock().unwrap();
        into.merge(&kept, Some);
        *kept = if self.lie == Lie::ChangeTwice { into.clone() } else { Changes::default() };
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        self.inner.set_zone(zone, to)
    }
}

#[test]
fn each_violation_is_found_by_its_check() {
    for (lie, name) in [
        (Lie::NoName, "facts"),
        (Lie::TakesContext, "reports"),
        (Lie::Twice, "reports"),
        (Lie::OtherQueue, "reports"),
        (Lie::Loses, "zone commands"),
        (Lie::AppendEnd, "zone commands"),
        (Lie::Pointer, "zone commands"),
        (Lie::OtherError, "zone commands"),
        (Lie::ClosesOpen, "zone commands"),
        (Lie::KeepsOnResetAll, "zone commands"),
        (Lie::ReadOnly, "opened for reading"),
        (Lie::ShortZone, "capacity"),
        (Lie::Racy, "threads"),
        (Lie::Unsettled, "settled"),
        (Lie::Beyond, "refusals"),
        (Lie::LosesData, "payloads"),
        (Lie::Overrun, "refusals"),
        (Lie::OverBudget, "full queues"),
        (Lie::Idle, "full queues"),
        (Lie::IdleWithHeld, "full queues"),
        (Lie::BusyButDone, "refused commands"),
        (Lie::NoOrder, "order"),
        (Lie::OnePoll, "polls"),
        (Lie::Silent, "wake-ups"),
        (Lie::OwnChange, "changes"),
        (Lie::ChangeTwice, "changes"),
    ] {
        let options = Options { patience: Duration::from_millis(100), ..Options::default() };
        let report = check(&Liar::new(lie), &options);
        let found = report.violation().map(|(name, _)| name);
        assert_eq!(found, Some(name), "{lie:?}: {report}");
    }
}

#[test]
fn device_without_news_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    ImageOptions::default().with_size(8 << 20).with_zone_size(1 << 20).create(&path).unwrap();
    let liar = Liar::over(Lie::NoNews, opened(&format!("image:{},threads=2", path.display())));
    let options = Options { patience: Duration::from_millis(100), steps: 50, ..Options::default() };
    let report = check(&liar, &options);
    // An earlier check than that of the wake-ups finds it, too, where the completion comes between
    // its last poll and its sleep.
    let (name, what) = report.violation().expect("a completion without news");
    assert!(name == "wake-ups" || what.contains("was not rung"), "{report}");
}
