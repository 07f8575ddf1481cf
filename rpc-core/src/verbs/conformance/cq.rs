//! Completion queues and their channels.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::fabric::Fabric;
use super::pair::{Pair, Setup, USUAL};
use super::side::*;
use crate::verbs::{AsyncEvent, Cq, Device, Qp, QpState, SendBatch, VerbsError, Wc};

/// Whether the descriptor becomes readable within ten seconds.
fn becomes_readable(fd: BorrowedFd<'_>) -> bool {
    let wait = Timespec { tv_sec: 10, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)).unwrap() > 0
}

/// One message from a to b, completed on both sides.
fn message<F: Fabric>(pair: &mut Pair<F>) {
    pair.b.post_recv(1, 0, 16);
    pair.a.send(0, 2, b"x");
    pair.until(1, 1);
    assert_eq!((pair.a.take(), pair.b.take()), (vec![ok(2)], vec![ok(1)]));
}

pub(in crate::verbs) fn armed_queue_announces_one_completion<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    pair.b.cq.arm().unwrap();
    assert_eq!(pair.b.cq.drain_events().unwrap(), 0);
    message(&mut pair);
    assert!(becomes_readable(pair.b.cq.fd()), "the event waits until it is taken");
    assert_eq!(pair.b.cq.drain_events().unwrap(), 1);
    message(&mut pair);
    pair.quiet();
    assert_eq!(pair.b.cq.drain_events().unwrap(), 0, "it was not armed again");
}

pub(in crate::verbs) fn queue_that_is_not_armed_announces_nothing<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    let mut other = pair.b.dev.create_cq(16).unwrap();
    other.arm().unwrap();
    message(&mut pair);
    pair.quiet();
    assert_eq!(pair.b.cq.drain_events().unwrap(), 0);
    assert_eq!(other.drain_events().unwrap(), 0, "armed, but the completion was another's");
}

pub(in crate::verbs) fn every_event_is_drained_once<F: Fabric>() {
    let mut pair = Pair::<F>::new();
    for _ in 0..3 {
        pair.b.cq.arm().unwrap();
        message(&mut pair);
    }
    let mut drained = 0;
    pair.until_that(|pair| {
        drained += pair.b.cq.drain_events().unwrap();
        drained >= 3
    });
    pair.quiet();
    assert_eq!((drained, pair.b.cq.drain_events().unwrap()), (3, 0));
}

pub(in crate::verbs) fn full_queue_overruns_and_takes_its_qps_along<F: Fabric>() {
    // A device may round the size up.
    const MESSAGES: usize = SEND_WRS as usize;
    let mut pair = Pair::<F>::with(Setup { cqe_of_a: 3, ..USUAL });
    for wr_id in 0..MESSAGES as u64 {
        pair.b.post_recv(wr_id, 0, 16);
    }
    let sge = pair.a.sge(0, 1);
    let mut batch = pair.a.qps[0].batch();
    for wr_id in 0..MESSAGES as u64 {
        batch.send(wr_id, &[sge], SIGNALED).unwrap();
    }
    batch.post().unwrap();
    // Until all of them are acknowledged, a takes nothing.
    while pair.b.got.len() < MESSAGES {
        pair.b.poll();
    }
    pair.b.cq.arm().unwrap();
    let mut polled = 0;
    let error = loop {
        match pair.a.cq.poll(&mut [Wc::default(); 16]) {
            Ok(count) => polled += count,
            Err(error) => break error,
        }
        assert!(polled < MESSAGES, "a full queue was not noticed");
        pair.fabric.pause();
    };
    assert!(matches!(error, VerbsError::CqOverrun));
    assert_eq!(pair.a.qps[0].state(), QpState::Err);
    assert!(pair.a.events().contains(&AsyncEvent::CqError));
}
