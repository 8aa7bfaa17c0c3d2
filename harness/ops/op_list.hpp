// SPDX-License-Identifier: Apache-2.0
// The ops, once: the name in a scenario line and the value of the C header, in the header's order. Whoever
// needs something of every op that the description (op.hpp) cannot hold declares it with this list, so that
// an op without it does not link. A new op: a line here and a file of its name beside it.
#pragma once

#include "harness/abi/assay_kernel.h"

#define ASSAY_FOR_EACH_OP(X)                         \
  X(prefill, ASSAY_OP_PREFILL)                       \
  X(paged, ASSAY_OP_PAGED)                           \
  X(merge_states, ASSAY_OP_MERGE_STATES)             \
  X(cache_write, ASSAY_OP_CACHE_WRITE)               \
  X(cache_gather, ASSAY_OP_CACHE_GATHER)             \
  X(quantize_int8, ASSAY_OP_QUANTIZE_INT8)           \
  X(decode_splitkv, ASSAY_OP_DECODE_SPLITKV)         \
  X(expand_pages, ASSAY_OP_EXPAND_PAGES)             \
  X(dcp_lengths, ASSAY_OP_DCP_LENGTHS)               \
  X(local_batches, ASSAY_OP_LOCAL_BATCHES)           \
  X(split_batch, ASSAY_OP_SPLIT_BATCH)               \
  X(chunk_metadata, ASSAY_OP_CHUNK_METADATA)         \
  X(decode_metadata, ASSAY_OP_DECODE_METADATA)       \
  X(cascade_metadata, ASSAY_OP_CASCADE_METADATA)     \
  X(tree_tables, ASSAY_OP_TREE_TABLES)               \
  X(swa_tree_table, ASSAY_OP_SWA_TREE_TABLE)         \
  X(ps_metadata, ASSAY_OP_PS_METADATA)               \
  X(step, ASSAY_OP_STEP)                             \
  X(window_metadata, ASSAY_OP_WINDOW_METADATA)       \
  X(persistent_prefill, ASSAY_OP_PERSISTENT_PREFILL) \
  X(persistent_paged, ASSAY_OP_PERSISTENT_PAGED)     \
  X(reduce, ASSAY_OP_REDUCE)
