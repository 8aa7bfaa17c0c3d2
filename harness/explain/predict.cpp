// SPDX-License-Identifier: Apache-2.0
// See predict.hpp. The steps stand in the order in which a kernel takes them; each has its hook.
#include "harness/explain/predict.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "harness/base/error.hpp"
#include "harness/explain/rounding.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/data_ops/merge.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kLn2 = std::numbers::ln2;

int32_t part_of(const assay_arithmetic& a, int32_t tile, int32_t position, int32_t tiles) {
  if (a.split_keys > 0) return position / a.split_keys;
  const int32_t splits = std::max(1, a.splits);
  for (int32_t s = 0; s + 1 < splits; ++s)
    if (tile < static_cast<int64_t>(tiles) * (s + 1) / splits) return s;
  return splits - 1;
}

}  // namespace

struct Predictor::Scored {
  Term term;
  double x;
  const double* v;  // nullptr: zeros
  int32_t tile, part;
};

Predictor::Predictor(const Problem& problem, const HostOperands& operands, const assay_arithmetic& declared)
    : problem_(problem),
      operands_(operands),
      tensors_(*operands.tensors),
      reader_(problem, operands_),
      declared_(declared) {
  if (!declared_.order_declared || declared_.split_interleaved || declared_.splits_vary ||
      declared_.p_roundings > 1) {
    // An unknown order cannot be repeated: exact weights in one pass.
    declared_.tile_keys = 0;
    declared_.p_format = ASSAY_FP32;
    declared_.splits = 1;
    declared_.split_keys = 0;
    declared_.p_offset_log2 = declared_.rescale_lag_log2 = 0;
    declared_.row_sum_from_rounded_p = 0;
    declared_.dequant_format = ASSAY_FORMAT_NONE;
  }
}

struct Predictor::Altered {
  assay_tensors tensors;
  HostOperands host;
  std::vector<std::vector<float>> owned;
  std::unique_ptr<Predictor> predictor;
};

Predictor& Predictor::in_world(const World& world) {
  std::shared_ptr<Altered>& at = worlds_[&world];
  if (!at) {
    at = std::make_shared<Altered>();
    at->tensors = tensors_;
    if (world.change) world.change(problem_, at->tensors);
    if (world.rewrite) world.rewrite(at->tensors, at->owned);
    at->host = operands_;
    at->host.tensors = &at->tensors;
    at->predictor = std::make_unique<Predictor>(problem_, at->host, declared_);
    if (world.dequant_format != ASSAY_FORMAT_NONE) {
      at->predictor->declared_.dequant_replayed = 1;
      at->predictor->declared_.dequant_format = world.dequant_format;
    }
  }
  return *at->predictor;
}

double Predictor::unwritten_o() const { return load(problem_.o_format, tensors_.o.data, 0); }
double Predictor::unwritten_lse() const {  // a kernel may have none (contract no_lse)
  return tensors_.lse.data != nullptr ? load(ASSAY_FP32, tensors_.lse.data, 0) : std::nan("");
}

Rules Predictor::right() const {
  Rules rules;
  rules.arithmetic = declared_;
  return rules;
}

KvStore& Predictor::store(int32_t request, int32_t kv_head) {
  auto& slot = stores_[{request, kv_head}];
  if (!slot)
    slot =
        std::make_unique<KvStore>(problem_, reader_, tensors_, request, kv_head,
                                  declared_.dequant_replayed ? declared_.dequant_format : ASSAY_FORMAT_NONE);
  return *slot;
}

