use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use super::ConnectError;

/// Bytes of the longest address text: a name of DNS, the port, and every option once.
const TEXT_BYTES_MAX: usize = 512;

/// Bytes of the longest name that DNS can hold.
const NAME_BYTES_MAX: usize = 253;

/// Bytes of the longest device name (`IBV_SYSFS_NAME_MAX` of libibverbs, less its zero).
const DEVICE_BYTES_MAX: usize = 63;

/// Where a server is: `scheme://host:port[?option=value&…]`.
///
/// - `soft://` uses the software device, `rdma://` insists on RDMA, `auto://` takes RDMA when both
///   ends can; a server at `auto://` serves clients of both kinds.
/// - The host is a name, an IPv4 address, or an IPv6 address in brackets.
/// - The options choose an RDMA device and path; see [`RdmaOptions`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scheme: Scheme,
    host: HostName,
    port: u16,
    options: RdmaOptions,
}

/// Which device an address asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// The software device.
    Soft,
    /// RDMA, or an error.
    Rdma,
    /// RDMA if both ends can, the software device otherwise.
    Auto,
}

/// The host of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// An IP address.
    Ip(IpAddr),
    /// A name to be resolved.
    Name(String),
}

/// Options of `rdma://` and `auto://` addresses. What is not given is chosen from the local address
/// of the control connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RdmaOptions {
    /// `device=NAME`: the RDMA device, at most 63 bytes.
    pub device: Option<String>,
    /// `device_port=N`: its port, from 1.
    pub device_port: Option<u8>,
    /// `gid_index=N`: the entry of the port's GID table.
    pub gid_index: Option<u8>,
    /// `pkey_index=N`: the entry of the port's PKey table.
    pub pkey_index: Option<u16>,
    /// `sl=N`: the service level, 0 to 15.
    pub service_level: Option<u8>,
    /// `traffic_class=N`: 0 to 255.
    pub traffic_class: Option<u8>,
    /// `hop_limit=N`: 1 to 255.
    pub hop_limit: Option<u8>,
    /// `rdma_ip=IP[,IP…]`: this machine's addresses on its RDMA networks, at most 4, where they are not that of
    /// the control connection. A server offers the device of each, in this order; a client uses the one that is
    /// on the network of the server's, or the first.
    pub addresses: Vec<IpAddr>,
}

/// Values of `rdma_ip` at most.
const ADDRESSES_MAX: usize = 4;

/// The device of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The software device.
    Soft,
    /// A device of libibverbs; what the options leave open follows from the local address of the
    /// control connection.
    Rdma(Arc<RdmaOptions>),
    /// The same, if both ends can; the software device otherwise.
    Auto(Arc<RdmaOptions>),
}

/// The options' names, for the sentence about an unknown one.
const OPTIONS: &str =
    "device, device_port, gid_index, pkey_index, sl, traffic_class, hop_limit, rdma_ip";

