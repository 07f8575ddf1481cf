//! Tests of the tests: for each rule, the test that must fail when the device does not keep it.

use std::panic::catch_unwind;

use super::super::Rule;
use super::{failure, fixture, raw, read, send, window};

/// The test of each rule. A rule without one does not compile.
fn test_of(rule: Rule) -> fn() {
    match rule {
        Rule::LocalWrite => read::destination_must_be_writable_memory_of_the_same_pd,
        Rule::LocalPd => send::qp_of_another_pd_than_its_srq_fails_on_the_first_send,
        Rule::RemoteBounds => read::read_past_the_windows_end_is_refused_before_the_first_byte,
        Rule::RemoteReadRight => read::read_by_the_regions_own_key_needs_remote_read,
        Rule::RemotePd => read::region_of_another_pd_is_refused,
        Rule::QpRemoteRead => read::qp_without_remote_read_refuses_every_read,
        Rule::WindowQp => read::window_of_another_qp_is_refused,
        Rule::WindowFree => window::bound_window_cannot_be_bound_again,
        Rule::WindowRight => window::window_over_a_region_without_the_right_cannot_be_bound,
        Rule::WindowRange => window::window_past_its_regions_end_cannot_be_bound,
        Rule::WindowPd => window::region_of_another_pd_cannot_be_bound,
        Rule::InvalidateBound => window::second_invalidation_of_one_key_is_an_error,
        Rule::SendInvQp => window::send_with_inv_of_another_qps_window_fails_on_both_sides,
        Rule::PieceKey => read::read_revoked_midway_fails_and_leaves_partial_bytes,
        Rule::ReadDepth => read::reads_beyond_the_responders_depth_are_refused,
        Rule::MaxRdAtomic => {
            read::requester_holds_back_reads_beyond_its_own_depth_and_all_behind_them
        }
        Rule::Fence => read::fence_waits_for_the_reads_before_it,
        Rule::Rnr => send::missing_receive_is_given_up_after_rnr_retry,
        Rule::RnrRetry => send::missing_receive_is_given_up_after_rnr_retry,
        Rule::RetryExceeded => failure::destroyed_qp_is_as_silent_as_one_in_error,
        Rule::LocLen => send::message_longer_than_its_receive_fails_on_both_sides,
        Rule::Flush => failure::error_flushes_every_outstanding_request_signaled_or_not,
        Rule::ErrSilent => failure::qp_in_error_is_silent_and_its_peer_learns_by_its_own_retries,
        Rule::CqOverrun => failure::full_completion_queue_overruns_and_takes_its_qps_along,
        Rule::SrqLimitOnce => send::srq_limit_fires_once,
        Rule::PeerDevice => raw::packets_of_another_device_than_the_connected_one_are_dropped,
        Rule::Psn => raw::packets_out_of_order_are_dropped_and_the_expected_one_is_taken,
    }
}

#[test]
fn each_broken_rule_is_noticed_by_its_test() {
    let mut unnoticed = Vec::new();
    for rule in Rule::ALL {
        fixture::break_rule(Some(*rule));
        let noticed = catch_unwind(test_of(*rule)).is_err();
        fixture::break_rule(None);
        if !noticed {
            unnoticed.push(*rule);
        }
    }
    assert_eq!(unnoticed, [], "of {} rules", Rule::ALL.len());
}

#[test]
fn no_rule_is_missing_from_the_list() {
    for (index, rule) in Rule::ALL.iter().enumerate() {
        assert_eq!(*rule as usize, index, "{rule:?}");
    }
    assert_eq!(Rule::ALL.last(), Some(&Rule::Psn), "the last variant");
}
