use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::{Duration, Instant};

use crossbeam_channel::{SendError, Sender, TrySendError, bounded, unbounded};

use super::answer::{ConnectDone, ListenDone};
use super::driver::Driver;
use super::poller::Poller;
use super::shake::Tools;
use super::{Address, ConnectError, ConnectRequest, Host, ListenRequest, Target};

/// How long a peer may take from its TCP connection to the end of the handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests that may wait for the control thread. A reconnecting process asks once per core and
/// server, so 1,024 is a cluster at once; more than that is a caller that does not wait.
pub const QUEUE_MAX: usize = 1024;

/// The control thread of a runtime.
pub struct ControlThread;

impl ControlThread {
    /// Starts the thread `rpc-control`, which works for `host` until the last [`Control`] is gone.
    ///
    /// The thread holds `host`, so a host that holds its own [`Control`] must call
    /// [`Control::shutdown`] for either to go.
    ///
    /// # Errors
    /// When the system has no more threads or descriptors.
    pub fn start(host: Arc<dyn Host>) -> io::Result<Control> {
        Self::start_with(host, HANDSHAKE_TIMEOUT)
    }

    /// As [`Self::start`], with another time than [`HANDSHAKE_TIMEOUT`] for peers that connect.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(host: Arc<dyn Host>, handshake_timeout: Duration) -> io::Result<Control> {
        let (mut inner, driver) = parts(host, handshake_timeout)?;
        let thread =
            thread::Builder::new().name("rpc-control".to_owned()).spawn(|| driver.run())?;
        inner.id = Some(thread.thread().id());
        inner.thread = Mutex::new(Some(thread));
        Ok(Control(Arc::new(inner)))
    }
}

/// A handle without a thread yet, and what the thread is to run.
fn parts(host: Arc<dyn Host>, handshake_timeout: Duration) -> io::Result<(Inner, Driver)> {
    let poller = Arc::new(Poller::new()?);
    let (requests, requested) = bounded(QUEUE_MAX);
    // Notices are never refused: one per listener, one per handshake that is in progress, and a
    // few per connection, all bounded where they are made.
    let (notices, noticed) = unbounded();
    let tools = Tools {
        host,
        poller: Arc::clone(&poller),
        notices: notices.clone(),
        #[cfg(any(test, feature = "test-util"))]
        network: None,
    };
    let driver = Driver::new(tools, requested, noticed, handshake_timeout);
    Ok((Inner { id: None, requests, notices, poller, thread: Mutex::new(None) }, driver))
}

/// What the control thread does, for whoever turns it by hand: nothing here waits.
#[cfg(any(test, feature = "test-util"))]
pub(crate) struct ControlLoop(Driver);

#[cfg(any(test, feature = "test-util"))]
impl ControlLoop {
    /// A handle and its loop. `network` takes the place of TCP.
    pub(crate) fn start(
        host: Arc<dyn Host>,
        network: Arc<dyn super::Network>,
    ) -> io::Result<(Control, Self)> {
        let (inner, mut driver) = parts(host, HANDSHAKE_TIMEOUT)?;
        driver.tools.network = Some(network);
        Ok((Control(Arc::new(inner)), Self(driver)))
    }

    /// Does what there is to do.
    ///
    /// # Errors
    /// The system did not say what there is.
    pub(crate) fn turn(&mut self) -> io::Result<()> {
        self.0.turn(Some(Duration::ZERO))
    }

    /// Readable while there is something to do.
    pub(crate) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.tools.poller.fd()
    }

    /// How long it may be left alone if its descriptor does not become readable.
    pub(crate) fn next_timer(&self) -> Option<Duration> {
        self.0.timeout()
    }
}

/// A handle to the control thread. Clones share it; dropping the last one shuts the thread down.
#[derive(Clone)]
pub struct Control(Arc<Inner>);

struct Inner {
    /// The thread's, if there is one.
    id: Option<ThreadId>,
    requests: Sender<Request>,
    notices: Sender<Notice>,
    poller: Arc<Poller>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a handle asks of the thread. Dropped, it is answered with [`ConnectError::ShutDown`].
pub(super) enum Request {
    Connect { target: Target, core: usize, deadline: Instant, done: ConnectDone },
    Listen { address: Address, server: u64, done: ListenDone },
}

/// Work that may block, for the control thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// What the thread is told; it cannot be refused.
pub(super) enum Notice {
    /// A core has answered `install`.
    Installed(u64, Result<(), ConnectError>),
    /// A server's listeners end.
    Unlisten(u64),
    /// A core has work that may block.
    Run(Job),
    /// A node of a simulation has dialled one of this one's servers.
    #[cfg(any(test, feature = "test-util"))]
    Dialled(super::network::Dialled),
    /// The thread ends.
    Shutdown,
}

impl Control {
    /// Connects. `request.done` is called exactly once, whatever happens; when the queue is full
    /// ([`QUEUE_MAX`]) or the thread has ended, before this returns.
    pub fn connect(&self, request: ConnectRequest) {
        let ConnectRequest { target, core, deadline, route, context, done } = request;
        let done = ConnectDone::new(route, context, done);
        self.request(Request::Connect { target, core, deadline, done });
    }

    /// Listens. `request.done` is called exactly once, as for [`Self::connect`].
    pub fn listen(&self, request: ListenRequest) {
        let ListenRequest { address, server, done } = request;
        self.request(Request::Listen { address, server, done: ListenDone::new(done) });
    }

    /// Closes a server's listeners, and refuses the handshakes with it that are in progress.
    /// Connections that are established stay.
    pub fn unlisten(&self, server: u64) {
        self.0.notice(Notice::Unlisten(server));
    }

    /// Runs `job` on the control thread, in order with other jobs; it may block, and every handshake
    /// waits meanwhile. When the thread has ended it runs here.
    ///
    /// Jobs are never refused: whoever gives them bounds them.
    pub fn run(&self, job: Job) {
        match self.0.notices.send(Notice::Run(job)) {
            Ok(()) => self.0.poller.notify(),
            Err(SendError(Notice::Run(job))) => job(),
            Err(_) => {}
        }
    }

    /// Ends the thread and waits for it: listeners close, and every request that is not answered
    /// yet is answered with [`ConnectError::ShutDown`]. On the control thread itself it does not
    /// wait. Further calls do nothing.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }

    fn request(&self, request: Request) {
        match self.0.requests.try_send(request) {
            Ok(()) => self.0.poller.notify(),
            Err(TrySendError::Full(request)) => {
                request.fail(ConnectError::Busy { max: QUEUE_MAX });
            }
            Err(TrySendError::Disconnected(request)) => request.fail(ConnectError::ShutDown),
        }
    }
}

impl Inner {
    fn notice(&self, notice: Notice) {
        // A thread that has ended needs no notice.
        let _ = self.notices.send(notice);
        self.poller.notify();
    }

    fn shutdown(&self) {
        self.notice(Notice::Shutdown);
        if self.id == Some(thread::current().id()) {
            return;
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread has been printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Request {
    /// Answers with an error.
    pub(super) fn fail(self, error: ConnectError) {
        match self {
            Self::Connect { done, .. } => done.fail(error),
            Self::Listen { done, .. } => done.answer(Err(error)),
        }
    }
}
