//! The disk from an initiator's view: commands in, answers out, over emulated drives.

mod abort;
mod answers;
mod arbitrary;
mod identify;
mod operations;
mod recorder;
mod reports;
mod rig;
mod threads;
mod transfer;
mod zones;
