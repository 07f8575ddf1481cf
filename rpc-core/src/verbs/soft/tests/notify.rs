//! The completion channel: when its descriptor is readable, and that no wake-up is lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::fixture::*;
use crate::verbs::{Cq, Device};

fn readable(fd: BorrowedFd<'_>, wait: Duration) -> bool {
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&wait)).unwrap() > 0
}

fn is_readable(side: &Side) -> bool {
    readable(side.cq.fd(), Duration::ZERO)
}

#[test]
fn armed_queue_wakes_once_for_the_next_completion() {
    let mut world = World::new(Via::Mem);
    for wr_id in 0..3 {
        world.b.post_recv(wr_id, 0, 16);
    }
    world.b.cq.arm().unwrap();
    world.b.poll();
    assert!(!is_readable(&world.b));
    world.a.send(0, 1, b"x");
    assert!(is_readable(&world.b), "the link has something that only a poll can take");
    assert_eq!(world.b.poll(), 1);
    assert!(is_readable(&world.b), "the event waits until it is taken");
    assert_eq!(world.b.cq.drain_events().unwrap(), 1);
    assert!(!is_readable(&world.b));
    // Not armed: the next completion makes no event.
    world.a.send(0, 2, b"x");
    assert_eq!(world.b.poll(), 1);
    assert_eq!(world.b.cq.drain_events().unwrap(), 0);
    assert!(!is_readable(&world.b));
}

#[test]
fn bytes_that_came_before_arming_wake_at_once() {
    for via in BOTH {
        let mut world = World::new(via);
        world.b.post_recv(1, 0, 16);
        world.b.poll();
        world.a.send(0, 1, b"x");
        world.b.cq.arm().unwrap();
        assert!(readable(world.b.cq.fd(), Duration::from_secs(10)), "over {via:?}");
    }
}

#[test]
fn completion_made_by_another_thread_wakes_the_sleeper() {
    let mut world = World::new(Via::Mem);
    world.a.send(0, 1, b"x");
    let mut qp = world.a.qps.remove(0);
    world.a.cq.arm().unwrap();
    let thread = std::thread::spawn(move || {
        crate::verbs::Qp::to_err(&mut qp).unwrap();
        qp
    });
    assert!(readable(world.a.cq.fd(), Duration::from_secs(10)));
    world.a.qps.push(thread.join().unwrap());
    world.a.poll();
    assert_eq!(world.a.take(), [failed(1, crate::verbs::WcStatus::WrFlushErr)]);
}

#[test]
fn two_queues_of_one_device_keep_their_events_apart() {
    let mut world = World::new(Via::Mem);
    let mut other = world.b.dev.create_cq(16).unwrap();
    other.arm().unwrap();
    world.b.cq.arm().unwrap();
    world.b.post_recv(1, 0, 16);
    world.a.send(0, 1, b"x");
    world.b.poll();
    assert_eq!(other.drain_events().unwrap(), 0);
    assert!(is_readable(&world.b));
    assert_eq!(world.b.cq.drain_events().unwrap(), 1);
    assert!(!is_readable(&world.b));
}

#[test]
fn async_events_make_their_descriptor_readable() {
    let mut world = World::new(Via::Mem);
    let dev = world.a.dev.clone();
    let fd = dev.async_fd().unwrap();
    assert!(!readable(fd, Duration::ZERO));
    crate::verbs::Qp::to_err(&mut world.a.qps[0]).unwrap();
    assert!(readable(fd, Duration::ZERO));
    assert!(dev.poll_async().is_some());
    assert!(dev.poll_async().is_none());
    assert!(!readable(fd, Duration::ZERO));
}

/// Answers each message by one, sleeping whenever there is nothing to do.
fn echo(side: &mut Side, rounds: u64) {
    let begun = Instant::now();
    let mut answered = 0;
    while answered < rounds {
        if side.poll() == 0 {
            side.cq.arm().unwrap();
            if side.poll() == 0 {
                assert!(readable(side.cq.fd(), Duration::from_secs(10)), "a wake-up was lost");
            }
            side.cq.drain_events().unwrap();
        }
        for (wr_id, status) in side.take() {
            assert_eq!(status, None);
            if wr_id < 1000 {
                answered += 1;
                side.post_recv(wr_id, wr_id * 64, 64);
                side.send(0, 1000, b"ping");
            }
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn two_sleeping_threads_never_lose_a_wake_up() {
    for via in BOTH {
        let World { clock: _clock, mut a, mut b } = World::new(via);
        a.post_recv(0, 0, 64);
        b.post_recv(0, 0, 64);
        let thread = std::thread::spawn(move || {
            echo(&mut b, 3000);
            b
        });
        a.send(0, 1000, b"ping");
        echo(&mut a, 3000);
        drop(thread.join().unwrap());
    }
}

#[test]
fn listener_and_newcomers_wake_a_sleeping_device() {
    let mut world = World::unconnected(Via::Tcp, |config| config);
    world.b.cq.arm().unwrap();
    world.b.poll();
    assert!(!is_readable(&world.b));
    world.connect(ATTR, ATTR);
    assert!(readable(world.b.cq.fd().as_fd(), Duration::from_secs(10)));
    let begun = Instant::now();
    while world.b.dev.usage().links == 0 {
        world.b.cq.arm().unwrap();
        world.b.poll();
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}
