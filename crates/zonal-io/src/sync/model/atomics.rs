//! Atomics with injectable defects.

use super::{Canary, Ordering, checker, is_broken, pause};
use std::ops::Deref;

macro_rules! atomics {
    ($($name:ident $value:ty,)*) => {$(
        /// The checker's type, with injectable defects.
        #[derive(Default, Debug)]
        pub struct $name(checker::sync::atomic::$name);

        impl $name {
            /// Creates an atomic with `value`.
            pub fn new(value: $value) -> $name {
                $name(checker::sync::atomic::$name::new(value))
            }

            /// As in `std`.
            #[track_caller]
            pub fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, if is_broken(Canary::Relaxed) { Ordering::Relaxed } else { order });
            }

            /// As in `std`.
            ///
            /// # Errors
            /// The current value.
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

/// Valid ordering of a store for a read-modify-write ordering.
fn done_store(order: Ordering) -> Ordering {
    match order {
        Ordering::Acquire => Ordering::Relaxed,
        Ordering::AcqRel => Ordering::Release,
        order => order,
    }
}
