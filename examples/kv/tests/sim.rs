//! The service in simulations that kill its nodes and break their network. The store outlives its server as a
//! disk would; it is the one in memory, since the one on a disk has threads, and a simulation has none.

use std::collections::{BTreeMap, BTreeSet};
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use kv::proto::{GetRequest, KvClient, KvServer, PutRequest};
use kv::{Service, Store};
use rpc_core::sim::{self, Faults, Sim};
use rpc_core::{Channel, Server, bytes::Bytes};

/// Values that were sent; the newest of each key that was acknowledged; and which versions it replaced.
type Known = (BTreeSet<Bytes>, BTreeMap<Bytes, (u64, Bytes)>, BTreeSet<(Bytes, u64)>);

async fn client(name: String, known: Rc<RefCell<Known>>) {
    let server = Channel::builder("soft://server:7400").timeout(Duration::from_secs(1));
    let kv = KvClient::new(server.wait_for_ready(true).connect_lazy().expect("an address"));
    for number in 0_u32.. {
        sim::sleep(Duration::from_millis(10)).await;
        let key = Bytes::from(format!("key {}", number % 3));
        let (least, last) = known.borrow().1.get(&key).cloned().unwrap_or_default();
        let Ok(got) = kv.get(GetRequest { key: key.clone() }).await else { continue };
        let got = got.into_inner();
        let lost = got.version < least || got.version == least && got.value != last;
        assert!(!lost, "{last:?} was acknowledged as version {least}, and {got:?} read");
        assert!(!got.found || known.borrow().0.contains(&got.value), "nobody wrote {got:?}");
        let value = Bytes::from(format!("{name} {number}"));
        known.borrow_mut().0.insert(value.clone());
        let expected_version = Some(got.version);
        let put = PutRequest { key: key.clone(), value: value.clone(), expected_version };
        let Ok(put) = kv.put(put).await else { continue };
        let (_, newest, replaced) = &mut *known.borrow_mut();
        assert!(replaced.insert((key.clone(), got.version)), "{got:?} was replaced twice");
        let newest = newest.entry(key).or_default();
        *newest = newest.clone().max((put.into_inner().version, value));
    }
}

#[test]
fn no_acknowledged_write_is_lost_and_none_is_invented() {
    sim::seeds(50, |seed| {
        let mut sim = Sim::new(seed, Faults::all(Duration::from_secs(2)));
        let (disk, known) = (Arc::new(Store::in_memory(1 << 20).unwrap()), Rc::default());
        sim.node("server", move |node| {
            let service = Service::new(Arc::clone(&disk), node.runtime().clone());
            let bound = Server::builder().add_service(KvServer::new(service));
            let bound = bound.bind("soft://server:7400");
            node.spawn(async { bound.await.unwrap().serve().await.unwrap() });
        });
        for name in ["one", "two"] {
            let known = Rc::clone(&known);
            let client = move |lives| client(format!("{name}.{lives}"), Rc::clone(&known));
            sim.node(name, move |node| node.spawn(client(node.lives())));
        }
        sim.run_for(Duration::from_secs(3));
        assert!(known.borrow().1.len() == 3, "hardly anything was written");
    });
}
