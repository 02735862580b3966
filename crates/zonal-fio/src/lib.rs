//! C interface for an I/O engine of fio: devices by name, and a lane of requests for each job and
//! device.
//!
//! The engine itself, `fio/engine.c`, is compiled with fio's headers and under fio's licence. This
//! crate does not depend on fio: it provides the functions that such an engine needs, with plain C
//! types, and has the same licence as the other crates. The functions and structures are declared
//! in `fio/zonal_fio.h`, which must be changed together with this file.
//!
//! # Threads
//! A [`Device`] may be used on any thread. A [`Job`] and its lanes belong to the thread that
//! created the job; completions on other threads are forwarded to it (see `inbox`).
//!
//! # Errors
//! Functions return 0 or a count, or a negated error number of the operating system. A panic aborts
//! the process with a message, as always at the boundary of an `extern "C"` function.

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

/// A device shared by jobs, with one user's reference to it.
pub struct Device(Arc<Shared>);

/// Properties of a device. Layout of `struct zonal_fio_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Info {
    /// Size in bytes.
    pub size: u64,
    /// Logical block size in bytes.
    pub block_size: u32,
    /// Maximum number of open zones, or 0.
    pub open_max: u32,
}

/// A zone. Layout of `struct zonal_fio_zone`; all positions and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Write pointer, or the zone's end if it has none.
    pub write_pointer: u64,
    /// Distance to the next zone's start.
    pub size: u64,
    /// Writable part.
    pub capacity: u64,
    /// Type, in the numbering of Linux and fio.
    pub kind: u32,
    /// Condition, in the numbering of Linux and fio.
    pub condition: u32,
}

const _: () = assert!(size_of::<Info>() == 16 && size_of::<Zone>() == 40 && size_of::<FioEvent>() == 16);

/// Opens the device `name`, or adds a user if it is already open. `mode` is its write mode (null:
/// the default for the device), and `options` are those of its volume, as in `window=16 merge=no`
/// (null: none). On failure, returns null and stores a text in `message`, of at most `message_len`
/// bytes.
///
/// # Safety
/// `name` and, unless null, `mode` and `options` are C strings; `message` has room for
/// `message_len` bytes.
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

/// Text of a C string; empty for null.
///
/// # Safety
/// `from` is null or a C string that outlives the result.
unsafe fn text<'a>(from: *const c_char) -> Result<&'a str, String> {
    if from.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(from) }.to_str().map_err(|_| "invalid argument: not UTF-8".to_owned())
}

/// Copies as much of `text` as fits, with a terminating zero.
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

/// Refuses a device with a file system or a partition table, before a job writes to it. Returns a
/// negated error number and stores a text in `message`, of at most `message_len` bytes. Returns 0
/// if there is none, or if there was none before the first job wrote.
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

/// Removes one user of a device. The last one closes it.
///
/// # Safety
/// `device` was returned by [`zonal_fio_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_close(device: *mut Device) {
    // SAFETY: the caller's promise; the box is ours again.
    drop(unsafe { Box::from_raw(device) });
}

/// Returns the properties of `device`.
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

/// Reports up to `max` zones, starting with the zone of byte `offset`. Returns their number, or a
/// negated error number.
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
                // SAFETY: at most `max` zones were requested, and the caller has room for them.
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

/// Resets the sequential zones that start within `length` bytes from `offset`, and waits for
/// completion. Returns 0 or a negated error number.
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

/// Creates a job of the calling thread with at most `depth` requests in flight.
#[unsafe(no_mangle)]
pub extern "C" fn zonal_fio_job_new(depth: u32) -> *mut Job {
    Box::into_raw(Box::new(Job::new(depth as usize)))
}

/// Frees a job and its lanes, after waiting for its requests.
///
/// # Safety
/// `job` was returned by [`zonal_fio_job_new`] on this thread; neither it nor its lanes are used
/// again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_job_free(job: *mut Job) {
    // SAFETY: the caller's promise; the box is ours again.
    drop(unsafe { Box::from_raw(job) });
}

/// Creates a lane from `job` to `device`. It lives until the job is freed.
///
/// # Safety
/// Both are open, and this is the thread of the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_lane_new(job: *mut Job, device: *const Device) -> *const Lane {
    // SAFETY: the caller's promise.
    let (job, device) = unsafe { (&mut *job, &*device) };
    Rc::as_ptr(job.lane(device.0.clone()))
}

/// [`zonal_fio_queue`]: reads into the buffer.
pub const READ: c_int = 0;
/// [`zonal_fio_queue`]: writes the buffer.
pub const WRITE: c_int = 1;
/// [`zonal_fio_queue`]: makes acknowledged writes durable. Has no offset, length or buffer.
pub const FLUSH: c_int = 2;

/// [`zonal_fio_queue`]: the request will complete with an event.
pub const QUEUED: c_int = 1;

/// Submits a request: `op` is [`READ`], [`WRITE`] or [`FLUSH`], with `len` bytes at byte `offset`,
/// from or to `data`.
///
/// Returns [`QUEUED`], or 0 or a negated error number if the request has already completed. `token`
/// is neither zero nor that of another request in flight.
///
/// # Safety
/// This is the thread of the job; until the request completes, `data` is valid for `len` bytes and
/// no other code uses it.
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

/// Waits for at least `min` events, but no longer than `timeout` nanoseconds (`u64::MAX`: no
/// limit). Moves up to `max` events to `events` and returns their number. With a `min` of 0, checks
/// once.
///
/// # Safety
/// This is the thread of the job, and `events` has room for `max`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_fio_events(
    job: *mut Job,
    min: u32,
    max: u32,
    timeout: u64,
    events: *mut FioEvent,
) -> c_int {
    // SAFETY: the caller's promise; any bytes are a valid event.
    let (job, events) = unsafe { (&mut *job, std::slice::from_raw_parts_mut(events, max as usize)) };
    let timeout = (timeout != u64::MAX).then(|| Duration::from_nanos(timeout));
    job.events(min as usize, timeout, events) as c_int
}

#[cfg(test)]
mod tests;
