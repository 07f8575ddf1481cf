//! Which device carries a connection, when the address leaves that open.

use rpc_core::{Channel, Code, Runtime, block_on};
use rpc_tests::{Place, Quiescence};

use crate::fixture::{ProbeClient, SETTLE, Served, blob};

/// A small and a large call.
fn calls(channel: &Channel) {
    let client = ProbeClient::new(channel.clone());
    for len in [17, 300_000] {
        let answer = block_on(client.echo(blob(1, len))).unwrap().into_inner();
        assert!(answer == blob(1, len), "{len} bytes came back changed");
    }
}

/// In the guest one server has clients over RDMA and over the software device at a time; elsewhere all of
/// them are software, and the same address works.
#[test]
fn one_auto_server_serves_clients_of_each_kind_at_once() {
    let mut quiescence = Quiescence::within(SETTLE);
    let [server, client] = [(); 2].map(|()| quiescence.runtime(Runtime::builder()));
    let served = Served::start_by(&server, "auto://");
    let port = served.bound.local_addr().port();
    let here = Place::here();
    let connect = |scheme: &str| {
        let address = here.by(scheme).address(port);
        block_on(Channel::builder(&address).runtime(&client).connect()).unwrap()
    };
    let (auto, soft) = (connect("auto://"), connect("soft://"));
    let insists = (!here.is_soft()).then(|| connect("rdma://"));
    for channel in [&auto, &soft].into_iter().chain(&insists) {
        calls(channel);
    }
    assert_eq!(soft.path(), "soft: the address says soft://");
    let path = auto.path();
    if let Some(insists) = &insists {
        assert_eq!(path, "rdma: auto://, and both ends have RDMA");
        assert_eq!(insists.path(), "rdma: the address says rdma://");
    } else {
        assert!(path.starts_with("soft: auto://, and "), "{path}");
    }
    drop((auto, soft, insists, served));
    drop((server, client));
    quiescence.end();
}

#[test]
fn a_client_that_insists_on_what_a_server_has_not_is_told_what_to_say_instead() {
    let mut quiescence = Quiescence::within(SETTLE);
    let [server, client] = [(); 2].map(|()| quiescence.runtime(Runtime::builder()));
    let served = Served::start(&server);
    let port = served.bound.local_addr().port();
    let here = Place::here();
    let other = if here.is_soft() { "rdma://" } else { "soft://" };
    let address = here.by(other).address(port);
    let failed = block_on(Channel::builder(&address).runtime(&client).connect()).unwrap_err();
    assert_eq!(failed.code(), Code::FailedPrecondition, "{failed}");
    assert!(failed.message().contains("auto://"), "{failed}");
    // And auto:// takes what the server has.
    let auto = here.by("auto://").address(port);
    let channel = block_on(Channel::builder(&auto).runtime(&client).connect()).unwrap();
    calls(&channel);
    let expected = if here.is_soft() { "soft: " } else { "rdma: " };
    assert!(channel.path().starts_with(expected), "{}", channel.path());
    drop((channel, served));
    drop((server, client));
    quiescence.end();
}