/// What is wrong with the text of an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is too long to be one.
    #[error("the address has {len} bytes; at most {TEXT_BYTES_MAX} are allowed")]
    TooLong {
        /// Its bytes.
        len: usize,
    },
    /// No scheme.
    #[error(
        "the address {text:?} has no scheme; write soft://, rdma:// or auto:// before the host, \
         for example auto://{text}"
    )]
    NoScheme {
        /// The address.
        text: String,
    },
    /// A scheme of another protocol.
    #[error("the scheme {scheme:?} is not known; use soft://, rdma:// or auto://")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// No host.
    #[error("the address {text:?} has no host; write a name or an IP address before the port")]
    NoHost {
        /// The address.
        text: String,
    },
    /// The host is neither a name nor an IP address.
    #[error("{host:?} is neither a host name nor an IP address: {why}")]
    BadHost {
        /// The host.
        host: String,
        /// What is wrong.
        why: &'static str,
    },
    /// An IPv6 address without brackets.
    #[error("write an IPv6 address in brackets: [{host}]:port")]
    NoBrackets {
        /// The address.
        host: String,
    },
    /// No port.
    #[error("the address {text:?} has no port; add one, for example :7471")]
    NoPort {
        /// The address.
        text: String,
    },
    /// The port is no number of 16 bits.
    #[error("{port:?} is not a port; a port is a number from 0 to 65535")]
    BadPort {
        /// The port.
        port: String,
    },
    /// Port 0 in an address to connect to.
    #[error(
        "port 0 names no server: it asks for any free port when listening; connect to the port \
         that the server says it bound"
    )]
    PortZero,
    /// A path after the port.
    #[error("an address ends after the port, but {rest:?} follows; services need no path")]
    Path {
        /// What follows.
        rest: String,
    },
    /// An option without `=`.
    #[error("the option {option:?} has no value; write {option}=value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// An option that does not exist.
    #[error("the option {option:?} does not exist; there are: {OPTIONS}")]
    UnknownOption {
        /// The option.
        option: String,
    },
    /// An option given twice.
    #[error("the option {option:?} is given twice")]
    TwiceOption {
        /// The option.
        option: &'static str,
    },
    /// An option whose value is out of its range.
    #[error("the option {option} cannot be {value:?}; it takes {takes}")]
    BadOption {
        /// The option.
        option: &'static str,
        /// The value.
        value: String,
        /// What it takes.
        takes: &'static str,
    },
    /// An RDMA option of the software device.
    #[error(
        "the option {option} chooses an RDMA path, which soft:// has not; remove it, or use \
         auto:// or rdma://"
    )]
    SoftOption {
        /// The option.
        option: String,
    },
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`AddressError`], whose sentence says what to write instead. Whether this build can serve
    /// the scheme is asked by [`Self::device`], whether the port can be connected to when it is.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(AddressError::TooLong { len: text.len() });
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(AddressError::NoScheme { text: text.to_owned() });
        };
        let scheme = Scheme::parse(scheme)?;
        let (authority, options) = match rest.split_once('?') {
            Some((authority, options)) => (authority, Some(options)),
            None => (rest, None),
        };
        let authority = match authority.split_once('/') {
            Some((authority, "")) => authority,
            Some((_, path)) => return Err(AddressError::Path { rest: format!("/{path}") }),
            None => authority,
        };
        let (host, port) = split_port(text, authority)?;
        let port = parse_port(port)?;
        let options = match options {
            Some(options) => RdmaOptions::parse(scheme, options)?,
            None => RdmaOptions::default(),
        };
        Ok(Self { scheme, host, port, options })
    }

    /// The scheme.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host.
    pub fn host(&self) -> &HostName {
        &self.host
    }

    /// The port; 0 asks for any free one when listening.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The options.
    pub fn options(&self) -> &RdmaOptions {
        &self.options
    }

    /// With what its options leave open taken from `defaults`. `soft://` has no options.
    pub(crate) fn with_defaults(self, defaults: &RdmaOptions) -> Self {
        match self.scheme {
            Scheme::Soft => self,
            Scheme::Rdma | Scheme::Auto => Self { options: self.options.or(defaults), ..self },
        }
    }

    /// The device that a connection to, or at, this address uses.
    ///
    /// # Errors
    /// [`ConnectError::VerbsFeatureMissing`] for `rdma://` in a build without that feature.
    pub fn device(&self) -> Result<DeviceChoice, ConnectError> {
        let options = || Arc::new(self.options.clone());
        match self.scheme {
            Scheme::Soft => Ok(DeviceChoice::Soft),
            Scheme::Auto => Ok(DeviceChoice::Auto(options())),
            Scheme::Rdma if cfg!(feature = "verbs") => Ok(DeviceChoice::Rdma(options())),
            Scheme::Rdma => Err(ConnectError::VerbsFeatureMissing),
        }
    }
}

impl Scheme {
    fn parse(text: &str) -> Result<Self, AddressError> {
        match text {
            "soft" => Ok(Self::Soft),
            "rdma" => Ok(Self::Rdma),
            "auto" => Ok(Self::Auto),
            _ => Err(AddressError::Scheme { scheme: text.to_owned() }),
        }
    }
}

