// SPDX-License-Identifier: Apache-2.0
// Scenario -> Problem: lengths, draft trees and pages, all drawn from the seed, so that a line gives
// the same case on every machine. A new part of Problem that is drawn gets its own random stream
// (harness/base/random.hpp), which keeps all old cases unchanged.
#include <algorithm>

#include "harness/base/random.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/limits.hpp"
#include "harness/scenario/rule_tables.hpp"
#include "harness/scenario/scenario.hpp"
#include "harness/scenario/score_level.hpp"

namespace assay {
namespace {

// How far back a draft token's parent lies at most: wide enough for branches to interleave, as the
// level-by-level order of speculative decoders makes them.
constexpr uint64_t kParentReach = 8;
// One row in so many does not see itself, and one request in so many has an arbitrary bit matrix instead
// of a tree: kernels must read the bits, not assume a diagonal or a triangle.
constexpr uint64_t kBlindRowShare = 8;
constexpr uint64_t kArbitraryShare = 4;

// Fills n x n bits at `mask`; `index` counts the draws of the whole batch. `whole`: a tree that is one.
void draw_tree(const CounterRng& rng, uint64_t& index, int32_t n, bool whole, uint8_t* mask) {
  if (!whole && rng.below(index++, kArbitraryShare) == 0) {
    for (int64_t i = 0; i < int64_t{n} * n; ++i) mask[i] = static_cast<uint8_t>(rng.below(index++, 2));
    return;
  }
  for (int32_t i = 0; i < n; ++i) {
    uint8_t* row = mask + int64_t{i} * n;
    // 0: a child of the context itself; otherwise a child of one of the tokens just before.
    const uint64_t reach = std::min<uint64_t>(kParentReach, static_cast<uint64_t>(i));
    const uint64_t back = rng.below(index++, reach + 1);
    if (back > 0) std::copy_n(mask + (i - static_cast<int64_t>(back)) * n, n, row);
    row[i] = 1;
  }
  if (whole) return;
  // Last, so that descendants keep seeing a token that does not see itself.
  for (int32_t i = 0; i < n; ++i)
    if (rng.below(index++, kBlindRowShare) == 0) mask[int64_t{i} * n + i] = 0;
}

// The same for a step after others, of `drafts` columns in n branches: a token sees the drafts of its branch.
void draw_branches(const CounterRng& rng, uint64_t& index, int32_t n, int64_t drafts, bool whole,
                   uint8_t* mask) {
  const bool arbitrary = !whole && rng.below(index++, kArbitraryShare) == 0;
  for (int32_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < drafts; ++j, ++mask)
      if (arbitrary)
        *mask = static_cast<uint8_t>(rng.below(index++, 2));
      else if (j % n == i)
        *mask = whole || rng.below(index++, kBlindRowShare) != 0 ? 1 : 0;
}

std::vector<uint8_t> draw_trees(const Problem& problem, bool whole) {
  const std::vector<int64_t> start = problem.tree_indptr();
  std::vector<uint8_t> mask(static_cast<size_t>(start.back()), 0);
  const CounterRng rng(problem.seed, kStreamTree);
  uint64_t index = 0;
  for (size_t r = 0; r < problem.requests.size(); ++r) {
    const Request& request = problem.requests[r];
    if (problem.drafted > 0)
      draw_branches(rng, index, request.q_len, problem.drafts(request), whole, mask.data() + start[r]);
    else
      draw_tree(rng, index, request.q_len, whole, mask.data() + start[r]);
  }
  return mask;
}

// The same bits for every request that has rows.
std::vector<uint8_t> given_trees(const Problem& problem, const std::string& bits) {
  std::vector<uint8_t> mask;
  for (const Request& request : problem.requests)
    for (size_t i = 0; request.q_len > 0 && i < bits.size(); ++i)
      if (bits[i] != '/') mask.push_back(bits[i] == '1' ? 1 : 0);
  return mask;
}

// How far drawn positions go: beyond every tile and chunk of a kernel, small enough to be exact in a bias.
constexpr uint64_t kDrawnFirstKeys = 8192;
constexpr uint64_t kDrawnBehindKeys = 64;

// Drafts a row sees before itself: how deep it stands.
int32_t depth_of(const uint8_t* row, int32_t n, int32_t self) {
  int32_t depth = 0;
  for (int32_t i = 0; i < n; ++i) depth += i != self && row[i] != 0;
  return depth;
}

// first= and positions=: a counter of its own for every request and row.
void draw_positions(const Scenario& s, Problem& p) {
  const CounterRng rng(p.seed, kStreamPositions);
  uint64_t index = 0;
  if (s.first_key != kNoPositions)
    for (size_t r = 0; r < p.requests.size(); ++r)
      p.first_key.push_back(s.first_key >= 0 ? s.first_key
                                             : static_cast<int32_t>(rng.below(index++, kDrawnFirstKeys)));
  if (s.positions == kNoPositions) return;
  const std::vector<int64_t> tree = p.tree_indptr();
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const Request& request = p.requests[r];
    const int32_t first = p.first_key.empty() ? 0 : p.first_key[r];
    // Drafts stand behind the context, other rows anywhere from the first key on.
    const int32_t least = first + (s.mask == ASSAY_MASK_TREE ? p.first_draft(request) : 0);
    const uint64_t room = static_cast<uint64_t>(first + request.kv_len - least) + kDrawnBehindKeys;
    std::vector<int32_t>& rows = p.positions.emplace_back();
    for (int32_t i = 0; i < request.q_len; ++i) {
      if (s.positions >= 0)
        rows.push_back(s.positions + i);
      else if (s.positions == kDrawnPositions)
        rows.push_back(least + static_cast<int32_t>(rng.below(index++, room)));
      else
        rows.push_back(least + depth_of(p.tree_mask.data() + tree[r] + int64_t{i} * p.drafts(request),
                                        p.drafts(request), p.drafted * request.q_len + i));
    }
  }
}

}  // namespace

