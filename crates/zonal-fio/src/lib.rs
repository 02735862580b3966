//! C interface for an I/O engine of fio: devices by name, and one lane of requests a job and device.
//!
//! The engine itself, `fio/engine.c`, is compiled against fio's headers and under fio's licence. This crate knows nothing
//! of fio: it offers what such an engine needs, in plain C types, and stays under the licence of the other crates. The
//! functions and structures are declared in `fio/zonal_fio.h`; a change to one needs the same change to the other.
//!
//! # Threads
//! A [`Device`] may be used by any thread. A [`Job`] and its lanes belong to the thread that made the job: requests that
//! end on another thread are brought to it (see `inbox`).
//!
//! # Errors
//! Functions return 0 or a count, or an error number of the operating system made negative. A panic ends the process with
//! a message, as it does at the edge of every `extern "C"` function.

mod clock;
mod inbox;
mod job;
mod shared;

pub use inbox::FioEvent;
pub use job::{Job, Lane};

use inbox::Left;
use job::Io;
use rustix::io::Errno;
use shared::Shared;
use std::ffi::{CStr, c_char, c_int};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use zonal_core::{Op, SECTOR_BYTES, Sector, ZoneDescriptor};

/// A device that jobs share, and one user's part in keeping it open.
pub struct Device(Arc<Shared>);

/// What a device is. The same as `struct zonal_fio_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Bytes in all.
    pub size: u64,
    /// Bytes of a logical block.
    pub block_size: u32,
    /// Largest number of open zones, or 0.
    pub open_max: u32,
}

/// A zone. The same as `struct zonal_fio_zone`; all lengths and places in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Next byte to be written; the zone's end where there is none.
    pub write_pointer: u64,
    /// From this zone's start to the next one's.
    pub size: u64,
    /// What can be written.
    pub capacity: u64,
    /// As Linux and fio number them.
    pub kind: u32,
    /// As Linux and fio number them.
    pub condition: u32,
}

const _: () = assert!(size_of::<Info>() == 16 && size_of::<Zone>() == 40 && size_of::<FioEvent>() == 16);

/// Opens the device `name` with the write mode `mode` (null: what suits it) and the `options` of its volume (null: none), as
/// in `window=16 merge=no`, or takes part in it if it is open. Returns
/// null and leaves a sentence in `message`, of at most `message_len` bytes, if that does not succeed.
///
/// # Safety
/// `name` and, unless null, `mode` and `options` are C strings; `message` has room for `message_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_open(
    name: *const c_char,
    mode: *const c_char,
    options: *const c_char,
    message: *mut c_char,
    message_len: usize,
) -> *mut Device {
    // SAFETY: the caller's promise.
    let (name, mode, options) = unsafe { (text(name), text(mode), text(options)) };
    match name.and_then(|name| shared::open(name, mode?, options?)) {
        Ok(shared) => Box::into_raw(Box::new(Device(shared))),
        Err(error) => {
            // SAFETY: the caller's promise.
            unsafe { leave_message(&error, message, message_len) };
            std::ptr::null_mut()
        }
    }
}

/// The text of a C string; null is empty.
///
/// # Safety
/// `from` is null or a C string that outlives the result.
unsafe fn text<'a>(from: *const c_char) -> Result<&'a str, String> {
    if from.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| "a name that is not UTF-8".to_owned())
}

/// Copies as much of `text` as there is room for, and a zero.
///
/// # Safety
/// `to` has room for `room` bytes.
unsafe fn leave_message(text: &str, to: *mut c_char, room: usize) {
    let Some(len) = room.checked_sub(1) else { return };
    let len = text.floor_char_boundary(len.min(text.len()));
    // SAFETY: `len` bytes and the zero fit by the caller's promise, and two buffers of two owners do not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), len);
        to.add(len).write(0);
    }
}

/// Refuses a device with a file system or a partition table, for a job that writes to it: returns a negative error number and leaves a
/// sentence in `message`, of at most `message_len` bytes. 0 if there is none, or if there was none before the first job wrote.
///
/// # Safety
/// `device` is open; `message` has room for `message_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_check(
    device: *const Device,
    message: *mut c_char,
    message_len: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*device }.0.check() {
        Ok(()) => 0,
        Err(owned) => {
            // SAFETY: the caller's promise.
            unsafe { leave_message(&owned.to_string(), message, message_len) };
            -Errno::BUSY.raw_os_error()
        }
    }
}

/// Ends one user's part in a device; the last closes it.
///
/// # Safety
/// `device` comes from [`zonal_fio_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_close(device: *mut Device) {
    // SAFETY: the caller's promise: the box is ours again.
    drop(unsafe { Box::from_raw(device) });
}

