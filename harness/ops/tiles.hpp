// SPDX-License-Identifier: Apache-2.0
// What ops on a schedule (ps_metadata of enum assay_op) share: its tiles, how its lists lie, how much they
// are.
#pragma once

#include "harness/ops/op.hpp"
#include "harness/ops/parts.hpp"

namespace assay {

// Keys of a block, between which tiles are cut: whole pages where the op knows any.
int64_t block_keys(const Problem&);
// Tiles of all KV heads.
int64_t tiles_of(const Problem&);
// Rows and heads of Q that have partial results, where every worker gets its even share: a tile in k parts
// has k results of each.
double partial_results(const Problem&);

namespace layouts {

TensorLayout work_indptr(const Problem&);
TensorLayout work_info(const Problem&);
TensorLayout reduce_indptr(const Problem&);
TensorLayout reduce_final_map(const Problem&);
TensorLayout reduce_partial_map(const Problem&);

}  // namespace layouts

// Op::bytes: lists of a schedule, partial results.
double schedule_bytes(const Problem&, const BatchSize&);
double tile_bytes(const Problem&);

// Of attention by a schedule (persistent_prefill, persistent_paged), for Op.
double scheduled_bytes(const Problem&, const BatchSize&);
Work scheduled_work(const Problem&);
std::string scheduled_text(const Problem&);

void check_schedule(const Problem&);  // CheckError

// One of those ops, which differ in where K and V lie: operands, fields and examples.
constexpr Op scheduled_op(Op op) {
  op.attends_rows = true;
  op.masks = mask_bit(ASSAY_MASK_CAUSAL);
  op.rows_anywhere = false;
  op.recipes = kRecipesOfParts;
  op.recipes_message = kRecipesOfPartsMessage;
  op.foreign_fields = "masks, windows, sinks and relations";
  op.check = check_schedule;
  op.bytes = scheduled_bytes;
  op.work = scheduled_work;
  op.multiply_adds = attention_multiply_adds;
  op.describe = scheduled_text;
  return op;
}

}  // namespace assay
