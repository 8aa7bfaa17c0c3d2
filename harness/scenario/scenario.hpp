// SPDX-License-Identifier: Apache-2.0
// A scenario line: what is tested, its name in every table, the command that repeats it, the key of
// its history. `parse_scenario(print(s)) == s` and print(parse_scenario(print(s))) == print(s).
//
//   paged h=32/8 d=128 kv=fp8_e4m3:head page=16 layout=nhd mask=causal window=1023 batch=64q1s4k_2q512s2k
//   seed=7
//
// The grammar, every field, its default and its meaning are in the field table (fields.hpp), from
// which parsing, printing, `assay describe` and the README table come. To add a field: one row there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/problem.hpp"
#include "harness/scenario/batch.hpp"

namespace assay {

// What first= and positions= may say instead of a number.
inline constexpr int32_t kNoPositions = -1, kDrawnPositions = -2, kDepthPositions = -3;

// Values as written, after defaults: what Problem needs before lengths are drawn.
struct Scenario {
  int32_t op = ASSAY_OP_PAGED;
  int32_t heads_q = 32, heads_kv = 8;           // h=32/8
  int32_t head_dim_qk = 128, head_dim_v = 128;  // d=128 or d=192/128
  Quantization q;                               // q=bf16; quantize_int8: int8:token_head
  Quantization k, v;                            // kv=K[/V]; default: as q when q is not quantised, else bf16
  int32_t o_format = ASSAY_BF16;                // out=; default: q's format, bf16 when q is quantised
  int32_t page_size = 16;                       // page=   (of a cache, like the next five)
  int32_t min_blocks = 0;                       // blocks=; 0 = auto
  int32_t layout = ASSAY_LAYOUT_NHD;            // layout=
  Storage storage = Storage::kSplit;            // storage=split|stacked|interleaved
  int32_t table = ASSAY_TABLE_BLOCK;            // table=block|csr|token
  bool swa_index = false;                       // index=full|swa
  bool drawn_slots = false;                     // slots=ordered|drawn
  StridedOperands strided;                      // strides=packed|q+kv+out+table+scales+last
  int32_t mask = ASSAY_MASK_CAUSAL;             // mask=
  int32_t window_left = -1, window_right = -1;  // window=L or L/R
  int32_t chunk = 0;                            // chunk=
  double softcap = 0;                           // cap=
  int32_t alibi = ASSAY_ALIBI_NONE;             // alibi=
  bool sinks = false;                           // sinks=on|off
  int32_t first_key = kNoPositions;             // first=; tokens, or one of the three below
  int32_t positions = kNoPositions;             // positions=; tokens, or one of the three
  double softmax_scale = 0;                     // scale=; 0 = auto, 1/sqrt(head_dim_qk)
  BatchSpec batch;                              // batch=
  InputRecipe recipe = InputRecipe::kNormal;    // input=
  uint32_t relations = 0;                       // relate=; bits of enum Relation
  // Data ops (see enum assay_op).
  int32_t source_format = ASSAY_BF16;        // from=; default bf16, in merge_states fp32
  int32_t states = 2;                        // states=, merge_states and decode_splitkv
  int32_t part_tokens = 256;                 // part=, decode_splitkv
  int32_t padded_rows = 0;                   // pad=, cache_write and metadata ops
  int32_t ranks = 1, interleave = 1;         // ranks=, interleave=; dcp_lengths, step
  int32_t threshold = 1;                     // threshold=, split_batch
  int32_t token_budget = 32768;              // budget=, chunk_metadata
  int32_t prefix_tokens = 0;                 // prefix=, cascade_metadata
  int32_t workers = 132;                     // workers=, ps_metadata
  int32_t tile_rows = 256, tile_keys = 128;  // tile=, ps_metadata
  bool flat_tree = false;                    // tree=compact|flat, tree_tables and swa_tree_table
  bool split_latent = false;                 // sources=1|2, cache_write and step
  int32_t drafted = 0;                       // drafted=, trees of step and their tables
  bool no_write = false;                     // write=on|off, step
  int32_t encoder_tokens = 0;                // encoder=, step and decode_metadata
  bool full_pool = false;                    // pool=own|full, step and local_batches
  bool computed_scales = false;              // scales=given|computed, quantize_int8
  int32_t layers = 1;                        // layers=, storage=interleaved
  std::string tree_bits;                     // bits=; empty: drawn
  uint64_t seed = 0;                         // seed=
  bool operator==(const Scenario&) const = default;
};

// One scenario, no axes. `place` is where the text starts (for messages). Throws InputError with
// file, line, column of the offending word and the accepted values; checks the rules as well.
Scenario parse_scenario(std::string_view text, const SourcePlace& place = {"command line", 1, 1});

// Canonical text: fixed field order, canonical spelling, defaults left out, no newline.
std::string print(const Scenario&);

// The concrete case. Draws lengths, trees and pages from the seed alone (any machine, any thread
// count: the same Problem). Reads trace files: InputError when one is missing or broken.
Problem make_problem(const Scenario&);

// A constraint between fields, e.g. "heads_q must be a multiple of heads_kv". `fields` names every
// field the predicate looks at, so covering arrays can test partial assignments.
struct Rule {
  std::string_view name;
  std::vector<std::string_view> fields;
  bool (*holds)(const Scenario&);
  std::string (*message)(const Scenario&);  // what is wrong and what to change
};
const std::vector<Rule>& rules();
// First broken rule, or nullptr.
const Rule* broken_rule(const Scenario&);

}  // namespace assay
