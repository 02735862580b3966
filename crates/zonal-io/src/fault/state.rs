//! State of a fault device, under its single lock.
//!
//! [`FaultState::submit`] decides about a command and starts it, [`FaultState::answered`] processes
//! answers of the wrapped device, and [`FaultState::hand_out`] returns answers to the host. The
//! wrapped device's `submit` runs under the lock, so that commands reach it in the order in which
//! they were decided; it never calls back. Its `poll` does not, because a device that holds its own
//! lock there must not wait for this one.

use super::decide::Verdict;
use super::degraded::DegradedZones;
use super::flight::{Host, InnerCommand, LateCommand, Ready, Recipient, Scope, scope};
use super::late::Settling;
use super::plan::Plan;
use super::rule::{InFlight, Late, Ops, Rule, Tally};
use super::window::Window;
use crate::badblocks::BadBlocks;
use crate::changes::{Changes, ZoneSetting};
use crate::device::{Command, CommandResult, Context, Device, Landing, Output, Submitted};
use crate::fault::Degraded;
use crate::sync::Arc;
use crate::wrap::{ResetStep, ResetWalk, Slots};
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use zonal_core::device::ZoneAction;
use zonal_core::{DeviceError, Geometry, Nanos, Op, ZoneError, ZoneIndex};

/// Commands and answers held back for one of the host's queues.
#[derive(Default)]
pub(super) struct Queue {
    /// Answers by due time and order of arrival.
    pub(super) ready: BTreeMap<(Nanos, u64), Ready>,
    /// Commands for which the wrapped device's queue was full.
    pub(super) outbox: VecDeque<InnerCommand>,
    /// True if something was added that no poll has seen.
    pub(super) has_news: bool,
}

/// State of a fault device; see the module.
pub(super) struct FaultState {
    pub(super) inner: Arc<dyn Device>,
    pub(super) geometry: Geometry,
    pub(super) block_sectors: u32,
    /// Operations of the wrapped device that this one hides.
    pub(super) hidden: Ops,
    seed: u64,
    pub(super) rules: Vec<(Rule, Tally)>,
    /// Tallies of the rules that the present command has matched, as they were before.
    pub(super) touched: Vec<(usize, Tally)>,
    /// Number of commands still to be answered with a unit attention.
    pub(super) attention: u32,
    /// Set while power is off: the fate of commands.
    pub(super) off: Option<InFlight>,
    /// Fate of commands at the last cut.
    pub(super) cut_as: InFlight,
    /// True if power was ever cut: commands passed through without a slot are from before the cut.
    pub(super) was_cut: bool,
    pub(super) degraded: DegradedZones,
    pub(super) bad: BadBlocks,
    pub(super) settling: Settling,
    /// Commands at the wrapped device.
    pub(super) flights: Slots<InnerCommand>,
    pub(super) queues: Box<[Queue]>,
    pub(super) windows: Vec<Window>,
    pub(super) late: Vec<LateCommand>,
    /// Scopes with timed-out commands, and the time of the host's first request to settle them.
    pub(super) unsettled: HashMap<Scope, Option<Nanos>>,
    /// Contexts of commands that never complete.
    pub(super) lost: Vec<Context>,
    /// Changes not yet reported to the host.
    pub(super) changes: Changes,
    /// A command was issued to the wrapped device since the start of the last poll.
    pub(super) has_sent: bool,
    next: u64,
}

impl FaultState {
    pub(super) fn new(inner: Arc<dyn Device>, plan: Plan) -> FaultState {
        let info = inner.info();
        let (geometry, block_sectors, queues) = (info.geometry, info.block_sectors, info.queues);
        let mut state = FaultState {
            inner,
            geometry,
            block_sectors,
            hidden: plan.hidden(),
            seed: plan.seed,
            rules: Vec::new(),
            touched: Vec::new(),
            attention: 0,
            off: None,
            cut_as: InFlight::Fail,
            was_cut: false,
            degraded: DegradedZones::default(),
            bad: plan.bad_blocks,
            settling: plan.settling,
            flights: Slots::default(),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            windows: Vec::new(),
            late: Vec::new(),
            unsettled: HashMap::new(),
            lost: Vec::new(),
            changes: Changes::default(),
            has_sent: false,
            next: 0,
        };
        for rule in plan.rules {
            state.add_rule(rule);
        }
        state
    }

