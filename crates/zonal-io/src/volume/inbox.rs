//! Inboxes: a thread collects its completions from one, instead of having a function called.
//!
//! Requests completed by the owner's thread are put on a list that only this thread accesses,
//! without a lock. Requests completed by other threads are put on a second list under a lock, and
//! the owner is woken if it sleeps (`ChannelInner::wake_owner`). No code of the caller runs inside
//! the volume: the owner takes as many completions as it likes, when it likes.

use super::Volume;
use super::channel::Channel;
use super::request::Completion;
use crate::buffer::IoBufs;
use crate::device::Output;
use crate::sync::{AtomicBool, Mutex, Ordering, Single, is_mine, thread_slot};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::mem;
use zonal_core::RequestError;
use zonal_core::budget::WriterClass;

/// Completions of an inbox's requests that were not yet taken.
pub(super) struct Mail {
    /// Thread that opened the inbox. No other living thread has this number.
    owner: usize,
    /// Completed by the owner. Accessed only by this thread: the inbox does not leave it, and the
    /// number passes to a later thread only after this one has ended.
    own: Single<VecDeque<Completion>>,
    has_others: AtomicBool,
    /// Completed by other threads.
    others: Mutex<Vec<Completion>>,
}

impl Mail {
    /// Creates the mail of the calling thread.
    pub(super) fn new() -> Mail {
        Mail {
            owner: thread_slot(),
            own: Single::default(),
            has_others: AtomicBool::new(false),
            others: Mutex::default(),
        }
    }

    /// Stores a completion for the owner. Takes its parts: see [`IoBuf`](crate::buffer::IoBuf) for
    /// the reason.
    #[inline]
    pub(super) fn put(&self, token: u64, result: Result<Output, RequestError>, buf: IoBufs) {
        match is_mine(self.owner) {
            // SAFETY: this is the owner's thread, and the list runs no other code.
            true => unsafe { self.own.with(|own| own.push_back(Completion { token, result, buf })) },
            false => self.put_remote(Completion { token, result, buf }),
        }
    }

    #[cold]
    fn put_remote(&self, completion: Completion) {
        self.others.lock().push(completion);
        self.has_others.store(true, Ordering::Release);
    }

    fn has_others(&self) -> bool {
        self.has_others.load(Ordering::Acquire)
    }

    /// # Safety
    /// Only on the owner's thread.
    #[inline]
    unsafe fn next(&self) -> Option<Completion> {
        if self.has_others() {
            // SAFETY: the caller's promise.
            unsafe { self.fetch() };
        }
        // SAFETY: as above.
        unsafe { self.own.with(VecDeque::pop_front) }
    }

    /// # Safety
    /// Only on the owner's thread.
    #[cold]
    unsafe fn fetch(&self) {
        let mut others = self.others.lock();
        self.has_others.store(false, Ordering::Relaxed);
        let fetched = mem::take(&mut *others);
        drop(others);
        // SAFETY: the caller's promise.
        unsafe { self.own.with(|own| own.extend(fetched)) };
    }

    /// # Safety
    /// Only on the owner's thread.
    unsafe fn is_empty(&self) -> bool {
        // SAFETY: the caller's promise.
        !self.has_others() && unsafe { self.own.with(|own| own.is_empty()) }
    }
}

/// Channel with completions that are collected by the thread that opened it.
///
/// ```
/// use zonal_core::{Nanos, Sector};
/// use zonal_io::buffer::IoBuf;
/// use zonal_io::registry::Registry;
/// use zonal_io::volume::{Request, Volume, VolumeOptions};
///
/// let device = Registry::default().open("ram:size=64M,zone_size=1M,complete=poll")?;
/// let volume = Volume::open(device, VolumeOptions::default())?;
/// let inbox = volume.inbox();
/// volume.submit(Nanos(0), inbox.channel(), Request::append(Sector(0), 8, IoBuf::zeroed(4096)).token(7));
/// volume.poll(Nanos(0));
/// assert_eq!(inbox.take().map(|end| end.token), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail,E0277
/// fn send(volume: &zonal_io::volume::Volume) {
///     let inbox = volume.inbox();
///     std::thread::scope(|s| drop(s.spawn(|| drop(inbox))));
/// }
/// ```
pub struct Inbox {
    channel: Channel,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl Volume {
    /// Opens an inbox for requests of the calling thread.
    pub fn inbox(&self) -> Inbox {
        Inbox::of(self.channels.open_inbox(None))
    }
}

impl Inbox {
    pub(super) fn of(channel: Channel) -> Inbox {
        Inbox { channel, stays_on_its_thread: PhantomData }
    }

