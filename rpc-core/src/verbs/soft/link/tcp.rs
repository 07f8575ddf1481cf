use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};

use super::{HELLO_BYTES, Hello};

/// How long dialling may take: the control thread of the dialling side is busy for so long.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long sent bytes may stay unacknowledged before the system gives the link up. Longer than a
/// peer's core may sensibly be busy with something else; without it a link over a broken network
/// would live for a quarter of an hour, and take new QPs down with it.
const UNACKED_MAX: Duration = Duration::from_secs(30);

/// A silent link is probed after this time, in these intervals, so often: a peer that vanished is
/// noticed though nothing is sent.
const PROBE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// One end of a TCP link.
pub(in crate::verbs::soft) struct TcpEnd {
    stream: TcpStream,
}

impl TcpEnd {
    /// Takes a connected socket.
    pub(in crate::verbs::soft) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Packets are small and written whole: waiting to fill a segment would only add latency.
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBE.0)?;
        sockopt::set_tcp_keepintvl(&stream, PROBE.1)?;
        sockopt::set_tcp_keepcnt(&stream, PROBE.2)?;
        sockopt::set_tcp_user_timeout(&stream, UNACKED_MAX.as_millis() as u32)?;
        Ok(Self { stream })
    }

    pub(super) fn write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        // Not `writev`: a peer that is gone must not raise SIGPIPE in a host program that kept it.
        let mut control = SendAncillaryBuffer::default();
        sendmsg(&self.stream, bufs, &mut control, SendFlags::NOSIGNAL).map_err(Errno::into)
    }

    pub(super) fn read(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.stream.read_vectored(bufs)
    }
}

impl AsFd for TcpEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// Dials a peer device and says who we are and whom we want. Blocks at most 3 s and a write of 32
/// bytes into an empty socket.
pub(in crate::verbs::soft) fn connect(to: SocketAddr, hello: Hello) -> io::Result<TcpEnd> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECT_TIMEOUT)?;
    stream.write_all(&hello.encode())?;
    TcpEnd::new(stream)
}

/// Listens for links on a port of the system's choice.
pub(in crate::verbs::soft) fn listen(ip: IpAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A dialled-in socket that has not said yet who it is.
pub(in crate::verbs::soft) struct HalfOpen {
    end: TcpEnd,
    bytes: [u8; HELLO_BYTES],
    have: usize,
}

impl HalfOpen {
    pub(in crate::verbs::soft) fn new(stream: TcpStream) -> io::Result<Self> {
        Ok(Self { end: TcpEnd::new(stream)?, bytes: [0; HELLO_BYTES], have: 0 })
    }

    /// Reads on. `Some` when the hello is complete: what it says, or an error for anything else.
    pub(in crate::verbs::soft) fn read(&mut self) -> Option<io::Result<Hello>> {
        while self.have < HELLO_BYTES {
            match self.end.stream.read(&mut self.bytes[self.have..]) {
                Ok(0) => return Some(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.have += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Hello::decode(&self.bytes).ok_or_else(|| io::ErrorKind::InvalidData.into()))
    }

    /// The socket, once its hello is read.
    pub(in crate::verbs::soft) fn into_end(self) -> TcpEnd {
        self.end
    }
}

impl AsFd for HalfOpen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}