    /// Adds a rule behind all others and returns its index.
    pub(super) fn add_rule(&mut self, rule: Rule) -> usize {
        let index = self.rules.len();
        self.rules.push((rule, Tally::new(self.seed, index as u64)));
        index
    }

    /// True if commands cannot take the fast path, because a fault may happen to them or something
    /// is held back.
    pub(super) fn is_needed(&self) -> bool {
        self.was_cut
            || self.attention > 0
            || !self.hidden.is_empty()
            || !self.degraded.is_empty()
            || !self.bad.ranges().is_empty()
            || !self.flights.is_empty()
            || !self.windows.is_empty()
            || !self.late.is_empty()
            || !self.unsettled.is_empty()
            || self.rules.iter().any(|(rule, tally)| !tally.is_spent(rule))
            || self.queues.iter().any(|q| !q.ready.is_empty() || !q.outbox.is_empty())
    }

    /// True if nothing is held back for `queue` or would be sent by polling it.
    pub(super) fn is_idle(&self, queue: usize) -> bool {
        let Queue { ready, outbox, .. } = &self.queues[queue];
        ready.is_empty()
            && outbox.is_empty()
            && self.late.is_empty()
            && self.windows.iter().all(|window| window.queue != queue)
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Implements [`Device::submit`].
    pub(super) fn submit(
        &mut self,
        now: Nanos,
        queue: usize,
        command: &Command,
        context: &mut Option<Context>,
    ) -> Submitted {
        self.issue_held(now, queue);
        if self.off.is_none() && !self.queues[queue].outbox.is_empty() {
            return Submitted::Busy;
        }
        let (verdict, order) = self.decide(now, queue, command);
        if matches!(verdict, Verdict::Busy) {
            return Submitted::Busy;
        }
        let host = Host {
            context: context.take().expect("a submitted command comes with its context"),
            queue,
            sectors: command.sectors,
            scope: scope(&self.geometry, command),
            order,
            is_cut: false,
        };
        match self.start(now, command, verdict, host) {
            Started::Told(mine, result) => {
                *context = Some(mine);
                Submitted::Done(result)
            }
            Started::Held => Submitted::Accepted,
            Started::Busy(mine) => {
                self.undo();
                *context = Some(mine);
                Submitted::Busy
            }
        }
    }

    /// Starts a host's command according to the decision.
    fn start(&mut self, now: Nanos, command: &Command, verdict: Verdict, host: Host) -> Started {
        let answered = match verdict {
            Verdict::Busy => return Started::Busy(host.context),
            Verdict::NoPower(InFlight::Fail) => Some((host.context, Err(DeviceError::Gone))),
            Verdict::NoPower(InFlight::Lose) => {
                self.lost.push(host.context);
                None
            }
            Verdict::Answer(result) => self.hold(now, host, result),
            Verdict::Reorder { rule, sectors } => {
                let flight = self.flight(command, sectors, host);
                self.hold_command(now, rule, flight);
                None
            }
            Verdict::Execute { .. } if self.reaches_degraded(command) => {
                let walk = self.reset_around_degraded();
                self.walk(now, host, walk)
            }
            Verdict::Execute { sectors, bad } => {
                let flight = self.flight(command, sectors, host);
                let issued = self.issue(now, flight);
                if let (Some(range), Issued::Done(..) | Issued::Accepted) = (bad, &issued) {
                    self.bad.hit(range);
                }
                match issued {
                    Issued::Done(flight, result) => self.finish(now, flight.recipient, result),
                    Issued::Accepted => None,
                    Issued::Busy(flight) => {
                        let host = flight.recipient.into_host().expect("it was put there above");
                        return Started::Busy(host.context);
                    }
                }
            }
        };
        answered.map_or(Started::Held, |(context, result)| Started::Told(context, result))
    }

    /// Creates a flight for the first `sectors` of a command.
    fn flight(&self, command: &Command, sectors: u32, host: Host) -> InnerCommand {
        let (queue, landing) = (host.queue, host.order.landing);
        let recipient = Recipient::Host(host);
        let mut command = *command;
        if landing != Landing::InPlace {
            command.landing = landing;
        }
        if sectors < command.sectors && Ops::DATA.contains(command.op) {
            InnerCommand::torn(queue, command, sectors, recipient)
        } else {
            InnerCommand::new(queue, command, recipient)
        }
    }

    /// Degrades a zone.
    pub(super) fn degrade(&mut self, zone: ZoneIndex, to: Degraded) -> Result<(), ZoneError> {
        if self.degraded.degrade(&self.geometry, zone, to)? {
            self.changes.add_zone(zone);
            // Releases its resources at the wrapped device, which may refuse.
            let command = Command::new(Op::ZoneFinish, self.geometry.start_of(zone), 0);
            self.queues[0].outbox.push_back(InnerCommand::new(0, command, Recipient::None));
        }
        Ok(())
    }

    /// Implements [`Device::set_zone`]. A zone that is degraded here, or that the wrapped device
    /// cannot degrade, is handled here.
    pub(super) fn set_zone(&mut self, zone: ZoneIndex, to: ZoneSetting) -> Result<(), DeviceError> {
        if !self.degraded.holds(zone) {
            match self.inner.set_zone(zone, to) {
                Err(DeviceError::Unsupported) => {}
                done => return done,
            }
        }
        if zone.0 >= self.geometry.zones() {
            return Err(DeviceError::OutOfRange);
        }
        match to {
            ZoneSetting::ReadOnly => self.degrade(zone, Degraded::ReadOnly)?,
            ZoneSetting::Offline => self.degrade(zone, Degraded::Offline)?,
            ZoneSetting::Restored if self.degraded.holds(zone) => {
                self.degraded.restore(zone);
                self.changes.add_zone(zone);
            }
            ZoneSetting::Restored => {}
        }
        Ok(())
    }

    /// Answer to `command` if its zone is degraded and does not pass it on.
    pub(super) fn answer_of_degraded(&mut self, command: &Command) -> Option<CommandResult> {
        let error = self.degraded.refuses(&self.geometry, command)?;
        if command.op != Op::ZoneOffline {
            return Some(Err(error));
        }
        if !ZoneAction::Offline.is_in(self.inner.info().personality) {
            return Some(Err(DeviceError::Unsupported));
        }
        let zone = self.geometry.zone_of(command.sector);
        Some(
            self.degraded
                .degrade(&self.geometry, zone, Degraded::Offline)
                .map(|_| Output::Done)
                .map_err(Into::into),
        )
    }

    /// Issues a command to the wrapped device.
    fn issue(&mut self, now: Nanos, flight: InnerCommand) -> Issued {
        let (queue, command) = (flight.queue, flight.command);
        let slot = self.flights.put(flight);
        match self.inner.submit(now, queue, &command, &mut Some(Context::token(slot))) {
            Submitted::Accepted => {
                self.has_sent = true;
                Issued::Accepted
            }
            Submitted::Done(result) => Issued::Done(self.flights.take(slot), result),
            Submitted::Busy => Issued::Busy(self.flights.take(slot)),
        }
    }

    /// Issues a command that was held here, checking the zone's present state first. Returns it if
    /// the wrapped device is busy.
    fn send(&mut self, now: Nanos, flight: InnerCommand) -> Option<InnerCommand> {
        if let Recipient::Host(_) = flight.recipient
            && let Some(result) = self.answer_of_degraded(&flight.command)
        {
            self.ended(now, flight.recipient, result);
            return None;
        }
        let flight = match flight {
            InnerCommand { recipient: Recipient::Host(host), command, .. }
                if self.reaches_degraded(&command) =>
            {
                self.reset_and_complete(now, host);
                return None;
            }
            other => other,
        };
        match self.issue(now, flight) {
            Issued::Accepted => None,
            Issued::Done(flight, result) => {
                self.ended(now, flight.recipient, result);
                None
            }
            Issued::Busy(flight) => Some(flight),
        }
    }

    /// Issues a command that was held here, now or when the wrapped device has room.
    pub(super) fn send_on(&mut self, now: Nanos, flight: InnerCommand) {
        if let Some(flight) = self.send(now, flight) {
            self.queues[flight.queue].outbox.push_back(flight);
        }
    }

    /// Issues commands that met a full queue, late commands that are due, and those held long
    /// enough.
    pub(super) fn issue_held(&mut self, now: Nanos, queue: usize) {
        if self.off.is_some() {
            return;
        }
        for _ in 0..self.queues[queue].outbox.len() {
            let Some(flight) = self.queues[queue].outbox.pop_front() else { break };
            if let Some(flight) = self.send(now, flight) {
                self.queues[queue].outbox.push_front(flight);
                break;
            }
        }
        self.run_late(now, |late| match (late.when, late.told) {
            (Late::After(time), Some(told)) => later(told, time) <= now,
            _ => false,
        });
        self.open_windows(now);
    }

    /// Processes the wrapped device's answer to the command in `slot`.
    pub(super) fn answered(&mut self, now: Nanos, slot: u64, result: CommandResult) {
        let flight = self.flights.take(slot);
        self.ended(now, flight.recipient, result);
    }

    /// Ends a command. Its answer, if a host waits for one, is queued.
    fn ended(&mut self, now: Nanos, recipient: Recipient, result: CommandResult) {
        let queue = recipient.queue();
        let about = recipient.scope();
        if let Some((context, result)) = self.finish(now, recipient, result) {
            let queue = queue.expect("only a host's command has an answer");
            self.add_ready(now, queue, Ready { context, result, scope: about, late: None });
        }
    }

    /// Result of a command for the host, unless its answer is held back.
    fn finish(
        &mut self,
        now: Nanos,
        recipient: Recipient,
        mut result: CommandResult,
    ) -> Option<(Context, CommandResult)> {
        let host = match recipient {
            Recipient::Late(_) | Recipient::None => return None,
            Recipient::ResetAll(host, _) if host.is_cut => host,
            Recipient::ResetAll(host, mut walk) => {
                walk.answered(result);
                return self.walk(now, host, walk);
            }
            Recipient::Host(host) => host,
        };
        if host.is_cut {
            self.fail_in_flight(host.queue, host.context);
            return None;
        }
        match &mut result {
            Ok(Output::Zones(zones)) => self.degraded.describe(zones),
            Ok(Output::Appended(at)) => {
                if let Some(range) = self.bad.met_by(at.0, host.sectors) {
                    self.bad.hit(range);
                    result = Err(DeviceError::Medium);
                }
            }
            _ => {}
        }
        if let (Ok(_), Some(error)) = (&result, host.order.error) {
            result = Err(error);
        }
        if let Ok(Output::Zones(zones)) = &result {
            let described = |about: Scope| about.is_none_or(|z| zones.iter().any(|d| d.zone == z));
            self.run_late(now, |late| {
                late.when == Late::AfterReport && late.told.is_some() && described(late.scope)
            });
        }
        self.hold(now, host, result)
    }

    /// True if `command`, passed on unchanged, would affect degraded zones.
    pub(super) fn reaches_degraded(&self, command: &Command) -> bool {
        command.op == Op::ResetAll && !self.degraded.is_empty()
    }

    /// Starts a reset of all zones except degraded ones.
    fn reset_around_degraded(&self) -> ResetWalk {
        let zones = self.geometry.conventional_zones()..self.geometry.zones();
        ResetWalk::new(zones, self.degraded.zones())
    }

    /// Resets all zones except degraded ones, for a host that waits for completion.
    fn reset_and_complete(&mut self, now: Nanos, host: Host) {
        let (queue, about, walk) = (host.queue, host.scope, self.reset_around_degraded());
        if let Some((context, result)) = self.walk(now, host, walk) {
            self.add_ready(now, queue, Ready { context, result, scope: about, late: None });
        }
    }

    /// Continues a reset walk as long as the wrapped device answers inline.
    fn walk(&mut self, now: Nanos, host: Host, mut walk: ResetWalk) -> Option<(Context, CommandResult)> {
        let (queue, mut host) = (host.queue, host);
        loop {
            let (op, zone, sectors) = match walk.step() {
                ResetStep::Report(zone, zones) => (Op::Report, zone, zones),
                ResetStep::Reset(zone) => (Op::ZoneReset, zone, 0),
                ResetStep::End(result) => {
                    let result = result.map(|()| Output::Done);
                    return self.finish(now, Recipient::Host(host), result);
                }
            };
            let sector = self.geometry.start_of(zone);
            let command = Command::new(op, sector, sectors);
            match self.issue(now, InnerCommand::new(queue, command, Recipient::ResetAll(host, walk))) {
                Issued::Accepted => return None,
                Issued::Busy(flight) => {
                    self.queues[queue].outbox.push_back(flight);
                    return None;
                }
                Issued::Done(flight, result) => {
                    let Recipient::ResetAll(same, mut next) = flight.recipient else {
                        unreachable!("put there above")
                    };
                    next.answered(result);
                    (host, walk) = (same, next);
                }
            }
        }
    }

    /// Holds an answer back as its order says, or returns it at once.
    fn hold(&mut self, now: Nanos, host: Host, result: CommandResult) -> Option<(Context, CommandResult)> {
        let Host { context, queue, scope, order, .. } = host;
        let ready = Ready { context, result, scope, late: order.late };
        if let Some(rule) = order.reorder {
            self.hold_answer(now, rule, queue, ready);
            return None;
        }
        if order.due > now || ready.late.is_some() {
            self.add_ready(order.due, queue, ready);
            return None;
        }
        self.mark_reported(now, &ready);
        Some((ready.context, ready.result))
    }

    /// Queues a plain answer.
    pub(super) fn add_answer(&mut self, due: Nanos, queue: usize, context: Context, result: CommandResult) {
        self.add_ready(due, queue, Ready { context, result, scope: None, late: None });
    }

    pub(super) fn add_ready(&mut self, due: Nanos, queue: usize, ready: Ready) {
        let number = self.number();
        let queue = &mut self.queues[queue];
        queue.ready.insert((due, number), ready);
        queue.has_news = true;
    }

    /// Returns at most `budget` due answers of `queue`, and the time of the next one.
    pub(super) fn hand_out(
        &mut self,
        now: Nanos,
        queue: usize,
        budget: usize,
        mut take: impl FnMut(Context, CommandResult),
    ) -> Option<Nanos> {
        self.queues[queue].has_news = false;
        let mut left = budget;
        while let Some(entry) = self.queues[queue].ready.first_entry() {
            let due = entry.key().0;
            if due > now || left == 0 {
                self.queues[queue].has_news = due <= now;
                return Some(due.max(now));
            }
            left -= 1;
            let ready = entry.remove();
            self.mark_reported(now, &ready);
            take(ready.context, ready.result);
        }
        None
    }

    /// Records that an answer is reported to the host.
    fn mark_reported(&mut self, now: Nanos, ready: &Ready) {
        if ready.result == Err(DeviceError::TimedOut) {
            self.unsettled.entry(ready.scope).or_insert(None);
        }
        if let Some(id) = ready.late {
            self.late.iter_mut().filter(|l| l.id == id).for_each(|l| l.told = Some(now));
        }
    }
}

/// State of a host's command after starting it.
enum Started {
    Told(Context, CommandResult),
    Held,
    /// Not started: the wrapped device has no room.
    Busy(Context),
}

enum Issued {
    Accepted,
    Done(InnerCommand, CommandResult),
    Busy(InnerCommand),
}

pub(super) fn later(now: Nanos, by: Nanos) -> Nanos {
    Nanos(now.0.saturating_add(by.0))
}