double Predictor::dot(const Rules& rules, const Scene& scene, const Cell& query, const Term& term) {
  if (term.zero) return 0;
  Query& known = queries_[{query.request, query.row, query.head}];
  const int32_t dim = problem_.head_dim_qk;
  if (known.q.empty()) {
    known.q.resize(dim);
    reader_.q({query.request, query.row}, query.head, known.q.data());
    replay_query(problem_, declared_, known.q.data());
  }
  const auto product = [&](const double* q, const double* k) {
    double sum = 0;
    for (int32_t d = 0; d < dim; ++d) sum += q[d] * k[d];
    return sum;
  };
  if (rules.edit_per_key && declared_.dequant_replayed && term.k_factor != 1) {
    const double* k = scene.keys.k(term.k_row);
    scaled_k_.resize(dim);
    for (int32_t d = 0; d < dim; ++d) scaled_k_[d] = round_to(declared_.dequant_format, k[d] * term.k_factor);
    return product(rules.edit_q ? edited_q_.data() : known.q.data(), scaled_k_.data());
  }
  if (rules.dot_format != ASSAY_FORMAT_NONE) {
    const double* k = scene.keys.k(term.k_row);
    double sum = 0;
    const double* q = rules.edit_q ? edited_q_.data() : known.q.data();
    for (int32_t d = 0; d < dim; d += rules.dot_step) {
      for (int32_t i = d; i < std::min(dim, d + rules.dot_step); ++i) sum += q[i] * k[i];
      sum = round_to(rules.dot_format, sum);
    }
    return term.k_factor * sum;
  }
  if (rules.edit_q) return term.k_factor * product(edited_q_.data(), scene.keys.k(term.k_row));
  std::vector<double>& dots = known.dots[&scene.keys];
  std::vector<char>& have = known.known[&scene.keys];
  if (static_cast<int32_t>(dots.size()) < scene.keys.rows()) {
    dots.resize(scene.keys.rows());
    have.resize(scene.keys.rows(), 0);
  }
  if (!have[term.k_row]) {
    dots[term.k_row] = product(known.q.data(), scene.keys.k(term.k_row));
    have[term.k_row] = 1;
  }
  return term.k_factor * dots[term.k_row];
}

std::vector<Predictor::Scored> Predictor::score_all(const Rules& rules, Scene& scene, const Cell& asked) {
  const Cell cell = scene.cell;
  std::vector<Term> terms;
  terms.reserve(scene.kv_len);
  for (int32_t j = 0; j < scene.kv_len; ++j) {
    const bool sees = rules.sees                             ? rules.sees(scene, j)
                      : scene.keys.request() == cell.request ? visible(problem_, cell.request, cell.row, j)
                                                             : j <= scene.position;
    if (sees) terms.push_back({j, j, j});
  }
  if (rules.edit_terms) rules.edit_terms(scene, terms);
  // Two changes one after the other may ask for a key that a request does not have.
  std::erase_if(terms, [&](const Term& t) { return !t.zero && !scene.keys.has(t.k_row, t.v_row); });

  const Cell query = rules.query_of ? rules.query_of(scene) : rules.query_at_place ? asked : cell;
  if (rules.edit_q) {
    edited_q_.resize(problem_.head_dim_qk);
    reader_.q({query.request, query.row}, query.head, edited_q_.data());
    replay_query(problem_, declared_, edited_q_.data());
    rules.edit_q(scene, edited_q_.data());
  }
  const bool biased = problem_.alibi != ASSAY_ALIBI_NONE;
  double slope = biased ? reader_.alibi_slope(cell.head) : 0;
  if (rules.slope) slope = rules.slope(scene, slope);
  double scale = problem_.softmax_scale;
  if (rules.scale_format != ASSAY_FORMAT_NONE) scale = round_to(rules.scale_format, scale);
  const assay_arithmetic& a = rules.arithmetic;
  const int32_t divided = rules.splits_of_longest ? problem_.max_kv_len() : scene.kv_len;
  const int32_t tiles = a.tile_keys > 0 ? (divided + a.tile_keys - 1) / a.tile_keys : 1;
  std::vector<Scored> scored;
  scored.reserve(terms.size());
  for (const Term& term : terms) {
    Scored s{term, term.forced, nullptr, 0, 0};
    if (std::isnan(term.forced)) {
      ScoreParts parts{dot(rules, scene, query, term),         scale,         double(problem_.softcap), slope,
                       double(scene.position - term.position), problem_.alibi};
      if (rules.score_format != ASSAY_FORMAT_NONE) parts.dot = round_to(rules.score_format, parts.dot);
      s.x = rules.score ? rules.score(scene, term, parts) : standard_score(parts);
      if (rules.scaled_score_format != ASSAY_FORMAT_NONE) s.x = round_to(rules.scaled_score_format, s.x);
    }
    if (!term.zero)
      s.v = rules.values_from_k >= 0 ? scene.keys.k(term.v_row) + rules.values_from_k
                                     : scene.keys.v(term.v_row);
    s.tile = a.tile_keys > 0 ? term.position / a.tile_keys : 0;
    s.part = part_of(a, s.tile, term.position, tiles);
    scored.push_back(s);
  }
  const auto before = [&](const Scored& l, const Scored& r) {
    if (l.part != r.part) return l.part < r.part;
    return a.tile_reverse ? l.tile > r.tile : l.tile < r.tile;
  };
  if (!std::is_sorted(scored.begin(), scored.end(), before))  // they nearly always are
    std::stable_sort(scored.begin(), scored.end(), before);
  return scored;
}

