//! Work shared by all processors. Simulated drives run in virtual time, so concurrent runs do not
//! disturb each other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Applies `of` to each item, and returns the results in their order.
///
/// # Errors
/// The first error in the order of the items.
pub(super) fn map<T: Sync, R: Send>(
    items: &[T],
    of: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let work = || {
        while let Some((at, item)) = take(items, &next) {
            let result = of(item);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    items.get(at).map(|item| (at, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_item_order_and_the_first_error_is_returned() {
        let items: Vec<u32> = (0..100).collect();
        let doubled = map(&items, |n| Ok(2 * n)).unwrap();
        assert!(doubled.iter().enumerate().all(|(at, n)| *n == 2 * at as u32));
        let error = map(&items, |n| if n % 40 == 39 { Err(n.to_string()) } else { Ok(()) });
        assert_eq!(error.unwrap_err(), "39");
    }
}
