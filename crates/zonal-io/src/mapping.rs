//! Shared mappings of files that others may truncate.
//!
//! Accessing a page beyond the end of the file raises SIGBUS, which ends the process. Files shared
//! with other processes may shrink at any time: guest memory without seals, or an image that
//! somebody truncates. A [`SharedMapping`] survives that. The SIGBUS handler looks up the address
//! in a table of these mappings, replaces the whole mapping by zero pages, marks it
//! [lost](SharedMapping::is_lost), and returns. The access is then repeated and reads zeroes. The
//! owner checks the mark before relying on anything read from or written to the mapping.
//!
//! # Why a handler
//! Checking the file's length before each access races with truncation. Copying with a system call
//! (`process_vm_readv`), which would return EFAULT, costs one call for each index of a ring and
//! does not help a drive that reads payload directly. Only memory files can be sealed, and only if
//! their creator allows it.
//!
//! # Restrictions of the handler
//! It interrupts the thread that made the access. It takes no lock and allocates nothing; it reads
//! atomics and calls `mmap`, `sigaction` and `raise`. The faulting thread holds the mapping, so its
//! slot cannot change meanwhile. A slot that does change belongs to another mapping and is skipped.
//!
//! For any other SIGBUS, the handler restores the action that was installed before it and raises
//! the signal again.
//!
//! # Buffers of system calls
//! Accesses by the kernel raise no signal: a call with such a buffer returns EFAULT, which fails a
//! single command.

use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::os::fd::AsFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

/// Shared mapping of a range of a file, unmapped on drop. See the module.
#[derive(Debug)]
pub struct SharedMapping {
    base: NonNull<u8>,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: a mapping is plain memory of the process. Access to it is the owner's concern.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `len` bytes of `file` from `offset` for reading and writing. Both are multiples of the
    /// file's page size.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn new(file: impl AsFd, offset: u64, len: usize) -> Result<SharedMapping, Errno> {
        install_handler()?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address chosen by the kernel.
        let base = unsafe { mmap(null_mut(), len, access, MapFlags::SHARED, file, offset) }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let slot = FREE.lock().pop().unwrap_or_else(Slot::add);
        slot.set(base.as_ptr().addr(), len);
        Ok(SharedMapping { base, len, slot })
    }

    /// Address of the first byte.
    #[inline]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a mapping is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// True once an access has found the file shorter than the mapping. From then on the mapping
    /// consists of private zero pages.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.slot.is_lost.load(Ordering::Relaxed)
    }

    /// Excludes the mapping from child processes.
    pub fn hide_from_children(&self) {
        // SAFETY: the range is mapped.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxDontFork) };
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // In this order: once unmapped, the addresses may be reused by another mapping.
        self.slot.set(0, 0);
        FREE.lock().push(self.slot);
        // SAFETY: mapped by `new` with this length, or by the handler, and nothing refers to it any more.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

/// True if any mapping was ever lost. Until then no mapping has to be checked.
#[inline]
pub fn is_any_lost() -> bool {
    IS_ANY_LOST.load(Ordering::Relaxed)
}

/// Entry of the table of mappings. It is reused but never freed, because the handler may read it at
/// any time.
#[derive(Debug)]
struct Slot {
    next: *const Slot,
    /// Odd while the slot changes.
    version: AtomicUsize,
    start: AtomicUsize,
    len: AtomicUsize,
    is_lost: AtomicBool,
}

// SAFETY: `next` never changes once the slot is in the table, and slots are never freed.
unsafe impl Sync for Slot {}
// SAFETY: as above.
unsafe impl Send for Slot {}

static FIRST: AtomicPtr<Slot> = AtomicPtr::new(null_mut());
static FREE: Mutex<Vec<&'static Slot>> = Mutex::new(Vec::new());
static IS_ANY_LOST: AtomicBool = AtomicBool::new(false);

impl Slot {
    /// Adds a slot to the table.
    fn add() -> &'static Slot {
        let slot = Box::leak(Box::new(Slot {
            next: null(),
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }));
        loop {
            let first = FIRST.load(Ordering::Acquire);
            slot.next = first;
            if FIRST.compare_exchange(first, slot, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return slot;
            }
        }
    }

    /// Assigns the slot to another mapping. Only its owner calls this.
    fn set(&self, start: usize, len: usize) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.is_lost.store(false, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Range of the mapping, or `None` if the slot is changing.
    fn range(&self) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
        is_whole.then_some((start, len))
    }

    /// Replaces the mapping by zero pages. The mapping stays alive meanwhile, because the caller is
    /// in the middle of accessing it. Returns false if the kernel refuses.
    fn replace(&self) -> bool {
        let (start, len) = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        // Set before the pages are replaced, so a thread that reads zero pages also sees the mark.
        self.is_lost.store(true, Ordering::SeqCst);
        IS_ANY_LOST.store(true, Ordering::SeqCst);
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the range is a mapping in this table, which its owner accesses only through raw
        // pointers and atomics.
        unsafe { mmap_anonymous(std::ptr::with_exposed_provenance_mut(start), len, access, flags) }.is_ok()
    }
}