int32_t Predictor::count_updates(const assay_arithmetic& a, const std::vector<Scored>& keys, size_t begin,
                                 size_t end, double maximum) {
  int32_t updates = 0;
  for (size_t i = begin; i < end;) {
    double largest = -kInf;
    size_t next = i;
    for (; next < end && keys[next].tile == keys[i].tile; ++next) largest = std::max(largest, keys[next].x);
    const double moved = std::max(maximum, largest);
    if (moved != maximum && (maximum == -kInf || moved - maximum > a.rescale_lag_log2 * kLn2)) {
      updates += maximum != -kInf;
      maximum = moved;
    }
    i = next;
  }
  return updates;
}

SplitPart Predictor::run_part(const Rules& rules, const std::vector<Scored>& keys, size_t begin, size_t end,
                              double sink, LseParts* lse) {
  const assay_arithmetic& a = rules.arithmetic;
  const int32_t dim = problem_.head_dim_v;
  SplitPart part{{}, -kInf, static_cast<int32_t>(end - begin)};
  std::vector<double> acc(dim, 0.0);
  double maximum = rules.first_maximum, sum = 0;
  const double offset = std::exp2(a.p_offset_log2);
  if (sink != -kInf && a.sink_first) {
    maximum = std::max(maximum, sink);
    sum = offset * std::exp(rules.exponent_factor * (sink - maximum));
    sink = -kInf;
  }
  int32_t update = 0;
  const bool counted = rules.o_kept || rules.l_kept || rules.rescaled_twice;
  const int32_t updates = counted ? count_updates(a, keys, begin, end, maximum) : 0;
  std::vector<double> p;
  for (size_t i = begin; i < end;) {
    size_t next = i;
    double largest = -kInf;
    bool poisoned = false;
    for (; next < end && keys[next].tile == keys[i].tile; ++next) {
      if (rules.maximum_lanes == 0 || keys[next].term.position % a.tile_keys < rules.maximum_lanes ||
          keys[i].term.position % a.tile_keys >= rules.maximum_lanes)
        largest = std::max(largest, keys[next].x);  // ignores NaN, as max of hardware does
      poisoned |= std::isnan(keys[next].x);
    }
    if (poisoned) largest = std::numeric_limits<double>::quiet_NaN();
    if (poisoned && rules.nan_hides && maximum == -kInf) {
      std::fill(acc.begin(), acc.end(), std::numeric_limits<double>::quiet_NaN());
      sum = std::numeric_limits<double>::quiet_NaN();
      i = next;
      continue;
    }
    const double before = maximum;
    double moved = std::max(before, largest);
    if (poisoned) moved = largest;
    if (rules.maximum_per_tile && largest != -kInf) maximum = moved = largest;
    if (maximum != -kInf && moved - maximum <= a.rescale_lag_log2 * kLn2) moved = maximum;
    if (moved != maximum) {
      const double rescale = maximum == -kInf ? 0 : std::exp(rules.exponent_factor * (maximum - moved));
      if (maximum != -kInf) {
        const bool keep_o = rules.o_kept && rules.o_kept(update, updates);
        const bool keep_l = rules.l_kept && rules.l_kept(update, updates);
        const double factor =
            rules.rescaled_twice && rules.rescaled_twice(update, updates) ? rescale * rescale : rescale;
        if (!keep_o)
          for (double& x : acc) x *= factor;
        if (!keep_l) sum *= factor;
        ++update;
      }
      maximum = moved;
    }
    if (maximum == -kInf) {  // nothing but masked scores so far
      i = next;
      continue;
    }
    p.resize(next - i);
    double tile_largest = 0;
    for (size_t j = i; j < next; ++j) {
      const double relative_to = rules.stale_maximum && before != -kInf ? before : maximum;
      const double argument = rules.exponent_factor * (keys[j].x - relative_to);
      p[j - i] = offset * std::exp(argument);
      tile_largest = std::max(tile_largest, p[j - i]);
    }
    for (size_t j = i; j < next; ++j) {
      const Term& term = keys[j].term;
      const double exact = p[j - i];
      double rounded = round_weight(a, exact, tile_largest, rules.round_clamp);
      rounded = coarsened(rounded, rules.p_step, rules.p_mantissa);
      sum += term.weight * term.in_sum * (a.row_sum_from_rounded_p ? rounded : exact);
      if (rules.sum_per_key) sum = round_to(rules.sum_format, sum);
      const double w = term.weight * term.in_output * term.v_factor * rounded;
      const double* v = keys[j].v;
      if (v == nullptr) continue;
      for (int32_t d = 0; d < dim; ++d) acc[d] += w * v[d];
    }
    if (rules.accumulator_format != ASSAY_FORMAT_NONE)
      for (double& x : acc) x = round_to(rules.accumulator_format, x);
    if (rules.sum_format != ASSAY_FORMAT_NONE && !rules.sum_per_key) sum = round_to(rules.sum_format, sum);
    i = next;
  }
  if (maximum == -kInf) {
    part.o.assign(dim, 0.0);
    part.lse = sink;
    if (lse) *lse = {sink, sink, sink == -kInf ? 0.0 : 1.0, sink, -kInf};
    return part;
  }
  if (rules.sink_raw && sink != -kInf) {
    sum += offset * sink;
    sink = -kInf;
  }
  sum *= rules.sum_factor;
  const double without = sum / offset;
  const double keys_alone = std::log(without) + maximum;
  double whole = without;
  if (sink != -kInf) {  // joined at the end, relative to the larger of both
    const double top = std::max(maximum, sink);
    const double down = std::exp(maximum - top);
    for (double& x : acc) x *= down;
    sum = sum * down + offset * std::exp(rules.sink_unshifted ? sink + maximum - top : sink - top);
    maximum = top;
    whole = sum / offset;
  }
  const double divisor = rules.divide ? sum : offset;
  part.o.resize(dim);
  for (int32_t d = 0; d < dim; ++d) part.o[d] = divisor == 0 ? 0.0 : acc[d] / divisor;
  part.lse = maximum + std::log(whole);
  if (lse) *lse = {part.lse, maximum, whole, sink, keys_alone};
  return part;
}

