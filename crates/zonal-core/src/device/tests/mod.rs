//! Tests of the device-side state machine: golden tables, the transition graph, resources against a
//! naive model.

mod conservation;
mod golden;
mod hazards;

use super::*;
use crate::error::ZoneError;
use crate::zone::{Personality, ZoneCondition};

const PERSONALITIES: [Personality; 2] = [Personality::Zns, Personality::Zbc];

const fn state(condition: ZoneCondition, written: u32) -> ZoneState {
    ZoneState { condition, written }
}
