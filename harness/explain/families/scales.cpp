// SPDX-License-Identifier: Apache-2.0
// Hypotheses about scales: missing, of another head, token, request or channel, or off by a factor that is
// fitted. K is the code times its scale, so a wrong scale is a factor per key or per channel.
#include <algorithm>
#include <cmath>

#include "harness/explain/hypothesis.hpp"
#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Reads scale tensors the way a kernel indexes them; indexes wrap round their axis.
struct Scales {
  const Clues& clues;
  const assay_tensor& tensor;
  int32_t kind;
  float host;

  double at(std::initializer_list<int64_t> index) const {
    int64_t offset = 0;
    int axis = 0;
    for (int64_t i : index) {
      const int64_t n = tensor.shape[axis];
      offset += ((i % n) + n) % n * tensor.stride[axis];
      ++axis;
    }
    return load(ASSAY_FP32, tensor.data, offset);
  }
};

struct KeyPlace {
  int32_t request, kv_head, position;
};

// Scale of a key of K or V with displaced indexes.
struct Shift {
  int32_t head = 0, token = 0, request = 0;
  bool head_zero = false, token_zero = false, request_zero = false;
  bool query_head = false;  // indexed with the query head instead of the KV head
  bool slot_only = false;   // a token moved within its page
  bool logical = false;     // token = position instead of its place in the cache
  bool page_start = false;  // first slot of its page
};

double kv_scale(const Scales& s, KvStore& keys, const KeyPlace& k, const Shift& by, int32_t query_head,
                int32_t dim) {
  const Problem& p = s.clues.problem();
  int64_t head = by.query_head ? query_head : k.kv_head;
  head = by.head_zero ? 0 : head + by.head;
  const int64_t request = by.request_zero ? 0 : k.request + by.request;
  switch (static_cast<assay_scale>(s.kind)) {
    case ASSAY_SCALE_NONE:
      return 1;
    case ASSAY_SCALE_HOST:
      return s.host;
    case ASSAY_SCALE_TENSOR:
      return s.at({0});
    case ASSAY_SCALE_HEAD:
      return s.at({head});
    case ASSAY_SCALE_REQUEST_HEAD:
      return s.at({request, head});
    case ASSAY_SCALE_CHANNEL:
      return s.at({head, dim});
    case ASSAY_SCALE_TOKEN_HEAD:
      break;
  }
  int32_t position = k.position;
  if (by.token_zero) position = 0;
  if (by.page_start) position = position / std::max(1, p.page_size) * std::max(1, p.page_size);
  if (by.slot_only)
    position = position / p.page_size * p.page_size +
               ((position % p.page_size + by.token) % p.page_size + p.page_size) % p.page_size;
  else
    position = std::clamp(position + by.token, 0, std::max(0, keys.keys() - 1));
  int64_t block = 0, slot = 0;
  if (by.logical) {
    block = position / std::max(1, p.page_size);
    slot = position % std::max(1, p.page_size);
    return !op_of(p).has_cache ? s.at({position, head}) : s.at({block, head, slot});
  }
  if (!keys.place(k.request, position, &block, &slot)) return kNaN;
  return !op_of(p).has_cache ? s.at({block, head}) : s.at({block, head, slot});
}

// factor per key: wrong scale over right scale.
void add_kv(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
            bool values, const Shift& by, bool missing = false) {
  const Evidence& e = clues.evidence;
  const Problem& p = e.problem;
  const HostOperands host = e.operands(false);
  const bool latent = op_of(p).has_cache && p.layout == ASSAY_LAYOUT_MLA;
  const assay_tensor& tensor = values && !latent ? host.tensors->v_scale : host.tensors->k_scale;
  const int32_t kind = values && !latent ? p.v_scale : p.k_scale;
  const Scales scales{clues, tensor, kind, values && !latent ? host.v_scale_host : host.k_scale_host};
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  if (kind == ASSAY_SCALE_CHANNEL) {
    const auto ratio = [scales, by, missing](const Scene& s, int32_t d) {
      const KeyPlace k{s.cell.request, s.kv_head, 0};
      const double right = kv_scale(scales, s.keys, k, {}, s.cell.head, d);
      return (missing ? 1.0 : kv_scale(scales, s.keys, k, by, s.cell.head, d)) / right;
    };
    if (values)
      h.rules.finish = [ratio](const Scene& s, std::vector<double>& o, double&) {
        for (size_t d = 0; d < o.size(); ++d) o[d] *= ratio(s, static_cast<int32_t>(d));
      };
    else
      h.rules.edit_q = [ratio](const Scene& s, double* q) {
        for (int32_t d = 0; d < s.problem.head_dim_qk; ++d) q[d] *= ratio(s, d);
      };
  } else {
    h.rules.edit_per_key = true;
    h.rules.edit_terms = [scales, by, values, missing](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms) {
        const KeyPlace k{s.cell.request, s.kv_head, t.position};
        const double right = kv_scale(scales, s.keys, k, {}, s.cell.head, 0);
        const double wrong = missing ? 1.0 : kv_scale(scales, s.keys, k, by, s.cell.head, 0);
        (values ? t.v_factor : t.k_factor) = wrong / right;
      }
    };
  }
  out.push_back(std::move(h));
}

