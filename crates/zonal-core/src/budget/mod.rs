//! Zone budget: the open and active limits of a drive as slots that zones wait for, fairly.
//!
//! A drive with limits refuses a write that would open one zone too many. A budget knows which zones hold slots, so that
//! the write waits instead, or room is made for it. Owns who holds and who waits. Owns no write, no clock and no zone's
//! condition: the caller says what became of a zone. It keeps memory only for zones that hold a slot or wait for one, and
//! takes time in the logarithm of their number. A drive without limits needs no budget.
//!
//! # How it is driven
//! Before a zone is written that has no write under way: [`Budget::acquire`]. If that is granted, the write is started
//! with [`Budget::write_started`] or given up with [`Budget::cancel`]. A zone whose write waits in a queue of its own is
//! only safe from being closed while one of its writes has started and not ended. When a condition changes,
//! [`Budget::became`]. After each of these calls apply [`Budget::next`] until it has nothing more. Now and then call
//! [`Budget::expire`], once the writers that were told of completions had the opportunity to continue. A caller that
//! cannot report each write says by [`Budget::observe`] what it sees of the zones that hold slots, before it asks and
//! before it applies what is next.
//!
//! # Order
//! - Between classes of writers, a slot that both may take goes to who came first; slots kept for a class's minimum are
//!   not there for others.
//! - Within a class order is strict but for one thing: a closed zone holds an active slot already, so it may go before
//!   empty zones that lack one. Each of them is passed like that once at most.
//!
//! # Why a wait can fail
//! A slot becomes free when a zone is filled, reset, finished or closed. If no zone that could free one has a write under
//! way, none is being closed or finished, and the policy finds none that may be, then a zone in line would wait for
//! something that nothing under way can bring. That wait fails, and names the zones that would have to go.
//!
//! # Invariants
//! - A zone is written only while it holds an open slot and an active one.
//! - What is held never exceeds the limits by what a budget grants, nor does a grant take what another class's minimum
//!   keeps.
//! - A zone in line is served as soon as there is what it needs and order allows it.
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
//! budget.became(a, ZoneCondition::Full, full);
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
pub use observe::Seen;
pub use options::{BudgetError, Fill, Options, Policy, Refusal, WriterClass};

#[cfg(test)]
mod tests;
