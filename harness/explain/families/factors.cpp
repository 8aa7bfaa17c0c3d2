// SPDX-License-Identifier: Apache-2.0
// Hypotheses about constant factors of the scores, of O and of K and V: products of the constants a kernel
// has at hand, and else a factor that is fitted on a few wrong cells.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/explain/families/read_orders.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr std::string_view kScale = "scale.softmax", kKeys = "scale.k_factor";

}  // namespace

void factor_family(const Clues& clues, Hypotheses& out) {
  const auto scores = [&](std::string_view cause, std::string text, double cost, double factor) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.score = [factor](const Scene&, const Term&, ScoreParts s) {
      s.scale *= factor;
      return standard_score(s);
    };
    // The product is the same wherever the factor stands.
    if (cause == kScale && clues.problem().k_scale != ASSAY_SCALE_NONE) h.also_called = {kKeys};
    if (cause == kKeys) h.also_called = {kScale};
    out.push_back(std::move(h));
  };
  const Problem& p = clues.problem();
  const double given = p.softmax_scale;
  const auto instead = [&](std::string text, double scale) {
    if (std::fabs(scale / given - 1) > 1e-6)
      scores("scale.softmax_default", std::move(text), 0.1, scale / given);
  };
  instead("1 / sqrt(head_dim_qk)", 1 / std::sqrt(p.head_dim_qk));
  if (p.head_dim_v != p.head_dim_qk)
    scores("scale.softmax", "1 / sqrt(head_dim_v) in place of the given one", 0.1,
           1 / std::sqrt(p.head_dim_v) / given);
  if (std::fabs(1 / given - 1) > 1e-6) scores("scale.softmax", "1 in place of the given one", 0.1, 1 / given);
  // Products of the constants a kernel has at hand: applied twice, left out, inverted, in the wrong base.
  struct Constant {
    std::string name;
    double value;
    bool score_only;
  };
  std::vector<Constant> constants = {
      {"the softmax scale", given, false},
      {"the square root of the softmax scale", std::sqrt(given), true},
      {"log2(e)", std::numbers::log2e, true},
      {"2", 2, false},
      {"head_dim_qk", double(p.head_dim_qk), true},
      {"sqrt(head_dim_qk)", std::sqrt(p.head_dim_qk), true},
      {"sqrt(head_dim_v)", std::sqrt(p.head_dim_v), true},
      {"sqrt(2)", std::numbers::sqrt2, true},
      {"the group", double(p.group()), false},
      {"heads_q", double(p.heads_q), false},
  };
  if (p.softcap > 0) constants.push_back({"the soft cap", p.softcap, false});
  const HostOperands host = clues.evidence.operands(false);
  const auto one = [&](const char* of, int32_t kind, const assay_tensor& t, float by_host) {
    if (kind == ASSAY_SCALE_TENSOR) constants.push_back({of, load(ASSAY_FP32, t.data, 0), false});
    if (kind == ASSAY_SCALE_HOST) constants.push_back({of, by_host, false});
  };
  one("the scale of Q", p.q_scale, host.tensors->q_scale, host.q_scale_host);
  one("the scale of K", p.k_scale, host.tensors->k_scale, host.k_scale_host);
  one("the scale of V", p.v_scale, host.tensors->v_scale, host.v_scale_host);
  std::vector<Constant> products;
  for (const Constant& c : constants) {
    products.push_back({"times " + c.name, c.value, c.score_only});
    products.push_back({"over " + c.name, 1 / c.value, c.score_only});
  }
  const size_t single = products.size();
  for (size_t i = 0; i < single; ++i)
    for (size_t j = i + 1; j < single; ++j)
      products.push_back({products[i].name + ", " + products[j].name, products[i].value * products[j].value,
                          products[i].score_only || products[j].score_only});
  std::vector<double> taken = {1};
  for (size_t i = 0; i < products.size(); ++i) {
    const Constant& c = products[i];
    if (!(c.value > 0) || !std::isfinite(c.value)) continue;
    if (std::any_of(taken.begin(), taken.end(), [&](double x) { return std::fabs(x / c.value - 1) < 1e-6; }))
      continue;
    taken.push_back(c.value);
    // Codes read with another exponent bias are twice or half of what they are.
    const bool bias =
        (c.value == 2 || c.value == 0.5) && (format_is_fp8(p.k_format) || format_is_fp8(p.q_format));
    const double cost = bias ? 0.3 : i < single ? 0.2 : 0.4;
    scores("scale.softmax", "scores " + c.name, cost, c.value);
    if (p.softcap > 0) {  // the same behind the cap
      Hypothesis capped = propose(clues, "softcap.ratio", "capped scores " + c.name, cost + 0.1);
      capped.rules.score = [factor = c.value](const Scene&, const Term&, const ScoreParts& s) {
        ScoreParts bare = s;
        bare.alibi = ASSAY_ALIBI_NONE;
        return factor * standard_score(bare) + (standard_score(s) - standard_score(bare));
      };
      out.push_back(std::move(capped));
    }
    if (c.score_only) continue;
    Hypothesis h = propose(clues, "output.scaled", "O " + c.name, cost);
    h.rules.finish = [factor = c.value](const Scene&, std::vector<double>& o, double&) {
      for (double& x : o) x *= factor;
    };
    out.push_back(std::move(h));
  }
  // A factor of the scores or of the values, fitted on a few wrong cells by golden-section search of the
  // misfit.
  const auto fit = [&](const std::function<void(Rules&, double)>& set) {
    const auto cost_of = [&](double log_factor) {
      Rules rules = clues.predictor.right();
      set(rules, std::exp(log_factor));
      double sum = 0;
      int count = 0;
      for (const Sample& s : clues.bad) {
        if (s.call == Call::kLow || count == 4) continue;
        sum += misfit_at(clues, s, rules);
        ++count;
      }
      return sum;
    };
    double best = 0, best_cost = cost_of(0);
    for (double x = -4.5; x <= 4.5; x += 0.05)
      if (const double c = cost_of(x); c < best_cost) best = x, best_cost = c;
    double low = best - 0.05, high = best + 0.05;
    const double golden = (std::sqrt(5.0) - 1) / 2;
    double a = high - golden * (high - low), b = low + golden * (high - low), ca = cost_of(a),
           cb = cost_of(b);
    for (int i = 0; i < 40; ++i) {
      if (ca < cb) {
        high = b, b = a, cb = ca, a = high - golden * (high - low), ca = cost_of(a);
      } else {
        low = a, a = b, ca = cb, b = low + golden * (high - low), cb = cost_of(b);
      }
    }
    return std::exp((low + high) / 2);
  };
  const auto score_rule = [](Rules& rules, double factor) {
    rules.score = [factor](const Scene&, const Term&, ScoreParts s) {
      s.scale *= factor;
      return standard_score(s);
    };
  };
  const auto value_rule = [](Rules& rules, double factor) {
    rules.finish = [factor](const Scene&, std::vector<double>& o, double&) {
      for (double& x : o) x *= factor;
    };
  };
  // Keys and values have a factor of their own only where they are codes; elsewhere the scores have it, or O.
  // Q or K that was never loaded.
  scores("dims.qk_dropped", "all dimensions: the scores are zero", 0.2, 0);
  const double k = fit(score_rule), v = fit(value_rule);
  const size_t fitted = out.size();
  const bool quantised_k = p.k_scale != ASSAY_SCALE_NONE, quantised_v = p.v_scale != ASSAY_SCALE_NONE;
  scores("scale.softmax", fmt::format("scores off by a factor {:.6g}", k), quantised_k ? 0.9 : 0.6, k);
  scores("scale.softmax", fmt::format("a scale of {:.6g} whatever is given", k * given),
         quantised_k ? 0.9 : 0.6, k);
  if (quantised_k) scores("scale.k_factor", fmt::format("K off by a factor {:.6g}", k), 0.6, k);
  if (quantised_v) {
    Hypothesis h = propose(clues, "scale.v_factor", fmt::format("V off by a factor {:.6g}", v), 0.6);
    value_rule(h.rules, v);
    out.push_back(std::move(h));
  }
  Hypothesis h =
      propose(clues, "output.scaled", fmt::format("O off by a factor {:.6g}", v), quantised_v ? 0.9 : 0.6);
  value_rule(h.rules, v);
  out.push_back(std::move(h));

  for (size_t i = fitted; i < out.size(); ++i) out[i].free = 1;

  temperatures(clues, out);
  // fp8 with the other family's bias: every value doubles or halves.
  for (double factor : {2.0, 0.5}) {
    if (!format_is_fp8(p.k_format) && !format_is_fp8(p.v_format) && !format_is_fp8(p.q_format)) break;
    h = propose(clues, "format.fnuz_as_fn",
                factor > 1 ? "codes of fnuz read as fn" : "codes of fn read as fnuz", 0.1);
    const double q_and_k =
                     (format_is_fp8(p.k_format) ? factor : 1) * (format_is_fp8(p.q_format) ? factor : 1),
                 on_v = format_is_fp8(p.v_format) ? factor : 1;
    score_rule(h.rules, q_and_k);
    value_rule(h.rules, on_v);
    out.push_back(h);
    score_rule(h.rules, format_is_fp8(p.k_format) ? factor : 1);
    h.cost = 0.15;
    out.push_back(std::move(h));
  }
}

}  // namespace assay
