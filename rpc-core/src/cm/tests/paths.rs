use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::mock::*;
use crate::cm::*;
use crate::wire::{self, Candidate, DeviceKind};

/// A server with a device of RDMA on another network, and a client of it.
fn two_with_rdma() -> (Arc<MockHost>, Control, Arc<MockHost>, Control) {
    let (client, server) = (MockHost::new(1, "client"), MockHost::new(2, "server"));
    let over_roce = Candidate {
        number: 1,
        kind: DeviceKind::Ibv,
        link_layer: wire::LinkLayer::Ethernet,
        gid_type: wire::GidType::RoceV2,
        gid: [1; 16],
    };
    *server.offers.lock().unwrap() = vec![
        Offer { candidate: over_roce, ip: Some([10, 0, 0, 7].into()) },
        Offer { candidate: Candidate::soft(2), ip: None },
    ];
    let [client_control, server_control] =
        [&client, &server].map(|host| ControlThread::start(Arc::clone(host) as _).unwrap());
    (client, client_control, server, server_control)
}

fn listen_auto(control: &Control) -> SocketAddr {
    try_listen(control, "auto://127.0.0.1:0", 1).unwrap()
}

fn attempt(control: &Control, target: Target, route: &Arc<Route>) -> Answer {
    let (request, answer) = request(target, PATIENCE);
    control.connect(ConnectRequest { route: Arc::clone(route), ..request });
    answer
}

#[test]
fn auto_takes_rdma_when_both_ends_have_it_on_the_device_that_was_offered() {
    let (client, client_control, server, server_control) = two_with_rdma();
    let (at, route) = (at(listen_auto(&server_control)), Arc::<Route>::default());
    succeeded(&attempt(&client_control, at, &route));
    for host in [&client, &server] {
        let (established, request) = (host.next().established, host.opened.try_recv().unwrap());
        assert_eq!((established.path.device, established.peer.device), ("rdma", "rdma"));
        assert!(matches!(request.device, DeviceChoice::Rdma(_)));
        if request.server.is_some() {
            assert_eq!(request.local_ip, Some([10, 0, 0, 7].into()));
        }
    }
    assert!(route.path().is_none(), "no core has confirmed it");
    let path = route.connected().unwrap().to_string();
    assert_eq!(path, "rdma: auto://, and both ends have RDMA");
}

#[test]
fn auto_takes_the_software_device_when_this_end_has_no_rdma() {
    let (client, client_control, server, server_control) = two_with_rdma();
    client.without_rdma.store(true, Ordering::SeqCst);
    let (at, route) = (at(listen_auto(&server_control)), Arc::default());
    succeeded(&attempt(&client_control, at, &route));
    for host in [&client, &server] {
        assert_eq!(host.next().established.path.device, "soft");
    }
    let path = route.connected().unwrap().to_string();
    assert!(path.contains("not RDMA") && path.contains("no memory windows"), "{path}");
}

#[test]
fn auto_says_of_both_ends_that_they_have_no_rdma() {
    let (client, client_control, server, server_control) = two_with_rdma();
    *client.lack.lock().unwrap() = Some("this machine has no RDMA device".to_owned());
    server.offers.lock().unwrap().remove(0);
    let (at, route) = (at(listen_auto(&server_control)), Arc::<Route>::default());
    succeeded(&attempt(&client_control, at, &route));
    let reason = client.next().established.path.reason;
    for part in ["this machine has no RDMA device", "the server offers no RDMA"] {
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn an_offer_that_leads_nowhere_is_passed_over_in_the_next_attempt() {
    let (client, client_control, server, server_control) = two_with_rdma();
    server.without_rdma.store(true, Ordering::SeqCst);
    let (at, route) = (at(listen_auto(&server_control)), Arc::default());
    let failed = failed(&attempt(&client_control, at.clone(), &route)).error;
    assert!(matches!(failed, ConnectError::PeerRefused { .. }), "{failed}");
    let (why, way_failed) = (failed.to_string(), failed.concerns_device());
    assert!(route.failed(&why, way_failed, Instant::now()), "there is another way");
    succeeded(&attempt(&client_control, at, &route));
    assert_eq!(client.next().established.path.device, "soft");
    assert_eq!(server.next().established.path.device, "soft");
}

#[test]
fn who_insists_on_what_is_not_offered_is_told_so_without_a_queue_pair() {
    let (client, client_control, server, server_control) = two_with_rdma();
    let port = listen_auto(&server_control).port();
    let offers = server.offers.lock().unwrap().clone();
    let mut said = Vec::new();
    for (scheme, offer) in [("soft", &offers[0]), ("rdma", &offers[1])] {
        *server.offers.lock().unwrap() = vec![offer.clone()];
        let Ok(address) = Address::parse(&format!("{scheme}://127.0.0.1:{port}")) else { panic!() };
        if address.device().is_err() {
            continue; // a build without RDMA
        }
        said.push(failed(&connect(&client_control, Target::Address(address))).error.to_string());
    }
    let words = ["offers no software device", "offers no RDMA"];
    assert!(said.iter().zip(words).all(|(said, words)| said.contains(words)), "{said:?}");
    assert!(!said.is_empty() && client.opened.try_recv().is_err());
}