/// Cuts `host:port` at the right colon.
fn split_port<'a>(text: &str, authority: &'a str) -> Result<(HostName, &'a str), AddressError> {
    let no_port = || AddressError::NoPort { text: text.to_owned() };
    if let Some(rest) = authority.strip_prefix('[') {
        let Some((host, rest)) = rest.split_once(']') else {
            return Err(AddressError::BadHost {
                host: authority.to_owned(),
                why: "the bracket is not closed",
            });
        };
        let port = rest.strip_prefix(':').ok_or_else(no_port)?;
        let ip: Ipv6Addr = host.parse().map_err(|_| AddressError::BadHost {
            host: host.to_owned(),
            why: if host.contains('%') {
                "interface scopes are not supported; use an address that is not link-local"
            } else {
                "brackets are for IPv6 addresses"
            },
        })?;
        return Ok((HostName::Ip(ip.into()), port));
    }
    if authority.parse::<Ipv6Addr>().is_ok() {
        return Err(AddressError::NoBrackets { host: authority.to_owned() });
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((_, "")) => return Err(no_port()),
        Some(halves) => halves,
        None if authority.is_empty() => {
            return Err(AddressError::NoHost { text: text.to_owned() });
        }
        None => return Err(no_port()),
    };
    if host.is_empty() {
        return Err(AddressError::NoHost { text: text.to_owned() });
    }
    Ok((HostName::parse(host)?, port))
}

impl HostName {
    fn parse(host: &str) -> Result<Self, AddressError> {
        let bad = |why| AddressError::BadHost { host: host.to_owned(), why };
        if let Ok(ip) = host.parse::<IpAddr>() {
            return match ip {
                IpAddr::V4(_) => Ok(Self::Ip(ip)),
                IpAddr::V6(_) => Err(AddressError::NoBrackets { host: host.to_owned() }),
            };
        }
        if host.len() > NAME_BYTES_MAX {
            return Err(bad("a name has at most 253 bytes"));
        }
        if !host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
            return Err(bad("a name is of letters, digits, '-', '_' and '.'"));
        }
        // What consists of digits and dots was meant as an address; a resolver would guess at it.
        if host.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            return Err(bad("an IPv4 address is four numbers from 0 to 255"));
        }
        if host.strip_suffix('.').unwrap_or(host).split('.').any(|l| l.is_empty() || l.len() > 63) {
            return Err(bad("each part of a name has 1 to 63 bytes"));
        }
        Ok(Self::Name(host.to_owned()))
    }
}

fn parse_port(text: &str) -> Result<u16, AddressError> {
    number(text).ok_or_else(|| AddressError::BadPort { port: text.to_owned() })
}

