//! One connection, and a peer that breaks one rule after the other.

use std::time::Duration;

use super::super::*;
use super::raw::*;
use crate::wire::{
    FrameType, GoAway, Nonce, Notice, PayloadDescriptor, Releases, RequestFrame, ResponseFrame,
    Segment, Segments, SendFlags, SendHeader,
};
use crate::{Code, Execution};

/// The violation that one SEND of these frames is, on a connection where all was well.
fn violation(frames: &[Out]) -> Violation {
    let mut raw = Raw::confirmed(Role::Accepting);
    raw.send(&[request(1 << 16, 1, Some("a/b"))]).unwrap();
    raw.drain();
    raw.got.clear();
    let violation = raw.send(frames).unwrap_err();
    // One ERROR is all that still leaves, and nothing is listened to any more.
    assert_eq!(raw.kinds(), [FrameType::Error]);
    assert_eq!(raw.send(&[ping(1)]), Ok(()));
    assert!(raw.kinds().is_empty() && !raw.connection.wants_transmit());
    violation
}

#[test]
fn frames_that_no_peer_may_send_end_the_connection_with_their_names() {
    let accepting = 1 << 63;
    let cases = [
        (request(accepting | 2 << 16, 1, None), Violation::Initiator { frame: "REQUEST" }),
        (cancel(accepting | 1 << 16), Violation::Initiator { frame: "CANCEL" }),
        (large(FrameType::Response, 1 << 16, 1), Violation::Initiator { frame: "RESPONSE" }),
        (notice(FrameType::Refused, 1 << 16), Violation::Initiator { frame: "REFUSED" }),
        (request(1 << 16, 1, None), Violation::CallIdReused),
        (request(0, 1, None), Violation::CallIdReused),
        (request(2 << 16, 2, None), Violation::Method(2)),
        (request(2 << 16, 1, Some("a/b")), Violation::Method(1)),
        (confirm([2; 32]), Violation::Confirm("a second one came")),
        (out(FrameType::Item, 0, |_| Ok(())), Violation::Unexpected("ITEM")),
        (out(FrameType::Return, 0, |w| w.u64(1)), Violation::Unexpected("RETURN")),
        (out(FrameType::Pong, 0, |w| w.u64(1)), Violation::Unexpected("PONG")),
        (out(FrameType::StreamCredit, 0, |_| Ok(())), Violation::Unexpected("STREAM_CREDIT")),
    ];
    for (frame, expected) in cases {
        assert_eq!(violation(&[frame]), expected);
    }
    assert!(matches!(violation(&[out(FrameType::Cancel, 1, |_| Ok(()))]), Violation::Decode(_)));
}

#[test]
fn an_error_of_the_peer_is_not_answered() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let reported = raw.send(&[notice(FrameType::Error, 0)]);
    assert_eq!(reported, Err(Violation::Reported { code: 7, message: "why".into() }));
    assert!(raw.kinds().is_empty());
}

#[test]
fn headers_are_checked_before_frames() {
    type Spoil = fn(&mut SendHeader);
    let cases: [(Spoil, Violation); 5] = [
        (|h| h.epoch = 6, Violation::Epoch { want: 5, got: 6 }),
        (|h| h.sequence += 1, Violation::Sequence { want: 2, got: 3 }),
        (|h| h.sequence -= 1, Violation::Sequence { want: 2, got: 1 }),
        (|h| h.received = 7, Violation::Counters("it has received SENDs that were not sent")),
        (|h| h.limit = 1 << 30, Violation::Counters("it grants more than any receive queue holds")),
    ];
    for (spoil, expected) in cases {
        let mut raw = Raw::confirmed(Role::Accepting);
        spoil(&mut raw.header);
        assert_eq!(raw.send(&[ping(1)]), Err(expected));
    }
    let mut raw = Raw::confirmed(Role::Accepting);
    let too_long = raw.connection.on_message(NOW, &[0; 9217]);
    assert!(matches!(too_long, Err(Violation::Decode(_))));
}

