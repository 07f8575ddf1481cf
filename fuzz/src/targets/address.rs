//! The text of an address, which users and configuration files give.

use rpc_core::cm::{Address, HostName, Scheme};

use crate::heap;
use crate::recipe::Recipe;

/// What parsing takes: the text's parts, once, or the parts in an error.
const HEAP_BYTES_MAX: u64 = 2 << 10;

pub(crate) fn run(input: &[u8]) {
    check(&String::from_utf8_lossy(input));
    let mut r = Recipe::new(input);
    let mut text = make(&mut r).into_bytes();
    r.spoil(&mut text);
    check(&String::from_utf8_lossy(&text));
}

/// An address that may be one.
fn make(r: &mut Recipe<'_>) -> String {
    const SCHEMES: [&str; 5] = ["soft", "rdma", "auto", "tcp", ""];
    const HOSTS: [&str; 9] =
        ["a", "db-1.example.com.", "10.0.0.1", "[::1]", "[fe80::1%1]", "1.2.3", "::1", "", "a..b"];
    const OPTIONS: [&str; 9] = [
        "device",
        "device_port",
        "gid_index",
        "pkey_index",
        "sl",
        "traffic_class",
        "hop_limit",
        "",
        "x",
    ];
    let mut text = format!("{}://", SCHEMES[r.below(SCHEMES.len())]);
    text += if r.one_in(4) { r.text(300) } else { HOSTS[r.below(HOSTS.len())] };
    text += &format!(":{}", r.number());
    for number in 0..r.below(4) {
        let option = OPTIONS[r.below(OPTIONS.len())];
        let between = if number == 0 { '?' } else { '&' };
        text += &format!("{between}{option}={}", r.number() % 300);
    }
    text
}

fn check(text: &str) {
    let parsed = heap::at_most("parsing an address", HEAP_BYTES_MAX, || Address::parse(text));
    let address = match parsed {
        Ok(address) => address,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert!(error.to_string().len() <= 4096, "an error that is longer than any address");
            return;
        }
    };
    // What it says of itself is the same address.
    let shown = address.to_string();
    assert_eq!(Address::parse(&shown).as_ref(), Ok(&address), "{text:?} is shown as {shown:?}");
    if let HostName::Name(name) = address.host() {
        assert!(!name.is_empty() && name.len() <= 253 && name.is_ascii());
    }
    assert!(address.scheme() != Scheme::Soft || *address.options() == Default::default());
    assert!(address.device().is_ok() || address.scheme() == Scheme::Rdma);
}
