//! Black-box tests of the back end: a driver's rings in a file as guest memory, and a front end at
//! a socket.

mod front;
mod guest;
mod inflight;
mod queue;
mod random;
mod ring;
mod server;
mod session;
