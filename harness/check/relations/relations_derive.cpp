// SPDX-License-Identifier: Apache-2.0
// Each relation is a few edits of a copy of the problem. Copies share no prefix pages unless their batch is
// unchanged: which request owns a page is a property of the batch. Positions must mean the same in both
// problems (chunks, windows, biases), which is why a cut at the front of the context makes that part a call
// with a full mask.
#include "harness/check/relations/relations_derive.hpp"

#include <algorithm>
#include <set>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

// Changes the placement of pages and nothing else (any odd constant).
constexpr uint64_t kOtherPlacement = 0x9e3779b97f4a7c15;

void place_anew(Problem& p) {
  if (op_of(p).has_cache) place_pages(p);
}

DerivedCall same_batch(const Problem& p) {
  DerivedCall call{p, {}};
  call.problem.relations = 0;
  for (int r = 0; r < static_cast<int>(p.requests.size()); ++r) call.from.requests.push_back({r, 0, 0});
  return call;
}

// The requests `which`, in that order, each with pages of its own.
DerivedCall some_requests(const Problem& p, const std::vector<int>& which) {
  std::vector<Request> requests;
  for (const int r : which) requests.push_back(p.requests[r]);
  DerivedCall call = reshaped(p, which, requests);
  place_anew(call.problem);
  return call;
}

DerivedCase pages(const Problem& p) {
  DerivedCase out;
  DerivedCall call = same_batch(p);
  Problem& d = call.problem;
  d.min_blocks = p.num_blocks + 1 + p.num_blocks / 4;
  d.seed ^= kOtherPlacement;
  place_pages(d);
  d.seed = p.seed;
  if (d.pages == p.pages) return {0, {}, "no page to place elsewhere"};
  out.calls.push_back(std::move(call));
  return out;
}

DerivedCase order(const Problem& p) {
  std::vector<int> reversed;
  for (int r = static_cast<int>(p.requests.size()) - 1; r >= 0; --r) reversed.push_back(r);
  if (reversed.size() < 2) return {0, {}, "a single request has one order"};
  DerivedCase out;
  out.calls.push_back(some_requests(p, reversed));
  return out;
}

DerivedCase alone(const Problem& p) {
  const int count = static_cast<int>(p.requests.size());
  std::vector<int> rows;  // requests with rows, without which there is nothing to see
  for (int r = 0; r < count; ++r)
    if (p.requests[r].q_len > 0) rows.push_back(r);
  if (count < 2 || rows.empty()) return {0, {}, "no request that could be taken out of its batch"};
  const auto by_keys = [&](int a, int b) { return p.requests[a].kv_len < p.requests[b].kv_len; };
  std::set<int> chosen = {rows.front(), rows.back(), *std::max_element(rows.begin(), rows.end(), by_keys),
                          *std::min_element(rows.begin(), rows.end(), by_keys)};
  const size_t step = std::max<size_t>(1, rows.size() / kMostAlone);
  for (size_t i = 0; i < rows.size() && chosen.size() < kMostAlone; i += step) chosen.insert(rows[i]);
  DerivedCase out;
  for (const int r : chosen) out.calls.push_back(some_requests(p, {r}));
  return out;
}

// Every row sees the whole front part, so that part is a call with a full mask; the back part keeps the mask,
// because rows are aligned with the last key.
DerivedCase split(const Problem& p) {
  if (!p.positions.empty() || !p.first_key.empty())
    return {0, {}, "keys and rows have positions of their own"};
  if (p.window_left >= 0 || p.window_right >= 0 || p.chunk > 0 || p.alibi != ASSAY_ALIBI_NONE)
    return {0, {}, "windows, chunks and biases count positions from the first key"};
  DerivedCall front = same_batch(p), back = same_batch(p);
  const bool any_cut = p.mask == ASSAY_MASK_FULL || p.mask == ASSAY_MASK_CROSS;
  front.problem.mask = p.mask == ASSAY_MASK_CROSS ? ASSAY_MASK_CROSS : ASSAY_MASK_FULL;
  front.problem.tree_mask.clear();
  front.problem.sinks = false;  // one sink in all, in the part behind
  int64_t moved = 0;
  for (size_t r = 0; r < p.requests.size(); ++r) {
    const Request& whole = p.requests[r];
    const int32_t most = any_cut ? whole.kv_len : std::max(0, whole.context_len());
    const int32_t cut = std::min(most, whole.kv_len / 2);
    front.problem.requests[r] = {whole.q_len, cut};
    back.problem.requests[r] = {whole.q_len, whole.kv_len - cut};
    back.from.requests[r].first_key = cut;
    if (whole.q_len > 0) moved += cut;
  }
  if (moved == 0) return {0, {}, "no request has rows behind a context"};
  place_anew(front.problem);
  place_anew(back.problem);
  DerivedCase out;
  out.calls.push_back(std::move(front));
  out.calls.push_back(std::move(back));
  return out;
}

