//! One suite for every device: what verbs promise, one test per rule, named by behaviour.
//!
//! A test is a function over a [`Fabric`], which opens two devices of a kind; it uses what
//! libibverbs offers and no more, so it says the same of the software device and of hardware. Time
//! passes only through the fabric, whenever both sides have nothing to say. What needs raw packets
//! or a clock that a test holds still is tested beside the software device.
//!
//! [`every_test`] lists the tests. A test that names a [`Rule`] must fail on a software device that
//! does not keep this rule; the tests of the software device see to that, and do not compile while a
//! rule has no test. `laxer_on` marks where a device is known to be laxer, and says how: there the
//! test is skipped. `marks` lists them.
//!
//! [`conformance`] makes a module of `#[test]` functions for a fabric:
//! `every_test!(conformance { conformance_soft_mem, crate::…::SoftMem });`
//!
//! [`Rule`]: super::soft::Rule

mod case;
pub(in crate::verbs) mod cq;
pub(in crate::verbs) mod errors;
mod fabric;
pub(in crate::verbs) mod lifecycle;
mod marks;
pub(in crate::verbs) mod pair;
pub(in crate::verbs) mod read;
pub(in crate::verbs) mod refusal;
pub(in crate::verbs) mod send;
pub(in crate::verbs) mod side;
pub(in crate::verbs) mod srq;
pub(in crate::verbs) mod windows;

pub(in crate::verbs) use case::{Case, run};
pub(in crate::verbs) use fabric::{Fabric, Kind};

/// Calls a macro with the list of all tests, by file: the name of each, the rule it holds the device
/// to, and the devices that are laxer.
macro_rules! every_test {
    ($then:ident $args:tt) => {
        $then! { $args
            send {
                message_arrives_and_both_sides_complete;
                messages_of_every_size_arrive_whole_and_in_order;
                message_is_gathered_and_scattered;
                inline_payload_is_free_when_the_post_returns;
                inline_payload_is_as_long_as_the_queue_was_made_for_and_no_longer;
                unsignaled_request_is_reported_only_by_the_signaled_one_after_it: Unsignaled;
                message_longer_than_its_receive_fails_on_both_sides: LocLen,
                    laxer_on(IbvRxe, "it says LOC_QP_OP_ERR and REM_OP_ERR");
                missing_receive_is_retried_until_there_is_one;
                missing_receive_is_told_to_the_sender: Rnr;
                retries_after_rnr_are_counted: RnrRetry;
                receive_in_memory_that_is_not_writable_fails_on_both_sides: LocalWrite,
                    laxer_on(IbvRxe, "the receiver says LOC_QP_OP_ERR");
                message_from_outside_a_region_fails_here_and_sends_nothing;
                qp_of_another_pd_than_its_srq_fails_on_the_first_send: LocalPd,
                    laxer_on(IbvRxe, "the receiver says LOC_QP_OP_ERR");
                send_queue_that_is_full_refuses_the_next: QueueFull;
                chain_that_meets_a_full_queue_is_posted_up_to_the_one_refused: QueueFull;
                chain_that_is_longer_than_its_queue_is_refused_while_it_is_built;
            }
            read {
                read_through_a_window_brings_the_bytes;
                read_of_a_part_scatters;
                reads_of_one_qp_complete_in_order;
                requester_holds_back_reads_beyond_its_own_depth: MaxRdAtomic;
                fence_waits_for_the_reads_before_it: Fence;
                destination_must_be_writable: LocalWrite;
                destination_of_another_pd_is_refused: LocalPd;
            }
            refusal {
                read_by_an_unknown_key_is_refused;
                read_by_another_tag_of_the_windows_key_is_refused: KeyTag;
                read_by_the_key_of_an_earlier_bind_is_refused: KeyTag;
                read_past_the_windows_end_is_refused: RemoteBounds,
                    laxer_on(IbvRxe, "a window's bounds are those of its region");
                read_before_the_windows_start_is_refused: RemoteBounds,
                    laxer_on(IbvRxe, "a window's bounds are those of its region");
                read_whose_end_wraps_is_refused;
                payload_region_is_readable_through_its_window_only: RemoteReadRight;
                region_with_remote_read_is_readable_by_its_own_key;
                region_of_another_pd_is_refused: RemotePd;
                window_of_another_qp_is_refused: WindowQp;
                window_is_closed_by_local_invalidation;
                window_is_closed_by_its_deallocation;
                qp_without_remote_read_refuses_every_read: QpRemoteRead;
                reads_beyond_the_responders_depth_are_refused: ReadDepth,
                    laxer_on(IbvRxe, "it serves READs beyond max_dest_rd_atomic");
                read_that_is_revoked_midway_fails_and_brings_nothing_new: PieceKey,
                    laxer_on(IbvRxe, "a READ within one machine has ended before its post returns");
                refused_read_is_told_by_an_asynchronous_event,
                    laxer_on(IbvRxe, "it raises no QP_ACCESS_ERR");
            }
            windows {
                bind_gives_the_next_key_while_the_chain_is_built;
                window_bound_before_a_send_of_the_same_chain_is_open_when_it_arrives;
                window_can_be_bound_again_after_invalidation;
                bound_window_cannot_be_bound_again: WindowFree;
                window_past_its_regions_end_cannot_be_bound: WindowRange;
                window_over_a_region_without_the_right_cannot_be_bound: WindowRight;
                window_of_another_pd_cannot_be_bound: WindowPd;
                region_of_another_pd_cannot_be_bound: WindowPd,
                    laxer_on(IbvRxe, "it does not look at the domain of the region");
                second_invalidation_of_one_key_is_an_error: InvalidateBound,
                    laxer_on(IbvRxe, "its kernel panics");
                invalidation_on_another_qp_is_an_error: InvalidateBound,
                    laxer_on(IbvRxe, "it closes the other QP's window");
                send_with_inv_closes_the_receivers_window_and_says_which;
                invalidation_after_send_with_inv_is_an_error: InvalidateBound,
                    laxer_on(IbvRxe, "its kernel panics");
                send_with_inv_of_another_qps_window_fails_on_both_sides: SendInvQp,
                    laxer_on(IbvRxe, "it closes the other QP's window");
            }
            srq {
                receives_hold_the_messages_that_their_completions_name_in_any_order;
                srq_that_is_full_refuses_the_next: QueueFull;
                srq_limit_fires_once: SrqLimitOnce;
                receives_outlive_a_qp_in_error;
            }
            cq {
                armed_queue_announces_one_completion: ArmOnce;
                queue_that_is_not_armed_announces_nothing;
                every_event_is_drained_once;
                full_queue_overruns_and_takes_its_qps_along: CqOverrun,
                    laxer_on(IbvRxe, "it raises CQ_ERR for each completion lost, and goes on");
            }
            errors {
                error_flushes_every_outstanding_request_signaled_or_not: Flush;
                request_posted_in_error_is_flushed_too;
                error_tells_that_the_last_receive_is_used: LastWqe,
                    laxer_on(IbvRxe, "kernels before 6.12 never send LAST_WQE_REACHED");
                qp_in_error_is_silent_and_its_peer_gives_up: ErrSilent;
                destroyed_qp_is_silent_and_its_peer_gives_up: RetryExceeded;
                peer_whose_device_is_gone_is_given_up: LinkLost;
            }
            lifecycle {
                states_are_passed_in_order_only: StateOrder;
                nothing_can_be_posted_before_rts: PostState;
                limits_of_the_device_are_kept;
                queues_and_domains_stay_while_a_qp_uses_them: DestroyOrder;
                region_stays_while_a_window_is_bound_over_it;
                dropped_objects_leave_the_tables;
                objects_whose_events_nobody_took_can_be_dropped;
            }
        }
    };
}
pub(in crate::verbs) use every_test;

