use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// A handle on a control connection. Clones share one socket, which closes with the last of them.
#[derive(Clone, Debug)]
pub struct ControlStream(Socket);

#[derive(Clone, Debug)]
enum Socket {
    Tcp(Arc<TcpStream>),
    /// Both ends are in this process.
    Unix(Arc<UnixStream>),
    /// The other end is on another node of a simulation.
    #[cfg(any(test, feature = "test-util"))]
    Simulated(Arc<Simulated>),
}

/// A socket pair with the addresses that its ends stand for.
#[cfg(any(test, feature = "test-util"))]
#[derive(Debug)]
struct Simulated {
    socket: UnixStream,
    local: SocketAddr,
    remote: SocketAddr,
}

impl ControlStream {
    /// Takes a nonblocking TCP socket.
    pub(super) fn tcp(socket: TcpStream) -> Self {
        Self(Socket::Tcp(Arc::new(socket)))
    }

    /// Makes both ends of a connection inside this process.
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        one.set_nonblocking(true)?;
        other.set_nonblocking(true)?;
        Ok((Self(Socket::Unix(Arc::new(one))), Self(Socket::Unix(Arc::new(other)))))
    }

    /// Makes one end of a connection between two nodes of a simulation, and the socket in its middle.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn simulated(
        local: SocketAddr,
        remote: SocketAddr,
    ) -> io::Result<(Self, UnixStream)> {
        let (socket, middle) = UnixStream::pair()?;
        socket.set_nonblocking(true)?;
        middle.set_nonblocking(true)?;
        let end = Simulated { socket, local, remote };
        Ok((Self(Socket::Simulated(Arc::new(end))), middle))
    }

    /// The descriptor to watch. It becomes readable when the connection is lost; after the
    /// handshake nothing else makes it readable.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
            #[cfg(any(test, feature = "test-util"))]
            Socket::Simulated(end) => end.socket.as_fd(),
        }
    }

    /// Whether the connection has ended. Never blocks.
    ///
    /// The peer has nothing to say after the handshake, so a byte from it also ends the connection.
    pub fn is_lost(&self) -> bool {
        match self.read(&mut [0; 1]) {
            Ok(_) => true,
            Err(error) => {
                !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
            }
        }
    }

    /// Ends the connection in both directions, whoever else holds a handle: the peer sees it now.
    pub fn close(&self) {
        // It fails only if the connection has ended already.
        let _ = self.shutdown(Shutdown::Both);
    }

    /// The remote end; `None` inside one process.
    pub fn remote_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Socket::Tcp(socket) => socket.peer_addr().ok(),
            Socket::Unix(_) => None,
            #[cfg(any(test, feature = "test-util"))]
            Socket::Simulated(end) => Some(end.remote),
        }
    }

    /// This end; `None` inside one process.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(_) => None,
            #[cfg(any(test, feature = "test-util"))]
            Socket::Simulated(end) => Some(end.local),
        }
    }

    /// Whether both ends are in this process.
    pub fn is_in_process(&self) -> bool {
        matches!(self.0, Socket::Unix(_))
    }

    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match &self.0 {
            Socket::Tcp(socket) => socket.shutdown(how),
            Socket::Unix(socket) => socket.shutdown(how),
            #[cfg(any(test, feature = "test-util"))]
            Socket::Simulated(end) => end.socket.shutdown(how),
        }
    }

    pub(super) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match &self.0 {
            Socket::Tcp(socket) => (&**socket).read(bytes),
            Socket::Unix(socket) => (&**socket).read(bytes),
            #[cfg(any(test, feature = "test-util"))]
            Socket::Simulated(end) => (&end.socket).read(bytes),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0 {
            Socket::Tcp(socket) => (&**socket).write(bytes),
            Socket::Unix(socket) => (&**socket).write(bytes),
            #[cfg(any(test, feature = "test-util"))]
            Socket::Simulated(end) => (&end.socket).write(bytes),
        }
    }
}

impl AsFd for ControlStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_not_lost_and_a_closed_one_is() {
        let (one, other) = ControlStream::pair().unwrap();
        assert!(!one.is_lost());
        drop(other);
        assert!(one.is_lost());
    }

    #[test]
    fn a_stray_byte_is_loss() {
        let (one, other) = ControlStream::pair().unwrap();
        other.write(b"x").unwrap();
        assert!(one.is_lost());
    }

    #[test]
    fn close_is_seen_though_another_handle_lives() {
        let (one, other) = ControlStream::pair().unwrap();
        let kept = other.clone();
        other.close();
        assert!(one.is_lost());
        drop(kept);
    }
}
