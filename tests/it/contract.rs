//! One behaviour suite run against both brokers, so that the one in memory cannot drift from the one on Redis.
//!
//! Each behaviour is a sentence about [`streamstage::streams::Broker`]; the fixtures differ only in how they add, trim,
//! break and look. What only a real server can answer is in `contract/errors.rs` and
//! `contract/permissions.rs`.

mod errors;
mod faults_in_memory;
mod fixture;
mod leases;
mod memory_fixture;
mod permissions;
mod reading;
mod recovery;
mod redis_fixture;
mod reporting;
mod retrying;
mod server;
mod settling;
mod settling_partly;

macro_rules! contract {
    ($($area:ident { $($behaviour:ident,)+ })+) => {
        mod on_redis {
            use super::fixture::Fixture;
            use super::redis_fixture::RedisFixture;
            $($(
                #[tokio::test]
                async fn $behaviour() {
                    super::$area::$behaviour(RedisFixture::start().await).await;
                }
            )+)+
        }

        mod in_memory {
            use super::fixture::Fixture;
            use super::memory_fixture::MemoryFixture;
            $($(
                #[tokio::test(start_paused = true)]
                async fn $behaviour() {
                    super::$area::$behaviour(MemoryFixture::start().await).await;
                }
            )+)+
        }
    };
}

contract! {
    reading {
        two_consumers_share_a_stream_without_overlap,
        entries_come_as_the_bytes_they_are,
        the_meta_field_means_nothing_in_the_source,
        a_parked_read_ends_when_an_entry_is_added,
        a_parked_read_ends_when_it_is_unblocked,
        a_parked_read_ends_when_an_entry_is_released,
        unblocking_nobody_changes_nothing,
        a_read_of_the_retry_stream_does_not_wait,
        the_count_holds_per_stream,
    }
    settling {
        a_committed_entry_is_acknowledged_and_its_outputs_are_appended,
        a_known_key_is_acknowledged_without_outputs,
        twins_in_one_batch_commit_once,
        a_forced_commit_does_not_ask_the_ledger,
        without_a_ledger_no_key_is_known,
        an_output_stream_of_another_type_refuses_only_entries_with_outputs,
        a_dead_letter_stream_of_another_type_holds_up_nobody_else,
        a_full_server_refuses_adds_and_acknowledges_nothing,
        a_full_server_lets_acks_and_counts_through,
        answers_come_in_the_order_of_the_batch,
        who_does_not_hold_an_entry_changes_nothing,
        a_settlement_repeated_is_not_ours,
        one_entry_twice_in_a_batch_settles_once,
        an_unowned_settlement_needs_no_pending_entry,
        a_dead_letter_keeps_the_pairs_in_order_after_the_context,
        an_entry_too_wide_for_a_script_is_dead_lettered_all_the_same,
        an_entry_too_wide_for_a_script_cannot_be_delayed,
        a_batch_larger_than_one_call_is_settled_whole,
    }
    settling_partly {
        an_acknowledgement_to_a_group_that_is_gone_is_not_taken_for_a_lost_lease,
        an_error_does_not_hide_what_was_answered_before_it,
        outputs_that_cannot_be_carried_are_refused_only_to_who_would_commit_them,
        a_wide_entry_of_somebody_else_is_not_ours_to_delay,
        outputs_without_an_output_stream_are_refused,
        an_output_without_fields_is_refused_and_nothing_is_added,
    }
    retrying {
        a_retry_comes_back_through_the_retry_stream_with_its_meta,
        a_retry_is_not_promoted_before_it_is_due,
        equal_payloads_stay_apart,
        values_of_every_size_come_back_as_they_were,
        a_key_is_forgotten_after_its_window,
        a_settled_retry_leaves_the_retry_stream,
        a_release_comes_back_uncharged,
        a_member_that_cannot_be_decoded_is_dead_lettered_once,
        a_full_server_keeps_what_is_due,
        more_than_a_batch_is_promoted_in_turns,
        members_nobody_can_bury_do_not_hold_up_those_that_are_due,
        what_a_later_version_wrote_is_carried_on_as_far_as_it_is_known,
    }
    leases {
        a_renewed_entry_is_held_and_not_reclaimed,
        an_entry_with_somebody_else_is_stolen,
        an_entry_trimmed_while_held_is_gone,
        a_settled_entry_is_found_settled,
        counts_are_written_for_the_owner_only,
        a_reclaimed_entry_keeps_its_count,
        a_young_entry_is_left_alone,
        old_entries_behind_a_fresh_head_are_reached,
        reclaiming_stops_at_the_limit_and_goes_on_after_it,
        an_entry_trimmed_while_pending_is_lost_once,
        a_longer_promise_to_the_owner_is_kept,
        the_retry_stream_is_reclaimed_too,
        a_full_server_lets_renewals_and_reclaims_through,
        an_entry_trimmed_before_its_start_stays_with_its_owner,
        a_list_that_ended_is_looked_at_again_while_the_other_goes_on,
        a_count_written_renews_the_lease,
        a_missing_group_of_retries_is_met_only_by_who_asks_for_it,
    }
    reporting {
        an_outage_grants_everybody_a_grace,
        the_first_report_is_no_outage,
        a_consumer_retires_only_with_empty_hands,
        silent_consumers_of_ours_are_retired,
        the_backlog_counts_both_streams,
        entries_trimmed_before_delivery_are_lost_once,
        a_full_server_takes_no_report,
        what_one_stream_lost_does_not_hide_what_the_next_one_loses,
        without_its_group_a_consumer_can_retire_itself_only,
        what_was_trimmed_behind_the_group_does_not_wait_for_ever,
        a_backlog_without_a_report_is_counted,
    }
    recovery {
        a_group_is_created_where_the_stage_says,
        a_group_that_may_not_be_created_is_waited_for,
        a_destroyed_group_is_created_at_its_position,
        what_a_created_again_group_has_yet_to_deliver_is_not_stolen,
        a_stream_created_again_is_read_from_its_first_entry,
        a_key_of_another_type_ends_the_session_by_name,
        every_call_that_meets_another_type_names_the_key,
        without_a_connection_every_call_says_so,
        a_server_that_answers_no_more_ends_the_session,
    }
}