macro_rules! cases {
    ({} $($group:ident {
        $($name:ident $(: $rule:ident)? $(, laxer_on($kind:ident, $why:literal))*;)*
    })*) => {
        /// Every test for a fabric.
        pub(in crate::verbs) fn cases<F: Fabric>() -> Vec<Case> {
            vec![$($(Case {
                name: concat!(stringify!($group), "::", stringify!($name)),
                rules: &[$(super::soft::Rule::$rule)?],
                laxer: &[$((Kind::$kind, $why)),*],
                run: $group::$name::<F>,
            },)*)*]
        }

        /// The rules that have a test here.
        pub(in crate::verbs) const RULES: &[super::soft::Rule] =
            &[$($($(super::soft::Rule::$rule,)?)*)*];
    };
}
every_test!(cases {});

macro_rules! conformance {
    ({ $module:ident, $fabric:ty $(, ignore = $reason:literal)? } $($groups:tt)*) => {
        $crate::verbs::conformance::modules! {
            $module, $fabric, [$(#[ignore = $reason])?] $($groups)*
        }
    };
}
pub(in crate::verbs) use conformance;

macro_rules! modules {
    ($module:ident, $fabric:ty, $attributes:tt $($group:ident {
        $($name:ident $(: $rule:ident)? $(, laxer_on($kind:ident, $why:literal))*;)*
    })*) => {
        mod $module {
            $(mod $group {
                #[allow(unused_imports, reason = "not every file has a mark")]
                use crate::verbs::conformance::{self, Kind};
                $(conformance::test! {
                    $attributes $group::$name, $fabric, [$((Kind::$kind, $why)),*]
                })*
            })*
        }
    };
}
pub(in crate::verbs) use modules;

macro_rules! test {
    ([$($attribute:tt)*] $group:ident::$name:ident, $fabric:ty, $laxer:expr) => {
        #[test]
        $($attribute)*
        fn $name() {
            conformance::run::<$fabric>(&$laxer, conformance::$group::$name::<$fabric>);
        }
    };
}
pub(in crate::verbs) use test;
