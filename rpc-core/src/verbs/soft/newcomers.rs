use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;

use super::link::{HalfOpen, Hello, TcpEnd, listen};
use super::table::{Id, Table};
use crate::Time;
use crate::verbs::VerbsError;

/// Sockets that have not said who they are. Beyond, the oldest goes: an honest peer needs one
/// round trip.
pub(super) const HALF_OPEN_MAX: u32 = 64;

/// How long a socket may take to say who it is.
pub(super) const HELLO_WAIT: Duration = Duration::from_secs(5);

/// How long the listener rests when the system has no descriptor for one more socket: long enough not
/// to burn a CPU over a socket that stays ready, short enough that the backlog does not overflow.
pub(super) const REST: Duration = Duration::from_millis(100);

/// Sockets accepted in one poll.
const ACCEPT_TURN: u32 = 16;

pub(super) const TOKEN_LISTENER: u64 = u64::MAX - 1;
pub(super) const TOKEN_HALF_OPEN: u64 = 1 << 63;

/// Peers that dial: the listener, and sockets that have not said yet which device they come from.
pub(super) struct Newcomers {
    listener: Option<(TcpListener, SocketAddr)>,
    /// Out of epoll until then.
    resting_until: Option<Time>,
    half_open: Table<(HalfOpen, Time)>,
    accept_errors: u64,
}

/// What a socket said.
pub(super) enum Heard {
    /// Nothing whole yet.
    Nothing,
    /// It is the end of a link.
    Hello(Hello, TcpEnd),
    /// It is no peer's, and was closed.
    Garbage,
}

/// What a round of accepting came to.
pub(super) struct Accepted {
    /// Sockets to be heard.
    pub(super) new: Vec<Id>,
    /// The system has no descriptor for more.
    pub(super) short: bool,
}

impl Newcomers {
    pub(super) fn new() -> Self {
        Self { listener: None, resting_until: None, half_open: Table::new(), accept_errors: 0 }
    }

    /// Opens the listener for peers that dial, once. Later calls answer with the first one's place.
    pub(super) fn listen(&mut self, epoll: &OwnedFd, ip: IpAddr) -> Result<SocketAddr, VerbsError> {
        if let Some((_, local)) = &self.listener {
            return Ok(*local);
        }
        let system = |source| VerbsError::System { operation: "listening for links", source };
        let listener = listen(ip).map_err(system)?;
        let local = listener.local_addr().map_err(system)?;
        watch(epoll, &listener, TOKEN_LISTENER).map_err(system)?;
        self.listener = Some((listener, local));
        Ok(local)
    }

    /// Where the listener is, if there is one.
    pub(super) fn listens_at(&self) -> Option<SocketAddr> {
        self.listener.as_ref().map(|(_, local)| *local)
    }

    /// Whether somebody may dial, or has dialled and said nothing yet: (may, has).
    pub(super) fn expected(&self) -> (bool, bool) {
        (self.listener.is_some() && self.resting_until.is_none(), self.half_open.len() > 0)
    }

