// SPDX-License-Identifier: Apache-2.0
// What is wrong in whole steps of planted_engine.cpp, one way each: listed by class with the place and the
// causes that are right before `assay explain` was asked of any. A new one: an enumerator, a row here, its
// place in the engine.
#pragma once

namespace planted_engine {

enum Fault {
  kRight,
  // what is written: which heads, rows, dimensions
  kLastHeadOfV,
  kLastHead,
  kFourRows,  // of each request
  kHeadsBackwards,
  kDimsApart,  // even ones first
  kRopeFirst,
  // where
  kSlotsOfHalfWidth,
  kDoublePages,  // a slot's block by twice the page
  kHeadsForSlots,
  // scales and codes
  kScaleTwice,
  kKTimesScale,
  kLargestOfHalf,
  kLargestSigned,
  kOver128,
  kReciprocalStored,
  kScaleUnstored,
  kScaleOfKInV,
  kOverflowToNan,
  kOtherBias,  // of the exponent
  kSubnormalsFlushed,
  kCodesDown,  // of a number between two: the lower one
  // chunks of the context
  kChunksOverlap,
  kChunksApart,
  kChunksInWholeEights,
  kLastChunkAlone,
  kFirstChunkMissing,
  kLastChunkStale,
  kContextTableOfClass,
  kExtendTableOfClass,
  kQueriesByRequests,
  // merges
  kWeightsExchanged,
  kLseTurned,
  kLseOfNextHead,
  kLargestLseKept,
  kBase2BetweenChunks,
  kEmptyCounts,
  // masks, bias, scalars in parts
  kWindowInNewAlone,
  kWindowFromChunkEnd,
  kCausalInChunks,
  kBiasFromChunkEnd,
  kContextUncapped,
  kExtendsWithoutSink,
  kContextOfVUnscaled,
  kContextScaledOtherwise,
  // rows, trees, positions, prefixes, tables
  kRowsByRequests,
  kPaddingComputed,
  kTreeOfRows,
  kPositionsIgnored,
  kPositionsOneOn,
  kPrefixMissing,
  kPrefixTwice,
  kSuffixFromFirstPage,
  kLastPageStale,
  kLastPartMissing,
  kHeadsInTurn,
  kContextHeadsInTurn,
  kQueryInEightBits,
  kWithoutRope,
};

#define ENGINE(rest) "step h=4/2 d=64 page=8 " rest
#define EXTENDS ENGINE("budget=32 batch=1q1s40_2q9s70_1q12 seed=5")
#define CODES ENGINE("kv=fp8_e4m3:head batch=2q1s40_2q9s60 seed=5")
#define TOKENS ENGINE("kv=int8:token_head batch=2q1s40_2q9s60 seed=5")
#define LATENT "step h=8/1 d=192/128 layout=mla page=8 batch=3q2s40_1q6s20 seed=5"
#define DRAFTS "step h=4/2 d=64 page=4 threshold=8 mask=tree "

struct Entry {
  const char* name;
  Fault fault;
  const char *place = nullptr, *causes = nullptr, *line = EXTENDS;
};

constexpr Entry kEntries[] = {
    {"engine_right", kRight},
    {"engine_last_head_of_v", kLastHeadOfV, "end write", "heads_missing"},
    {"engine_last_head", kLastHead, "end write", "heads_missing"},
    {"engine_four_rows", kFourRows, "end write", "row_missing"},
    {"engine_heads_backwards", kHeadsBackwards, "end write", "heads.one_side heads.kv_mapping"},
    {"engine_dims_apart", kDimsApart, "end write", "dims_order"},
    {"engine_rope_first", kRopeFirst, "end write", "dims_order", LATENT},
    {"engine_rope_of_two_first", kRopeFirst, "end write", "dims_order",
     "step h=8/1 d=192/128 layout=mla sources=2 page=8 batch=3q2s40_1q6s20 seed=5"},
    {"engine_slots_of_half_width", kSlotsOfHalfWidth, "end write", "slots_shifted"},
    {"engine_double_pages", kDoublePages, "end write", "slots_shifted slots_turned"},
    {"engine_heads_for_slots", kHeadsForSlots, "end write",
     "memory.layout memory.stride_ignored slots_turned", ENGINE("layout=hnd batch=2q1s40_2q9s60 seed=5")},
    {"engine_scale_twice", kScaleTwice, "end write", "scale_twice", CODES},
    {"engine_k_times_scale", kKTimesScale, "end write", "scale_other scale_twice scale.inverted", CODES},
    {"engine_largest_of_half", kLargestOfHalf, "end write", "scale_other", TOKENS},
    {"engine_largest_signed", kLargestSigned, "end write", "scale_other", TOKENS},
    {"engine_over_128", kOver128, "end write", "scale_other", TOKENS},
    {"engine_reciprocal_stored", kReciprocalStored, "end write", "scale_other scale.inverted", TOKENS},
    {"engine_scale_unstored", kScaleUnstored, "end write", "scale_unwritten scale_missing", TOKENS},
    {"engine_scale_of_k_in_v", kScaleOfKInV, "end write", "scale_other scale.swapped", TOKENS},
    {"engine_overflow_to_nan", kOverflowToNan, "end write", "codes_overflow",
     ENGINE("kv=fp8_e4m3:head input=codes batch=2q1s40_2q9s60 seed=5")},
    {"engine_other_bias", kOtherBias, "end write", "format.fnuz_as_fn format.other", CODES},
    {"engine_subnormals_flushed", kSubnormalsFlushed, "end write", "format.subnormals codes_rounded",
     ENGINE("kv=fp8_e4m3:head input=codes batch=2q1s40_2q9s60 seed=5")},
    {"engine_codes_down", kCodesDown, "end write", "codes_rounded",
     ENGINE("kv=int8:head/bf16 batch=2q1s40_2q9s60 seed=5")},
    {"engine_chunks_overlap", kChunksOverlap, "end attend", "keys.one_doubled"},
    {"engine_chunks_apart", kChunksApart, "end attend", "keys.one_dropped"},
    {"engine_chunks_in_whole_eights", kChunksInWholeEights, "end attend",
     "keys.one_dropped keys.tail_dropped state_missing", ENGINE("budget=42 batch=1q1s40_2q9s70_1q12 seed=5")},
    {"engine_last_chunk_alone", kLastChunkAlone, "end attend", "state_missing merge.split_dropped"},
    {"engine_first_chunk_missing", kFirstChunkMissing, "end attend",
     "state_missing merge.split_dropped keys.head_dropped"},
    {"engine_last_chunk_stale", kLastChunkStale, "end attend", "chunk_stale"},
    {"engine_context_table_of_class", kContextTableOfClass, "end attend",
     "table_of_next page.of_other_request", ENGINE("budget=32 batch=2q1s70_2q9s70 seed=5")},
    {"engine_extend_table_of_class", kExtendTableOfClass, "end attend", "table_of_next page.of_other_request",
     ENGINE("batch=2q1s70_2q9s70 seed=5")},
    {"engine_queries_by_requests", kQueriesByRequests, "end attend", "rows_shifted rows.query_of_other_row",
     ENGINE("threshold=3 batch=2q3s40_2q9s60 seed=5")},
    {"engine_weights_exchanged", kWeightsExchanged, "end attend", "states_exchanged merge.pairing"},
    {"engine_lse_turned", kLseTurned, "end attend", "lse_turned merge.pairing merge.partial_of_other"},
    {"engine_lse_of_next_head", kLseOfNextHead, "end attend",
     "lse_turned merge.pairing merge.partial_of_other states_exchanged"},
    {"engine_largest_lse_kept", kLargestLseKept, "end attend", "merge.lse_wrong merge.by_maximum"},
    {"engine_base2_between_chunks", kBase2BetweenChunks, "end attend", "merge_base2 merge.base"},
    {"engine_empty_counts", kEmptyCounts, "end attend", "empty_as_zero merge.empty_split_counted",
     ENGINE("budget=32 batch=1q1s40_1q9s90_1q9s25_1q12 seed=5")},
    {"engine_window_in_new_alone", kWindowInNewAlone, "end attend",
     "window_missing mask.window_ignored mask.window_long",
     ENGINE("budget=32 window=7 batch=1q1s40_2q19s70_1q12 seed=5")},
    {"engine_window_from_chunk_end", kWindowFromChunkEnd, "end attend", "mask.window_anchor window_other",
     ENGINE("budget=32 window=7 batch=1q1s40_2q9s70_1q12 seed=5")},
    {"engine_causal_in_chunks", kCausalInChunks, "end attend",
     "mask_causal mask.causal_short mask.causal_anchor mask.full_as_causal"},
    {"engine_bias_from_chunk_end", kBiasFromChunkEnd, "end attend", "bias_other alibi.shifted",
     ENGINE("budget=32 alibi=linear batch=1q1s40_2q9s70_1q12 seed=5")},
    {"engine_context_uncapped", kContextUncapped, "end attend", "cap_missing softcap.ignored",
     ENGINE("budget=32 cap=2 batch=1q1s40_2q9s70_1q12 seed=5")},
    {"engine_extends_without_sink", kExtendsWithoutSink, "end attend", "sink_missing sinks.ignored",
     ENGINE("budget=32 sinks=on batch=1q1s40_2q9s70_1q12 seed=5")},
    {"engine_context_of_v_unscaled", kContextOfVUnscaled, "end attend", "scale_missing scale.v_missing",
     ENGINE("budget=32 kv=fp8_e4m3:head batch=1q1s40_2q9s70_1q12 seed=5")},
    {"engine_context_scaled_otherwise", kContextScaledOtherwise, "end attend", "softmax_scale scale.softmax"},
    {"engine_rows_by_requests", kRowsByRequests, "end attend",
     "rows.written_to_other_row rows_shifted row_missing", ENGINE("threshold=3 batch=2q3s40_2q9s60 seed=5")},
    {"engine_padding_computed", kPaddingComputed, "end attend", "rows_beyond",
     ENGINE("pad=3 batch=2q1s40_2q9s60 seed=5")},
    {"engine_tree_of_rows", kTreeOfRows, "end attend", "mask_tree mask.tree_shifted",
     DRAFTS "batch=2q6s40_1q5s9 seed=5"},
    {"engine_positions_ignored", kPositionsIgnored, "end attend",
     "positions_other mask.window_anchor alibi.shifted",
     DRAFTS "positions=depth alibi=linear batch=2q6s40_1q5s19 seed=5"},
    {"engine_positions_one_on", kPositionsOneOn, "end attend",
     "positions_other mask.window_anchor window_off_by_one mask.window_short",
     DRAFTS "positions=depth window=9 batch=2q6s40_1q5s19 seed=5"},
    {"engine_prefix_missing", kPrefixMissing, "end attend",
     "state_missing keys.head_dropped merge.split_dropped",
     ENGINE("prefix=16 batch=4q2s60p16 threshold=3 seed=5")},
    {"engine_prefix_twice", kPrefixTwice, "end attend", "state_twice keys.one_doubled",
     ENGINE("prefix=16 batch=4q2s60p16 threshold=3 seed=5")},
    {"engine_suffix_from_first_page", kSuffixFromFirstPage, "end attend",
     "table_shifted keys.wrong_start table_other starts_zero",
     ENGINE("prefix=16 batch=4q2s60p16 threshold=3 seed=5")},
    {"engine_last_page_stale", kLastPageStale, "end attend", "table_other table_shifted page.wrong",
     ENGINE("batch=2q1s41_2q9s60 seed=5")},
    {"engine_last_part_missing", kLastPartMissing, "end attend",
     "merge.split_dropped keys.tail_dropped state_missing lengths_other keys.kv_len_short",
     ENGINE("batch=2q1s40_1q1s70 seed=5")},
    {"engine_heads_in_turn", kHeadsInTurn, "end attend", "heads.kv_mapping"},
    {"engine_context_heads_in_turn", kContextHeadsInTurn, "end attend", "heads.kv_mapping"},
    {"engine_query_in_eight_bits", kQueryInEightBits, "end attend", "precision.operand precision.query"},
    {"engine_without_rope", kWithoutRope, "end attend", "dims_missing dims.qk_dropped", LATENT},
};

#undef ENGINE
#undef EXTENDS
#undef CODES
#undef TOKENS
#undef LATENT
#undef DRAFTS

}  // namespace planted_engine
