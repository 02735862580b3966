//! Zone management commands, for one zone and for all zones.

use super::machine::ZoneEvent;
use super::rules::Rules;
use crate::command::Op;
use crate::zone::{Personality, ZoneCondition, ZoneDescriptor};

/// Zone management command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneAction {
    /// Opens the zone explicitly.
    Open,
    /// Closes the zone.
    Close,
    /// Makes the zone full.
    Finish,
    /// Empties the zone.
    Reset,
    /// Takes a read-only zone offline.
    Offline,
}

impl ZoneAction {
    /// All actions.
    pub const ALL: [ZoneAction; 5] =
        [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset, ZoneAction::Offline];

    /// Returns the action of `op`, or `None` if it is not a management command of one zone.
    pub const fn of(op: Op) -> Option<ZoneAction> {
        Some(match op {
            Op::ZoneOpen => ZoneAction::Open,
            Op::ZoneClose => ZoneAction::Close,
            Op::ZoneFinish => ZoneAction::Finish,
            Op::ZoneReset => ZoneAction::Reset,
            Op::ZoneOffline => ZoneAction::Offline,
            _ => return None,
        })
    }

    /// Event of the zone.
    pub const fn event(self) -> ZoneEvent {
        match self {
            ZoneAction::Open => ZoneEvent::Open,
            ZoneAction::Close => ZoneEvent::Close,
            ZoneAction::Finish => ZoneEvent::Finish,
            ZoneAction::Reset => ZoneEvent::Reset,
            ZoneAction::Offline => ZoneEvent::Offline,
        }
    }

    /// True if the standard has the command.
    pub const fn is_in(self, personality: Personality) -> bool {
        !matches!(self, ZoneAction::Offline) || Rules::of(personality).has_offline_command
    }

    /// Conditions of the zones that the command for all zones affects, in rounds. A round begins
    /// when the previous one has completed on the whole drive. Zones in other conditions are left
    /// alone.
    ///
    /// Finishing a closed zone may require an open resource ([`Rules::finish_needs_resources`]).
    /// Open zones release theirs, so they are finished first. The zones of the other actions
    /// release no resources that others need.
    ///
    /// Opening all zones is all or nothing; check with [`super::Resources::can_open_closed`]
    /// beforehand.
    pub const fn rounds(self) -> &'static [&'static [ZoneCondition]] {
        use ZoneCondition::{Closed, ExpOpen, Full, ImpOpen, ReadOnly};
        match self {
            ZoneAction::Open => &[&[Closed]],
            ZoneAction::Close => &[&[ImpOpen, ExpOpen]],
            ZoneAction::Finish => &[&[ImpOpen, ExpOpen], &[Closed]],
            ZoneAction::Reset => &[&[ImpOpen, ExpOpen, Closed, Full]],
            ZoneAction::Offline => &[&[ReadOnly]],
        }
    }

    /// True if the command for all zones takes a zone of this condition.
    pub fn selects(self, condition: ZoneCondition) -> bool {
        self.rounds().iter().any(|round| round.contains(&condition))
    }

    /// Sorts zones of a report into the [rounds](ZoneAction::rounds) of the command for all. Rounds without a zone are left out.
    pub fn in_rounds(self, zones: &[ZoneDescriptor]) -> Vec<Vec<&ZoneDescriptor>> {
        let zones_of =
            |round: &&[ZoneCondition]| zones.iter().filter(|z| round.contains(&z.condition)).collect();
        self.rounds().iter().map(zones_of).filter(|round: &Vec<_>| !round.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(action: ZoneAction) -> Vec<&'static str> {
        ZoneCondition::ALL.into_iter().filter(|&c| action.selects(c)).map(ZoneCondition::name).collect()
    }

    #[test]
    fn h36_reset_all_leaves_empty_read_only_offline_and_conventional_zones() {
        assert_eq!(selected(ZoneAction::Reset), ["IMP_OPEN", "EXP_OPEN", "CLOSED", "FULL"]);
    }

    #[test]
    fn h67_all_forms_leave_empty_zones() {
        assert_eq!(selected(ZoneAction::Open), ["CLOSED"]);
        assert_eq!(selected(ZoneAction::Close), ["IMP_OPEN", "EXP_OPEN"]);
        assert_eq!(selected(ZoneAction::Finish), ["IMP_OPEN", "EXP_OPEN", "CLOSED"]);
    }

    #[test]
    fn offline_for_all_takes_read_only_zones_and_is_no_command_of_zbc() {
        assert_eq!(selected(ZoneAction::Offline), ["READONLY"]);
        let missing = |p| ZoneAction::ALL.into_iter().filter(move |a| !a.is_in(p)).collect::<Vec<_>>();
        assert_eq!(missing(Personality::Zns), []);
        assert_eq!(missing(Personality::Zbc), [ZoneAction::Offline]);
    }
}
