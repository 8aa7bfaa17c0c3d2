// SPDX-License-Identifier: Apache-2.0
// One loop over rows and heads, one over keys for the logarithmic errors, one over dimensions for the
// bound. Symbols are those of BOUNDS.md.
#include "reference/bounds.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "reference/bounds_rows.hpp"
#include "reference/bounds_terms.hpp"
#include "reference/bounds_tiers.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Error of one final score, before anything that depends on the maximum.
double score_error(const Problem& p, const ErrorTerms& t, double a, double s, double bias) {
  double error = t.dot * a + t.score * std::fabs(s);
  double x = s;
  if (p.softcap > 0) {
    // Slope of the cap anywhere within the error of its argument.
    const double nearest = std::max(0.0, std::fabs(s) - error) / p.softcap;
    const double slope = 1 - std::tanh(nearest) * std::tanh(nearest);
    x = p.softcap * std::tanh(s / p.softcap);
    error = error * slope + std::fabs(x) * t.cap_relative;
  }
  return error + t.bias_score * std::fabs(s) + t.bias_relative * (std::fabs(x + bias) + std::fabs(bias));
}

}  // namespace

BoundedAttention bounded_attention_elementwise(const Problem& p, const HostOperands& host,
                                               const std::vector<RowId>& rows,
                                               const assay_arithmetic& arithmetic) {
  const OperandReader operands(p, host);
  const ErrorModel model(p, arithmetic);
  BoundedAttention out;
  out.value.rows = rows;
  out.value.heads_q = p.heads_q;
  out.value.head_dim_v = p.head_dim_v;
  out.value.o.assign(rows.size() * p.heads_q * p.head_dim_v, 0.0);
  out.value.lse.assign(rows.size() * p.heads_q, -kInf);
  out.o_bound.assign(out.value.o.size(), 0.0);
  out.lse_bound.assign(out.value.lse.size(), 0.0);

  std::vector<double> v(p.head_dim_v);
  for (size_t n = 0; n < rows.size(); ++n) {
    for (int32_t head = 0; head < p.heads_q; ++head) {
      const RowScores row = row_scores(p, operands, rows[n], head);
      const int64_t count = static_cast<int64_t>(row.x.size());
      if (row.keys == 0 && !p.sinks) continue;
      const double sink = p.sinks ? operands.sink(head) : -kInf;
      double m = sink;
      for (double x : row.x) m = std::max(m, x);
      double top_key = -kInf;
      for (double x : row.x) top_key = std::max(top_key, x);
      double sum = p.sinks ? std::exp(sink - m) : 0.0;
      for (double x : row.x) sum += std::exp(x - m);
      const double lse = m + std::log(sum);
      const double sink_weight = p.sinks ? std::exp(sink - lse) : 0.0;

      std::vector<std::vector<double>> values(count);
      RowShape shape;
      double v_max = 0;
      for (int64_t j = 0; j < count; ++j) {
        if (row.x[j] == -kInf) continue;
        operands.v(rows[n].request, static_cast<int32_t>(row.begin + j), head / p.group(), v.data());
        values[j] = v;
        for (double value : v) v_max = std::max(v_max, std::fabs(value));
      }
      shape.keys = row.keys;
      shape.span = row.span;
      shape.top = std::max(row.keys > 0 ? std::fabs(top_key) : 0.0, p.sinks ? std::fabs(sink) : 0.0);
      shape.lse_abs = std::fabs(lse);
      shape.query_sum = row.query_sum;
      shape.corner = std::fabs(p.softmax_scale) * row.q_max * row.k_max;
      shape.top_weight = std::exp(m - lse);

      // The number of rescales needs the error of the scores, which does not depend on it.
      ErrorTerms t = model.terms(shape);
      std::vector<double> e(count, 0.0);
      double slack = 0;
      for (int64_t j = 0; j < count; ++j) {
        if (row.x[j] == -kInf) continue;
        e[j] = score_error(p, t, row.a[j], row.s[j], row.bias[j]);
        slack = std::max(slack, 2 * e[j]);
      }
      shape.updates = model.updates(row.span, row.keys, row.x.data(), count, slack, p.sinks);
      t = model.terms(shape);
      out.growth = std::max(out.growth, t.growth);

      std::vector<double> prob(count, 0.0), h(count, 0.0);
      double beta = 0, h_sum = 0;
      for (int64_t j = 0; j < count; ++j) {
        if (row.x[j] == -kInf) continue;
        prob[j] = std::exp(row.x[j] - lse);
        e[j] = std::expm1(e[j] + t.distance * (m - row.x[j]) + t.fixed);
        h[j] = std::min(prob[j], std::max(t.p_relative * prob[j], t.p_floor)) * (1 + e[j]);
        beta += prob[j] * e[j];
        h_sum += h[j];
      }
      const double sink_error = std::expm1(t.score * std::fabs(p.sinks ? sink : 0.0) +
                                           t.distance * (p.sinks ? m - sink : 0.0) + t.fixed);
      if (p.sinks) beta += sink_weight * sink_error;

      const int64_t slot = static_cast<int64_t>(n) * p.heads_q + head;
      out.value.lse[slot] = lse;
      out.lse_bound[slot] = std::log1p(beta) + t.theta + kLogAbsolute +
                            4 * kUnit * (std::fabs(lse) + shape.top) +
                            (model.rounded_row_sum() ? h_sum : 0.0);
      if (row.keys == 0) continue;  // only a sink: O = 0 exactly

      if (model.rounded_row_sum()) beta += h_sum;
      const double remaining = 1 - beta - t.theta;
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        double o = 0, mass = 0;
        for (int64_t j = 0; j < count; ++j) {
          if (values[j].empty()) continue;
          o += prob[j] * values[j][d];
          mass += prob[j] * (1 + e[j]) * std::fabs(values[j][d]);
        }
        double exponent = p.sinks ? sink_weight * sink_error * std::fabs(o) : 0.0, rounding = 0;
        for (int64_t j = 0; j < count; ++j) {
          if (values[j].empty()) continue;
          const double from_o = std::fabs(values[j][d] - o);
          exponent += prob[j] * e[j] * from_o;
          rounding += h[j] * (model.rounded_row_sum() ? from_o : std::fabs(values[j][d]));
        }
        out.value.o[slot * p.head_dim_v + d] = o;
        out.o_bound[slot * p.head_dim_v + d] =
            remaining > 0 ? (exponent + rounding + t.pv * mass + (t.theta + t.quotient) * std::fabs(o) +
                             t.absolute + t.absolute_v * v_max) /
                                remaining
                          : kInf;
      }
    }
  }
  intersect_tiers(out);
  return out;
}

}  // namespace assay