/// Finds the slot of the mapping that contains `address`.
fn find(address: usize) -> Option<&'static Slot> {
    let mut place = FIRST.load(Ordering::Acquire).cast_const();
    // SAFETY: slots are never freed.
    while let Some(slot) = unsafe { place.as_ref() } {
        if slot.range().is_some_and(|(start, len)| address.wrapping_sub(start) < len) {
            return Some(slot);
        }
        place = slot.next;
    }
    None
}

/// SIGBUS action before the handler was installed. The standard library's action reports stack
/// overflows.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

/// Installs the handler, once per process.
fn install_handler() -> Result<(), Errno> {
    static INSTALLED: OnceLock<Result<(), Errno>> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: all-zero bytes are a valid value of the structure, and the pointers are local to
        // this function.
        unsafe {
            let mut previous: libc::sigaction = std::mem::zeroed();
            checked(libc::sigaction(libc::SIGBUS, null(), &raw mut previous))?;
            PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            checked(libc::sigaction(libc::SIGBUS, &raw const action, null_mut()))
        }
    })
}

fn checked(returned: libc::c_int) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        _ => {
            Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::INVAL, Errno::from_raw_os_error))
        }
    }
}

/// Handler of SIGBUS. See the module.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's pointer is valid while the handler runs, and this code implies an
    // address.
    let address = unsafe { ((*info).si_code == libc::BUS_ADRERR).then(|| (*info).si_addr().addr()) };
    // If another thread has replaced the mapping since the access, repeating the access is enough;
    // replacing it again does no harm.
    if address.and_then(find).is_some_and(Slot::replace) {
        return;
    }
    // SAFETY: the pointer was set before the handler was installed and is never freed. Both calls
    // are async-signal-safe.
    unsafe {
        libc::sigaction(signal, PREVIOUS.load(Ordering::Acquire), null_mut());
        libc::raise(signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::sync::atomic::AtomicU64;

    const PAGE: usize = 4096;

    fn file(pages: usize) -> std::fs::File {
        let file = tempfile::tempfile().unwrap();
        file.set_len((pages * PAGE) as u64).unwrap();
        file
    }

    fn word(mapping: &SharedMapping, page: usize) -> &AtomicU64 {
        assert!(page * PAGE < mapping.len());
        // SAFETY: inside the mapping, aligned, and accessed only as an atomic.
        unsafe { mapping.base().add(page * PAGE).cast::<AtomicU64>().as_ref() }
    }

    #[test]
    fn access_to_a_truncated_file_finds_zeroes_and_marks_that_mapping_alone() {
        let (short, whole) = (file(4), file(4));
        let [lost, kept] = [&short, &whole].map(|file| SharedMapping::new(file, 0, 4 * PAGE).unwrap());
        word(&lost, 0).store(7, Ordering::Relaxed);
        word(&kept, 3).store(8, Ordering::Relaxed);
        short.set_len(PAGE as u64).unwrap();
        // A page that still exists does not mark the mapping.
        assert_eq!((word(&lost, 0).load(Ordering::Relaxed), lost.is_lost()), (7, false));
        assert_eq!((word(&lost, 3).load(Ordering::Relaxed), lost.is_lost()), (0, true));
        word(&lost, 2).store(9, Ordering::Relaxed);
        assert_eq!((word(&lost, 2).load(Ordering::Relaxed), kept.is_lost()), (9, false));
        assert_eq!(word(&kept, 3).load(Ordering::Relaxed), 8);
        assert!(is_any_lost());
    }

    #[test]
    fn slot_of_a_dropped_mapping_is_used_again_and_forgets_the_loss() {
        let short = file(1);
        let lost = SharedMapping::new(&short, 0, PAGE).unwrap();
        short.set_len(0).unwrap();
        word(&lost, 0).store(1, Ordering::Relaxed);
        assert!(lost.is_lost());
        let slot: *const Slot = lost.slot;
        drop(lost);
        let whole = file(1);
        let next: Vec<_> = (0..64).map(|_| SharedMapping::new(&whole, 0, PAGE).unwrap()).collect();
        assert!(next.iter().all(|mapping| !mapping.is_lost()));
        assert!(
            next.iter().any(|mapping| std::ptr::eq(mapping.slot, slot)),
            "a slot for each mapping ever made"
        );
    }

    /// The test runs itself as the child process that is killed.
    #[test]
    fn bus_error_in_a_mapping_of_another_kind_still_ends_the_process() {
        const CHILD: &str = "ZONAL_TEST_BUS_ERROR";
        if std::env::var_os(CHILD).is_none() {
            let name = "mapping::tests::bus_error_in_a_mapping_of_another_kind_still_ends_the_process";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let end = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
            assert_eq!(end.status.signal(), Some(libc::SIGBUS), "{end:?}");
            return;
        }
        let short = file(1);
        let _mapping = SharedMapping::new(&short, 0, PAGE).unwrap();
        // SAFETY: a new mapping beyond the end of the file, at an address chosen by the kernel. The
        // read is meant to fault.
        unsafe {
            let at = mmap(null_mut(), PAGE, ProtFlags::READ, MapFlags::SHARED, &short, PAGE as u64);
            at.unwrap().cast::<u8>().read_volatile();
        }
    }
}
