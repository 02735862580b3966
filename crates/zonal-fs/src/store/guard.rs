//! What the database does with bytes that it cannot believe.
//!
//! redb verifies pages only on request. Where damaged pages contradict each other while it opens, it panics. Here that is
//! an error like any other, and the panic prints nothing.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Panics of this thread are expected: the code that catches them reports them.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// What `open` gives, or nothing if it panicked.
pub(super) fn guarded<R>(open: impl FnOnce() -> R) -> Option<R> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                usual(panic);
            }
        }));
    });
    IS_QUIET.set(true);
    let opened = panic::catch_unwind(AssertUnwindSafe(open));
    IS_QUIET.set(false);
    opened.ok()
}

#[cfg(test)]
mod tests {
    use super::guarded;

    #[test]
    fn guarded_returns_none_on_panic_and_the_value_otherwise() {
        assert_eq!(guarded(|| 3), Some(3));
        assert_eq!(guarded(|| -> u32 { panic!("of which nothing is seen") }), None);
        assert_eq!(guarded(|| 4), Some(4));
    }
}
