use super::files::Files;

/// Where the kernel lists network interfaces.
const NETDEVS: &str = "/sys/class/net";

/// Interfaces that are looked through, for one that is up or for the other end of a pair: hosts of many containers
/// have more, and devices of RDMA are not made over those.
const OTHERS_MAX: usize = 512;

/// What `ip link set NAME up` sets (IFF_UP).
const UP: u32 = 1;

/// A network interface.
pub(super) struct Netdev<'a> {
    files: &'a Files,
    pub(super) name: String,
}

impl<'a> Netdev<'a> {
    pub(super) const fn new(files: &'a Files, name: String) -> Self {
        Self { files, name }
    }

    /// One that a software device could be made over: the first that is up, and no loopback; one of hardware
    /// rather than a tunnel or a bridge, which lead elsewhere.
    pub(super) fn any(files: &'a Files) -> Option<Self> {
        let all = files.names(NETDEVS).into_iter().map(|name| Self::new(files, name));
        let mut up: Vec<Self> = all
            .take(OTHERS_MAX)
            .filter(|netdev| netdev.name != "lo" && netdev.is_up() == Some(true))
            .collect();
        let hardware = up.iter().position(|netdev| files.exists(&netdev.file("device")));
        (!up.is_empty()).then(|| up.swap_remove(hardware.unwrap_or(0)))
    }

    fn file(&self, file: &str) -> String {
        format!("{NETDEVS}/{}/{file}", self.name)
    }

    /// Whether it was brought up, be there a link or not; `None` if that is not known.
    pub(super) fn is_up(&self) -> Option<bool> {
        let flags = self.files.read(&self.file("flags"))?;
        let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
        Some(flags & UP != 0)
    }

    /// Whether there is a link; `None` where it is down, or nothing is known.
    pub(super) fn has_carrier(&self) -> Option<bool> {
        self.files.number::<u8>(&self.file("carrier")).map(|carrier| carrier != 0)
    }

    /// Bytes of a packet.
    pub(super) fn mtu(&self) -> Option<u32> {
        self.files.number(&self.file("mtu"))
    }

    /// The other end of a pair (veth) that is here too: each names the other as its link.
    pub(super) fn other_end(&self) -> Option<Self> {
        let number = |netdev: &Self, file| self.files.number::<u32>(&netdev.file(file));
        let (own, link) = (number(self, "ifindex")?, number(self, "iflink")?);
        if own == link {
            return None;
        }
        let all = self.files.names(NETDEVS).into_iter().map(|name| Self::new(self.files, name));
        let is_its = |other: &Self| {
            number(other, "ifindex") == Some(link) && number(other, "iflink") == Some(own)
        };
        all.take(OTHERS_MAX).find(is_its)
    }
}
