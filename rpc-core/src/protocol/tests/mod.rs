//! The whole state machine, two of it or one and a peer that breaks rules.

mod calls;
mod garbage;
mod hostile;
mod liveness;
mod random;
mod raw;
mod rendezvous;
