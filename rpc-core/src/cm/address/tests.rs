use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn sentence(text: &str) -> String {
    Address::parse(text).unwrap_err().to_string()
}

#[test]
fn the_parts_of_an_address_are_read() {
    let address = Address::parse("auto://10.0.0.1:7471").unwrap();
    assert_eq!(address.scheme(), Scheme::Auto);
    assert_eq!(address.host(), &HostName::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))));
    assert_eq!(address.port(), 7471);

    let address = Address::parse("soft://db-1.example:0").unwrap();
    assert_eq!(address.host(), &HostName::Name("db-1.example".into()));
    assert_eq!(address.port(), 0);

    let address = Address::parse("rdma://[2001:db8::7]:1/?device=mlx5_0&gid_index=3&sl=5").unwrap();
    assert_eq!(address.scheme(), Scheme::Rdma);
    assert_eq!(
        address.host(),
        &HostName::Ip(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7)))
    );
    assert_eq!(address.options().device.as_deref(), Some("mlx5_0"));
    assert_eq!(address.options().gid_index, Some(3));
    assert_eq!(address.options().service_level, Some(5));
    assert_eq!(address.options().hop_limit, None);
}

#[test]
fn each_mistake_has_its_sentence() {
    for (text, part) in [
        ("localhost:7471", "has no scheme"),
        ("http://localhost:80", "the scheme \"http\" is not known"),
        ("soft://localhost", "has no port; add one"),
        ("soft://localhost:", "has no port; add one"),
        ("soft://[::1]", "has no port; add one"),
        ("soft://", "has no host"),
        ("soft://:7471", "has no host"),
        ("soft://localhost:70000", "is not a port"),
        ("soft://localhost:+1", "is not a port"),
        ("soft://::1:7471", "in brackets"),
        ("soft://fe80::1", "in brackets"),
        ("soft://[::1:7471", "the bracket is not closed"),
        ("soft://[localhost]:7471", "brackets are for IPv6"),
        ("soft://[fe80::1%eth0]:7471", "interface scopes are not supported"),
        ("soft://1.2.3:7471", "four numbers from 0 to 255"),
        ("soft://1.2.3.256:7471", "four numbers from 0 to 255"),
        ("soft://a b:7471", "is of letters, digits"),
        ("soft://a..b:7471", "1 to 63 bytes"),
        ("soft://localhost:7471/kv", "services need no path"),
        ("auto://localhost:7471?colour=red", "the option \"colour\" does not exist; there are: "),
        ("auto://localhost:7471?sl", "has no value; write sl=value"),
        ("auto://localhost:7471?sl=", "has no value"),
        ("auto://localhost:7471?sl=16", "it takes 0 to 15"),
        ("auto://localhost:7471?hop_limit=0", "it takes 1 to 255"),
        ("auto://localhost:7471?sl=1&sl=1", "is given twice"),
        ("auto://localhost:7471?rdma_ip=10.0.0.1,", "1 to 4 IP addresses"),
        ("auto://localhost:7471?rdma_ip=", "write rdma_ip=value"),
        ("auto://localhost:7471?", "does not exist; there are: device"),
        ("auto://localhost:7471?rdma_ip=0.0.0.0", "1 to 4 IP addresses"),
        ("auto://localhost:7471?rdma_ip=::1&rdma_ip=::2", "is given twice"),
        ("soft://localhost:7471?sl=1", "which soft:// has not"),
    ] {
        assert!(sentence(text).contains(part), "{text}: {}", sentence(text));
    }
    assert!(sentence(&format!("soft://{}:1", "a".repeat(600))).contains("at most 512"));
}

#[test]
fn rdma_needs_the_feature_and_auto_does_not() {
    let device = |text: &str| Address::parse(text).unwrap().device();
    assert_eq!(device("soft://localhost:1").unwrap(), DeviceChoice::Soft);
    assert!(matches!(device("auto://localhost:1").unwrap(), DeviceChoice::Auto(_)));
    match device("rdma://localhost:1") {
        Ok(device) => assert!(cfg!(feature = "verbs") && matches!(device, DeviceChoice::Rdma(_))),
        Err(error) => assert!(error.to_string().contains("feature `verbs`"), "{error}"),
    }
}

#[test]
fn what_an_address_leaves_open_is_the_runtimes() {
    let defaults = RdmaOptions {
        device: Some("mlx5_0".into()),
        hop_limit: Some(3),
        addresses: vec![[10, 0, 0, 1].into()],
        ..RdmaOptions::default()
    };
    let with = |text: &str| Address::parse(text).unwrap().with_defaults(&defaults).to_string();
    assert_eq!(with("soft://h:1"), "soft://h:1");
    assert_eq!(with("auto://h:1"), "auto://h:1?device=mlx5_0&hop_limit=3&rdma_ip=10.0.0.1");
    let own = "rdma://h:1?device=rxe0&gid_index=1&hop_limit=9&rdma_ip=10.0.0.2,fd00::1";
    assert_eq!(with(own), own);
}

fn any_host() -> impl Strategy<Value = HostName> {
    prop_oneof![
        any::<u32>().prop_map(|ip| HostName::Ip(IpAddr::V4(ip.into()))),
        any::<u128>().prop_map(|ip| HostName::Ip(IpAddr::V6(ip.into()))),
        "[a-z][a-z0-9-]{0,20}(\\.[a-z]{1,8}){0,3}".prop_map(HostName::Name),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_reads_back_the_same(
        host in any_host(),
        port: u16,
        device in proptest::option::of("[a-z0-9_]{1,16}"),
        hop_limit in proptest::option::of(1u8..),
        pkey_index: Option<u16>,
    ) {
        let options = RdmaOptions { device, hop_limit, pkey_index, ..RdmaOptions::default() };
        let address = Address { scheme: Scheme::Auto, host, port, options };
        prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in "\\PC{0,40}", tail in "[\\[\\]:/?&=%a-f0-9.]{0,40}") {
        let _ = Address::parse(&text);
        let _ = Address::parse(&format!("auto://{tail}"));
        let _ = Address::parse(&format!("auto://h:1?{tail}"));
    }
}
