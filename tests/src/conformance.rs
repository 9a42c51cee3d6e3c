//! The rules every store keeps, one function each, and the macro that holds a store to all of them.
//!
//! A rule sees a store only through [`Bench`](crate::stores::Bench). Its number in
//! `docs/semantics.md` stands above it. A store that cannot keep one is listed with the rule's name
//! and the reason.

pub mod alerts;
pub mod approvals;
pub mod desk;
pub mod doubts;
pub mod keys;
pub mod large;
pub mod late;
pub mod limits;
pub mod log;
pub mod pauses;
pub mod receipts;
pub mod repeated;
pub mod restart;
pub mod retention;
pub mod sessions;
pub mod transactional;
pub mod turns;

/// Writes one test per rule for a store: `conformance!(memory, MemoryBench::fresh())`, with
/// `skip rule: "reason"` for each rule the store cannot keep.
#[macro_export]
macro_rules! conformance {
    ($store:ident, $bench:expr $(, skip $rule:ident: $why:literal)* $(,)?) => {
        mod $store {
            use super::*;

            const SKIPPED: &[(&str, &str)] = &[$((stringify!($rule), $why)),*];

            fn bench() -> impl $crate::stores::Bench {
                $bench
            }

            $crate::rules! {
                turns {
                    the_first_claim_is_a_durable_intent_of_attempt_one,
                    a_second_action_on_the_entity_waits_for_the_first,
                    turns_come_in_the_order_of_arrival,
                    another_entity_does_not_wait,
                    whoever_leaves_the_queue_lets_the_next_go,
                    a_waiter_whose_session_died_is_passed_over,
                    a_read_waits_its_turn_and_holds_nobody_up,
                    a_read_passes_an_entity_in_doubt,
                    a_wait_whose_answer_was_lost_is_the_same_place,
                    a_lost_place_that_is_not_needed_any_more_holds_nobody_up,
                    a_read_whose_answer_was_lost_has_one_place,
                    every_end_gives_the_turn_up,
                    a_hundred_claims_of_one_key_are_one_intent,
                    a_call_of_many_claims_answers_each_in_its_order,
                    a_call_of_many_settlements_answers_each,
                }
                keys {
                    a_burned_key_answers_with_the_original,
                    a_duplicate_writes_its_receipt_and_no_key,
                    a_duplicate_takes_no_turn,
                    a_burned_key_with_other_arguments_is_a_conflict,
                    a_key_in_flight_is_a_conflict_on_another_entity,
                    a_key_in_doubt_with_other_arguments_is_a_conflict,
                    a_failed_key_takes_corrected_arguments,
                    two_tenants_share_nothing,
                    an_older_revision_is_stale,
                    a_refusal_counts_only_where_nothing_happened_yet,
                    a_refusal_waits_for_its_turn,
                    forgetting_opens_the_next_generation_of_a_burned_key,
                    a_written_off_key_can_be_forgotten_and_a_doubt_cannot,
                    a_tenants_redaction_key_is_its_own_and_stays,
                    a_claim_asked_again_is_one_intent,
                    a_refusal_whose_answer_was_lost_is_told_again,
                    a_duplicate_whose_answer_was_lost_stays_one,
                    a_claim_that_became_a_doubt_is_not_sent_again_under_its_receipt,
                }
                doubts {
                    an_unknown_outcome_holds_the_entity,
                    time_alone_ends_no_doubt,
                    a_keyed_doubt_is_sent_again_inside_its_window,
                    a_keyed_doubt_is_not_sent_again_past_its_window,
                    a_keyed_doubt_is_not_sent_again_where_it_could_land_past_its_window,
                    an_answer_is_about_one_generation,
                    an_idempotent_doubt_is_sent_again_and_then_waited_for,
                    an_abandoned_request_is_waited_for_no_longer_than_it_can_land,
                    a_landed_attempt_does_not_let_others_past_an_abandoned_one,
                    a_resend_left_behind_by_a_late_answer_is_waited_for,
                    whatever_settled_a_key_its_abandoned_requests_are_waited_for,
                    a_keyed_vendors_abandoned_requests_are_waited_for_only_past_its_window,
                    what_a_person_saw_is_the_only_attempt_that_was_undecided,
                    an_answer_too_long_to_keep_closes_its_doubt_all_the_same,
                    an_opaque_doubt_is_sent_again_only_if_its_tool_says_so,
                    a_doubt_that_can_be_asked_about_is_handed_over_unchanged,
                    a_probe_that_finds_the_effect_burns_the_key,
                    a_failed_resend_does_not_clear_the_first_doubt,
                    not_applied_is_believed_only_when_nothing_can_land,
                    the_longest_of_two_abandoned_requests_decides,
                    a_person_who_saw_it_burns_the_key,
                    a_written_off_key_dedups_flagged_and_never_runs,
                    a_written_off_request_is_waited_for_while_it_can_land,
                    an_answer_to_what_is_no_doubt_changes_nothing,
                }
                large {
                    the_largest_arguments_and_answers_are_kept_whole,
                    many_large_duplicates_at_once_leave_a_receipt_each,
                    corrected_arguments_may_be_of_another_size,
                    a_large_receipt_is_pruned_like_any,
                }
                late {
                    a_late_applied_burns_a_key_in_doubt,
                    a_late_not_applied_frees_a_key_in_doubt,
                    a_late_unknown_adds_nothing,
                    a_late_applied_corrects_a_person_who_said_no,
                    a_late_applied_binds_the_key_to_what_took_effect,
                    a_late_applied_binds_the_key_once_a_later_attempt_is_over,
                    a_late_applied_lifts_a_write_off,
                    a_late_not_applied_leaves_a_write_off,
                    a_late_applied_agrees_with_a_person_who_saw_it,
                    a_late_not_applied_unburns_nothing,
                    two_applied_attempts_are_raised,
                    a_late_applied_after_the_next_attempt_is_raised,
                    two_applied_attempts_of_a_repeatable_tool_are_one,
                    a_running_attempt_cannot_undo_a_late_applied,
                    a_late_not_applied_lets_a_failed_resend_free_the_key,
                    a_late_answer_of_an_old_generation_moves_nothing,
                    a_late_applied_counts_on_the_entity_it_was_on,
                    a_late_answer_does_not_release_anothers_turn,
                }
                repeated {
                    a_settlement_asked_again_changes_nothing,
                    a_failed_resend_asked_again_changes_nothing,
                    a_late_answer_asked_again_changes_nothing,
                    a_settlement_of_a_forgotten_key_asked_again_changes_nothing,
                    a_late_answer_of_a_forgotten_key_asked_again_changes_nothing,
                }
                alerts {
                    what_ran_under_alert_stands_until_it_is_acknowledged,
                    an_alert_is_raised_whatever_the_end_and_once,
                    what_did_not_run_or_was_approved_raises_nothing,
                    an_owner_that_died_leaves_its_alert,
                    alerts_are_a_tenants_own_and_survive_the_handle,
                }
                approvals {
                    what_needs_approval_waits_and_then_runs_with_its_approver,
                    an_approval_is_of_those_arguments_that_policy_and_that_generation,
                    an_answer_is_about_the_question_it_names,
                    an_approval_turns_no_refusal_into_a_run,
                    a_veto_is_final_for_the_proposal_and_not_for_the_key,
                    a_veto_outlives_another_question,
                    a_question_and_an_approval_expire,
                }
                limits {
                    one_new_key_on_many_entities_is_one_intent,
                    a_limit_stops_the_next_and_says_when_a_slot_is_free,
                    the_last_slot_goes_to_one_of_many,
                    a_window_slides_with_the_proposers_clock,
                    a_definite_failure_gives_the_slot_back,
                    a_doubt_keeps_its_slot_and_a_resend_takes_no_second,
                    what_is_known_late_not_to_have_happened_gives_the_slot_back,
                    only_what_is_granted_takes_a_slot,
                    every_limit_must_have_a_slot,
                    a_forgotten_key_counts_anew,
                    limits_are_a_tenants_own_and_survive_the_handle,
                }
                pauses {
                    a_pause_stops_the_next_claim_of_every_process,
                    a_pause_of_one_operator_stops_nobody_else,
                    a_pause_answers_duplicates_and_lets_what_runs_end,
                    a_pause_stops_a_resend_too,
                    a_pause_is_asked_for_once_and_ended_once,
                    a_pause_is_a_tenants_own,
                    a_pause_meets_claims_that_race_with_it,
                }
                sessions {
                    a_lapsed_holder_loses_its_turn_and_leaves_a_doubt,
                    a_heartbeat_declares_the_lapsed_dead,
                    opening_a_session_declares_the_lapsed_dead,
                    a_closed_session_leaves_its_doubts_at_once,
                    a_dead_session_is_fenced,
                    a_session_nobody_opened_is_dead,
                    a_heartbeat_keeps_the_turn,
                    a_question_does_not_bury_whoever_asks,
                    two_sessions_of_one_handle_take_turns,
                    an_attempt_in_flight_is_shown_with_its_owner,
                    an_owner_without_a_sign_of_life_is_gone_until_it_is_declared_dead,
                    a_store_knows_whose_it_ever_held,
                }
                transactional {
                    a_statement_its_burn_and_its_receipt_are_one_write,
                    a_refused_statement_is_undone_and_settled,
                    a_constraint_checked_at_the_commit_undoes_the_statement,
                    a_buried_sessions_statement_never_runs,
                    a_statement_runs_only_under_its_own_turn,
                    a_statement_whose_deadline_has_passed_is_not_run,
                    a_statement_that_does_not_end_is_stopped,
                    a_statement_cannot_touch_the_stores_own_tables,
                    a_dead_owners_slot_is_given_back,
                }
                receipts {
                    a_receipt_is_shown_as_it_was_written,
                    what_touches_no_key_is_recorded_once,
                    pages_meet_without_gap_or_repeat,
                    a_page_is_never_longer_than_its_bound,
                    every_filter_finds_its_receipts,
                    every_proposal_leaves_one_receipt,
                }
                log {
                    every_receipt_is_in_the_log,
                    what_is_in_the_log_stays_in_its_place,
                    a_tenants_log_is_its_own,
                    keys_and_receipts_agree,
                    writers_at_once_leave_one_sound_log,
                    another_handle_goes_on_with_the_log,
                    what_was_signed_is_found_at_its_place,
                }
                retention {
                    a_pruned_receipt_leaves_its_hash_and_its_key,
                    a_pruning_goes_on_where_the_last_one_ended,
                    nothing_but_what_was_pruned_may_become_a_stub,
                    a_pruning_cut_short_is_finished,
                    a_stub_beside_one_that_is_refused_leaves_no_text_behind,
                    a_pruning_is_a_tenants_own,
                }
                restart {
                    burned_keys_survive_a_restart,
                    doubts_survive_a_restart,
                    receipts_survive_a_restart_and_go_on,
                    a_process_that_ended_is_dead_at_once,
                }
            }
        }
    };
}

/// Writes the tests of [`conformance!`](crate::conformance!).
#[macro_export]
macro_rules! rules {
    ($($theme:ident { $($rule:ident,)* })*) => {
        const RULES: &[&str] = &[$($(stringify!($rule)),*),*];

        #[test]
        fn every_skipped_rule_is_a_rule() {
            for (rule, why) in SKIPPED {
                assert!(RULES.contains(rule), "no rule `{rule}`");
                assert!(!why.is_empty(), "`{rule}` is skipped for no reason");
            }
        }

        $($(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $rule() {
                let skipped = SKIPPED.iter().find(|(rule, _)| *rule == stringify!($rule));
                if let Some((rule, why)) = skipped {
                    println!("{rule} is skipped: {why}");
                    return;
                }
                let bench = bench();
                if let Some(why) = $crate::stores::Bench::missing(&bench) {
                    println!("{} is skipped: {why}", stringify!($rule));
                    return;
                }
                $crate::conformance::$theme::$rule(&bench).await;
            }
        )*)*
    };
}
