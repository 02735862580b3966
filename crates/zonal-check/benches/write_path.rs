//! `cargo bench -p zonal-check [-- --quick] [-- --only PART] [-- --json FILE]`: speed and memory of
//! the write path, as tables.

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use zonal_check::bench::{Effort, run};

/// System allocator that counts allocated bytes.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --benches` passes --test: only check that it runs.
    let tiny = args.iter().any(|a| a == "--quick" || a == "--test");
    let effort = if tiny { Effort::TINY } else { Effort::FULL };
    let only = args.iter().position(|a| a == "--only").and_then(|i| args.get(i + 1)).map(String::as_str);
    let report = run(effort, Some(|| ALLOCATED.load(Ordering::Relaxed)), only);
    print!("{}", report.to_text());
    if let Some(path) = args.iter().position(|a| a == "--json").and_then(|i| args.get(i + 1))
        && let Err(e) = std::fs::write(path, format!("{:#}\n", report.to_json()))
    {
        eprintln!("{path}: {e}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
