use std::env;
use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

/// Names where the tests serve, as `rdma://10.0.0.1`.
const VARIABLE: &str = "RPC_TEST_AT";

/// How much longer everything may take in the guest: its CPUs are emulated.
const SLOWER: u32 = 6;
/// How many times fewer calls a test of very many makes there.
const FEWER: u64 = 50;

/// Where tests serve and connect: on this host over the software device, unless the environment names
/// another scheme and host in `RPC_TEST_AT`, such as `rdma://10.77.0.1` in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// With `://`.
    scheme: String,
    host: IpAddr,
}

impl Place {
    /// The place of this process.
    ///
    /// # Panics
    /// If the variable does not hold a scheme and an IP address.
    pub fn here() -> &'static Self {
        static HERE: LazyLock<Place> = LazyLock::new(|| {
            let text = env::var(VARIABLE).unwrap_or_else(|_| "soft://127.0.0.1".into());
            Place::parse(&text).unwrap_or_else(|| {
                panic!("{VARIABLE} is {text:?}; it must be like rdma://10.77.0.1")
            })
        });
        &HERE
    }

    fn parse(text: &str) -> Option<Self> {
        let at = text.find("://")? + 3;
        let (scheme, host) = text.split_at(at);
        Some(Self { scheme: scheme.to_owned(), host: host.parse().ok()? })
    }

    /// Its address with a port. For IPv4, as all of the tests' hosts are.
    pub fn address(&self, port: u16) -> String {
        format!("{}{}:{port}", self.scheme, self.host)
    }

    /// The same host by another scheme, such as `auto://`.
    pub fn by(&self, scheme: &str) -> Self {
        Self { scheme: scheme.to_owned(), host: self.host }
    }

    /// The host alone.
    pub fn host(&self) -> IpAddr {
        self.host
    }

    /// Whether it is the software device.
    pub fn is_soft(&self) -> bool {
        self.scheme == "soft://"
    }

    /// A limit of time, for this place.
    pub fn within(&self, limit: Duration) -> Duration {
        if self.is_soft() { limit } else { limit * SLOWER }
    }

    /// A number of calls, for this place.
    pub fn calls(&self, calls: u64) -> u64 {
        if self.is_soft() { calls } else { calls / FEWER }
    }

    /// Whether a test that is about the software device has to be left out here; it says so then, and
    /// why, for who reads the log.
    pub fn skips(&self, why: &str) -> bool {
        if !self.is_soft() {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            println!("skipped {test}: {why}");
        }
        !self.is_soft()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_scheme_and_an_ip_address() {
        let place = Place::parse("rdma://10.77.0.1").unwrap();
        assert_eq!(place.address(7), "rdma://10.77.0.1:7");
        assert!(!place.is_soft() && Place::parse("soft://127.0.0.1").unwrap().is_soft());
        assert_eq!(Place::parse("10.77.0.1"), None);
        assert_eq!(Place::parse("rdma://somewhere"), None);
    }
}
