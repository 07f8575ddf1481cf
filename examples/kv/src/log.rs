use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Shows on standard error what this program and the framework log: warnings, with `-v` also what happens to
/// connections and devices, which is on the level of debugging in libraries. `RUST_LOG` says it in more detail.
pub(crate) fn to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    subscriber.with_writer(|| Lines).with_ansi(false).init();
}

/// Standard error, of which a line that cannot be written is dropped: its reader may be gone or the disk
/// full, and an error here would become a panic in whatever thread had something to say.
struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        _ = io::stderr().flush();
        Ok(())
    }
}
