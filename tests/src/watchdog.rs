use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Ends the process if a test takes too long: a test that waits for ever is a failure with a
/// sentence, not a run that never ends.
#[derive(Debug)]
pub struct Watchdog {
    /// Dropping it calls the thread off.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Aborts the process in `limit`, unless it is dropped before.
    ///
    /// # Panics
    /// If the system starts no thread.
    pub fn start(limit: Duration) -> Self {
        let (alive, called_off) = mpsc::channel();
        let test = thread::current().name().unwrap_or("a test").to_owned();
        let thread = thread::Builder::new()
            .name("watchdog".into())
            .spawn(move || {
                if called_off.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    eprintln!("{test} has not ended within {limit:?}: it waits for something that never comes");
                    std::process::abort();
                }
            })
            .expect("the system starts a thread");
        Self { alive: Some(alive), thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // It only sleeps and prints, so it has not panicked.
            let _ = thread.join();
        }
    }
}
