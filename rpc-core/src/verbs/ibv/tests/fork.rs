//! A process with registered memory starts another.
#![allow(unsafe_code)]

use std::io::{Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::fabric::Rxe;
use crate::verbs::Rkey;
use crate::verbs::conformance::pair::Pair;
use crate::verbs::conformance::side::ok;

/// A message and a READ, of bytes that are written now.
fn traffic(pair: &mut Pair<Rxe>, key: Rkey, byte: u8) {
    pair.b.memory.put(0, &[byte; 5000]);
    pair.b.post_recv(1, 8192, 64);
    pair.a.send(0, 2, &[byte; 10]);
    let (to, from) = (pair.a.sge(0, 5000), pair.b.remote(0, key));
    pair.a.read(3, to, from);
    pair.until(2, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(2), ok(3)], vec![ok(1)]));
    assert_eq!(pair.b.memory.get(8192, 10), [byte; 10]);
    assert_eq!(pair.a.memory.get(0, 5000), [byte; 5000]);
}

#[test]
#[ignore = "needs soft-RoCE: tests/rxe runs it in its guest"]
fn traffic_goes_on_while_a_child_has_copies_of_the_pages_and_after() {
    let mut pair = Pair::<Rxe>::new();
    let (key, _) = pair.open(5000);
    traffic(&mut pair, key, 1);

    // A child that is not yet its own program shares every page until somebody writes to it.
    let (mut forked, tell_forked) = pipe().unwrap();
    let (wait_for_end, mut end) = pipe().unwrap();
    let mut command = Command::new("true");
    let hook = move || {
        (&tell_forked).write_all(b"f")?;
        (&wait_for_end).read_exact(&mut [0])
    };
    // SAFETY: between fork and exec the hook makes two system calls and allocates nothing.
    unsafe { command.pre_exec(hook) };
    let starter = std::thread::spawn(move || command.status().unwrap());
    forked.read_exact(&mut [0]).unwrap();
    traffic(&mut pair, key, 2);
    end.write_all(b"e").unwrap();
    assert!(starter.join().unwrap().success());
    traffic(&mut pair, key, 3);

    // And as programs usually do it.
    assert!(Command::new("true").status().unwrap().success());
    traffic(&mut pair, key, 4);
}
