//! State transitions of one zone.

use super::rules::Rules;
use super::state::ZoneState;
use crate::error::ZoneError;
use crate::zone::{Personality, ZoneCondition};

/// Event of a zone. Offsets are in sectors from the zone's start; lengths are in sectors and at
/// least 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ZoneEvent {
    /// Positional write that takes effect at once.
    Write {
        /// Start offset.
        offset: u32,
        /// Length.
        sectors: u32,
    },
    /// Write at the pointer, wherever that is. The zone becomes full as soon as its last sector is
    /// allocated.
    Append {
        /// Length.
        sectors: u32,
    },
    /// Start of a positional write that receives its data later.
    BeginWrite {
        /// Start offset.
        offset: u32,
        /// Length.
        sectors: u32,
    },
    /// A begun write has received its data.
    EndWrite,
    /// A begun or appended write failed to receive its data. The pointer moves back to the start of
    /// that write, unless another was placed behind it: then the range remains as a hole of
    /// undefined content.
    FailWrite {
        /// Start offset.
        offset: u32,
        /// Length.
        sectors: u32,
    },
    /// Open command.
    Open,
    /// Close command.
    Close,
    /// Finish command.
    Finish,
    /// Reset command.
    Reset,
    /// The zone becomes read-only spontaneously.
    SetReadOnly,
    /// The zone goes offline spontaneously.
    SetOffline,
    /// Offline command.
    Offline,
    /// The zone is repaired after it became read-only or went offline.
    Restore,
    /// The device closes an implicitly open zone to make room for another.
    ImplicitClose,
    /// Power cycle without loss of acknowledged writes.
    Restart,
}

/// Resources required by a transition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Needs {
    /// None.
    #[default]
    Nothing,
    /// An open resource. The zone is already active.
    Open,
    /// An active resource. The zone does not become open.
    Active,
    /// An active resource and an open one.
    ActiveAndOpen,
}

/// Result of an event that the zone accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Transition {
    /// New state.
    pub state: ZoneState,
    /// Offset of the write or append, in sectors from the zone's start.
    pub placed: Option<u32>,
    /// Resources that must be available.
    pub needs: Needs,
}

impl Transition {
    const fn to(condition: ZoneCondition, written: u32) -> Transition {
        Transition { state: ZoneState { condition, written }, placed: None, needs: Needs::Nothing }
    }

    const fn stay(state: ZoneState) -> Transition {
        Transition { state, placed: None, needs: Needs::Nothing }
    }
}

/// Applies `event` to a zone of `capacity` sectors in `state`.
///
/// Resources are not checked here: the caller must obtain those in [`Transition::needs`] before it
/// stores the new state, with [`super::Resources`].
///
/// # Errors
/// [`ZoneError`], in the order given in the [module](super). The state is unchanged.
#[inline]
pub fn step(
    personality: Personality,
    capacity: u32,
    state: ZoneState,
    event: ZoneEvent,
) -> Result<Transition, ZoneError> {
    if state.condition == ZoneCondition::NotWp {
        return conventional(capacity, state, event);
    }
    let rules = Rules::of(personality);
    match event {
        ZoneEvent::Write { offset, sectors } => write(capacity, state, offset, sectors),
        ZoneEvent::Append { sectors } => append(capacity, state, sectors),
        ZoneEvent::BeginWrite { offset, sectors } => begin_write(capacity, state, offset, sectors),
        ZoneEvent::EndWrite => Ok(Transition::stay(filled(capacity, state))),
        ZoneEvent::FailWrite { offset, sectors } => Ok(fail_write(rules, state, offset, sectors)),
        ZoneEvent::Open => open(rules, state),
        ZoneEvent::Close => close(rules, state),
        ZoneEvent::Finish => finish(rules, state),
        ZoneEvent::Reset => reset(state),
        ZoneEvent::SetReadOnly => set_read_only(state),
        ZoneEvent::SetOffline => Ok(Transition::to(ZoneCondition::Offline, 0)),
        ZoneEvent::Offline => offline(rules, state),
        ZoneEvent::Restore => Ok(restore(capacity, state)),
        ZoneEvent::ImplicitClose => implicit_close(rules, state),
        ZoneEvent::Restart => Ok(Transition::stay(restart(capacity, state))),
    }
}

