//! Jobs: planning ([`plan`]), generating requests ([`workload`]), execution ([`run`](mod@run)) and
//! verification ([`verify`]).

pub mod plan;
pub mod run;
pub mod verify;
pub mod workload;