void kv_scales(const Clues& clues, Hypotheses& out, bool values) {
  const Problem& p = clues.problem();
  const int32_t kind = values ? p.v_scale : p.k_scale;
  if (kind == ASSAY_SCALE_NONE) return;
  const char* name = values ? "V" : "K";
  const auto cause = [values](std::string_view k, std::string_view v) { return values ? v : k; };
  add_kv(clues, out, cause("scale.k_missing", "scale.v_missing"), fmt::format("scale of {} taken as 1", name),
         0, values, {}, true);
  const std::vector<int32_t> steps = {1, -1, 2};
  if (kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_REQUEST_HEAD || kind == ASSAY_SCALE_TOKEN_HEAD ||
      kind == ASSAY_SCALE_CHANNEL) {
    const auto other_head = cause("scale.k_of_other_head", "scale.v_of_other_head");
    for (int32_t step : steps) {
      Shift by;
      by.head = step;
      add_kv(clues, out, other_head, fmt::format("scale of head {:+}", step), 0.1, values, by);
    }
    Shift by;
    by.head_zero = true;
    add_kv(clues, out, other_head, "scale of head 0", 0.1, values, by);
    by = {};
    by.query_head = true;
    add_kv(clues, out, other_head, "scale indexed with the query head", 0.15, values, by);
  }
  if (kind == ASSAY_SCALE_REQUEST_HEAD) {
    const auto other = cause("scale.k_of_other_request", "scale.v_of_other_request");
    for (int32_t step : steps) {
      Shift by;
      by.request = step;
      add_kv(clues, out, other, fmt::format("scale of request {:+}", step), 0.1, values, by);
    }
    Shift by;
    by.request_zero = true;
    add_kv(clues, out, other, "scale of request 0", 0.1, values, by);
  }
  if (kind == ASSAY_SCALE_TOKEN_HEAD) {
    const auto other = cause("scale.k_of_other_token", "scale.v_of_other_token");
    for (int32_t step : {1, -1, 2, -2}) {
      Shift by;
      by.token = step;
      add_kv(clues, out, other, fmt::format("scale of token {:+}", step), 0.1, values, by);
      by.slot_only = true;
      if (op_of(p).has_cache)
        add_kv(clues, out, other, fmt::format("scale of slot {:+} of the page", step), 0.15, values, by);
    }
    Shift by;
    by.token_zero = true;
    add_kv(clues, out, other, "scale of token 0", 0.1, values, by);
    by = {};
    by.page_start = true;
    if (op_of(p).has_cache)
      add_kv(clues, out, other, "scale of the first slot of the page", 0.15, values, by);
    by = {};
    by.logical = true;
    add_kv(clues, out, other, "scale indexed with the position instead of its place", 0.15, values, by);
  }
}

void channels(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const Evidence& e = clues.evidence;
  for (bool values : {false, true}) {
    const int32_t kind = values ? p.v_scale : p.k_scale;
    if (kind != ASSAY_SCALE_CHANNEL) continue;
    const HostOperands host = e.operands(false);
    const Scales s{clues, values ? host.tensors->v_scale : host.tensors->k_scale, kind, 1};
    const int32_t n = values ? p.head_dim_v : p.head_dim_qk;
    std::vector<std::pair<std::string, std::function<int32_t(int32_t)>>> maps = {
        {"scale of channel 0", [](int32_t) { return 0; }},
        {"scale of the channel's neighbour, pairwise", [](int32_t d) { return d ^ 1; }},
        {"scales of channels in reverse", [n](int32_t d) { return n - 1 - d; }}};
    for (int32_t step : {1, -1, 2, -2})
      maps.emplace_back(fmt::format("scale of channel {:+}", step), [step](int32_t d) { return d + step; });
    for (int32_t width : {2, 4, 8, 16, 32, 64, 128}) {
      maps.emplace_back(fmt::format("one scale for {} channels, the first one's", width),
                        [width](int32_t d) { return d / width * width; });
      maps.emplace_back(fmt::format("channel number divided by {}", width),
                        [width](int32_t d) { return d / width; });
      maps.emplace_back(fmt::format("channel number modulo {}", width),
                        [width](int32_t d) { return d % width; });
    }
    for (const auto& [name, map] : maps) {
      const auto ratio = [s, map = map](int32_t head, int32_t d) {
        return s.at({head, map(d)}) / s.at({head, d});
      };
      Hypothesis h =
          propose(clues, values ? "scale.v_of_other_channel" : "scale.k_of_other_channel", name, 0.1);
      if (values)
        h.rules.finish = [ratio, n](const Scene& scene, std::vector<double>& o, double&) {
          for (int32_t d = 0; d < n; ++d) o[d] *= ratio(scene.kv_head, d);
        };
      else
        h.rules.edit_q = [ratio, n](const Scene& scene, double* q) {
          for (int32_t d = 0; d < n; ++d) q[d] *= ratio(scene.kv_head, d);
        };
      out.push_back(std::move(h));
    }
  }
}