/// [`ZoneEvent::Write`] on a sequential zone.
///
/// # Errors
/// As [`step`].
#[inline]
pub fn write(capacity: u32, state: ZoneState, offset: u32, sectors: u32) -> Result<Transition, ZoneError> {
    let mut step = begin_write(capacity, state, offset, sectors)?;
    step.state = filled(capacity, step.state);
    Ok(step)
}

/// [`ZoneEvent::Append`] on a sequential zone.
///
/// # Errors
/// As [`step`].
#[inline]
pub fn append(capacity: u32, state: ZoneState, sectors: u32) -> Result<Transition, ZoneError> {
    write(capacity, state, state.written, sectors)
}

/// [`ZoneEvent::BeginWrite`] on a sequential zone.
///
/// # Errors
/// As [`step`].
#[inline]
pub fn begin_write(
    capacity: u32,
    state: ZoneState,
    offset: u32,
    sectors: u32,
) -> Result<Transition, ZoneError> {
    // Fast path: nearly every write finds its zone open.
    let (condition, needs) = match state.condition.is_open() {
        true => (state.condition, Needs::Nothing),
        false => (ZoneCondition::ImpOpen, opening(state.condition)?),
    };
    if state.written >= capacity {
        // The last write is still in flight, and nothing else fits.
        return Err(ZoneError::Full);
    }
    if offset != state.written {
        return Err(ZoneError::InvalidWrite);
    }
    if sectors > capacity - offset {
        return Err(ZoneError::Boundary);
    }
    let state = ZoneState { condition, written: offset + sectors };
    Ok(Transition { state, placed: Some(offset), needs })
}

/// Resources needed by a write that opens the zone.
fn opening(condition: ZoneCondition) -> Result<Needs, ZoneError> {
    match condition {
        ZoneCondition::Empty => Ok(Needs::ActiveAndOpen),
        ZoneCondition::Closed => Ok(Needs::Open),
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => Ok(Needs::Nothing),
        ZoneCondition::Full => Err(ZoneError::Full),
        ZoneCondition::ReadOnly => Err(ZoneError::ReadOnly),
        ZoneCondition::Offline => Err(ZoneError::Offline),
        ZoneCondition::NotWp => Err(ZoneError::Conventional),
    }
}

/// Turns an active zone full once its pointer has reached the capacity.
#[inline]
fn filled(capacity: u32, state: ZoneState) -> ZoneState {
    if state.condition.is_active() && state.written >= capacity {
        ZoneState::full(state.written)
    } else {
        state
    }
}

fn fail_write(rules: Rules, state: ZoneState, offset: u32, sectors: u32) -> Transition {
    let has_pointer = state.written != 0;
    if !has_pointer || u64::from(state.written) != u64::from(offset) + u64::from(sectors) {
        return Transition::stay(state);
    }
    match state.condition {
        // Evicted while its first write was in flight.
        ZoneCondition::Closed if offset == 0 && rules.evict_unwritten_empties => {
            Transition::stay(ZoneState::EMPTY)
        }
        condition => Transition::to(condition, offset),
    }
}

fn open(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    let needs = match state.condition {
        ZoneCondition::Empty => Needs::ActiveAndOpen,
        ZoneCondition::Closed => Needs::Open,
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => Needs::Nothing,
        ZoneCondition::Full if rules.open_full_succeeds => return Ok(Transition::stay(state)),
        _ => return Err(ZoneError::InvalidTransition),
    };
    Ok(Transition { needs, ..Transition::to(ZoneCondition::ExpOpen, state.written) })
}

