//! Completions reaped by one thread on behalf of another.
//!
//! A device passes a completion to the thread that polls it. A volume and a direct user (`alone`)
//! of one device therefore reap each other's completions. Each leaves here what belongs to the
//! other.
//!
//! - The result of a direct user's command: by its token, which is unique in the process
//!   ([`DirectCall`]).
//! - A completion of a volume: by the address of its device ([`Registration`]), until the volume's
//!   next poll.
//!
//! A direct call is registered before its command is issued, and a volume as long as it exists.
//! Either order of events is therefore correct: a result stored before its owner looks is found
//! then.
//!
//! A completion without an owner, left at the device by a dropped volume or an abandoned call, is
//! dropped.

use super::{Progress, Volume};
use crate::device::{CommandResult, Context, Device};
use parking_lot::Mutex;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use zonal_core::Nanos;

/// Unfinished calls of direct users, with the results stored for them by other pollers.
static DIRECT_CALLS: Mutex<BTreeMap<u64, Option<CommandResult>>> = Mutex::new(BTreeMap::new());

/// Counts down, since wrappers and other direct users count up from 0.
static NEXT_TOKEN: AtomicU64 = AtomicU64::new(u64::MAX);

/// Open volumes by the address of their device.
static REGISTRATIONS: Mutex<BTreeMap<usize, Arc<ForeignCompletions>>> = Mutex::new(BTreeMap::new());

/// Call of a direct user.
pub(super) struct DirectCall {
    token: u64,
}

impl DirectCall {
    pub(super) fn begin() -> DirectCall {
        let token = NEXT_TOKEN.fetch_sub(1, Ordering::Relaxed);
        DIRECT_CALLS.lock().insert(token, None);
        DirectCall { token }
    }

    pub(super) fn context(&self) -> Context {
        Context::token(self.token)
    }

    /// True if another poller has stored the result.
    pub(super) fn is_answered(&self) -> bool {
        DIRECT_CALLS.lock().get(&self.token).is_some_and(Option::is_some)
    }

    /// Takes the result, if another poller has stored it.
    pub(super) fn answer(&self) -> Option<CommandResult> {
        DIRECT_CALLS.lock().get_mut(&self.token)?.take()
    }
}

impl Drop for DirectCall {
    fn drop(&mut self) {
        DIRECT_CALLS.lock().remove(&self.token);
    }
}

/// Stores the result for the call with this token.
pub(super) fn leave_answer(token: u64, result: CommandResult) {
    if let Some(place) = DIRECT_CALLS.lock().get_mut(&token) {
        *place = Some(result);
    }
}

/// Stores a completion reaped from `device` by a direct user for its owner.
pub(super) fn leave(device: &dyn Device, context: Context, result: CommandResult) {
    if context.is_token() {
        return leave_answer(context.into_token(), result);
    }
    let registered = REGISTRATIONS.lock().get(&address(device)).cloned();
    if let Some(foreign) = registered {
        foreign.left.lock().push_back((context, result));
        foreign.any.store(true, Ordering::Release);
        // The volume's threads may all be asleep: the device's ring has passed without a result for
        // them, or none will follow.
        device.wakeups().ring_all();
    }
}

fn address(device: &dyn Device) -> usize {
    std::ptr::from_ref(device).addr()
}

/// Completions of one volume that were reaped by direct users.
#[derive(Default)]
struct ForeignCompletions {
    /// True if there are any; polled without the lock.
    any: AtomicBool,
    left: Mutex<VecDeque<(Context, CommandResult)>>,
}

/// Registration of a volume for its completions, as long as it exists.
pub(super) struct Registration {
    address: usize,
    foreign: Arc<ForeignCompletions>,
}

impl Registration {
    /// Registers a volume. `None` if the device already has one: each would mistake the other's
    /// writes for those of a foreign writer.
    pub(super) fn of(device: &dyn Device) -> Option<Registration> {
        let address = address(device);
        match REGISTRATIONS.lock().entry(address) {
            Entry::Occupied(_) => None,
            Entry::Vacant(free) => {
                Some(Registration { address, foreign: free.insert(Arc::default()).clone() })
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        REGISTRATIONS.lock().remove(&self.address);
    }
}

impl Volume {
    /// True if direct users have left completions of this volume.
    #[inline]
    pub(super) fn has_foreign_completions(&self) -> bool {
        self.registration.foreign.any.load(Ordering::Acquire)
    }

    /// Processes completions of this volume that were reaped by direct users of the device.
    #[inline]
    pub(super) fn take_foreign_completions(&self, now: Nanos) -> Progress {
        if self.has_foreign_completions() { self.process_foreign_completions(now) } else { Progress::None }
    }

    #[cold]
    fn process_foreign_completions(&self, now: Nanos) -> Progress {
        self.registration.foreign.any.store(false, Ordering::Relaxed);
        let left = std::mem::take(&mut *self.registration.foreign.left.lock());
        for (context, mut result) in left {
            self.completed(now, &mut Some(context), &mut result);
        }
        Progress::Some
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ContextKind, Output};
    use crate::registry::Registry;
    use crate::volume::{BudgetOptions, CLASSES, OpenError, VolumeOptions};
    use std::time::Duration;
    use zonal_core::ZoneIndex;

    #[test]
    fn device_has_one_volume_at_a_time() {
        let device = Registry::default().open("null:size=64M,zone_size=1M,zone_max_open=4").unwrap();
        let open = || Volume::open(device.clone(), VolumeOptions::default());
        let first = open().unwrap();
        let error = open().err().unwrap();
        assert!(matches!(&error, OpenError::InUse { .. }), "{error}");
        drop(first);
        assert!(open().is_ok());
        // A failed opening does not block the next one.
        let budget = BudgetOptions::default().with_minimums([2; CLASSES]);
        let too_much = VolumeOptions::default().with_budget(budget);
        let error = Volume::open(device.clone(), too_much).err().unwrap();
        assert!(matches!(&error, OpenError::Budget { .. }), "{error}");
        assert!(open().is_ok());
    }

    /// The direct user took the completion after the device's wakeup for it.
    #[test]
    fn completion_left_for_a_volume_wakes_its_sleeper() {
        const LONG: Duration = Duration::from_secs(20);
        let device = Registry::default().open("null:size=64M,zone_size=1M,complete=poll").unwrap();
        let volume = Volume::open(device, VolumeOptions::default()).unwrap();
        let mut news = volume.news().unwrap();
        news.arm();
        let context = Context(ContextKind::Resync(ZoneIndex(0), 0));
        leave(&**volume.device(), context, Ok(Output::Done));
        let (sender, woken) = std::sync::mpsc::channel();
        std::thread::scope(|s| {
            s.spawn(|| {
                news.sleep(2 * LONG);
                volume.wait(2 * LONG);
                sender.send(()).expect("the test waits");
            });
            assert_eq!(woken.recv_timeout(LONG), Ok(()), "neither the descriptor nor the volume knows of it");
        });
        assert!(volume.has_foreign_completions());
    }
}