#[test]
fn a_limit_that_goes_back_changes_nothing() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let before = raw.connection.credits().available;
    raw.header.limit = 3;
    raw.send(&[]).unwrap();
    assert_eq!(raw.connection.credits().available, before);
}

#[test]
fn a_send_beyond_the_limit_and_a_second_credit_only_send_end_the_connection() {
    let mut raw = Raw::new(Role::Accepting);
    raw.send(&[confirm([2; 32])]).unwrap();
    // The credit is posted again, and nobody has told the peer.
    assert_eq!(raw.send(&[ping(1)]), Err(Violation::Overdraft));

    let mut raw = Raw::confirmed(Role::Accepting);
    raw.header.flags = SendFlags::CREDIT_ONLY;
    raw.send(&[out(FrameType::Credit, 0, |_| Ok(()))]).unwrap();
    assert_eq!(raw.send(&[]), Err(Violation::CreditOnly));

    let mut raw = Raw::confirmed(Role::Accepting);
    raw.header.flags = SendFlags::CREDIT_ONLY;
    assert_eq!(raw.send(&[ping(1)]), Err(Violation::CreditOnly));
}

#[test]
fn nothing_is_listened_to_before_a_right_confirm() {
    for role in [Role::Accepting, Role::Connecting] {
        for frames in [vec![ping(1)], vec![], vec![confirm([2; 32]), ping(1)]] {
            let mut raw = Raw::new(role);
            let early = raw.send(&frames);
            assert_eq!(early, Err(Violation::Confirm("it was something else")));
            assert!(raw.events().is_empty() && !raw.connection.is_confirmed());
        }
        let mut raw = Raw::new(role);
        let mut wrong = [2; 32];
        wrong[31] ^= 1;
        assert_eq!(raw.send(&[confirm(wrong)]), Err(Violation::Unconfirmed));
        assert!(!raw.kinds().contains(&FrameType::Error), "who it is is not known");
    }
}

#[test]
fn releases_that_were_made_up_are_counted_and_end_the_connection_at_a_bound() {
    let mut raw = Raw::confirmed(Role::Connecting);
    let body = raw.leased(NOW).unwrap();
    let lease = body.lease.unwrap().as_u64();
    // It is reserved and not advertised: the peer cannot know of it.
    raw.send(&[release(lease)]).unwrap();
    raw.posted(body);
    for guess in 1..16 {
        raw.send(&[release(lease ^ guess << 48)]).unwrap();
    }
    assert_eq!(raw.connection.counters().releases_unknown, 16);
    assert!(raw.events().is_empty() && raw.connection.leases_outstanding() == 1);
    assert_eq!(raw.send(&[release(lease ^ 1)]), Err(Violation::Releases(17)));
}