fn close(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen => {
            Ok(Transition::stay(closed(rules.close_unwritten_empties, state.written)))
        }
        ZoneCondition::Closed => Ok(Transition::stay(state)),
        ZoneCondition::Empty | ZoneCondition::Full if rules.close_idle_succeeds => {
            Ok(Transition::stay(state))
        }
        _ => Err(ZoneError::InvalidTransition),
    }
}

fn closed(unwritten_empties: bool, written: u32) -> ZoneState {
    if written == 0 && unwritten_empties {
        ZoneState::EMPTY
    } else {
        ZoneState { condition: ZoneCondition::Closed, written }
    }
}

fn finish(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    let needs = match state.condition {
        ZoneCondition::Empty if rules.finish_needs_resources => Needs::ActiveAndOpen,
        ZoneCondition::Closed if rules.finish_needs_resources => Needs::Open,
        ZoneCondition::Empty | ZoneCondition::Closed => Needs::Nothing,
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Full => Needs::Nothing,
        _ => return Err(ZoneError::InvalidTransition),
    };
    Ok(Transition { needs, ..Transition::to(ZoneCondition::Full, state.written) })
}

fn reset(state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ReadOnly | ZoneCondition::Offline => Err(ZoneError::InvalidTransition),
        _ => Ok(Transition::stay(ZoneState::EMPTY)),
    }
}

fn set_read_only(state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::Offline => Err(ZoneError::InvalidTransition),
        _ => Ok(Transition::to(ZoneCondition::ReadOnly, state.written)),
    }
}

fn offline(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ReadOnly if rules.has_offline_command => Ok(Transition::to(ZoneCondition::Offline, 0)),
        ZoneCondition::Offline if rules.has_offline_command => Ok(Transition::stay(state)),
        _ => Err(ZoneError::InvalidTransition),
    }
}

/// Undoes a fault. A read-only zone kept its data and its pointer; an offline one lost both. An
/// earlier finish is not remembered: the zone is writable again behind its data.
fn restore(capacity: u32, state: ZoneState) -> Transition {
    match (state.condition, state.written) {
        (ZoneCondition::ReadOnly, 0) | (ZoneCondition::Offline, _) => Transition::stay(ZoneState::EMPTY),
        (ZoneCondition::ReadOnly, written) if written >= capacity => {
            Transition::stay(ZoneState::full(written))
        }
        (ZoneCondition::ReadOnly, written) => {
            Transition { needs: Needs::Active, ..Transition::to(ZoneCondition::Closed, written) }
        }
        _ => Transition::stay(state),
    }
}

fn implicit_close(rules: Rules, state: ZoneState) -> Result<Transition, ZoneError> {
    match state.condition {
        ZoneCondition::ImpOpen => Ok(Transition::stay(closed(rules.evict_unwritten_empties, state.written))),
        _ => Err(ZoneError::InvalidTransition),
    }
}

/// Open conditions do not survive a power cycle, and a zone without data is empty afterwards.
fn restart(capacity: u32, state: ZoneState) -> ZoneState {
    match state.condition {
        ZoneCondition::ImpOpen | ZoneCondition::ExpOpen | ZoneCondition::Closed => {
            filled(capacity, closed(true, state.written))
        }
        _ => state,
    }
}

/// A conventional zone has a single state: it is writable anywhere and accepts no zone command.
fn conventional(capacity: u32, state: ZoneState, event: ZoneEvent) -> Result<Transition, ZoneError> {
    match event {
        ZoneEvent::Write { offset, sectors } | ZoneEvent::BeginWrite { offset, sectors } => {
            let fits = u64::from(offset) + u64::from(sectors) <= u64::from(capacity);
            let step = Transition { placed: Some(offset), ..Transition::stay(state) };
            if fits { Ok(step) } else { Err(ZoneError::Boundary) }
        }
        ZoneEvent::EndWrite | ZoneEvent::FailWrite { .. } | ZoneEvent::Restart => Ok(Transition::stay(state)),
        _ => Err(ZoneError::Conventional),
    }
}
