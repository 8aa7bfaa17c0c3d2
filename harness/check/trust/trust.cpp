// SPDX-License-Identifier: Apache-2.0
// The wrong answers are computed from the reference's own numbers: exchanging the values of two keys a and
// b moves O by (p_a - p_b)(v_b - v_a). The pages exchanged are the heaviest and the lightest a row sees;
// rows whose pages weigh nearly the same say nothing, because exchanging those leaves no trace anywhere.
#include "harness/check/trust/trust.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/check/verdict.hpp"
#include "harness/ops/op.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Rows tried for the exchange, spread over the selection.
constexpr size_t kProbes = 8;
// Share of the heavy page's weight that must move. Below it (a flat softmax) exchanged values give nearly the
// right answer from any kernel, and not noticing is no fault of the bound.
constexpr double kMovedShare = 0.1;

bool accepts_zeros(const BoundedAttention& b, int32_t format) {
  bool differs = false;
  for (size_t i = 0; i < b.value.o.size(); ++i) {
    if (!within(0.0, b.o_low[i], b.o_high[i], format)) return false;
    differs |= round_to(format, b.value.o[i]) != 0;
  }
  return differs;
}

struct Exchange {
  int64_t heavy = -1, light = -1;  // pages
  bool differs = false;            // from the truth, after rounding
  bool noticed = false;
};

Exchange exchange_pages(const BoundedAttention& b, const Problem& p, const OperandReader& operands, size_t n,
                        int32_t head) {
  const int64_t page = op_of(p).has_cache ? p.page_size : 16;
  const RowId id = b.value.rows[n];
  const RowLogits row = row_logits(p, operands, id, head);
  const int64_t slot = static_cast<int64_t>(n) * b.value.heads_q + head;
  std::map<int64_t, double> weights;  // of the pages with a visible key
  std::vector<double> prob(row.x.size(), 0.0);
  for (size_t i = 0; i < row.x.size(); ++i) {
    if (std::isinf(row.x[i])) continue;
    prob[i] = std::exp(row.x[i] - b.value.lse[slot]);
    weights[(row.begin + static_cast<int64_t>(i)) / page] += prob[i];
  }
  Exchange result;
  if (weights.size() < 2) return result;
  const auto by_weight = [](const auto& a, const auto& c) { return a.second < c.second; };
  const auto heaviest = std::max_element(weights.begin(), weights.end(), by_weight);
  result.heavy = heaviest->first;
  const double heavy_weight = heaviest->second;
  double moved = 0;
  weights.erase(result.heavy);
  result.light = std::min_element(weights.begin(), weights.end(), by_weight)->first;

  std::vector<double> o(b.value.o.begin() + slot * p.head_dim_v,
                        b.value.o.begin() + (slot + 1) * p.head_dim_v);
  std::vector<double> v_heavy(p.head_dim_v), v_light(p.head_dim_v);
  for (int64_t s = 0; s < page; ++s) {
    const int64_t heavy = result.heavy * page + s - row.begin, light = result.light * page + s - row.begin;
    const auto size = static_cast<int64_t>(row.x.size());
    if (heavy < 0 || light < 0 || heavy >= size || light >= size) continue;
    if (std::isinf(row.x[heavy]) || std::isinf(row.x[light])) continue;  // an invisible value may be poison
    operands.v(id.request, static_cast<int32_t>(row.begin + heavy), head / p.group(), v_heavy.data());
    operands.v(id.request, static_cast<int32_t>(row.begin + light), head / p.group(), v_light.data());
    moved += std::fabs(prob[heavy] - prob[light]);
    for (int32_t d = 0; d < p.head_dim_v; ++d)
      o[d] += (prob[heavy] - prob[light]) * (v_light[d] - v_heavy[d]);
  }
  if (moved < kMovedShare * heavy_weight) return result;
  for (int32_t d = 0; d < p.head_dim_v; ++d) {
    const int64_t at = slot * p.head_dim_v + d;
    const double got = round_to(p.o_format, o[d]);
    result.differs |= got != round_to(p.o_format, b.value.o[at]);
    result.noticed |= !within(got, b.o_low[at], b.o_high[at], p.o_format);
  }
  return result;
}

}  // namespace

std::string distrust(const BoundedAttention& b, const Problem& p, const HostOperands& host) {
  if (b.value.rows.empty()) return {};
  if (b.growth > 1)
    return fmt::format(
        "the declared accumulators guarantee nothing: their longest chain may lose {:.3g} of what it adds up",
        b.growth);
  if (!(b.largest < std::numeric_limits<float>::max()))
    return fmt::format("partial sums may reach {:.3g}, beyond the range of fp32", b.largest);
  if (accepts_zeros(b, p.o_format))
    return fmt::format("the bounds would accept zeros for all {} elements checked", b.value.o.size());

  const OperandReader operands(p, host);
  const size_t step = std::max<size_t>(1, b.value.rows.size() / kProbes);
  Exchange unnoticed;
  RowId where;
  int probes = 0;
  // From the end, because the last rows of a request see the most keys.
  for (size_t i = 0; i < b.value.rows.size(); i += step) {
    const size_t n = b.value.rows.size() - 1 - i;
    const Exchange exchange = exchange_pages(b, p, operands, n, static_cast<int32_t>(i / step) % p.heads_q);
    if (exchange.noticed) return {};
    if (!exchange.differs) continue;
    unnoticed = exchange;
    where = b.value.rows[n];
    ++probes;
  }
  if (probes == 0) return {};
  return fmt::format(
      "the bounds would accept V of two visible pages exchanged in each of {} rows tried (such as request {} "
      "row {}, "
      "pages {} and {})",
      probes, where.request, where.row, unnoticed.heavy, unnoticed.light);
}

}  // namespace assay
