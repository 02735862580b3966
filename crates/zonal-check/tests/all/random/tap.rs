//! A wrapper that reports the commands and completions of a device to an observer.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zonal_check::rig::tags;
use zonal_core::{DeviceError, Nanos, Op, Sector, ZoneIndex};
use zonal_io::changes::ZoneSetting;
use zonal_io::device::{Command, CommandResult, Completed, Context, Device, Submitted, Wrapper};

/// Request number and sector index that every written sector carries.
pub type Tag = (u64, u64);

/// Tag of zeroes and of sectors that no request has written.
pub const ZERO: Tag = (0, 0);

/// Numbers of the events of a run, shared by all observers.
#[derive(Clone, Default)]
pub struct Steps(Arc<AtomicU64>);

impl Steps {
    /// Number of the next event.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// A command as submitted.
#[derive(Clone, Debug)]
pub struct Seen {
    pub began: u64,
    pub op: Op,
    pub sector: Sector,
    /// Tags of its sectors afterwards, if it writes or discards.
    pub tags: Vec<Tag>,
}

impl Seen {
    fn of(began: u64, command: &Command) -> Seen {
        let &Command { op, sector, sectors, ref data, .. } = command;
        let mut written = Vec::new();
        match op {
            Op::Write | Op::Append => {
                let mut bytes = Vec::with_capacity(data.len());
                data.for_each(|_, piece| bytes.extend_from_slice(piece));
                written = tags(&bytes);
            }
            Op::WriteZeroes | Op::Discard => written = vec![ZERO; sectors as usize],
            _ => {}
        }
        Seen { began, op, sector, tags: written }
    }
}

/// Observer of a device's commands.
pub trait Observer: Send + Sync {
    /// A command is issued to the device.
    fn begins(&self, _seen: &Seen) {}
    /// The device's queue was full: the command was not executed.
    fn is_busy(&self, _seen: &Seen) {}
    /// The command completed.
    fn ends(&self, seen: &Seen, result: &CommandResult);
    /// The state of a zone was set without a command.
    fn is_set(&self, _step: u64, _zone: ZoneIndex, _to: ZoneSetting) {}
}

/// A wrapper with an observer. See the module. Prints a trace if `ZONAL_TRACE` is set.
pub struct Tap<O> {
    inner: Arc<dyn Device>,
    /// Name of the tap in the trace.
    trace: Option<&'static str>,
    observer: Arc<O>,
    steps: Steps,
    /// Commands in flight, with the host's context.
    taken: Mutex<BTreeMap<u64, (Seen, Option<Context>)>>,
}

impl<O: Observer> Tap<O> {
    pub fn new(name: &'static str, inner: Arc<dyn Device>, observer: Arc<O>, steps: Steps) -> Tap<O> {
        let trace = std::env::var_os("ZONAL_TRACE").map(|_| name);
        Tap { inner, trace, observer, steps, taken: Mutex::default() }
    }

    fn ended(&self, now: Nanos, seen: &Seen, result: &CommandResult) {
        if let Some(name) = self.trace {
            let Seen { began, op, sector, tags } = seen;
            println!("{} {name} {began} {} @{sector} {tags:?}: {result:?}", now.0, op.name());
        }
        self.observer.ends(seen, result);
    }
}

impl<O: Observer> Wrapper for Tap<O> {
    fn inner(&self) -> &dyn Device {
        &*self.inner
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let seen = Seen::of(self.steps.next(), command);
        let number = seen.began;
        self.observer.begins(&seen);
        let submitted = self.inner.submit(now, queue, command, &mut Some(Context::token(number)));
        match &submitted {
            Submitted::Done(result) => self.ended(now, &seen, result),
            Submitted::Busy => self.observer.is_busy(&seen),
            Submitted::Accepted => {
                self.taken.lock().insert(number, (seen, context.take()));
            }
        }
        submitted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        self.inner.poll(now, queue, budget, &mut |c| {
            let number = c.context.into_token();
            let (seen, context) = self.taken.lock().remove(&number).expect("answered once");
            self.ended(now, &seen, &c.result);
            done(Completed { context: context.expect("it came with its context"), result: c.result });
        })
    }

    fn set_zone(&self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        self.inner.set_zone(zone, to)?;
        let step = self.steps.next();
        if let Some(name) = self.trace {
            println!("{name} {step} zone {zone} is {to}");
        }
        self.observer.is_set(step, zone, to);
        Ok(())
    }
}
