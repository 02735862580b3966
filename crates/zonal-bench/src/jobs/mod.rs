//! Jobs: what they do ([`plan`], [`workload`]), how they are run ([`run`](mod@run)), and whether what they wrote is there ([`verify`]).

pub mod plan;
pub mod run;
pub mod verify;
pub mod workload;
