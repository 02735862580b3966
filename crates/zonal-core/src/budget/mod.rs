//! Zone budget: enforces the open and active limits of a drive by slots, which zones wait for in a
//! fair order.
//!
//! A drive with limits rejects a write that would open one zone too many. The budget tracks the
//! zones that hold slots, so that the write waits instead, or another zone makes room. It owns the
//! holders and the waiters, but no writes, no clock and no zone conditions: the caller reports
//! every change of a zone. Memory is used only for zones that hold a slot or wait for one, and each
//! call takes logarithmic time in their number. A drive without limits needs no budget.
//!
//! # Calling protocol
//! Call [`Budget::acquire`] before writing a zone that has no write in flight. If the slots are
//! granted, start the write with [`Budget::write_started`], or give it up with [`Budget::cancel`].
//! A zone is safe from being closed only while one of its writes has started and not ended, not
//! while its writes merely wait in a queue. Report every change of a condition with
//! [`Budget::set_condition`]. After each of these calls, apply [`Budget::next`] until it returns
//! `None`. Call [`Budget::expire`] from time to time, after writers notified of completions have
//! had a chance to continue. A caller that cannot report each write calls [`Budget::observe`]
//! instead, for all zones that hold slots, before acquiring a slot and before applying the next
//! action.
//!
//! # Order
//! - Between classes, a slot open to several of them goes to the zone that arrived first. Slots
//!   reserved for the minimum of a class are not available to others.
//! - Within a class the order is strict, with one exception: a closed zone already holds an active
//!   slot, so it may overtake empty zones that lack one. Each empty zone is overtaken in this way
//!   at most once.
//!
//! # Why a wait can fail
//! A slot becomes free when a zone is filled, reset, finished or closed. If no zone that could free
//! one has a write in flight, none is being closed or finished, and the policy finds no victim, a
//! zone in line would wait forever. Its wait fails with the list of zones that hold the slots.
//!
//! # Invariants
//! - A zone is written only while it holds an open slot and an active one.
//! - A grant never exceeds the limits and never uses a slot reserved for the minimum of another
//!   class.
//! - A zone in line is served as soon as its slots are free and the order allows it.
//! - A victim has no write, no waiter, and was not opened by a command.
//!
//! ```
//! use zonal_core::budget::{Acquired, Budget, WriterClass, Fill, Options, BudgetStep};
//! use zonal_core::device::Limits;
//! use zonal_core::{Nanos, ZoneCondition, ZoneIndex};
//!
//! let limits = Limits { open_max: 1, active_max: 0 };
//! let mut budget = Budget::new(limits, Options::default()).unwrap();
//! let (a, b) = (ZoneIndex(0), ZoneIndex(1));
//! assert_eq!(budget.acquire(a, WriterClass(0), Nanos(0)), Acquired::Granted);
//! budget.write_started(a);
//! assert_eq!(budget.acquire(b, WriterClass(0), Nanos(0)), Acquired::Wait);
//! let full = Fill { written: 64, capacity: 64 };
//! budget.write_ended(a, full);
//! budget.set_condition(a, ZoneCondition::Full, full);
//! assert_eq!(budget.next(), Some(BudgetStep::Wake(b)));
//! budget.write_started(b);
//! budget.write_ended(b, Fill { written: 8, capacity: 64 });
//! // Nothing is under way that could fill zone 1.
//! let Acquired::Fail(refusal) = budget.acquire(a, WriterClass(0), Nanos(1)) else { panic!() };
//! assert_eq!(refusal.holders, [b]);
//! ```

mod holders;
mod holding;
mod ledger;
mod observe;
mod options;
mod slots;
mod victims;
mod waiters;

pub use holders::Holders;
pub use ledger::{Acquired, Budget, BudgetStep, Holder, Waiting};
pub use observe::Activity;
pub use options::{BudgetError, Fill, Options, Policy, Refusal, WriterClass};

#[cfg(test)]
mod tests;
