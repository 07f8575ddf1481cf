//! What the device half counts of itself.

use super::fabric::Rxe;
use crate::verbs::conformance::pair::Pair;
use crate::verbs::conformance::side::ok;
use crate::verbs::{Device, Mw};

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn what_is_posted_and_received_is_counted() {
    let mut pair = Pair::<Rxe>::new();
    let (key, _) = pair.open(5000);
    for wr_id in 0..3 {
        pair.b.post_recv(wr_id, 8192, 64);
        pair.a.send(0, wr_id, &[7; 10]);
    }
    let (to, from) = (pair.a.sge(0, 5000), pair.b.remote(0, key));
    pair.a.read(3, to, from);
    pair.b.local_inv(0, 4, key);
    pair.until(4, 4);
    assert!(pair.a.take().contains(&ok(3)));
    let (a, b) = (pair.a.dev.counters(), pair.b.dev.counters());
    assert_eq!((a.sends, a.send_bytes, a.reads, a.read_bytes), (3, 30, 1, 5000));
    assert_eq!((b.recvs, b.recv_bytes, b.binds, b.invalidations), (3, 30, 1, 1));
    assert_eq!((a.recvs, b.sends, b.reads), (0, 0, 0));
    // They stay when the objects are gone.
    let dev = pair.a.dev.clone();
    assert!(pair.b.mws[0].rkey() == key);
    drop(pair);
    assert_eq!(dev.counters().sends, 3);
    assert_eq!(dev.leaks(), 0);
}