/// What `device` is.
///
/// # Safety
/// `device` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_info(device: *const Device) -> Info {
    // SAFETY: the caller's promise.
    let info = unsafe { &*device }.0.volume.info();
    Info {
        size: info.geometry.sectors().bytes(),
        block_size: info.block_sectors * SECTOR_BYTES as u32,
        open_max: info.open_max,
    }
}

/// Describes up to `max` zones from the zone of byte `offset` on; how many, or an error number made negative.
///
/// # Safety
/// `device` is open, and `zones` has room for `max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_report(
    device: *const Device,
    offset: u64,
    zones: *mut Zone,
    max: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let shared = unsafe { &*device };
    match shared.0.report(offset, max) {
        Ok(found) => {
            for (n, zone) in found.iter().enumerate() {
                // SAFETY: no more than `max` were asked for, and the caller has room for as many.
                unsafe { zones.add(n).write(Zone::from(zone)) };
            }
            found.len() as c_int
        }
        Err(number) => -number,
    }
}

impl From<&ZoneDescriptor> for Zone {
    fn from(zone: &ZoneDescriptor) -> Zone {
        let end = zone.start + zone.size;
        Zone {
            start: zone.start.bytes(),
            write_pointer: zone.write_pointer.map_or(end, |sector: Sector| sector).bytes(),
            size: zone.size.bytes(),
            capacity: zone.capacity.bytes(),
            kind: zone.zone_type as u32,
            condition: zone.condition as u32,
        }
    }
}

/// Resets the sequential zones that begin in `length` bytes from `offset`, and waits until that is done. Returns 0 or an
/// error number made negative.
///
/// # Safety
/// `device` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_reset(device: *const Device, offset: u64, length: u64) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { &*device }.0.reset(offset, length) {
        Ok(()) => 0,
        Err(number) => -number,
    }
}

/// A job of the calling thread, with at most `depth` requests at a time.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_fio_job_new(depth: u32) -> *mut Job {
    Box::into_raw(Box::new(Job::new(depth as usize)))
}

/// Ends a job and its lanes, after waiting for its requests.
///
/// # Safety
/// `job` comes from [`zonal_fio_job_new`], on the same thread; neither it nor its lanes are used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_job_free(job: *mut Job) {
    // SAFETY: the caller's promise: the box is ours again.
    drop(unsafe { Box::from_raw(job) });
}

/// A lane of `job` to `device`; it lives until the job is freed.
///
/// # Safety
/// Both are open, and the thread is the job's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_lane_new(job: *mut Job, device: *const Device) -> *const Lane {
    // SAFETY: the caller's promise.
    let (job, device) = unsafe { (&mut *job, &*device) };
    Rc::as_ptr(job.lane(device.0.clone()))
}

/// [`zonal_fio_queue`]: read into the buffer.
pub const READ: c_int = 0;
/// [`zonal_fio_queue`]: write the buffer.
pub const WRITE: c_int = 1;
/// [`zonal_fio_queue`]: make durable what was acknowledged; has no place, length or buffer.
pub const FLUSH: c_int = 2;

/// [`zonal_fio_queue`]: the request will end with an event.
pub const QUEUED: c_int = 1;

/// Submits a request: `op` is [`READ`], [`WRITE`] or [`FLUSH`], of `len` bytes at byte `offset`, from or to `data`.
///
/// Returns [`QUEUED`], or 0 or an error number made negative if the request has ended already. `token` is not zero, and
/// not that of another request under way.
///
/// # Safety
/// The thread is the job's; until the request ends, `data` is valid for `len` bytes and no other code uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_queue(
    lane: *const Lane,
    op: c_int,
    offset: u64,
    data: *mut u8,
    len: u64,
    token: u64,
) -> c_int {
    let op = match op {
        READ => Op::Read,
        WRITE => Op::Write,
        _ => Op::Flush,
    };
    let data = NonNull::new(data).unwrap_or(NonNull::dangling());
    // SAFETY: the caller's promise.
    match unsafe { (*lane).submit(&Io { op, offset, len, data }, token) } {
        Left::Queued => QUEUED,
        Left::Ended(number) => -number,
    }
}

/// Waits for at least `min` events, no longer than `timeout` nanoseconds, and moves up to `max` to `events`; how many.
/// With a `min` of 0, looks once. A time-out of `u64::MAX` is none.
///
/// # Safety
/// The thread is the job's, and `events` has room for `max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_events(
    job: *mut Job,
    min: u32,
    max: u32,
    timeout: u64,
    events: *mut FioEvent,
) -> c_int {
    // SAFETY: the caller's promise; an event has no byte that could be wrong.
    let (job, events) = unsafe { (&mut *job, std::slice::from_raw_parts_mut(events, max as usize)) };
    let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
    job.events(min as usize, timeout, events) as c_int
}

#[cfg(test)]
mod tests;