// Three calls: the first half of the new tokens, the rest but one, the last one.
DerivedCase chunked(const Problem& p) {
  if (!p.positions.empty()) return {0, {}, "rows have positions of their own"};
  if (p.mask != ASSAY_MASK_CAUSAL) return {0, {}, "later keys are visible to earlier rows"};
  if (p.max_q_len() < 2) return {0, {}, "no request has two new tokens"};
  DerivedCase out;
  for (int part = 0; part < 3; ++part) {
    DerivedCall call = same_batch(p);
    int64_t rows = 0;
    for (size_t r = 0; r < p.requests.size(); ++r) {
      const Request& whole = p.requests[r];
      const int32_t cuts[] = {0, whole.q_len / 2, std::max(whole.q_len / 2, whole.q_len - 1), whole.q_len};
      const int32_t begin = cuts[part], end = cuts[part + 1];
      // Rows before the first key (more rows than keys) have negative positions; no keys, no difference.
      call.problem.requests[r] = {end - begin, std::max(0, whole.context_len() + end)};
      call.from.requests[r].first_row = begin;
      rows += end - begin;
    }
    if (rows == 0) continue;
    place_anew(call.problem);
    out.calls.push_back(std::move(call));
  }
  return out;
}

DerivedCase window(const Problem& p) {
  if (p.window_left >= 0 || p.window_right >= 0 || p.chunk > 0) return {0, {}, "the problem has a window"};
  DerivedCall call = same_batch(p);
  if (!p.positions.empty()) return {0, {}, "rows have positions of their own"};
  const int32_t reach = std::max({1, p.max_kv_len(), p.max_q_len()});
  call.problem.window_left = reach;
  // Causal rows see nothing to their right in any case; the others need room there too.
  if (p.mask != ASSAY_MASK_CAUSAL) call.problem.window_right = reach;
  DerivedCase out;
  out.calls.push_back(std::move(call));
  return out;
}

DerivedCase sink(const Problem& p) {
  if (!p.sinks) return {0, {}, "the problem has no sinks"};
  DerivedCall low = same_batch(p), none = same_batch(p);
  low.from.sink_logit = kNoSink;
  none.problem.sinks = false;
  DerivedCase out;
  out.calls.push_back(std::move(low));
  out.calls.push_back(std::move(none));
  return out;
}

DerivedCase strides(const Problem& p) {
  DerivedCall call = same_batch(p);
  StridedOperands& s = call.problem.strided;
  if (s == StridedOperands{}) {
    s.q = s.kv = s.out = true;
    s.table = op_of(p).has_cache && p.table != ASSAY_TABLE_CSR;
    s.scales = p.q_scale == ASSAY_SCALE_TOKEN_HEAD || p.k_scale == ASSAY_SCALE_TOKEN_HEAD ||
               p.v_scale == ASSAY_SCALE_TOKEN_HEAD;
  } else {
    s = {};
  }
  DerivedCase out;
  out.calls.push_back(std::move(call));
  return out;
}

DerivedCase derive(const Problem& p, uint32_t relation) {
  switch (relation) {
    case kRelatePages:
      return op_of(p).has_cache ? pages(p) : DerivedCase{0, {}, "prefill has no pages"};
    case kRelateOrder:
      return order(p);
    case kRelateAlone:
      return alone(p);
    case kRelateSplit:
      return split(p);
    case kRelateChunked:
      return chunked(p);
    case kRelateWindow:
      return window(p);
    case kRelateSink:
      return sink(p);
    case kRelateStrides:
      return strides(p);
    default:
      break;
  }
  ASSAY_CHECK(false, "relation bit {} is not one of {}", relation, accepted(relation_names()));
  return {};
}

}  // namespace

DerivedCall reshaped(const Problem& p, const std::vector<int>& origin, const std::vector<Request>& requests) {
  return reshaped(p, origin, requests, p.drafted);
}

DerivedCall reshaped(const Problem& p, const std::vector<int>& origin, const std::vector<Request>& requests,
                     int32_t drafted) {
  DerivedCall call{p, {}};
  Problem& d = call.problem;
  d.drafted = drafted;
  d.relations = 0;
  d.requests.clear();
  d.tree_mask.clear();
  d.first_key.clear();
  d.encoder_len.clear();
  d.positions.clear();
  const std::vector<int64_t> tree = p.tree_indptr();
  for (size_t r = 0; r < requests.size(); ++r) {
    if (!p.first_key.empty()) d.first_key.push_back(p.first_key[origin[r]]);
    if (!p.encoder_len.empty()) d.encoder_len.push_back(p.encoder_len[origin[r]]);
    if (!p.positions.empty()) {
      const auto rows = p.positions[origin[r]].begin();
      d.positions.emplace_back(rows, rows + requests[r].q_len);
      if (!op_of(p).rows_anywhere)  // they stand behind the context, wherever it ends now
        for (int32_t& row : d.positions.back())
          row += d.first_draft(requests[r]) + d.drafted - p.first_draft(p.requests[origin[r]]) - p.drafted;
    }
    d.requests.push_back({requests[r].q_len, requests[r].kv_len});
    call.from.requests.push_back({origin[r], 0, 0});
    if (p.mask != ASSAY_MASK_TREE) continue;
    const int64_t n = p.requests[origin[r]].q_len;
    for (int64_t i = 0; i < requests[r].q_len; ++i)
      for (int64_t step = p.drafted - drafted; step <= p.drafted; ++step) {
        const auto row = p.tree_mask.begin() + tree[origin[r]] + (i * (p.drafted + 1) + step) * n;
        d.tree_mask.insert(d.tree_mask.end(), row, row + requests[r].q_len);
      }
  }
  return call;
}

std::vector<DerivedCase> derive_relations(const Problem& p) {
  std::vector<DerivedCase> cases;
  for (uint32_t bits = p.relations; bits != 0; bits &= bits - 1) {
    const uint32_t relation = bits & -bits;
    cases.push_back(derive(p, relation));
    cases.back().relation = relation;
  }
  return cases;
}

}  // namespace assay
