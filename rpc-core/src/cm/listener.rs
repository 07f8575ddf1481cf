use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::poller::{Interest, Poller};
use super::socket::{listen, system};
use super::{Address, ConnectError, DeviceChoice};

/// Connections taken from one listener before others get their turn.
const ACCEPTS_MAX: usize = 64;

/// How long a listener rests when the system has no descriptor or memory for one more connection:
/// long enough not to burn a CPU, short enough that the backlog does not overflow meanwhile.
const PAUSE: Duration = Duration::from_millis(100);

/// A server's listening socket.
pub(super) struct Listener {
    /// The server it belongs to.
    pub server: u64,
    /// The device that its connections use.
    pub device: DeviceChoice,
    socket: TcpListener,
    paused_until: Option<Instant>,
}

/// What a round of accepting ended with.
#[derive(Debug)]
pub(super) enum Accepted {
    /// Nobody waits, or others get their turn first.
    Idle,
    /// The system refused; nothing is lost, and accepting goes on now or after a pause.
    Refused(io::Error),
}

impl Listener {
    pub(super) fn new(
        poller: &Poller,
        key: u64,
        address: &Address,
        server: u64,
    ) -> Result<(Self, SocketAddr), ConnectError> {
        let device = address.device()?;
        let socket = listen(address)?;
        let at = socket.local_addr().map_err(|source| system("reading a port", source))?;
        poller
            .add(&socket, key, Interest::Read)
            .map_err(|source| system("watching a socket", source))?;
        Ok((Self { server, device, socket, paused_until: None }, at))
    }

    /// When it needs [`Self::on_timer`].
    pub(super) fn timer(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Takes the connections that wait into `sockets`, nonblocking. It never ends: whatever fails,
    /// the listener goes on.
    pub(super) fn accept(
        &mut self,
        poller: &Poller,
        now: Instant,
        sockets: &mut Vec<TcpStream>,
    ) -> Accepted {
        for _ in 0..ACCEPTS_MAX {
            match self.socket.accept() {
                Ok((socket, _)) => match socket.set_nonblocking(true) {
                    Ok(()) => sockets.push(socket),
                    Err(error) => return Accepted::Refused(error),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Accepted::Idle,
                Err(error) => {
                    if !is_momentary(&error) {
                        self.pause(poller, now);
                    }
                    return Accepted::Refused(error);
                }
            }
        }
        Accepted::Idle
    }

    fn pause(&mut self, poller: &Poller, now: Instant) {
        poller.delete(&self.socket);
        self.paused_until = Some(now + PAUSE);
    }

    /// The pause is over.
    pub(super) fn on_timer(&mut self, poller: &Poller, key: u64, now: Instant) {
        // Without memory to watch the socket the pause goes on.
        self.paused_until = match poller.add(&self.socket, key, Interest::Read) {
            Ok(()) => None,
            Err(_) => Some(now + PAUSE),
        };
    }
}

/// Whether the error is the end of one connection that had not been accepted, and says nothing of
/// the next: accept(2) names these. Anything else, a shortage of descriptors above all, would come
/// again at once.
fn is_momentary(error: &io::Error) -> bool {
    let momentary = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::PERM,
        Errno::PROTO,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
    ];
    Errno::from_io_error(error).is_some_and(|errno| momentary.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_pauses_a_listener_and_an_aborted_connection_does_not() {
        for (errno, momentary) in [
            (Errno::MFILE, false),
            (Errno::NFILE, false),
            (Errno::NOBUFS, false),
            (Errno::NOMEM, false),
            (Errno::INVAL, false),
            (Errno::CONNABORTED, true),
            (Errno::PERM, true),
        ] {
            assert_eq!(is_momentary(&errno.into()), momentary, "{errno:?}");
        }
    }

    #[test]
    fn a_paused_listener_is_silent_until_its_timer_and_then_accepts() {
        let poller = Poller::new().unwrap();
        let now = Instant::now();
        let address = Address::parse("soft://127.0.0.1:0").unwrap();
        let (mut listener, at) = Listener::new(&poller, 7, &address, 1).unwrap();
        listener.pause(&poller, now);
        assert_eq!(listener.timer(), Some(now + PAUSE));

        let _peer = TcpStream::connect(at).unwrap();
        let mut keys = Vec::new();
        poller.wait(Some(Duration::ZERO), &mut keys).unwrap();
        assert!(keys.is_empty());

        listener.on_timer(&poller, 7, now + PAUSE);
        assert_eq!(listener.timer(), None);
        poller.wait(Some(Duration::from_secs(10)), &mut keys).unwrap();
        assert_eq!(keys, [7]);
        let mut sockets = Vec::new();
        assert!(matches!(listener.accept(&poller, now, &mut sockets), Accepted::Idle));
        assert_eq!(sockets.len(), 1);
    }
}