    /// Channel to [submit](Volume::submit) with, and to [cancel](Volume::cancel).
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Assigns the inbox to a class of writers: see [`Channel::of_class`].
    ///
    /// # Panics
    /// If the class does not exist.
    pub fn of_class(self, class: WriterClass) -> Inbox {
        Inbox { channel: self.channel.of_class(class), ..self }
    }

    /// Returns the next completion, if any. Those delivered by one thread are in order.
    #[inline]
    pub fn take(&self) -> Option<Completion> {
        // SAFETY: an inbox does not leave its thread.
        let completion = unsafe { self.channel.mail().next() }?;
        Some(match self.channel.part() {
            Some(part) => part.outside(completion),
            None => completion,
        })
    }

    /// True if [`Inbox::take`] would return nothing. A thread checks this once more before it
    /// sleeps ([`Volume::wait_unless`]).
    pub fn is_empty(&self) -> bool {
        // SAFETY: as in `take`.
        unsafe { self.channel.mail().is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::IoBuf;
    use crate::registry::Registry;
    use crate::volume::{Request, VolumeOptions};
    use zonal_core::{Nanos, Sector};

    fn volume(completes: &str) -> Volume {
        let name = format!("ram:size=64M,zone_size=1M,complete={completes}");
        Volume::open(Registry::default().open(&name).unwrap(), VolumeOptions::default()).unwrap()
    }

    fn append(token: u64) -> Request {
        Request::append(Sector(0), 8, IoBuf::zeroed(4096)).token(token)
    }

    fn tokens(inbox: &Inbox) -> Vec<u64> {
        std::iter::from_fn(|| inbox.take()).map(|end| end.token).collect()
    }

    #[test]
    fn request_that_ends_inside_submit_is_in_the_inbox() {
        let volume = volume("inline");
        let inbox = volume.inbox();
        assert!(inbox.is_empty());
        volume.submit(Nanos(0), inbox.channel(), append(1));
        assert!(!inbox.is_empty());
        assert_eq!(tokens(&inbox), [1]);
    }

    /// More completions than one call delivers to functions.
    #[test]
    fn all_that_a_poll_reaps_is_in_the_inbox_in_order() {
        let volume = volume("poll");
        let inbox = volume.inbox();
        (0..200).for_each(|token| volume.submit(Nanos(0), inbox.channel(), append(token)));
        while volume.poll(Nanos(0)).is_some() {}
        assert_eq!(tokens(&inbox), (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn ends_on_another_thread_are_in_the_inbox() {
        let volume = volume("poll");
        let inbox = volume.inbox();
        (0..3).for_each(|token| volume.submit(Nanos(0), inbox.channel(), append(token)));
        std::thread::scope(|s| {
            s.spawn(|| while volume.poll(Nanos(0)).is_some() {});
        });
        assert!(!inbox.is_empty());
        assert_eq!(tokens(&inbox), [0, 1, 2]);
    }

    #[test]
    fn refusal_and_cancelled_request_are_in_the_inbox() {
        let volume = volume("poll");
        let inbox = volume.inbox();
        volume.submit(Nanos(0), inbox.channel(), Request::read(Sector(1 << 40), 8, IoBuf::zeroed(4096)));
        assert!(inbox.take().unwrap().result.is_err());
        for token in 0..2 {
            let write = Request::write(Sector(token * 8), 8, IoBuf::zeroed(4096)).token(token);
            volume.submit(Nanos(0), inbox.channel(), write);
        }
        volume.cancel(Nanos(0), inbox.channel());
        let cancelled = inbox.take().unwrap();
        assert_eq!((cancelled.token, cancelled.result), (1, Err(RequestError::Cancelled)));
        while volume.poll(Nanos(0)).is_some() {}
        assert_eq!(tokens(&inbox), [0]);
    }

    /// The request ends after the inbox is dropped, on a thread with the owner's number.
    #[test]
    fn inbox_dropped_early_leaves_its_buffers_to_the_volume() {
        let pool = crate::buffer::BufferPool::new(4096, 4);
        let volume = volume("poll");
        let buffer = pool.take();
        let address = buffer.as_ptr() as usize;
        std::thread::scope(|s| {
            s.spawn(|| {
                let inbox = volume.inbox();
                volume.submit(Nanos(0), inbox.channel(), Request::append(Sector(0), 8, buffer));
            });
        });
        std::thread::scope(|s| {
            s.spawn(|| while volume.poll(Nanos(0)).is_some() {});
        });
        drop(volume.inbox());
        assert_eq!(pool.take().as_ptr() as usize, address);
    }
}