#[test]
fn a_peer_that_never_releases_meets_expiry_and_then_loses_the_connection() {
    let mut raw = Raw::confirmed(Role::Connecting);
    let mut now = NOW;
    for round in 1.. {
        let body = raw.leased(now).unwrap();
        let call = raw.posted(body);
        raw.connection.cancel_call(now, call);
        now = now + Duration::from_secs(2);
        raw.connection.on_timer(now, true);
        for event in raw.events() {
            match event {
                Event::Revoke { lease, expired: true } => raw.connection.on_lease_revoked(lease),
                Event::Closed { reason } => {
                    assert_eq!((reason, round), (CloseReason::LeasesUnreleased, 64));
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
        raw.drain();
        raw.got.clear();
    }
}

#[test]
fn answers_to_calls_that_ended_or_never_were_are_ignored_and_their_leases_released() {
    let mut raw = Raw::confirmed(Role::Connecting);
    let call = raw.posted(OutBody::inline("x"));
    raw.connection.cancel_call(NOW, call);
    raw.send(&[large(FrameType::Response, call.0, 70)]).unwrap();
    raw.send(&[large(FrameType::Response, 99 << 16, 71)]).unwrap();
    raw.send(&[notice(FrameType::Refused, call.0)]).unwrap();
    assert!(raw.events().is_empty());
    raw.drain();
    let released: Vec<u64> = raw
        .got
        .iter()
        .filter(|(kind, ..)| *kind == FrameType::Release)
        .flat_map(|(_, _, body)| Releases::decode(body).unwrap())
        .map(|release| release.lease)
        .collect();
    assert_eq!(released, [70, 71]);
    assert_eq!(raw.connection.counters().answers_late, 3);
    assert!(raw.connection.is_quiescent());
}

#[test]
fn a_second_answer_is_ignored() {
    let mut raw = Raw::confirmed(Role::Connecting);
    let call = raw.posted(OutBody::inline("x"));
    let answer = || out(FrameType::Response, call.0, |w| ResponseFrame::default().encode(w));
    raw.send(&[answer(), answer()]).unwrap();
    assert!(matches!(&raw.events()[..], [Event::Answer { token: 42, .. }]));
    // Also while the first is being fetched.
    let call = raw.posted(OutBody::inline("x"));
    raw.send(&[large(FrameType::Response, call.0, 5), large(FrameType::Response, call.0, 6)])
        .unwrap();
    assert!(matches!(&raw.events()[..], [Event::Fetch { answer: true, .. }]));
    assert_eq!(raw.kinds(), [FrameType::Release]);
}

#[test]
fn an_answer_to_a_call_that_was_not_sent_does_not_end_it() {
    let mut raw = Raw::new(Role::Connecting);
    raw.drain();
    // One credit, spent for CONFIRM: the request waits.
    raw.send(&[confirm([2; 32])]).unwrap();
    let id = raw.begin(OutBody::inline("x")).unwrap();
    raw.drain();
    raw.send(&[out(FrameType::Response, id.0, |w| ResponseFrame::default().encode(w))]).unwrap();
    assert!(matches!(&raw.events()[..], [Event::Confirmed]));
    assert_eq!(raw.connection.calls_outstanding(), 1);
}

#[test]
fn frames_that_bring_nothing_forward_are_bounded() {
    let frames: [fn() -> Out; 5] = [
        || ping(1),
        || cancel(5 << 16),
        || Out { kind: FrameType::Skippable(200), call: 0, body: vec![1; 9] },
        || out(FrameType::Recall, 0, |w| w.u64(0)),
        || {
            out(FrameType::GoAway, 0, |w| {
                GoAway { last_id: u64::MAX, notice: Notice { code: 0, text: "" } }.encode(w)
            })
        },
    ];
    for frame in frames {
        let mut raw = Raw::confirmed(Role::Accepting);
        let mut sent = 0;
        let violation = loop {
            let many: Vec<Out> = (0..100).map(|_| frame()).collect();
            if let Err(violation) = raw.send(&many) {
                break violation;
            }
            sent += 1;
            assert!(sent < 100, "a flood without end");
        };
        assert_eq!(violation, Violation::NoProgress(1025));
    }
}

#[test]
fn a_ping_is_answered_once_whatever_their_number() {
    let mut raw = Raw::confirmed(Role::Accepting);
    raw.send(&[ping(1), ping(2), ping(3)]).unwrap();
    raw.drain();
    let [(FrameType::Pong, 0, body)] = &raw.got[..] else { panic!("{:?}", raw.got) };
    assert_eq!(Nonce::decode("PONG", body).unwrap().nonce, 3);
    assert_eq!(raw.connection.counters().pings_merged, 2);
}

#[test]
fn a_peer_that_begins_calls_and_takes_no_answers_is_cut_off() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let mut id = 0;
    let violation = loop {
        let many: Vec<Out> = (0..50)
            .map(|_| {
                id += 1;
                large(FrameType::Request, id << 16, id)
            })
            .collect();
        if let Err(violation) = raw.send(&many) {
            break violation;
        }
        assert!(id < 100_000, "what is owed to it has no bound");
    };
    assert!(matches!(violation, Violation::Flood(_)));
    assert_eq!(raw.connection.calls_incoming(), 8);
}

#[test]
fn a_peer_whose_requests_find_no_memory_and_that_takes_no_refusal_is_cut_off() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let violation = (0..1000_u64).find_map(|round| {
        let many: Vec<Out> = (1..=8)
            .map(|n| large(FrameType::Request, (round * 8 + n) << 16, round * 8 + n))
            .collect();
        let broken = raw.send(&many).err();
        for event in raw.events() {
            if let Event::Fetch { transfer, .. } = event {
                raw.connection.on_fetch_refused(raw.now, transfer);
            }
        }
        broken
    });
    assert!(matches!(violation, Some(Violation::Flood(_))), "{violation:?}");
}

#[test]
fn a_peer_that_cancels_what_is_being_read_and_takes_no_release_is_cut_off() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let violation = (0..1000_u64).find_map(|round| {
        let call = |n| (round * 50 + n) << 16;
        let pair = |n| [large(FrameType::Request, call(n), call(n)), cancel(call(n))];
        let many: Vec<Out> = (1..=50).flat_map(pair).collect();
        let broken = raw.send(&many).err();
        raw.events();
        broken
    });
    assert!(matches!(violation, Some(Violation::Flood(_))), "{violation:?}");
}

