//! Where on this machine it is measured: a port of a device, and an address that is on it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use crate::failure::Failure;

/// Where the kernel lists its RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// One port of one device. Both ends are on it: what they say to each other goes through the device all the
/// same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: String,
    pub(super) port: u8,
    /// `None` on InfiniBand, where a LID says all.
    pub(super) gid_index: Option<u32>,
    /// The address that this entry is; InfiniBand's are none.
    pub(super) address: Option<IpAddr>,
}

#[derive(clap::Args, Default)]
pub(super) struct Wanted {
    /// The RDMA device; without it, the first with a port that can be used.
    #[arg(long)]
    device: Option<String>,
    /// Its port; without it, the first that is active.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
    port: Option<u8>,
    /// The entry of its GID table; without it, the first that is a RoCE v2 address of IPv4, or of IPv6 if there is
    /// none, and none on InfiniBand.
    #[arg(long)]
    gid_index: Option<u32>,
}

impl Place {
    /// The wanted place, or the first there is.
    pub(super) fn find(wanted: &Wanted) -> Result<Self, Failure> {
        Self::find_in(Path::new(DEVICES), wanted)
    }

    fn find_in(devices: &Path, wanted: &Wanted) -> Result<Self, Failure> {
        let none = |why: String| {
            Failure::new(format!(
                "this machine has no RDMA device ({}{why}); `rdma link add rxe0 type rxe netdev eth0` makes a software \
                 one, and tests/rxe/bench measures in an emulated machine that has one",
                devices.display()
            ))
        };
        let there = names(devices).map_err(|error| none(format!(": {error}")))?;
        if there.is_empty() {
            return Err(none(" is empty".to_owned()));
        }
        let mut refused = Vec::new();
        for device in
            there.iter().filter(|name| wanted.device.as_ref().is_none_or(|device| device == *name))
        {
            let ports = devices.join(device).join("ports");
            let mut numbers: Vec<u8> = names(&ports)
                .unwrap_or_default()
                .iter()
                .filter_map(|name| name.parse().ok())
                .collect();
            numbers.sort_unstable();
            for port in
                numbers.into_iter().filter(|port| wanted.port.is_none_or(|wanted| wanted == *port))
            {
                match entry(&ports.join(port.to_string()), wanted.gid_index) {
                    Ok((gid_index, address)) => {
                        return Ok(Self { device: device.clone(), port, gid_index, address });
                    }
                    Err(why) => refused.push(format!("{device}, port {port}: {why}")),
                }
            }
        }
        let why = if refused.is_empty() {
            format!("this machine has no such port; its RDMA devices: {}", there.join(", "))
        } else {
            refused.join("; ")
        };
        Err(Failure::new(format!(
            "no port of an RDMA device can be measured as wanted. {why}. `kv doctor` lists devices, ports and GIDs and \
             says how to mend them; --device, --port and --gid-index choose"
        )))
    }

