//! The control thread as the runtime meets it, with a host that has no device.

mod connecting;
mod hostile;
mod lifecycle;
mod mock;
mod paths;
