//! Atomics that a canary can break.

use super::{Canary, Ordering, checker, is_broken, pause};
use std::ops::Deref;

macro_rules! atomics {
    ($($name:ident $value:ty,)*) => {$(
        /// The checker's, but for canaries.
        #[derive(Default, Debug)]
        pub struct $name(checker::sync::atomic::$name);

        impl $name {
            /// With `value`.
            pub fn new(value: $value) -> $name {
                $name(checker::sync::atomic::$name::new(value))
            }

            /// As std's.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, if is_broken(Canary::Relaxed) { Ordering::Relaxed } else { order });
            }

            /// As std's.
            ///
            /// # Errors
            /// The value that is there.
            #[track_caller]
            pub fn compare_exchange(
                &self,
                old: $value,
                new: $value,
                done: Ordering,
                not: Ordering,
            ) -> Result<$value, $value> {
                if !is_broken(Canary::Exchange) {
                    return self.0.compare_exchange(old, new, done, not);
                }
                let seen = self.0.load(not);
                if seen != old {
                    return Err(seen);
                }
                pause();
                self.0.store(new, done_store(done));
                Ok(seen)
            }
        }

        impl Deref for $name {
            type Target = checker::sync::atomic::$name;
            fn deref(&self) -> &Self::Target {
                &self.0
            }
        }
    )*};
}

atomics! {
    AtomicBool bool,
    AtomicU64 u64,
}

/// What a store may be ordered as.
fn done_store(order: Ordering) -> Ordering {
    match order {
        Ordering::Acquire => Ordering::Relaxed,
        Ordering::AcqRel => Ordering::Release,
        order => order,
    }
}
