// SPDX-License-Identifier: Apache-2.0
// See relations_compare.hpp.
#include "harness/check/relations/relations_compare.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"

namespace assay {
namespace {

std::string place(RowId id, int32_t head, int32_t dim) {
  std::string text = fmt::format("request {} row {} head {}", id.request, id.row, head);
  if (dim >= 0) text += fmt::format(" dim {}", dim);
  return text;
}

bool same(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

// The first element of row `of` (of the whole problem) that differs between two runs; empty when none does.
std::string row_difference(const Problem& p, const RelationRun& a, RowId in_a, const RelationRun& b,
                           RowId in_b, RowId of) {
  for (int32_t head = 0; head < p.heads_q; ++head) {
    for (int32_t dim = 0; dim < p.head_dim_v; ++dim)
      if (const double x = a.o(in_a, head, dim), y = b.o(in_b, head, dim); !same(x, y))
        return fmt::format("O at {} is {:.9g} and {:.9g}", place(of, head, dim), x, y);
    if (const double x = a.lse(in_a, head), y = b.lse(in_b, head); !same(x, y))
      return fmt::format("LSE at {} is {:.9g} and {:.9g}", place(of, head, -1), x, y);
  }
  return {};
}

// What a sink this far below the LSE adds to a row sum is 2^-57 of it, less than any arithmetic here keeps.
constexpr double kNothingBeside = 40;

// A part without weight adds nothing, also where nothing bounds it.
double share(double weight, double slack) { return weight == 0 ? 0 : weight * slack; }

}  // namespace

std::string difference(const Problem& p, const RelationRun& a, const RelationRun& b, int64_t* rows) {
  std::string first;
  for (int32_t r = 0; r < static_cast<int32_t>(b.problem().requests.size()); ++r)
    for (int32_t i = 0; i < b.problem().requests[r].q_len; ++i) {
      const RowId of = b.origin({r, i});
      const auto in_a = a.row_of(of);
      if (!in_a) continue;
      ++*rows;
      if (first.empty()) first = row_difference(p, a, *in_a, b, {r, i}, of);
    }
  return first;
}

void Agreement::add(double x, double y, double slack, RowId of, int32_t head, int32_t dim) {
  if (same(x, y)) return;
  double r = std::fabs(x - y) / slack;
  if (std::isnan(r) || x == y) r = x == y ? 0 : std::numeric_limits<double>::infinity();
  if (r <= ratio) return;
  ratio = r;
  where = fmt::format("{} at {} is {:.9g} and {:.9g}, the bounds allow {:.3g}", dim < 0 ? "LSE" : "O",
                      place(of, head, dim), x, y, slack);
}

namespace {

// `counts` says of which heads of which rows of `b`.
template <class Counts>
Agreement agreement_where(const Problem& p, const std::vector<RowId>& rows, const RelationRun& a,
                          const RelationRun& b, Counts counts) {
  Agreement worst;
  for (const RowId of : rows) {
    const auto in_a = a.row_of(of), in_b = b.row_of(of);
    if (!in_a || !in_b) continue;
    for (int32_t head = 0; head < p.heads_q; ++head) {
      if (!counts(*in_b, head)) continue;
      for (int32_t dim = 0; dim < p.head_dim_v; ++dim)
        worst.add(a.o(*in_a, head, dim), b.o(*in_b, head, dim),
                  a.o_slack(*in_a, head, dim) + b.o_slack(*in_b, head, dim), of, head, dim);
      // A row without keys has the sink's LSE, or -inf without one; a kernel that adds biases by column takes
      // what it put in out again, so the sink's comes back rounded.
      const double x = a.lse(*in_a, head), y = b.lse(*in_b, head);
      if (x <= kNoSink + 1 && y <= kNoSink + 1) continue;
      worst.add(x, y, a.lse_slack(*in_a, head) + b.lse_slack(*in_b, head), of, head, -1);
    }
  }
  return worst;
}

}  // namespace

Agreement agreement(const Problem& p, const std::vector<RowId>& rows, const RelationRun& a,
                    const RelationRun& b) {
  return agreement_where(p, rows, a, b, [](RowId, int32_t) { return true; });
}

Agreement sink_agreement(const Problem& p, const std::vector<RowId>& rows, const RelationRun& low,
                         const RelationRun& none) {
  return agreement_where(p, rows, low, none, [&](RowId row, int32_t head) {
    return none.sees_nothing(row, head) || none.least_lse(row, head) > kNoSink + kNothingBeside;
  });
}

// Two parts merged by their LSE against the whole. To first order a part's error enters O by its weight w,
// and an error e of the difference of the LSEs by w1 w2 |o1 - o2| e; exp(e) - 1 covers the rest.
Agreement merged_agreement(const Problem& p, const std::vector<RowId>& rows, const RelationRun& whole,
                           const RelationRun& front, const RelationRun& back) {
  Agreement worst;
  for (const RowId of : rows) {
    const auto w = whole.row_of(of), f = front.row_of(of), b = back.row_of(of);
    if (!w || !f || !b) continue;
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const double lf = front.lse(*f, head), lb = back.lse(*b, head);
      const double top = std::max(lf, lb);
      const bool nothing = std::isinf(top) && top < 0;
      const double ef = nothing ? 0 : std::exp(lf - top), eb = nothing ? 0 : std::exp(lb - top);
      const double wf = nothing ? 0 : ef / (ef + eb), wb = nothing ? 0 : eb / (ef + eb);
      const double lse = nothing ? top : top + std::log(ef + eb);
      const double sf = front.lse_slack(*f, head), sb = back.lse_slack(*b, head);
      worst.add(whole.lse(*w, head), lse, whole.lse_slack(*w, head) + std::max(sf, sb) + 1e-12, of, head, -1);
      for (int32_t dim = 0; dim < p.head_dim_v; ++dim) {
        const double of_front = front.o(*f, head, dim), of_back = back.o(*b, head, dim);
        const double slack = whole.o_slack(*w, head, dim) + share(wf, front.o_slack(*f, head, dim)) +
                             share(wb, back.o_slack(*b, head, dim)) +
                             share(wf * wb * std::fabs(of_front - of_back), std::expm1(sf + sb));
        worst.add(whole.o(*w, head, dim), wf * of_front + wb * of_back, slack + 1e-300, of, head, dim);
      }
    }
  }
  return worst;
}

}  // namespace assay
