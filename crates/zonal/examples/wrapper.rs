//! A wrapper around a device that issues its own commands: it flushes the drive after every sixteen
//! writes, so that a power cut loses little, whatever the host does.
//! `cargo run -p zonal --example wrapper`.
//!
//! It numbers the commands that it passes to the drive, and keeps the contexts of the host in a
//! list, so it can tell its own flushes from commands of the host. `zonal::device` documents the
//! contract between a device and its host, and the conformance kit checks that the wrapper keeps it.

use std::sync::{Arc, Mutex};
use zonal::device::conformance::{Options, check};
use zonal::device::{Command, Completed, Context, Submitted, Wrapper};
use zonal::{Clock, Device, IoBuf, Nanos, Op, Request, Sector, Volume, VolumeOptions};

/// Number of the flushes of the wrapper itself.
const OWN: u64 = u64::MAX;

/// Wrapper that flushes the drive after `every` writes.
struct Flushing {
    drive: Arc<dyn Device>,
    every: u64,
    state: Mutex<WrapperState>,
}

#[derive(Default)]
struct WrapperState {
    /// Contexts of the host, by the number that the drive has.
    contexts: Vec<Option<Context>>,
    free: Vec<usize>,
    /// Writes since the last flush.
    writes: u64,
    /// Flushes issued.
    flushes: u64,
}

impl Flushing {
    fn new(drive: Arc<dyn Device>, every: u64) -> Flushing {
        Flushing { drive, every, state: Mutex::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, WrapperState> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Issues a flush if one is due. Called without the lock, because the drive may take its time.
    fn flush_if_due(&self, now: Nanos, queue: usize) {
        {
            let mut state = self.state();
            if state.writes < self.every {
                return;
            }
            state.writes = 0;
            state.flushes += 1;
        }
        let flush = Command::new(Op::Flush, Sector(0), 0);
        let mut context = Some(Context::token(OWN));
        if let Submitted::Busy = self.drive.submit(now, queue, &flush, &mut context) {
            // The queue is full. The flush is due again with the next command or poll.
            let mut state = self.state();
            state.writes += self.every;
            state.flushes -= 1;
        }
    }
}

impl Wrapper for Flushing {
    fn inner(&self) -> &dyn Device {
        &*self.drive
    }

    fn submit(
        &self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        let number = {
            let mut state = self.state();
            let number = state.free.pop().unwrap_or_else(|| {
                state.contexts.push(None);
                state.contexts.len() - 1
            });
            state.contexts[number] = context.take();
            number
        };
        let mut own = Some(Context::token(number as u64));
        let submitted = self.drive.submit(now, queue, command, &mut own);
        {
            let mut state = self.state();
            if !matches!(submitted, Submitted::Accepted) {
                // The drive did not accept the command.
                *context = state.contexts[number].take();
                state.free.push(number);
            }
            if matches!(command.op, Op::Write | Op::WriteZeroes | Op::Append)
                && !matches!(submitted, Submitted::Busy)
            {
                state.writes += 1;
            }
        }
        self.flush_if_due(now, queue);
        submitted
    }

    fn poll(
        &self,
        now: Nanos,
        queue: usize,
        budget: usize,
        done: &mut dyn FnMut(Completed),
    ) -> Option<Nanos> {
        let due = self.drive.poll(now, queue, budget, &mut |Completed { context, result }| {
            let number = context.into_token();
            if number == OWN {
                // Completion of our own flush: its result concerns no command of the host.
                return;
            }
            let mut state = self.state();
            let context = state.contexts[number as usize].take().expect("a drive answers each command once");
            state.free.push(number as usize);
            drop(state);
            done(Completed { context, result });
        });
        self.flush_if_due(now, queue);
        due
    }
}

/// Runs the conformance kit, which tries the contract, on the wrapper around a drive. It erases the
/// drive.
fn conforms() -> Result<(), Box<dyn std::error::Error>> {
    let drive = zonal::open("ram:size=64M,zone_size=1M,complete=poll,submit_queues=2")?;
    let report = check(&Flushing::new(drive, 16), &Options::default());
    print!("{report}");
    assert!(report.is_conformant());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let drive = zonal::open("ram:size=64M,zone_size=16M,complete=poll")?;
    let wrapper = Arc::new(Flushing::new(drive, 16));
    let volume = Volume::open(wrapper.clone(), VolumeOptions::default())?;
    let clock = Clock::start();
    for _ in 0..160 {
        volume.call(&clock, Request::append(Sector(0), 8, IoBuf::zeroed(4096))).result?;
    }
    let flushes = wrapper.state().flushes;
    println!("160 appends, {flushes} flushes that the host did not ask for");
    assert_eq!(flushes, 10);
    conforms()
}

#[test]
fn drive_is_flushed_after_each_sixteen_writes_and_conforms() {
    main().unwrap();
}
