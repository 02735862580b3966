//! Zone commands, for one zone and for all of them.

use super::machine::ZoneEvent;
use super::rules::Rules;
use crate::command::Op;
use crate::zone::{Personality, ZoneCondition};

/// Zone management command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ZoneAction {
    /// To explicitly open.
    Open,
    /// To closed.
    Close,
    /// To full.
    Finish,
    /// To empty.
    Reset,
    /// From read-only to offline.
    Offline,
}

impl ZoneAction {
    /// Every action.
    pub const ALL: [ZoneAction; 5] =
        [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset, ZoneAction::Offline];

    /// The action of `op` on one zone, or `None` where `op` is none.
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

    /// What it does to a zone.
    pub const fn event(self) -> ZoneEvent {
        match self {
            ZoneAction::Open => ZoneEvent::Open,
            ZoneAction::Close => ZoneEvent::Close,
            ZoneAction::Finish => ZoneEvent::Finish,
            ZoneAction::Reset => ZoneEvent::Reset,
            ZoneAction::Offline => ZoneEvent::Offline,
        }
    }

    /// Whether the standard has the command.
    pub const fn is_in(self, personality: Personality) -> bool {
        !matches!(self, ZoneAction::Offline) || Rules::of(personality).has_offline_command
    }

    /// Whether the command for all zones takes in a zone of this condition; it leaves every other zone as it is.
    ///
    /// Opening all zones is all or nothing: [`super::Resources::can_open_closed`] tells beforehand.
    pub const fn selects(self, condition: ZoneCondition) -> bool {
        match self {
            ZoneAction::Open => matches!(condition, ZoneCondition::Closed),
            ZoneAction::Close => condition.is_open(),
            ZoneAction::Finish => condition.is_active(),
            ZoneAction::Reset => condition.is_active() || matches!(condition, ZoneCondition::Full),
            ZoneAction::Offline => matches!(condition, ZoneCondition::ReadOnly),
        }
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
