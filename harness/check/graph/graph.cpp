// SPDX-License-Identifier: Apache-2.0
// See graph.hpp.
#include "harness/check/graph/graph.hpp"

#include <algorithm>

#include "harness/check/graph/replays.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

bool same_lengths(const Problem& a, const Problem& b) {
  return std::equal(
      a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
      [](const Request& x, const Request& y) { return x.q_len == y.q_len && x.kv_len == y.kv_len; });
}

}  // namespace

std::vector<GraphShape> graph_shapes(const Problem& p) {
  const int count = static_cast<int>(p.requests.size());
  std::vector<int> same(count), reversed(count);
  for (int r = 0; r < count; ++r) same[r] = r, reversed[r] = count - 1 - r;
  std::vector<Request> backwards(p.requests.rbegin(), p.requests.rend()),
      halved = p.requests, empty = p.requests, single = p.requests;
  for (int r = 0; r < count; ++r) {
    const int32_t context = p.first_draft(p.requests[r]);
    if (context > 1) halved[r].kv_len -= context / 2;
    if (r < (count + 1) / 2) continue;
    empty[r].q_len = empty[r].kv_len = 0;
    if (p.requests[r].q_len > 0 && p.requests[r].kv_len > 0)
      single[r].q_len = 1, single[r].kv_len = 1 + p.drafted;
  }
  std::vector<GraphShape> shapes;
  const auto add = [&](const char* name, const std::vector<int>& origin,
                       const std::vector<Request>& requests) {
    GraphShape shape{name, reshaped(p, origin, requests)};
    for (const GraphShape& known : shapes)
      if (same_lengths(known.call.problem, shape.call.problem)) return;
    shapes.push_back(std::move(shape));
  };
  add("the captured shape", same, p.requests);
  add("requests in reverse", reversed, backwards);
  add("halved contexts", same, halved);
  add("padding of length 0", same, empty);
  add("padding of length 1", same, single);
  // The rows of a captured write and the entries of captured lists stay; those that a shape does not need are
  // padding, and a shape that needs more is none.
  if (takes(op_of(p), "pad")) {
    const auto entries = op_of(p).entries;
    const auto needed = [&](const Problem& q) { return entries == nullptr ? q.total_q() : entries(q); };
    const int64_t room = needed(p) + p.padded_rows;
    std::erase_if(shapes, [&](const GraphShape& s) { return needed(s.call.problem) > room; });
    for (GraphShape& s : shapes)
      s.call.problem.padded_rows = static_cast<int32_t>(room - needed(s.call.problem));
  }
  if (!op_of(p).has_cache) return shapes;
  int32_t blocks = 0;
  for (GraphShape& s : shapes)
    place_pages(s.call.problem), blocks = std::max(blocks, s.call.problem.num_blocks);
  for (GraphShape& s : shapes) s.call.problem.min_blocks = blocks, place_pages(s.call.problem);
  return shapes;
}

std::string check_graph(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                        const Problem& problem, const assay_arithmetic& fallback, double row_key_budget,
                        RelationResult& result) {
  if (result.note = outside_graph_contracts(problem, contracts_of(kernel)); !result.note.empty()) return {};
  const InputValues values(problem);
  const std::vector<GraphShape> shapes = graph_shapes(problem);
  Replays replays(backend, kernel, device, values, row_key_budget, shapes[0].call);
  if (std::string reason = replays.capture(shapes[0].call, fallback, &result.note); !reason.empty())
    return result.note.empty() ? reason : std::string();
  for (const GraphShape& shape : shapes) {
    const bool captured = &shape == &shapes[0];
    if (std::string reason =
            replay_batch(replays, values, kernel, shape.call, {0, captured, false}, shape.name, result);
        !reason.empty())
      return reason;
  }
  return {};
}

}  // namespace assay