Problem make_problem(const Scenario& s) {
  if (const Rule* rule = broken_rule(s)) throw InputError(rule->message(s));
  Problem p;
  p.op = s.op;
  p.heads_q = s.heads_q;
  p.heads_kv = s.heads_kv;
  p.head_dim_qk = s.head_dim_qk;
  p.head_dim_v = s.head_dim_v;
  p.mask = s.mask;
  p.window_left = s.window_left;
  p.window_right = s.window_right;
  p.chunk = s.chunk;
  p.softcap = static_cast<float>(s.softcap);
  p.softmax_scale = static_cast<float>(softmax_factor(s));
  p.alibi = s.alibi;
  p.sinks = s.sinks;
  p.q_format = s.q.format;
  p.k_format = s.k.format;
  p.v_format = s.v.format;
  p.o_format = s.o_format;
  p.q_scale = s.q.scale;
  p.k_scale = s.k.scale;
  p.v_scale = s.v.scale;
  p.layout = s.layout;
  p.page_size = s.page_size;
  p.min_blocks = s.min_blocks;
  p.storage = s.storage;
  p.layers = s.layers;
  // A draw that place_pages() never comes to.
  p.layer = static_cast<int32_t>(
      CounterRng(s.seed, kStreamPages).below(~uint64_t{0}, static_cast<uint64_t>(s.layers)));
  p.table = s.table;
  p.swa_index = s.swa_index;
  p.drawn_slots = s.drawn_slots;
  p.strided = s.strided;
  p.recipe = s.recipe;
  p.relations = s.relations;
  p.source_format = s.source_format;
  p.states = s.states;
  p.padded_rows = s.padded_rows;
  p.ranks = s.ranks;
  p.interleave = s.interleave;
  p.threshold = s.threshold;
  p.token_budget = s.token_budget;
  p.prefix_tokens = s.prefix_tokens;
  p.workers = s.workers;
  p.tile_rows = s.tile_rows;
  p.tile_keys = s.tile_keys;
  p.flat_tree = s.flat_tree;
  p.drafted = s.drafted;
  p.no_write = s.no_write;
  p.full_pool = s.full_pool;
  p.split_latent = s.split_latent;
  p.computed_scales = s.computed_scales;
  p.seed = s.seed;

  const Op& op = op_of(s.op);
  if (is_about_trees(op)) p.mask = ASSAY_MASK_TREE;
  p.requests = draw_requests(s.batch, s.seed);
  for (Request& request : p.requests) {
    // A trace may share prefixes; only reading pages can.
    if (!op.shares_pages) request.shared_with = -1, request.shared_tokens = 0;
    // Where new tokens are written, up to those.
    if (op.attends_rows && role_of(p, Operand::kK) == Role::kInOut && request.shared_with >= 0) {
      const Request& holder = p.requests[static_cast<size_t>(request.shared_with)];
      const int32_t most =
          p.mask == ASSAY_MASK_CROSS ? 0 : std::min(p.first_draft(request), p.first_draft(holder));
      request.shared_tokens = std::min(request.shared_tokens, most);
      if (most <= 0) request.shared_with = -1, request.shared_tokens = 0;
    }
    const RowRule rows = row_rule(op, p.mask);
    if (rows == RowRule::kOneAtMost && request.q_len > 1)
      throw InputError(fmt::format("batch={}: {} takes one row of a request, a drawn one has {}",
                                   print(s.batch), op.name, request.q_len));
    if (rows == RowRule::kWithinCache && request.q_len > request.kv_len)
      throw InputError(fmt::format("batch={}: {} needs kv_len >= q_len, a drawn request has {} and {}",
                                   print(s.batch), op.name, request.kv_len, request.q_len));
  }
  if (const std::string too_large = case_size_message(s, extent_of(p.requests)); !too_large.empty())
    throw InputError(fmt::format("batch={}: {}", print(s.batch), too_large));
  if (takes(op, "part") && s.part_tokens > 0) {
    const int64_t parts = (int64_t{p.max_kv_len()} + s.part_tokens - 1) / s.part_tokens;
    if (parts > kMaxStates)
      throw InputError(fmt::format("part={}: cuts the longest request into {} parts, the limit is {}",
                                   s.part_tokens, parts, kMaxStates));
    p.part_tokens = s.part_tokens;
    p.states = static_cast<int32_t>(std::max<int64_t>(1, parts));
  }
  if (p.mask == ASSAY_MASK_TREE) {
    for (const Request& request : p.requests)
      if (int64_t{request.q_len} * (p.drafted + 1) > request.kv_len)
        throw InputError(fmt::format(
            "batch={}: a tree needs {} kv_len >= q_len{}, a drawn request has {} and {}", print(s.batch),
            p.drafted > 0 ? fmt::format("and drafted={}", p.drafted) : std::string("(mask=tree)"),
            p.drafted > 0 ? fmt::format(" * {}", p.drafted + 1) : std::string(), request.kv_len,
            request.q_len));
    // Where rows stand by their depth alone, it is that in a tree of drafts that see themselves.
    p.tree_mask = s.tree_bits.empty() ? draw_trees(p, !op.rows_anywhere && s.positions == kDepthPositions)
                                      : given_trees(p, s.tree_bits);
  }
  for (const Request& request : p.requests)
    if (std::max({int64_t{0}, int64_t{s.first_key}, int64_t{s.positions}}) +
            std::max(request.q_len, request.kv_len) >
        kMaxTokens)
      throw InputError(fmt::format("batch={}: the positions of first= or positions= go beyond {}",
                                   print(s.batch), kMaxTokens));
  draw_positions(s, p);
  const CounterRng encoders(p.seed, kStreamEncoders);
  for (size_t r = 0; s.encoder_tokens > 0 && r < p.requests.size(); ++r)
    p.encoder_len.push_back(
        r == 0 ? s.encoder_tokens
               : static_cast<int32_t>(encoders.below(r, static_cast<uint64_t>(s.encoder_tokens) + 1)));
  if (op.has_cache) place_pages(p);
  check_problem(p);
  return p;
}

}  // namespace assay