    /// Where its servers listen: what makes a connection goes by TCP, within this machine.
    pub(super) fn host(&self) -> IpAddr {
        self.address.filter(IpAddr::is_ipv4).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// What an address of this framework says of it: `rdma://10.0.0.1:PORT?…`.
    pub(super) fn url(&self, port: u16) -> String {
        let gid = self.gid_index.map(|index| format!("&gid_index={index}")).unwrap_or_default();
        format!(
            "rdma://{}:{port}?device={}&device_port={}{gid}",
            self.host(),
            self.device,
            self.port
        )
    }

    /// For people.
    pub(super) fn show(&self) -> String {
        let address = self.address.map(|address| format!(" = {address}")).unwrap_or_default();
        let gid = self
            .gid_index
            .map_or_else(|| "InfiniBand".to_owned(), |index| format!("GID {index}{address}"));
        format!("device {}, port {} ({gid})", self.device, self.port)
    }
}

fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let entries = fs::read_dir(folder)?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

fn text_of(path: &Path) -> String {
    fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// The entry of a port's GID table to be used, and the address that it is; or why there is none.
fn entry(port: &Path, wanted: Option<u32>) -> Result<(Option<u32>, Option<IpAddr>), String> {
    let state = text_of(&port.join("state"));
    if !state.ends_with("ACTIVE") {
        return Err(format!("it is not active ({state:?})"));
    }
    if text_of(&port.join("link_layer")) == "InfiniBand" {
        return Ok((wanted, None));
    }
    if let Some(index) = wanted {
        let address = roce_v2(port, index)
            .ok_or_else(|| format!("entry {index} of its GID table is no address over RoCE v2"))?;
        return Ok((Some(index), Some(address)));
    }
    let mut indices: Vec<u32> = names(&port.join("gids"))
        .unwrap_or_default()
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    indices.sort_unstable();
    let there = indices.into_iter().filter_map(|index| Some((index, roce_v2(port, index)?)));
    // Who says nothing of a peer's whereabouts cannot be connected to from another machine either.
    let global =
        there.filter(|(_, ip)| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()));
    // IPv4 first; of each kind the first.
    let (index, address) = global.min_by_key(|(_, ip)| ip.is_ipv6()).ok_or(
        "its GID table has no address over RoCE v2 but link-local ones; give its network interface an IP address",
    )?;
    Ok((Some(index), Some(address)))
}

/// The address that an entry of the GID table is, over RoCE v2.
fn roce_v2(port: &Path, index: u32) -> Option<IpAddr> {
    let gid = text_of(&port.join(format!("gids/{index}"))).parse::<Ipv6Addr>().ok()?;
    let is_v2 = text_of(&port.join(format!("gid_attrs/types/{index}"))) == "RoCE v2";
    (is_v2 && !gid.is_unspecified()).then_some(gid.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine as the kernel shows it.
    struct Machine(std::path::PathBuf);

    impl Machine {
        fn new(name: &str) -> Self {
            Self(std::env::temp_dir().join(format!("bench-place-{name}-{}", std::process::id())))
        }

        fn port(&self, name: &str, port: u8, state: &str, layer: &str, gids: &[(&str, &str)]) {
            let port = self.0.join(name).join(format!("ports/{port}"));
            fs::create_dir_all(port.join("gids")).unwrap();
            fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
            let write =
                |file: &str, text: &str| fs::write(port.join(file), format!("{text}\n")).unwrap();
            write("state", state);
            write("link_layer", layer);
            for (index, (gid, kind)) in gids.iter().enumerate() {
                write(&format!("gids/{index}"), gid);
                write(&format!("gid_attrs/types/{index}"), kind);
            }
        }

        fn find(&self, wanted: Wanted) -> Result<String, String> {
            let place = Place::find_in(&self.0, &wanted);
            place.map(|place| place.url(7)).map_err(|failure| failure.to_string())
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            // A test that failed before it made anything leaves nothing.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const UP: &str = "4: ACTIVE";
    const ETHERNET: &str = "Ethernet";
    const V2: &str = "RoCE v2";

    fn wanted(device: &str, port: Option<u8>, gid_index: Option<u32>) -> Wanted {
        Wanted { device: Some(device.to_owned()), port, gid_index }
    }

    #[test]
    fn the_first_active_port_with_an_address_is_taken_and_another_if_it_is_wanted() {
        let machine = Machine::new("first");
        machine.port("mlx5_0", 1, UP, ETHERNET, &[("fe80::1", V2)]);
        machine.port("mlx5_1", 1, "1: DOWN", ETHERNET, &[("::ffff:10.0.0.1", V2)]);
        let entries = [
            ("fe80::2", V2),
            ("2001:db8::2", V2),
            ("::ffff:10.0.0.2", "IB/RoCE v1"),
            ("::ffff:10.0.0.2", V2),
        ];
        machine.port("mlx5_1", 2, UP, ETHERNET, &entries);
        machine.port("mlx5_1", 10, UP, ETHERNET, &[("2001:db8::3", V2)]);
        let second = "rdma://10.0.0.2:7?device=mlx5_1&device_port=2&gid_index=3";
        assert_eq!(machine.find(Wanted::default()), Ok(second.into()));
        assert_eq!(machine.find(wanted("mlx5_1", Some(2), None)), Ok(second.into()));
        // What makes the connection needs no address of the device.
        let third = "rdma://127.0.0.1:7?device=mlx5_1&device_port=10&gid_index=0";
        assert_eq!(machine.find(wanted("mlx5_1", Some(10), None)), Ok(third.into()));
        let sixth = "rdma://127.0.0.1:7?device=mlx5_1&device_port=2&gid_index=1";
        assert_eq!(machine.find(wanted("mlx5_1", Some(2), Some(1))), Ok(sixth.into()));
    }

    #[test]
    fn on_infiniband_no_entry_of_the_gid_table_is_needed() {
        let machine = Machine::new("infiniband");
        machine.port("mlx5_0", 1, UP, "InfiniBand", &[("fe80::1", "IB/RoCE v1")]);
        let url = "rdma://127.0.0.1:7?device=mlx5_0&device_port=1";
        assert_eq!(machine.find(Wanted::default()), Ok(url.into()));
        assert_eq!(
            machine.find(wanted("mlx5_0", Some(1), Some(0))),
            Ok(format!("{url}&gid_index=0"))
        );
    }

    #[test]
    fn who_finds_no_place_learns_what_is_wrong_with_each() {
        let machine = Machine::new("none");
        assert!(machine.find(Wanted::default()).unwrap_err().contains("no RDMA device"));
        machine.port("mlx5_0", 1, UP, ETHERNET, &[("fe80::1", V2)]);
        machine.port("mlx5_1", 1, "1: DOWN", ETHERNET, &[("::ffff:10.0.0.1", V2)]);
        machine.port("mlx5_2", 1, UP, ETHERNET, &[("::ffff:10.0.0.2", "IB/RoCE v1")]);
        let why = machine.find(wanted("mlx5_2", None, Some(0))).unwrap_err();
        assert!(
            why.contains("mlx5_2, port 1: entry 0 of its GID table is no address over RoCE v2"),
            "{why}"
        );
        let why = machine.find(Wanted::default()).unwrap_err();
        assert!(why.contains("mlx5_0, port 1: its GID table has no address over RoCE v2"), "{why}");
        assert!(why.contains("mlx5_1, port 1: it is not active (\"1: DOWN\")"), "{why}");
        let why = machine.find(wanted("mlx5_7", None, None)).unwrap_err();
        assert!(why.contains("no such port; its RDMA devices: mlx5_0, mlx5_1, mlx5_2"), "{why}");
        let why = machine.find(wanted("mlx5_0", Some(2), None)).unwrap_err();
        assert!(why.contains("no such port"), "{why}");
    }
}