Prediction Predictor::predict(const Rules& rules, const Cell& asked) {
  if (rules.world) {
    Rules inside = rules;
    inside.world = nullptr;
    return in_world(*rules.world).predict(inside, asked);
  }
  if (rules.never_written && rules.never_written(asked)) {
    Prediction nothing;
    nothing.o.assign(problem_.head_dim_v, unwritten_o());
    nothing.lse = unwritten_lse();
    return nothing;
  }
  const Cell cell = rules.result_of ? rules.result_of(asked) : asked;
  const int32_t kv_head = rules.kv_head_of ? rules.kv_head_of(cell) : cell.head / problem_.group();
  const int32_t request = rules.kv_request_of ? rules.kv_request_of(cell) : cell.request;
  KvStore& keys = store(request, kv_head);
  const Request& own = problem_.requests[cell.request];
  Scene scene{problem_, cell, keys, keys.keys(), own.context_len() + cell.row, kv_head, this};
  const std::vector<Scored> scored = score_all(rules, scene, asked);

  const bool nan_scores = std::any_of(scored.begin(), scored.end(), [](auto& s) { return std::isnan(s.x); });
  double sink = problem_.sinks ? reader_.sink(cell.head) : -kInf;
  if (rules.sink) sink = rules.sink(scene, sink);
  const assay_arithmetic& a = rules.arithmetic;
  const int32_t parts = a.split_keys > 0 ? std::max(1, (scene.kv_len + a.split_keys - 1) / a.split_keys)
                                         : std::max(1, a.splits);
  Prediction out;
  out.nan_scores = nan_scores;
  LseParts lse{};
  if (parts == 1) {
    SplitPart only = run_part(rules, scored, 0, scored.size(), sink, &lse);
    out.o = std::move(only.o);
    out.lse = only.lse;
  } else {
    std::vector<SplitPart> results(parts);
    size_t at = 0;
    for (int32_t s = 0; s < parts; ++s) {
      size_t end = at;
      while (end < scored.size() && scored[end].part <= s) ++end;
      results[s] = run_part(rules, scored, at, end, rules.sink_per_split ? sink : -kInf, nullptr);
      at = end;
    }
    for (SplitPart& part : results) {
      if (a.partial_format != ASSAY_FORMAT_NONE && a.partial_format != ASSAY_FP32)
        for (double& x : part.o) x = round_to(a.partial_format, x);
      if (a.partial_lse_format != ASSAY_FORMAT_NONE && a.partial_lse_format != ASSAY_FP32)
        part.lse = round_to(a.partial_lse_format, part.lse);
    }
    if (rules.edit_parts) rules.edit_parts(scene, results);
    double top = rules.sink_per_split ? -kInf : sink;
    for (const SplitPart& part : results) top = std::max(top, part.lse);
    out.o.assign(problem_.head_dim_v, 0.0);
    out.lse = top;
    if (top != -kInf) {
      double total = 0;
      for (const SplitPart& part : results) {
        if (part.lse == -kInf) continue;
        const double w = rules.merge_weight ? rules.merge_weight(part.lse, top) : std::exp(part.lse - top);
        total += w;
        for (int32_t d = 0; d < problem_.head_dim_v; ++d) out.o[d] += w * part.o[d];
      }
      const double keys_only = total;
      const double joined = rules.sink_per_split ? -kInf : sink;
      if (joined != -kInf) total += std::exp(joined - top);
      for (double& x : out.o) x = total == 0 ? 0.0 : x / total;
      out.lse = top + std::log(total);
      lse = {out.lse, top, total, sink, top + std::log(keys_only)};
      if (rules.merge_lse) out.lse = rules.merge_lse(scene, results, out.lse);
    }
  }
  if (rules.lse) {
    lse.lse = out.lse;
    out.lse = rules.lse(scene, lse);
  }
  if (rules.weight_noise > 0) {
    std::vector<double> squares(problem_.head_dim_v, 0.0);
    double all = 0;
    for (const Scored& s : scored) {
      if (s.v == nullptr) continue;
      const double p = std::exp(s.x - out.lse);
      all += p * p;
      for (int32_t d = 0; d < problem_.head_dim_v; ++d)
        squares[d] += p * p * (s.v[d] - out.o[d]) * (s.v[d] - out.o[d]);
    }
    for (double& x : squares) x = rules.weight_noise * std::sqrt(x);
    out.o_noise = std::move(squares);
    out.lse_noise = rules.weight_noise * std::sqrt(all);
  }
  if (rules.finish) rules.finish(scene, out.o, out.lse);
  for (double& x : out.o)
    x = rules.truncate_output ? truncate_to(problem_.o_format, x) : round_to(problem_.o_format, x);
  return out;
}

Predictor::Weights Predictor::weights(const Cell& cell) {
  Rules rules = right();
  rules.arithmetic.tile_keys = 0;
  rules.arithmetic.splits = 1;
  rules.arithmetic.split_keys = 0;
  KvStore& keys = store(cell.request, cell.head / problem_.group());
  const Request& own = problem_.requests[cell.request];
  Scene scene{problem_, cell, keys, own.kv_len, own.context_len() + cell.row, cell.head / problem_.group()};
  Weights result;
  double top = problem_.sinks ? reader_.sink(cell.head) : -kInf, sum = 0;
  const std::vector<Scored> scored = score_all(rules, scene, cell);
  for (const Scored& s : scored) top = std::max(top, s.x);
  if (problem_.sinks) sum = std::exp(reader_.sink(cell.head) - top);
  for (const Scored& s : scored) {
    result.positions.push_back(s.term.position);
    result.scores.push_back(s.x);
    result.p.push_back(std::exp(s.x - top));
    sum += result.p.back();
  }
  for (double& p : result.p) p /= sum;
  result.lse = top == -kInf ? -kInf : top + std::log(sum);
  return result;
}

}  // namespace assay
