//! Where on this machine it is measured: a device, and an address that is on it.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use crate::failure::Failure;

/// Where the kernel lists its RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

/// One port of one device, and its address. Both ends are on it: what they say to each other goes through the
/// device all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: String,
    pub(super) gid_index: u32,
    pub(super) address: IpAddr,
}

#[derive(clap::Args)]
pub(super) struct Wanted {
    /// The RDMA device; without it, the first that has an address.
    #[arg(long)]
    device: Option<String>,
    /// The entry of its GID table; without it, the first that is a RoCE v2 address of IPv4.
    #[arg(long)]
    gid_index: Option<u32>,
}

impl Place {
    /// The wanted place, or the first there is.
    pub(super) fn find(wanted: &Wanted) -> Result<Self, Failure> {
        Self::find_in(Path::new(DEVICES), wanted)
    }

    fn find_in(devices: &Path, wanted: &Wanted) -> Result<Self, Failure> {
        let mut names: Vec<String> = fs::read_dir(devices)
            .map_err(|error| Failure::new(format!(
                "this machine has no RDMA device ({}: {error}); `rdma link add rxe0 type rxe netdev eth0` makes \
                 a software one, and tests/rxe/bench measures in an emulated machine that has one",
                devices.display()
            )))?
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .filter(|name| wanted.device.as_ref().is_none_or(|device| device == name))
            .collect();
        names.sort();
        let found = names.iter().find_map(|name| {
            let gids = devices.join(name).join("ports/1");
            let (gid_index, address) = match wanted.gid_index {
                Some(index) => (index, roce_v2_address(&gids, index)?),
                None => first_address(&gids)?,
            };
            Some(Self { device: name.clone(), gid_index, address })
        });
        found.ok_or_else(|| {
            Failure::new(
                "no RDMA device has, in port 1 and as wanted, a GID of RoCE v2 with an IPv4 address; \
                 `kv doctor` lists devices and GIDs, and --device and --gid-index choose",
            )
        })
    }

    /// What an address of this framework says of it: `rdma://10.0.0.1:PORT?…`.
    pub(super) fn url(&self, port: u16) -> String {
        let Self { device, gid_index, address } = self;
        let host = match address {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        };
        format!("rdma://{host}:{port}?device={device}&gid_index={gid_index}")
    }
}

fn first_address(port: &Path) -> Option<(u32, IpAddr)> {
    let mut indices: Vec<u32> = fs::read_dir(port.join("gids"))
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_string_lossy().parse().ok())
        .collect();
    indices.sort_unstable();
    indices.into_iter().find_map(|index| Some((index, roce_v2_address(port, index)?)))
}

/// The IPv4 address that an entry of the GID table is.
fn roce_v2_address(port: &Path, index: u32) -> Option<IpAddr> {
    let kind = fs::read_to_string(port.join(format!("gid_attrs/types/{index}"))).ok()?;
    let gid = fs::read_to_string(port.join(format!("gids/{index}"))).ok()?;
    let ip = gid.trim().parse::<std::net::Ipv6Addr>().ok()?.to_canonical();
    (kind.trim() == "RoCE v2" && ip.is_ipv4()).then_some(ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port_of(devices: &Path, name: &str, gids: &[(&str, &str)]) {
        let port = devices.join(name).join("ports/1");
        fs::create_dir_all(port.join("gids")).unwrap();
        fs::create_dir_all(port.join("gid_attrs/types")).unwrap();
        for (index, (gid, kind)) in gids.iter().enumerate() {
            fs::write(port.join(format!("gids/{index}")), format!("{gid}\n")).unwrap();
            fs::write(port.join(format!("gid_attrs/types/{index}")), format!("{kind}\n")).unwrap();
        }
    }

    #[test]
    fn the_first_address_of_roce_v2_is_taken_and_another_if_it_is_wanted() {
        let folder = std::env::temp_dir().join(format!("bench-place-{}", std::process::id()));
        port_of(&folder, "mlx5_0", &[("fe80::1", "RoCE v2")]);
        let entries = [
            ("fe80::2", "RoCE v2"),
            ("::ffff:10.0.0.2", "IB/RoCE v1"),
            ("::ffff:10.0.0.2", "RoCE v2"),
        ];
        port_of(&folder, "mlx5_1", &entries);
        let find = |device: Option<&str>, gid_index| {
            let wanted = Wanted { device: device.map(str::to_owned), gid_index };
            Place::find_in(&folder, &wanted).map(|place| place.url(7))
        };
        assert_eq!(find(None, None).unwrap(), "rdma://10.0.0.2:7?device=mlx5_1&gid_index=2");
        assert!(
            find(Some("mlx5_0"), None).is_err(),
            "a link-local address is nobody's to connect to"
        );
        assert!(find(None, Some(1)).is_err(), "RoCE v1 has no UDP port");
        fs::remove_dir_all(&folder).unwrap();
        assert!(find(None, None).unwrap_err().to_string().contains("no RDMA device"));
    }
}
