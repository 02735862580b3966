//! Zones that may be closed or finished to make room, least recently used first.

use super::holding::{Holding, Leaving};
use super::options::{Policy, WriterClass};
use super::slots::{MissingSlot, Slots};
use crate::units::ZoneIndex;
use std::collections::BTreeSet;

/// Zones in order of last use.
type Order = BTreeSet<(u64, ZoneIndex)>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Candidates {
    close: Order,
    finish_open: Order,
    finish_closed: Order,
}

/// Candidates of each class, as far as the policy can use them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Victims {
    policy: Policy,
    classes: Vec<Candidates>,
}

impl Victims {
    pub fn new(policy: Policy, classes: usize) -> Victims {
        Victims { policy, classes: vec![Candidates::default(); classes] }
    }

    pub fn add(&mut self, zone: ZoneIndex, holding: &Holding) {
        for order in self.orders(holding) {
            order.insert((holding.used, zone));
        }
    }

    pub fn remove(&mut self, zone: ZoneIndex, holding: &Holding) {
        for order in self.orders(holding) {
            order.remove(&(holding.used, zone));
        }
    }

    /// Sets that contain this zone.
    fn orders(&mut self, holding: &Holding) -> impl Iterator<Item = &mut Order> {
        let close = self.policy.may_close() && holding.may_close();
        let finish = self.policy == Policy::Finish && holding.may_finish();
        let open = holding.held == super::holding::Held::Open;
        let Candidates { close: closable, finish_open, finish_closed } =
            &mut self.classes[holding.class.index()];
        let finishable = if open { finish_open } else { finish_closed };
        [close.then_some(closable), finish.then_some(finishable)].into_iter().flatten()
    }

    /// Chooses a victim, and whether to close or finish it, to free the slot that `class` lacks.
    ///
    /// To free an open slot, a zone is closed if possible. An active slot is freed only by a
    /// finish, preferably of a closed zone, because an open one may be in use again soon.
    pub fn choose(
        &self,
        slots: &Slots,
        class: WriterClass,
        missing: MissingSlot,
    ) -> Option<(ZoneIndex, Leaving)> {
        let close = |c: &Candidates| c.close.first().copied();
        let finish_open = |c: &Candidates| c.finish_open.first().copied();
        let finish_closed = |c: &Candidates| c.finish_closed.first().copied();
        let closing = |zone| (zone, Leaving::Closing);
        let finishing = |zone| (zone, Leaving::Finishing);
        match missing {
            MissingSlot::Open => self
                .oldest(slots, class, missing, close)
                .map(closing)
                .or_else(|| self.oldest(slots, class, missing, finish_open).map(finishing)),
            MissingSlot::Active => self
                .oldest(slots, class, missing, finish_closed)
                .or_else(|| self.oldest(slots, class, missing, finish_open))
                .map(finishing),
        }
    }

    fn oldest(
        &self,
        slots: &Slots,
        class: WriterClass,
        missing: MissingSlot,
        first: impl Fn(&Candidates) -> Option<(u64, ZoneIndex)>,
    ) -> Option<ZoneIndex> {
        let eligible = slots.classes().filter(|&victim| slots.may_evict(victim, class, missing));
        let oldest = eligible.filter_map(|victim| first(&self.classes[victim.index()])).min();
        oldest.map(|(_, zone)| zone)
    }
}