#[test]
fn a_cancel_storm_keeps_counting_handlers_that_still_run() {
    let mut raw = Raw::confirmed(Role::Accepting);
    raw.send(&[request(1 << 16, 1, Some("a/b")), cancel(1 << 16)]).unwrap();
    for id in 2..50 {
        raw.send(&[request(id << 16, 1, None), cancel(id << 16)]).unwrap();
    }
    assert_eq!(raw.connection.calls_incoming(), 8);
    let mut calls = Vec::new();
    for event in raw.events() {
        match event {
            Event::Call(call) => calls.push(call.call),
            Event::Cancelled { call, why: CancelReason::Peer } => assert!(calls.contains(&call)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(calls.len(), 8);
    for call in calls {
        raw.connection.end_incoming(NOW, call);
    }
    assert_eq!(raw.connection.calls_incoming(), 0);
}

#[test]
fn a_recall_gives_back_all_but_one_credit_and_later_limits_still_add_up() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let available = raw.connection.credits().available;
    raw.send(&[out(FrameType::Recall, 0, |w| w.u64(u64::from(u32::MAX)))]).unwrap();
    assert_eq!(raw.connection.credits().available, 1);
    raw.drain();
    let [(FrameType::Return, 0, body)] = &raw.got[..] else { panic!("{:?}", raw.got) };
    assert_eq!(body[..4], (available - 1).to_le_bytes());
    raw.header.limit += 5;
    raw.send(&[ping(1)]).unwrap();
    assert_eq!(raw.connection.credits().available, 5);
}

fn give_back(count: u32) -> Out {
    out(FrameType::Return, 0, |w| w.u64(u64::from(count)))
}

#[test]
fn a_return_of_more_than_was_asked_or_is_left_ends_the_connection() {
    let mut raw = Raw::confirmed(Role::Accepting);
    assert_eq!(raw.connection.recall(NOW, 5), 5);
    let early = raw.send(&[give_back(5)]);
    assert_eq!(early, Err(Violation::Unexpected("RETURN")), "it was not asked yet");

    let mut raw = Raw::confirmed(Role::Accepting);
    raw.connection.recall(NOW, 5);
    assert_eq!(raw.kinds(), [FrameType::Recall]);
    assert_eq!(raw.send(&[give_back(6)]), Err(Violation::Unexpected("RETURN")));

    let mut raw = Raw::confirmed(Role::Accepting);
    let granted = raw.connection.credits().granted;
    assert_eq!(raw.connection.recall(NOW, u32::MAX), granted - 1);
    assert_eq!(raw.kinds(), [FrameType::Recall]);
    let told = raw.connection.credits().granted;
    for _ in 0..told - 10 {
        raw.send(&[]).unwrap(); // spends them
    }
    let left = raw.connection.credits().granted;
    assert!(left < granted - 1, "{left}");
    let more = raw.send(&[give_back(granted - 1)]);
    assert!(matches!(more, Err(Violation::Counters(_))), "{more:?}");
}

#[test]
fn a_peer_that_gives_nothing_back_is_closed_after_its_time_and_not_before() {
    const HOUR: Duration = Duration::from_secs(3600);
    // It may be silent for an hour and the five seconds to answer a PING.
    let pings = crate::Pings::new().busy_after(HOUR).idle_after(HOUR);
    let closes = |raw: &mut Raw| {
        let closed = |event: &Event| {
            matches!(event, Event::Closed { reason: CloseReason::CreditsUnreturned })
        };
        raw.events().iter().any(closed)
    };
    let recalling = || {
        let mut raw = Raw::confirmed_with(Role::Accepting, pings);
        raw.connection.recall(NOW, 5);
        assert_eq!(raw.kinds(), [FrameType::Recall]);
        raw
    };
    let late = NOW + HOUR + Duration::from_secs(5);
    let mut raw = recalling();
    raw.connection.on_timer(NOW + HOUR, true);
    assert!(!closes(&mut raw));
    raw.connection.on_timer(late, false);
    assert!(!closes(&mut raw), "its answer may lie unread");
    raw.connection.on_timer(late + Duration::from_secs(10), true);
    assert!(closes(&mut raw));

    // One that answered is asked again: the time of the first says nothing of the second.
    let mut raw = recalling();
    raw.now = NOW + Duration::from_secs(3599);
    raw.send(&[give_back(0)]).unwrap();
    assert!(matches!(raw.events()[..], [Event::Returned { count: 0 }]));
    raw.connection.recall(raw.now, 5);
    raw.drain();
    raw.connection.on_timer(late, true);
    assert!(!closes(&mut raw), "it has its whole time");

    // Where silence is not judged, this is not either.
    let mut raw = Raw::confirmed(Role::Accepting);
    raw.connection.recall(NOW, 5);
    raw.drain();
    raw.connection.on_timer(late + HOUR, true);
    assert!(!closes(&mut raw));
}

#[test]
fn a_goaway_ends_what_it_does_not_cover_as_not_executed() {
    let mut raw = Raw::confirmed(Role::Connecting);
    let covered = raw.posted(OutBody::inline("x"));
    raw.posted(OutBody::inline("x"));
    let notice = Notice { code: 14, text: "restart" };
    let goaway = GoAway { last_id: covered.0, notice };
    raw.send(&[out(FrameType::GoAway, 0, |w| goaway.encode(w))]).unwrap();
    let events = raw.events();
    let [Event::GoingAway, Event::Failed { failure, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(failure.execution, Execution::NotExecuted);
    assert_eq!(failure.kind.code(), Code::Unavailable);
    assert_eq!(raw.connection.calls_outstanding(), 1);
}

#[test]
fn no_debug_output_or_message_holds_an_address_or_a_key() {
    let mut raw = Raw::confirmed(Role::Accepting);
    let piece = PayloadDescriptor { addr: 0xabc_def0_1234, len: 5, rkey: 987_654_321, lease: 1 };
    let list = [Segment::Payload(piece)];
    let frame = RequestFrame {
        method: 0,
        name: Some("a/b"),
        segments: Segments::new(&list),
        ..RequestFrame::default()
    };
    raw.send(&[out(FrameType::Request, 1 << 16, |w| frame.encode(w))]).unwrap();
    let events = raw.events();
    let [Event::Fetch { transfer, .. }] = events[..] else { panic!("{events:?}") };
    raw.connection.on_fetch_ready(NOW, transfer);
    let shown = format!("{:?} {:?}", raw.connection.poll_read().unwrap(), raw.connection);
    for secret in [0xabc_def0_1234_u64, 987_654_321] {
        assert!(!shown.contains(&secret.to_string()) && !shown.contains(&format!("{secret:x}")));
    }
    assert!(!shown.contains("[1, 1, 1, 1"), "a key of the confirmation");
}