void query_scale(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.q_scale == ASSAY_SCALE_NONE) return;
  const HostOperands host = clues.evidence.operands(false);
  const Scales s{clues, host.tensors->q_scale, p.q_scale, host.q_scale_host};
  const std::vector<int32_t> first = clues.evidence.first_rows;
  // Scale of Q for a displaced cell.
  const auto scale = [s, first](const Problem& p, const Cell& c, int32_t head, int32_t request, int32_t row,
                                int32_t dim) -> double {
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
        return s.at({c.request + request, c.head / p.group() + head});
      case ASSAY_SCALE_TOKEN_HEAD:
        return s.at({first[c.request] + c.row + row, c.head + head});
      case ASSAY_SCALE_CHANNEL:
        return s.at({c.head + head, dim});
    }
    return 1;
  };
  const auto add = [&](std::string_view cause, std::string text, double cost, int32_t head, int32_t request,
                       const std::function<int32_t(const Scene&)>& row_step, bool missing) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.edit_q = [=](const Scene& scene, double* q) {
      const int32_t row = row_step ? row_step(scene) : 0;
      for (int32_t d = 0; d < scene.problem.head_dim_qk; ++d) {
        const double right = scale(scene.problem, scene.cell, 0, 0, 0, d);
        q[d] *= (missing ? 1.0 : scale(scene.problem, scene.cell, head, request, row, d)) / right;
      }
    };
    out.push_back(std::move(h));
  };
  add("scale.q_missing", "scale of Q taken as 1", 0, 0, 0, nullptr, true);
  for (int32_t step : {1, -1, 2}) {
    if (p.q_scale != ASSAY_SCALE_TENSOR && p.q_scale != ASSAY_SCALE_HOST)
      add("scale.q_of_other_head", fmt::format("scale of head {:+}", step), 0.1, step, 0, nullptr, false);
    if (p.q_scale == ASSAY_SCALE_REQUEST_HEAD)
      add("scale.q_of_other_request", fmt::format("scale of request {:+}", step), 0.1, 0, step, nullptr,
          false);
    if (p.q_scale == ASSAY_SCALE_TOKEN_HEAD)
      add(
          "scale.q_of_other_token", fmt::format("scale of packed row {:+}", step), 0.1, 0, 0,
          [step](const Scene&) { return step; }, false);
  }
  if (p.q_scale != ASSAY_SCALE_TOKEN_HEAD) return;
  add(
      "scale.q_of_other_token", "scale of the request's first row", 0.1, 0, 0,
      [](const Scene& s) { return -s.cell.row; }, false);
  add(
      "scale.q_of_other_token", "scale of the request's last row", 0.1, 0, 0,
      [](const Scene& s) { return s.problem.requests[s.cell.request].q_len - 1 - s.cell.row; }, false);
}

void factors(const Clues& clues, Hypotheses& out) {
  const auto scores = [&](std::string_view cause, std::string text, double cost, double factor) {
    Hypothesis h = propose(clues, cause, std::move(text), cost);
    h.rules.score = [factor](const Scene&, const Term&, ScoreParts s) {
      s.scale *= factor;
      return standard_score(s);
    };
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
  instead("1", 1);
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
    for (double x = -1.5; x <= 1.5; x += 0.05)
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
  const double k = fit(score_rule), v = fit(value_rule);
  const bool quantised_k = p.k_scale != ASSAY_SCALE_NONE, quantised_v = p.v_scale != ASSAY_SCALE_NONE;
  scores("scale.softmax", fmt::format("scores off by a factor {:.6g}", k), quantised_k ? 0.9 : 0.6, k);
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

  // fp8 with the other family's bias: every value doubles or halves.
  const auto fp8 = [](int32_t f) {
    return f == ASSAY_FP8_E4M3 || f == ASSAY_FP8_E5M2 || f == ASSAY_FP8_E4M3FNUZ || f == ASSAY_FP8_E5M2FNUZ;
  };
  for (double factor : {2.0, 0.5}) {
    if (!fp8(p.k_format) && !fp8(p.v_format) && !fp8(p.q_format)) break;
    h = propose(clues, "format.fnuz_as_fn",
                factor > 1 ? "codes of fnuz read as fn" : "codes of fn read as fnuz", 0.1);
    const double q_and_k = (fp8(p.k_format) ? factor : 1) * (fp8(p.q_format) ? factor : 1),
                 on_v = fp8(p.v_format) ? factor : 1;
    score_rule(h.rules, q_and_k);
    value_rule(h.rules, on_v);
    out.push_back(h);
    score_rule(h.rules, fp8(p.k_format) ? factor : 1);
    h.cost = 0.15;
    out.push_back(std::move(h));
  }
}

}  // namespace

void scale_family(const Clues& clues, Hypotheses& out) {
  for (bool values : {false, true}) kv_scales(clues, out, values);
  channels(clues, out);
  query_scale(clues, out);
  factors(clues, out);
}

}  // namespace assay
