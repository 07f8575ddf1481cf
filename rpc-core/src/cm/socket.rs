//! Sockets of control connections: how they are made and set.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::{Address, ConnectError, HostName};

/// Addresses of one name that are tried, in the resolver's order. Names have a handful.
const ADDRS_MAX: usize = 16;

/// Connections that the kernel completes before they are accepted: a cluster's reconnect at once.
/// The kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 1024;

/// A control connection is silent, so these find a peer whose machine is gone: the first probe after
/// 10 s, then every 5 s, and the connection is lost when nothing was acknowledged for 20 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 2;
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// The addresses of a host, in the order to try them.
///
/// A name is asked of the system's resolver, which may block for as long as /etc/resolv.conf allows
/// (often 5 s per server), and every other handshake of this runtime with it. The resolver has no
/// bound of its own and no interface that does not block, and a runtime has no further thread. Give
/// IP addresses where that matters.
pub(super) fn resolve(address: &Address) -> Result<Vec<SocketAddr>, ConnectError> {
    let name = match address.host() {
        HostName::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, address.port())]),
        HostName::Name(name) => name,
    };
    let unresolved = |reason: String| ConnectError::Resolve { host: name.clone(), reason };
    let found = (name.as_str(), address.port())
        .to_socket_addrs()
        .map_err(|error| unresolved(error.to_string()))?;
    let mut addrs = Vec::new();
    for addr in found {
        if !addrs.contains(&addr) && addrs.len() < ADDRS_MAX {
            addrs.push(addr);
        }
    }
    if addrs.is_empty() {
        return Err(unresolved("it has no addresses".to_owned()));
    }
    Ok(addrs)
}

/// Begins to connect. The socket is writable when it has succeeded or failed.
pub(super) fn start_connect(to: SocketAddr) -> Result<TcpStream, ConnectError> {
    let socket = new_socket(to.ip()).map_err(|source| system("opening a socket", source))?;
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(connect_error(to, error.into())),
    }
}

/// What a failed connect means.
pub(super) fn connect_error(to: SocketAddr, source: io::Error) -> ConnectError {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => ConnectError::Refused { to },
        io::ErrorKind::TimedOut => ConnectError::TimedOut { step: super::Step::Connect },
        _ => ConnectError::Unreachable { to, source },
    }
}

/// Listens at the first address of `address` that can be listened at.
pub(super) fn listen(address: &Address) -> Result<TcpListener, ConnectError> {
    let mut failure = None;
    for at in resolve(address)? {
        match listen_at(at) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    // There was an address, so there is an error.
    Err(failure.unwrap_or(ConnectError::NoServer))
}

fn listen_at(at: SocketAddr) -> Result<TcpListener, ConnectError> {
    let bound = || {
        let socket = new_socket(at.ip())?;
        // Connections of a former process in TIME_WAIT do not keep the port; a listener does.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &at)?;
        net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    bound().map(TcpListener::from).map_err(|source: io::Error| match source.kind() {
        io::ErrorKind::AddrInUse => ConnectError::PortInUse { at },
        io::ErrorKind::AddrNotAvailable => ConnectError::NotLocal { at },
        io::ErrorKind::PermissionDenied => ConnectError::PortForbidden { at },
        _ => system("listening", source),
    })
}

/// Sets what every control connection has.
pub(super) fn tune(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket.as_fd(), true)?;
    sockopt::set_tcp_keepidle(socket.as_fd(), KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket.as_fd(), KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(socket.as_fd(), KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(socket.as_fd(), true)?;
    let user_timeout_ms = u32::try_from(USER_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(socket.as_fd(), user_timeout_ms)?;
    Ok(())
}

pub(super) fn system(operation: &'static str, source: impl Into<io::Error>) -> ConnectError {
    ConnectError::System { operation, source: source.into() }
}

fn new_socket(ip: IpAddr) -> io::Result<OwnedFd> {
    let family = if ip.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_socket_notices_a_machine_that_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        tune(&socket).unwrap();
        assert!(sockopt::tcp_nodelay(&socket).unwrap());
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), 20_000);
        assert_eq!(sockopt::tcp_keepidle(&socket).unwrap(), KEEPALIVE_IDLE);
    }

    #[test]
    fn a_name_that_cannot_exist_does_not_resolve() {
        let address = Address::parse("soft://name.invalid:1").unwrap();
        let error = resolve(&address).unwrap_err();
        assert!(error.to_string().starts_with("the name \"name.invalid\" does not resolve"));
    }

    #[test]
    fn an_address_of_another_machine_cannot_be_listened_at() {
        let address = Address::parse("soft://192.0.2.1:0").unwrap();
        assert!(matches!(listen(&address), Err(ConnectError::NotLocal { .. })));
    }
}
