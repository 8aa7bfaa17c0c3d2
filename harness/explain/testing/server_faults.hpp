// SPDX-License-Identifier: Apache-2.0
// What is wrong in whole steps of planted_server.cpp, one way each, and only where it says: in decodes, in
// extends, in prefills, in one split. Listed with place and causes before `assay explain` was asked of any.
// A new one: an enumerator, a row here, its place in the server.
#pragma once

namespace planted_server {

enum Fault {
  kRight,
  // rows of the write
  kRowsByLongest,  // request r's begin at r times the longest
  kVOfNextRow,
  kNewPagesUnwritten,  // rows in pages that begin in this step
  kExtendsUnwritten,
  kRowsBackwards,  // within a request
  // what a vector becomes
  kScaleOfRowBefore,
  kScaleOfRequest,
  kRopeUnwritten,
  kHeadsInPairs,  // K of heads 0, 0, 2, 2
  // lengths and masks, in one class of requests
  kDecodesWithoutNew,
  kCausalByBlock,  // rows of a block of four see what its last one sees
  kWindowInExtendsAlone,
  kWindowOfPages,
  kChunkOfFirstRow,
  kPrefillsUnmasked,
  kSixtyFourKeys,
  kTailTileDropped,
  kDraftsOfSelfAlone,
  kTreesOfOneWidth,
  // splits of decodes and what joins them
  kMiddleSplitDropped,
  kLastSplitTwice,
  kSplitsUnweighted,
  kSinkInEverySplit,
  // scores and values
  kCapBeforeScale,
  kBiasOfTiles,
  kHeadsInTurnInDecodes,
  kQueryHeadsInPairs,
  kScaleOfKForV,
  kVBehindRope,
  kTilesNotRescaled,
  // places
  kLastPageOfNext,
  kResultsByClass,
  // drawn a second time, after what the first run of those above led to
  kSlotsByClass,
  kPageEndsUnwritten,
  kVByScaleOfK,
  kRowsInPairs,
  kNewKeysOfSelfAlone,
  kFirstPageSkipped,
  kSumsOfNextSplit,
  kGroupsOfDouble,
  kScoresInBf16,
  kWeightsInBf16,
  kQueriesInPairs,
  kFirstKeysKept,
  kTableOfRequestBefore,
  kHalfOfDecodes,
  kHalvesExchanged,
  kChunkBeforeSeen,
  kLaneOfVDropped,
  // drawn a third time, by what strangers' wholes showed: rows without a slot, how codes are made, one side
  // as it came, one position a request, a draft's row, an encoder's last page, a map by block
  kPaddingInSlotZero,
  kKByScaleOfV,
  kVTimesScaleInDecodes,
  kScaleOverInBf16,
  kNewVAsItCame,
  kRowsAtFirst,
  kDraftsOfLast,
  kEncoderFollowed,
  kMapByBlock,
};

#define SERVER(rest) "step h=4/2 d=64 page=8 " rest
#define MIXED SERVER("batch=2q1s90_2q9s60_1q12 seed=9")
#define TOKENS SERVER("kv=int8:token_head batch=2q1s40_2q9s60 seed=9")
#define LATENT "step h=8/1 d=192/128 layout=mla page=8 batch=3q2s40_1q6s20 seed=9"
#define DRAFTS "step h=4/2 d=64 page=4 threshold=8 mask=tree batch=1q4s30_2q6s40_1q5s9 seed=9"

struct Entry {
  const char* name;
  Fault fault;
  const char *place = nullptr, *causes = nullptr, *line = MIXED;
};

constexpr Entry kEntries[] = {
    {"server_right", kRight},
    {"server_rows_by_longest", kRowsByLongest, "end write", "rows_shifted",
     SERVER("batch=2q3s40_2q9s60 seed=9")},
    {"server_v_of_next_row", kVOfNextRow, "end write", "rows_shifted"},
    {"server_new_pages_unwritten", kNewPagesUnwritten, "end write", "row_missing"},
    {"server_extends_unwritten", kExtendsUnwritten, "end write", "row_missing"},
    {"server_rows_backwards", kRowsBackwards, "end write", "slots_shifted rows_shifted"},
    {"server_scale_of_row_before", kScaleOfRowBefore, "end write", "scale_other", TOKENS},
    {"server_scale_of_request", kScaleOfRequest, "end write", "scale_of_one scale_other", TOKENS},
    {"server_rope_unwritten", kRopeUnwritten, "end write", "dims_missing", LATENT},
    {"server_heads_in_pairs", kHeadsInPairs, "end write", "heads.one_side heads.kv_mapping",
     "step h=8/4 d=64 page=8 batch=2q1s90_2q9s60_1q12 seed=9"},
    {"server_decodes_without_new", kDecodesWithoutNew, "end attend",
     "new_keys_missing lengths_without_new lengths_off_by_one mask.causal_short keys.kv_len_short"},
    {"server_causal_by_block", kCausalByBlock, "end attend", "mask.causal_long mask.causal_anchor"},
    {"server_window_in_extends_alone", kWindowInExtendsAlone, "end attend",
     "window_missing mask.window_ignored mask.window_long",
     SERVER("window=20 batch=2q1s90_2q9s60_1q12 seed=9")},
    {"server_window_of_pages", kWindowOfPages, "end attend", "mask.window_coarse",
     SERVER("window=20 batch=2q1s90_2q9s60_1q12 seed=9")},
    {"server_chunk_of_first_row", kChunkOfFirstRow, "end attend",
     "mask.chunk_shifted mask.chunk_wide chunk_other",
     "step h=4/2 d=64 page=4 chunk=16 batch=2q1s40_2q9s70 seed=9"},
    {"server_prefills_unmasked", kPrefillsUnmasked, "end attend", "mask_full mask.causal_ignored"},
    {"server_sixty_four_keys", kSixtyFourKeys, "end attend", "lengths_other keys.kv_len_short"},
    {"server_tail_tile_dropped", kTailTileDropped, "end attend", "keys.tail_dropped lengths_other"},
    {"server_drafts_of_self_alone", kDraftsOfSelfAlone, "end attend", "mask_tree", DRAFTS},
    {"server_trees_of_one_width", kTreesOfOneWidth, "end attend", "mask.tree_shifted mask_tree", DRAFTS},
    {"server_middle_split_dropped", kMiddleSplitDropped, "end attend", "merge.split_dropped state_missing"},
    {"server_last_split_twice", kLastSplitTwice, "end attend", "state_twice keys.one_doubled"},
    {"server_splits_unweighted", kSplitsUnweighted, "end attend", "merge_unweighted merge.uniform_weights"},
    {"server_sink_in_every_split", kSinkInEverySplit, "end attend", "sink_extra sinks.per_split",
     SERVER("sinks=on batch=2q1s90_2q9s60_1q12 seed=9")},
    {"server_cap_before_scale", kCapBeforeScale, "end attend", "softcap.before_scale",
     SERVER("cap=2 batch=2q1s90_2q9s60_1q12 seed=9")},
    {"server_bias_of_tiles", kBiasOfTiles, "end attend", "alibi.shifted bias_other",
     SERVER("alibi=linear batch=2q1s90_2q9s60_1q12 seed=9")},
    {"server_heads_in_turn_in_decodes", kHeadsInTurnInDecodes, "end attend", "heads.kv_mapping"},
    {"server_query_heads_in_pairs", kQueryHeadsInPairs, "end attend", "heads.q_swapped"},
    {"server_scale_of_k_for_v", kScaleOfKForV, "end attend", "scale.swapped scale_other",
     SERVER("kv=fp8_e4m3:head batch=2q1s90_2q9s60 seed=9")},
    {"server_v_behind_rope", kVBehindRope, "end attend", "dims.v_shifted", LATENT},
    {"server_tiles_not_rescaled", kTilesNotRescaled, "end attend", "softmax.o_not_rescaled"},
    {"server_last_page_of_next", kLastPageOfNext, "end attend",
     "page.of_other_request page.wrong table_of_next table_other", SERVER("batch=2q1s90_3q9s60 seed=9")},
    {"server_results_by_class", kResultsByClass, "end attend", "rows.written_to_other_row rows_shifted",
     SERVER("batch=1q9s60_2q1s40_1q12_1q1s30 seed=9")},
    {"server_slots_by_class", kSlotsByClass, "end write", "slots_shifted rows_shifted",
     SERVER("batch=1q9s60_2q1s40_1q12_1q1s30 seed=9")},
    {"server_page_ends_unwritten", kPageEndsUnwritten, "end write", "row_missing"},
    {"server_v_by_scale_of_k", kVByScaleOfK, "end write", "scale_other scale.swapped",
     SERVER("kv=fp8_e4m3:head batch=2q1s90_2q9s60 seed=9")},
    {"server_rows_in_pairs", kRowsInPairs, "end write", "rows_shifted"},
    {"server_new_keys_of_self_alone", kNewKeysOfSelfAlone, "end attend",
     "new_keys_missing keys.kv_len_short mask.causal_short"},
    {"server_first_page_skipped", kFirstPageSkipped, "end attend",
     "keys.head_dropped page.skipped keys.wrong_start"},
    {"server_sums_of_next_split", kSumsOfNextSplit, "end attend",
     "merge.pairing states_exchanged softmax.l_of_other"},
    {"server_groups_of_double", kGroupsOfDouble, "end attend", "heads.kv_mapping",
     "step h=8/4 d=64 page=8 batch=2q1s90_2q9s60_1q12 seed=9"},
    {"server_scores_in_bf16", kScoresInBf16, "end attend", "precision.scores"},
    {"server_weights_in_bf16", kWeightsInBf16, "end attend", "precision.p_coarse"},
    {"server_queries_in_pairs", kQueriesInPairs, "end attend", "rows.query_of_other_row rows_shifted"},
    {"server_first_keys_kept", kFirstKeysKept, "end attend", "mask.first_keys_kept",
     SERVER("window=20 batch=2q1s90_2q9s60_1q12 seed=9")},
    {"server_table_of_request_before", kTableOfRequestBefore, "end attend",
     "page.of_other_request table_of_next", SERVER("batch=3q1s90_2q9s60 seed=9")},
    {"server_half_of_decodes", kHalfOfDecodes, "end attend", "output.scaled scale.v_factor"},
    {"server_halves_exchanged", kHalvesExchanged, "end attend", "dims.v_shifted"},
    {"server_chunk_before_seen", kChunkBeforeSeen, "end attend", "mask.chunk_wide",
     "step h=4/2 d=64 page=4 chunk=16 batch=2q1s40_2q9s70 seed=9"},
    {"server_lane_of_v_dropped", kLaneOfVDropped, "end attend", "keys.lanes_v_dropped"},
    {"server_padding_in_slot_zero", kPaddingInSlotZero, "end write", "rows_beyond",
     SERVER("pad=3 batch=2q1s40_1q9s60 seed=9")},
    {"server_k_by_scale_of_v", kKByScaleOfV, "end write", "scale_other scale.swapped",
     SERVER("kv=fp8_e4m3:host batch=2q1s40_1q9s60 seed=9")},
    {"server_v_times_scale_in_decodes", kVTimesScaleInDecodes, "end write", "scale_other scale.inverted",
     SERVER("kv=fp8_e4m3:head batch=2q1s40_1q9s60 seed=9")},
    {"server_scale_over_in_bf16", kScaleOverInBf16, "end write", "precision.scale codes_rounded scale_other",
     SERVER("kv=fp8_e4m3:head batch=2q1s40_2q20s60 seed=9")},
    {"server_new_v_as_it_came", kNewVAsItCame, "end attend", "dense_for_cache",
     SERVER("kv=int8:head batch=2q1s40_1q9s30 seed=9")},
    {"server_rows_at_first", kRowsAtFirst, "end attend",
     "positions_other mask.causal_anchor mask.causal_short"},
    {"server_drafts_of_last", kDraftsOfLast, "end attend", "mask.tree_shifted mask_tree", DRAFTS},
    {"server_encoder_followed", kEncoderFollowed, "end attend", "encoder_rounded_down keys.wrong_start",
     SERVER("encoder=21 batch=2q1s70_1q9s60 seed=9")},
    {"server_map_by_block", kMapByBlock, "end attend", "map_shifted",
     SERVER("pool=full window=20 batch=2q1s70_1q9s60 seed=9")},
};

#undef SERVER
#undef MIXED
#undef TOKENS
#undef LATENT
#undef DRAFTS

}  // namespace planted_server
