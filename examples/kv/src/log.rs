use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Shows on standard error what this program and the framework log: warnings, and more with each `-v`.
/// `RUST_LOG` says it in more detail.
pub(crate) fn to_stderr(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter);
    subscriber.with_writer(std::io::stderr).with_ansi(false).init();
}