    /// When [`on_time`](Self::on_time) is needed though nothing arrives.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let hello = self.half_open.iter().map(|(_, (_, until))| *until).min();
        hello.into_iter().chain(self.resting_until).min()
    }

    /// Closes sockets that said nothing in time, and ends the listener's rest.
    pub(super) fn on_time(&mut self, epoll: &OwnedFd, now: Time) {
        if self.half_open.len() > 0 {
            let late = |(_, (_, until)): &(Id, &(HalfOpen, Time))| *until <= now;
            let late: Vec<Id> = self.half_open.iter().filter(late).map(|(id, _)| id).collect();
            for id in late {
                self.half_open.remove(id);
            }
        }
        if self.resting_until.is_some_and(|until| until <= now)
            && let Some((listener, _)) = &self.listener
        {
            // Without memory to watch it, the rest goes on.
            let watched = watch(epoll, listener, TOKEN_LISTENER);
            self.resting_until = watched.err().map(|_| now + REST);
        }
    }

    /// Takes the sockets that wait.
    pub(super) fn accept(&mut self, epoll: &OwnedFd, now: Time) -> Accepted {
        let mut accepted = Accepted { new: Vec::new(), short: false };
        for _ in 0..ACCEPT_TURN {
            let Some((listener, _)) = &self.listener else { break };
            let taken = match listener.accept() {
                Ok((stream, _)) => HalfOpen::new(stream),
                Err(error) => Err(error),
            };
            match taken {
                Ok(half) => accepted.new.extend(self.add(epoll, half, now)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    self.accept_errors += 1;
                    if self.accept_errors.is_power_of_two() {
                        tracing::warn!(
                            "accepting a device link failed: {error}; if descriptors are short, \
                             raise the limit on open files (ulimit -n)"
                        );
                    }
                    accepted.short = is_shortage(&error);
                    if accepted.short {
                        self.rest(epoll, now);
                    }
                    break;
                }
            }
        }
        accepted
    }

    /// Takes the listener out of epoll for a while: a level-triggered socket that nothing can be done
    /// about would end every sleep of the core at once.
    fn rest(&mut self, epoll: &OwnedFd, now: Time) {
        if let Some((listener, _)) = &self.listener {
            // It fails only for a socket that is not watched.
            let _ = epoll::delete(epoll, listener);
            self.resting_until = Some(now + REST);
        }
    }

    fn add(&mut self, epoll: &OwnedFd, half: HalfOpen, now: Time) -> Option<Id> {
        if self.half_open.len() >= HALF_OPEN_MAX {
            let oldest = self.half_open.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(id) = oldest.map(|(id, _)| id) {
                self.half_open.remove(id);
            }
        }
        let until = now + HELLO_WAIT;
        let id = self.half_open.insert_with(|_| (half, until));
        let watched = self
            .half_open
            .get(id)
            .map(|(half, _)| watch(epoll, half, TOKEN_HALF_OPEN | id.as_u64()));
        if !matches!(watched, Some(Ok(()))) {
            self.half_open.remove(id);
            return None;
        }
        Some(id)
    }

    /// Reads what a socket says; `guid` is this device's.
    pub(super) fn hear(&mut self, epoll: &OwnedFd, id: Id, guid: u64) -> Heard {
        let Some((half, _)) = self.half_open.get_mut(id) else { return Heard::Nothing };
        let Some(hello) = half.read() else { return Heard::Nothing };
        let Some((half, _)) = self.half_open.remove(id) else { return Heard::Nothing };
        match hello {
            Ok(hello) if hello.to == guid && hello.from != guid => {
                let end = half.into_end();
                let _ = epoll::delete(epoll, &end);
                Heard::Hello(hello, end)
            }
            _ => Heard::Garbage,
        }
    }
}

/// Whether accepting fails until somebody closes something.
fn is_shortage(error: &std::io::Error) -> bool {
    let shortages = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| shortages.contains(&errno))
}

fn watch(epoll: &OwnedFd, what: impl AsFd, token: u64) -> std::io::Result<()> {
    Ok(epoll::add(epoll, what, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?)
}

#[cfg(test)]
mod tests {
    use std::mem::MaybeUninit;
    use std::net::{Ipv4Addr, TcpStream};

    use rustix::event::Timespec;

    use super::*;

    fn ready(epoll: &OwnedFd, timeout_ms: i64) -> usize {
        let mut space = [const { MaybeUninit::uninit() }; 4];
        let timeout =
            Timespec { tv_sec: timeout_ms / 1000, tv_nsec: timeout_ms % 1000 * 1_000_000 };
        epoll::wait(epoll, &mut space, Some(&timeout)).unwrap().0.len()
    }

    #[test]
    fn a_listener_out_of_descriptors_rests_and_then_goes_on() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let mut newcomers = Newcomers::new();
        let at = newcomers.listen(&epoll, IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
        let now = Time::ZERO + HELLO_WAIT;
        newcomers.rest(&epoll, now);
        assert_eq!(newcomers.next_deadline(), Some(now + REST));
        assert_eq!(newcomers.expected(), (false, false));

        let _peer = TcpStream::connect(at).unwrap();
        assert_eq!(ready(&epoll, 0), 0, "whoever dials does not end a sleep meanwhile");
        newcomers.on_time(&epoll, now + REST / 2);
        assert_eq!(ready(&epoll, 0), 0);

        newcomers.on_time(&epoll, now + REST);
        assert_eq!(newcomers.expected(), (true, false));
        assert_eq!(ready(&epoll, 10_000), 1);
        let accepted = newcomers.accept(&epoll, now + REST);
        assert_eq!((accepted.new.len(), accepted.short), (1, false));
    }

    #[test]
    fn only_a_shortage_makes_a_listener_rest() {
        for (errno, shortage) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOMEM, true),
            (Errno::CONNABORTED, false),
        ] {
            assert_eq!(is_shortage(&errno.into()), shortage, "{errno:?}");
        }
    }
}