/// A number of digits only: `str::parse` would take a plus sign too.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl RdmaOptions {
    fn parse(scheme: Scheme, text: &str) -> Result<Self, AddressError> {
        let mut options = Self::default();
        for part in text.split('&') {
            let (option, value) = part
                .split_once('=')
                .filter(|(_, value)| !value.is_empty())
                .ok_or_else(|| match part.trim_end_matches('=') {
                    // A question mark or an ampersand with nothing behind it.
                    "" => AddressError::UnknownOption { option: part.to_owned() },
                    option => AddressError::NoValue { option: option.to_owned() },
                })?;
            options.set(option, value)?;
            if scheme == Scheme::Soft {
                return Err(AddressError::SoftOption { option: option.to_owned() });
            }
        }
        Ok(options)
    }

    fn set(&mut self, option: &str, value: &str) -> Result<(), AddressError> {
        match option {
            "device" => {
                let valid = value.len() <= DEVICE_BYTES_MAX
                    && value.bytes().all(|b| b.is_ascii_graphic() && b != b'/');
                let device = valid.then(|| value.to_owned());
                fill(&mut self.device, "device", value, device, "a device's name, as ibv_devices")
            }
            "device_port" => {
                let port = number(value).filter(|port| *port >= 1);
                fill(&mut self.device_port, "device_port", value, port, "1 to 255")
            }
            "gid_index" => fill(&mut self.gid_index, "gid_index", value, number(value), "0 to 255"),
            "pkey_index" => {
                fill(&mut self.pkey_index, "pkey_index", value, number(value), "0 to 65535")
            }
            "sl" => {
                let level = number(value).filter(|level| *level <= 15);
                fill(&mut self.service_level, "sl", value, level, "0 to 15")
            }
            "traffic_class" => {
                fill(&mut self.traffic_class, "traffic_class", value, number(value), "0 to 255")
            }
            "hop_limit" => {
                let hops = number(value).filter(|hops| *hops >= 1);
                fill(&mut self.hop_limit, "hop_limit", value, hops, "1 to 255")
            }
            "rdma_ip" => {
                let takes = "1 to 4 IP addresses with commas between them";
                let parsed = addresses(value);
                let mut slot = Some(std::mem::take(&mut self.addresses)).filter(|a| !a.is_empty());
                fill(&mut slot, "rdma_ip", value, parsed, takes)?;
                self.addresses = slot.unwrap_or_default();
                Ok(())
            }
            _ => Err(AddressError::UnknownOption { option: option.to_owned() }),
        }
    }

    /// What is not given here is taken from `defaults`.
    pub(crate) fn or(self, defaults: &Self) -> Self {
        Self {
            device: self.device.or_else(|| defaults.device.clone()),
            device_port: self.device_port.or(defaults.device_port),
            gid_index: self.gid_index.or(defaults.gid_index),
            pkey_index: self.pkey_index.or(defaults.pkey_index),
            service_level: self.service_level.or(defaults.service_level),
            traffic_class: self.traffic_class.or(defaults.traffic_class),
            hop_limit: self.hop_limit.or(defaults.hop_limit),
            addresses: if self.addresses.is_empty() {
                defaults.addresses.clone()
            } else {
                self.addresses
            },
        }
    }

    /// The options that are set, in a fixed order.
    fn each(&self) -> impl Iterator<Item = (&'static str, String)> {
        let number = |name, value: Option<u8>| value.map(|value| (name, value.to_string()));
        let listed: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        let listed = listed.join(",");
        [
            self.device.clone().map(|value| ("device", value)),
            number("device_port", self.device_port),
            number("gid_index", self.gid_index),
            self.pkey_index.map(|value| ("pkey_index", value.to_string())),
            number("sl", self.service_level),
            number("traffic_class", self.traffic_class),
            number("hop_limit", self.hop_limit),
            Some(("rdma_ip", listed)).filter(|_| !self.addresses.is_empty()),
        ]
        .into_iter()
        .flatten()
    }
}

fn addresses(value: &str) -> Option<Vec<IpAddr>> {
    let addresses: Vec<IpAddr> =
        value.split(',').map(|ip| ip.parse().ok()).collect::<Option<_>>()?;
    let usable = addresses.len() <= ADDRESSES_MAX
        && !addresses.iter().any(|ip| ip.is_unspecified() || ip.is_multicast());
    usable.then_some(addresses)
}

/// Sets an option, once and to a valid value.
fn fill<T>(
    slot: &mut Option<T>,
    option: &'static str,
    value: &str,
    parsed: Option<T>,
    takes: &'static str,
) -> Result<(), AddressError> {
    let Some(parsed) = parsed else {
        return Err(AddressError::BadOption { option, value: value.to_owned(), takes });
    };
    match slot.replace(parsed) {
        None => Ok(()),
        Some(_) => Err(AddressError::TwiceOption { option }),
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text)
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Soft => "soft",
            Self::Rdma => "rdma",
            Self::Auto => "auto",
        })
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme, self.host, self.port)?;
        for (index, (option, value)) in self.options.each().enumerate() {
            write!(f, "{}{option}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
