use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use super::answer::ConnectDone;
use super::poller::{Interest, Poller};
use super::socket::{connect_error, resolve, start_connect, system};
use super::{Address, AddressError, ConnectError, DeviceChoice, Step};

/// A TCP connection being opened: one address of the host after the other.
pub(super) struct Dial {
    /// The core that asked.
    pub core: usize,
    /// The device it asked for.
    pub device: DeviceChoice,
    /// Who is told.
    pub done: ConnectDone,
    /// When to give up.
    pub deadline: Instant,
    rest: VecDeque<SocketAddr>,
    attempt: Option<Attempt>,
}

struct Attempt {
    to: SocketAddr,
    socket: TcpStream,
    /// When the next address gets its turn.
    until: Instant,
}

/// How a dial goes on.
pub(super) enum Dialled {
    /// It waits, until [`Dial::timer`] at the latest.
    Waiting,
    /// The connection is open.
    Open(TcpStream),
    /// No address answered.
    Failed(ConnectError),
}

impl Dial {
    /// Resolves `address`.
    pub(super) fn new(
        address: &Address,
        core: usize,
        deadline: Instant,
        done: ConnectDone,
    ) -> Result<Self, (ConnectDone, ConnectError)> {
        let (device, addrs) = match address.device().and_then(|d| Ok((d, addrs(address)?))) {
            Ok(both) => both,
            Err(error) => return Err((done, error)),
        };
        Ok(Self { core, device, done, deadline, rest: addrs.into(), attempt: None })
    }

    /// The address of this machine that packets to the first address would carry, as the system
    /// routes them; nothing is sent.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        let to = self.rest.front()?;
        let any: IpAddr =
            if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip().to_canonical())
    }

    /// When it needs [`Self::on_timer`].
    pub(super) fn timer(&self) -> Instant {
        self.attempt.as_ref().map_or(self.deadline, |attempt| attempt.until)
    }

    /// Tries the addresses that are left until one does not fail at once. `failure` is why the one
    /// before failed.
    pub(super) fn advance(
        &mut self,
        poller: &Poller,
        key: u64,
        now: Instant,
        mut failure: ConnectError,
    ) -> Dialled {
        while let Some(to) = self.rest.pop_front() {
            // What is left of the time is shared out, so an address that swallows packets does not
            // keep the next one from being tried.
            let share = self.deadline.saturating_duration_since(now);
            let until = now + share / u32::try_from(self.rest.len() + 1).unwrap_or(1);
            let started = start_connect(to).and_then(|socket| {
                let watched = poller.add(&socket, key, Interest::Write);
                watched.map_err(|source| system("watching a socket", source))?;
                Ok(socket)
            });
            match started {
                Ok(socket) => {
                    self.attempt = Some(Attempt { to, socket, until });
                    return Dialled::Waiting;
                }
                Err(error) => failure = error,
            }
        }
        Dialled::Failed(failure)
    }

    /// The socket is writable, or has failed.
    pub(super) fn on_ready(&mut self, poller: &Poller, key: u64, now: Instant) -> Dialled {
        let Some(attempt) = self.attempt.take() else {
            return Dialled::Waiting;
        };
        let failure = match attempt.socket.take_error() {
            // A socket that is neither connected nor failed has no peer yet.
            Ok(None) if attempt.socket.peer_addr().is_err() => {
                self.attempt = Some(attempt);
                return Dialled::Waiting;
            }
            Ok(None) => {
                poller.delete(&attempt.socket);
                return Dialled::Open(attempt.socket);
            }
            Ok(Some(error)) | Err(error) => connect_error(attempt.to, error),
        };
        poller.delete(&attempt.socket);
        self.advance(poller, key, now, failure)
    }

    /// The time of this address, or of all of them, is over.
    pub(super) fn on_timer(&mut self, poller: &Poller, key: u64, now: Instant) -> Dialled {
        // Closing the socket ends its registration too.
        self.attempt = None;
        let failure = ConnectError::TimedOut { step: Step::Connect };
        if now >= self.deadline {
            return Dialled::Failed(failure);
        }
        self.advance(poller, key, now, failure)
    }
}

fn addrs(address: &Address) -> Result<Vec<SocketAddr>, ConnectError> {
    if address.port() == 0 {
        return Err(AddressError::PortZero.into());
    }
    resolve(address)
}
