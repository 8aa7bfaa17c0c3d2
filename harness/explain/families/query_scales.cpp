// SPDX-License-Identifier: Apache-2.0
// Hypotheses about the scale of Q: missing, or another head's, request's or row's.
#include <tuple>

#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/row_block.hpp"
#include "harness/explain/families/scale_reading.hpp"

namespace assay {

void query_scales(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.q_scale == ASSAY_SCALE_NONE) return;
  const HostOperands host = clues.evidence.operands(false);
  const Scales s{clues, host.tensors->q_scale, p.q_scale, host.q_scale_host};
  const std::vector<int32_t> first = clues.evidence.first_rows;
  // Scale of Q for a displaced cell.
  const auto scale = [s, first](const Problem& p, const Cell& c, int32_t head, int32_t request, int32_t row,
                                int32_t dim, IndexOrder axes = IndexOrder::kGiven) -> double {
    const auto at = [&](int64_t i, int64_t j) {
      if (axes != IndexOrder::kGiven)
        std::tie(i, j) = indexes(axes, i, j, s.tensor.shape[0], s.tensor.shape[1]);
      return s.at({i, j});
    };
    switch (static_cast<assay_scale>(p.q_scale)) {
      case ASSAY_SCALE_NONE:
        break;
      case ASSAY_SCALE_HOST:
        return s.host;
      case ASSAY_SCALE_TENSOR:
        return s.at({0});
      case ASSAY_SCALE_HEAD:
        return s.at({c.head + head});
      case ASSAY_SCALE_REQUEST_HEAD:
        return at(c.request + request, c.head / p.group() + head);
      case ASSAY_SCALE_TOKEN_HEAD:
        return at(first[c.request] + c.row + row, c.head + head);
      case ASSAY_SCALE_CHANNEL:
        return at(c.head + head, dim);
    }
    return 1;
  };
  using Step = std::function<int32_t(const Scene&)>;
  const auto add = [&](std::string_view cause, std::string text, double cost, const Step& head_step,
                       const Step& request_step, const Step& row_step, bool missing) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.edit_q = [=](const Scene& scene, double* q) {
      const int32_t row = row_step ? row_step(scene) : 0, head = head_step ? head_step(scene) : 0;
      const int32_t request = request_step ? request_step(scene) : 0;
      for (int32_t d = 0; d < scene.problem.head_dim_qk; ++d) {
        const double right = scale(scene.problem, scene.cell, 0, 0, 0, d);
        q[d] *= (missing ? 1.0 : scale(scene.problem, scene.cell, head, request, row, d)) / right;
      }
    };
    out.push_back(std::move(h));
  };
  add("scale.q_missing", "scale of Q taken as 1", 0, nullptr, nullptr, nullptr, true);
  const std::tuple<int32_t, const char*, const char*, std::string_view> by_two[] = {
      {ASSAY_SCALE_REQUEST_HEAD, "request", "head", "scale.q_of_other_request"},
      {ASSAY_SCALE_TOKEN_HEAD, "row", "head", "scale.q_of_other_token"},
      {ASSAY_SCALE_CHANNEL, "head", "channel", "scale.q_of_other_head"}};
  for (const auto& [kind, one, other, cause] : by_two)
    for (const IndexOrder axes : kExchanges) {
      if (p.q_scale != kind) continue;
      Hypothesis h = propose(clues, cause, words_of(axes, one, other), 0.1);
      h.rules.edit_q = [scale, axes](const Scene& scene, double* q) {
        for (int32_t d = 0; d < scene.problem.head_dim_qk; ++d)
          q[d] *= scale(scene.problem, scene.cell, 0, 0, 0, d, axes) /
                  scale(scene.problem, scene.cell, 0, 0, 0, d, IndexOrder::kGiven);
      };
      out.push_back(std::move(h));
    }
  for (int32_t step : {1, -1, 2}) {
    if (p.q_scale != ASSAY_SCALE_TENSOR && p.q_scale != ASSAY_SCALE_HOST)
      add(
          "scale.q_of_other_head", fmt::format("scale of head {:+}", step), 0.1,
          [step](const Scene&) { return step; }, nullptr, nullptr, false);
    if (p.q_scale == ASSAY_SCALE_TOKEN_HEAD)
      add(
          "scale.q_of_other_token", fmt::format("scale of packed row {:+}", step), 0.1, nullptr, nullptr,
          [step](const Scene&) { return step; }, false);
  }
  if (p.q_scale == ASSAY_SCALE_REQUEST_HEAD)
    for (const IndexMap& map : request_maps(p))
      add(
          "scale.q_of_other_request", "scale of " + map.name, 0.1 + map.cost, nullptr,
          [of = map.of](const Scene& s) { return of(s.cell.request) - s.cell.request; }, nullptr, false);
  if (p.q_scale == ASSAY_SCALE_TOKEN_HEAD)
    for (const IndexMap& map : request_maps(p)) {
      if (map.name == "request 0") continue;  // that of the row's number in its request, below
      add(
          "scale.q_of_other_request", "scale of the same row of " + map.name, 0.15 + map.cost, nullptr,
          nullptr,
          [of = map.of, first](const Scene& s) { return first[of(s.cell.request)] - first[s.cell.request]; },
          false);
      out.back().also_called = {"scale.q_of_other_token"};  // another request's row is another row
    }
  // Those of KV heads are looked up by the group.
  const int32_t per = p.q_scale == ASSAY_SCALE_REQUEST_HEAD ? p.group() : 1;
  if (p.q_scale != ASSAY_SCALE_TENSOR && p.q_scale != ASSAY_SCALE_HOST)
    for (const HeadMap& map : per > 1 ? kv_head_maps(p) : query_head_maps(p))
      add(
          "scale.q_of_other_head", "scale of another head: " + map.name, 0.15 + map.cost,
          [of = map.of, per](const Scene& s) { return of(s.cell.head) - s.cell.head / per; }, nullptr,
          nullptr, false);
  if (p.q_scale != ASSAY_SCALE_TOKEN_HEAD) return;
  const auto from_start = [first](const Scene& s) { return -first[s.cell.request]; };
  add("scale.q_of_other_token", "scale of the row's number in its request", 0.1, nullptr, nullptr, from_start,
      false);
  for (const RowBlock& block : row_blocks(p))
    add(
        "scale.q_of_other_token", fmt::format("scale of the first row of a block of {}", block.words()), 0.3,
        nullptr, nullptr,
        [block](const Scene& s) { return block.rows(s.problem, s.cell).first - s.cell.row; }, false);
  add(
      "scale.q_of_other_token", "scale of the request's first row", 0.1, nullptr, nullptr,
      [](const Scene& s) { return -s.cell.row; }, false);
  add(
      "scale.q_of_other_token", "scale of the request's last row", 0.1, nullptr, nullptr,
      [](const Scene& s) { return s.problem.requests[s.cell.request].q_len - 1 - s.cell.row; }, false);
}

}  // namespace assay
