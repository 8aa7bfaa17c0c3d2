// SPDX-License-Identifier: Apache-2.0
// See predict.hpp. The steps stand in the order in which a kernel takes them; each has its hook.
#include "harness/explain/predict.hpp"

#include <algorithm>
#include <cmath>

#include "harness/explain/cut.hpp"
#include "harness/explain/layouts.hpp"
#include "harness/explain/rounding.hpp"
#include "reference/bounds/bounds_rows.hpp"
#include "reference/data_ops/merge.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr size_t kShared = 4096;  // cells times orders whose parts are kept

}  // namespace

int32_t place_of_row(const Problem& p, const Cell& c) {
  const int64_t first = p.first_key.empty() ? 0 : p.first_key[c.request];
  return static_cast<int32_t>(row_position(p, c.request, c.row) - first);
}

Predictor::Predictor(const Problem& problem, const HostOperands& operands, const assay_arithmetic& declared)
    : problem_(problem),
      operands_(operands),
      tensors_(*operands.tensors),
      reader_(problem, operands_),
      declared_(declared) {
  if (!order_repeated(declared_)) {
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
  std::shared_ptr<const World> world;  // kept: another one at its place in memory would be taken for it
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
    at->predictor->ordered_ = ordered_;
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

// Nothing differs from a right kernel of some arithmetic before its parts are merged. A new hook that acts
// before belongs here.
bool plain_before_merge(const Rules& r) {
  static const Rules kRight;
  const bool hooks = r.world || r.query_of || r.query_at_place || r.kv_head_of || r.kv_request_of || r.sees ||
                     r.edit_terms || r.edit_q || r.score || r.sink || r.slope || r.distance || r.o_kept ||
                     r.l_kept || r.rescaled_twice || r.kept_dims || r.exp_of || r.exponent_of || r.p_of ||
                     r.edit_scores || r.in_maximum;
  const auto same = [&](auto... of) { return ((r.*of == kRight.*of) && ...); };
  return !hooks &&
         same(&Rules::values_from_k, &Rules::edit_per_key, &Rules::sink_per_split, &Rules::sink_raw,
              &Rules::sink_unshifted, &Rules::sink_exponent, &Rules::exponent_factor,
              &Rules::rescale_exponent, &Rules::round_clamp, &Rules::first_maximum, &Rules::stale_maximum,
              &Rules::maximum_stays, &Rules::skip_below, &Rules::maximum_lanes, &Rules::maximum_per_tile,
              &Rules::lazy_below) &&
         same(&Rules::sum_factor, &Rules::sum_offset, &Rules::sum_offset_of_parts, &Rules::sum_offset_in_lse,
              &Rules::divide, &Rules::accumulator_format, &Rules::sum_format, &Rules::sum_per_key,
              &Rules::sum_of_tile, &Rules::p_step, &Rules::p_mantissa, &Rules::score_format,
              &Rules::scaled_score_format, &Rules::dot_format, &Rules::scale_format);
}

Rules Predictor::right() const {
  if (base_ != nullptr) return *base_;
  if (ordered_) return *ordered_;
  Rules rules;
  rules.arithmetic = declared_;
  return rules;
}

void Predictor::work_in(const Layout& order) {
  auto rules = std::make_shared<Rules>();
  rules->arithmetic = declared_;
  order.apply(*rules);
  ordered_ = std::move(rules);
}

KvStore& Predictor::store(int32_t request, int32_t kv_head) {
  auto& slot = stores_[{request, kv_head}];
  if (!slot)
    slot =
        std::make_unique<KvStore>(problem_, reader_, tensors_, request, kv_head,
                                  declared_.dequant_replayed ? declared_.dequant_format : ASSAY_FORMAT_NONE);
  return *slot;
}

Predictor::Query& Predictor::query_at(const Cell& c) {
  Query& query = queries_[{c.request, c.row, c.head}];
  if (query.q.empty()) {
    query.q.resize(problem_.head_dim_qk);
    reader_.q({c.request, c.row}, c.head, query.q.data());
    replay_query(problem_, declared_, reader_, {c.request, c.row}, c.head, query.q.data());
  }
  return query;
}

const std::vector<int32_t>& Predictor::seen_by(const Cell& c) {
  const auto [at, fresh] = seen_.try_emplace({c.request, c.row});
  if (fresh)
    for (int32_t j = 0; j < problem_.requests[c.request].kv_len; ++j)
      if (visible(problem_, c.request, c.row, j)) at->second.push_back(j);
  return at->second;
}

double Predictor::dot(const Rules& rules, const Scene& scene, const Query& query, Dots& dots,
                      const Term& term) {
  if (term.zero) return 0;
  const int32_t dim = problem_.head_dim_qk;
  const auto product = [&](const double* q, const double* k) {
    double sum = 0;
    for (int32_t d = 0; d < dim; ++d) sum += q[d] * k[d];
    return sum;
  };
  const bool edited = rules.edit_q && (!rules.edit_q_for || rules.edit_q_for(scene, term));
  const double* q = edited ? edited_q_.data() : query.q.data();
  if (rules.edit_per_key && declared_.dequant_replayed && term.k_factor != 1) {
    const double* k = scene.keys.k(term.k_row);
    scaled_k_.resize(dim);
    const int32_t plain = declared_.dequant_format & ~kCut;
    const int32_t dequant = declared_.dequant_format & kCutK ? plain | kCut : plain;
    for (int32_t d = 0; d < dim; ++d) scaled_k_[d] = round_step(dequant, k[d] * term.k_factor);
    return product(q, scaled_k_.data());
  }
  if (rules.dot_format != ASSAY_FORMAT_NONE) {
    const double* k = scene.keys.k(term.k_row);
    double sum = 0;
    for (int32_t d = 0; d < dim; d += rules.dot_step) {
      for (int32_t i = d; i < std::min(dim, d + rules.dot_step); ++i) sum += q[i] * k[i];
      sum = round_step(rules.dot_format, sum);
    }
    return term.k_factor * sum;
  }
  if (term.v_for_k) return term.k_factor * product(q, scene.keys.v(term.k_row));
  if (edited) return term.k_factor * product(q, scene.keys.k(term.k_row));
  if (static_cast<int32_t>(dots.value.size()) <= term.k_row) {
    dots.value.resize(scene.keys.rows());
    dots.known.resize(scene.keys.rows(), 0);
  }
  if (!dots.known[term.k_row]) {
    dots.value[term.k_row] = product(q, scene.keys.k(term.k_row));
    dots.known[term.k_row] = 1;
  }
  return term.k_factor * dots.value[term.k_row];
}

std::vector<Predictor::Scored> Predictor::score_all(const Rules& rules, Scene& scene, const Cell& asked) {
  const Cell cell = scene.cell;
  std::vector<Term> terms;
  terms.reserve(scene.kv_len);
  if (!rules.sees && scene.keys.request() == cell.request) {
    for (int32_t j : seen_by(cell)) terms.push_back({j, j, j});
  } else {
    for (int32_t j = 0; j < scene.kv_len; ++j)
      if (rules.sees ? rules.sees(scene, j) : j <= scene.position) terms.push_back({j, j, j});
  }
  if (rules.edit_terms) rules.edit_terms(scene, terms);
  // Two changes one after the other may ask for a key that a request does not have.
  std::erase_if(terms, [&](const Term& t) { return !t.zero && !scene.keys.has(t.k_row, t.v_row); });

  const Cell query = rules.query_of ? rules.query_of(scene) : rules.query_at_place ? asked : cell;
  if (rules.edit_q) {
    edited_q_.resize(problem_.head_dim_qk);
    reader_.q({query.request, query.row}, query.head, edited_q_.data());
    replay_query(problem_, declared_, reader_, {query.request, query.row}, query.head, edited_q_.data());
    rules.edit_q(scene, edited_q_.data());
  }
  const bool biased = problem_.alibi != ASSAY_ALIBI_NONE;
  double slope = biased ? reader_.alibi_slope(cell.head) : 0;
  if (rules.slope) slope = rules.slope(scene, slope);
  double scale = problem_.softmax_scale;
  if (rules.scale_format != ASSAY_FORMAT_NONE) scale = round_step(rules.scale_format, scale);
  const assay_arithmetic& a = rules.arithmetic;
  const PartsOf cut(rules, scene);
  std::vector<Scored> scored;
  scored.reserve(terms.size());
  Query* asking = nullptr;  // looked up once, where there is a key to ask for
  Dots* dots = nullptr;
  for (const Term& term : terms) {
    Scored s{term, term.forced, nullptr, 0, 0, 0};
    if (rules.exponent_of) s.exponent = rules.exponent_of(scene, term);
    if (std::isnan(term.forced)) {
      if (asking == nullptr) asking = &query_at(query), dots = &asking->dots[&scene.keys];
      ScoreParts parts{dot(rules, scene, *asking, *dots, term),
                       scale,
                       double(problem_.softcap),
                       slope,
                       double(scene.position - place_of_key(scene, term.position)),
                       problem_.alibi};
      if (rules.distance && parts.distance >= 0) {
        parts.distance = rules.distance(scene, term, parts.distance);
        parts.biased = true;
      }
      if (rules.score_format != ASSAY_FORMAT_NONE) parts.dot = round_step(rules.score_format, parts.dot);
      s.x = rules.score ? rules.score(scene, term, parts) : standard_score(parts);
      if (rules.scaled_score_format != ASSAY_FORMAT_NONE) s.x = round_step(rules.scaled_score_format, s.x);
    }
    if (!term.zero)
      s.v = rules.values_from_k >= 0 ? scene.keys.k(term.v_row) + rules.values_from_k
            : term.k_for_v           ? scene.keys.k(term.v_row)
                                     : scene.keys.v(term.v_row);
    s.tile = cut.tile(term.position);
    // Neighbours mostly share a tile, and a tile lies in one part.
    const bool as_before = cut.whole_tiles() && !scored.empty() && scored.back().tile == s.tile;
    s.part = as_before ? scored.back().part : cut.of(term.position);
    s.state = as_before ? scored.back().state : cut.state(term.position);
    if (rules.in_maximum) s.in_maximum = rules.in_maximum(scene, term.position);
    scored.push_back(s);
  }
  if (rules.edit_scores) {
    std::vector<double> scores;
    for (const Scored& s : scored) scores.push_back(s.x);
    rules.edit_scores(scene, scores);
    for (size_t i = 0; i < scored.size(); ++i) scored[i].x = scores[i];
  }
  if (rules.in_maximum && std::none_of(scored.begin(), scored.end(), [](auto& s) { return s.in_maximum; }))
    for (Scored& s : scored) s.in_maximum = true;
  const auto before = [&](const Scored& l, const Scored& r) {
    if (l.part != r.part) return l.part < r.part;
    if (l.state != r.state) return l.state < r.state;
    return a.tile_reverse ? l.tile > r.tile : l.tile < r.tile;
  };
  if (!std::is_sorted(scored.begin(), scored.end(), before))  // they nearly always are
    std::stable_sort(scored.begin(), scored.end(), before);
  return scored;
}

// The parts of a cell before they are merged. Most hypotheses about merges and outputs share them.
Predictor::Summed Predictor::sums(const Rules& rules, Scene& scene, const Cell& asked, double sink) {
  const bool shared = plain_before_merge(rules);
  const int32_t parts = PartsOf(rules, scene).count();
  // One part of a request that may have several goes by the merge, unless somebody looks at the parts.
  const bool merged = parts > 1 || rules.one_part_too || (rules.arithmetic.splits > 1 && rules.edit_parts);
  std::string key;
  if (shared) {
    const Cell& c = scene.cell;
    const int32_t numbers[] = {c.request,
                               c.row,
                               c.head,
                               rules.cut.least,
                               rules.cut.least_met,
                               rules.cut.whole,
                               rules.cut.rest_first,
                               rules.cut.block_rows,
                               rules.cut.packed,
                               rules.cut.interleaved,
                               rules.cut.all_or_one,
                               rules.cut.states,
                               rules.cut.states_merge,
                               rules.nan_hides,
                               rules.splits_of_longest,
                               merged};
    key.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
    key.append(reinterpret_cast<const char*>(&rules.arithmetic), sizeof rules.arithmetic);
    const auto at = sums_.find(key);
    if (at != sums_.end()) return at->second;
  }
  const std::vector<Scored> scored = score_all(rules, scene, asked);
  Summed out;
  out.nan_scores = std::any_of(scored.begin(), scored.end(), [](auto& s) { return std::isnan(s.x); });
  out.merged = merged;
  out.parts.resize(parts);
  size_t at = 0;
  for (int32_t s = 0; s < parts && merged; ++s) {
    size_t end = at;
    while (end < scored.size() && scored[end].part <= s) ++end;
    out.parts[s] = run_states(rules, scored, at, end, rules.sink_per_split ? sink : -kInf, nullptr);
    at = end;
  }
  if (!merged) out.parts[0] = run_states(rules, scored, 0, scored.size(), sink, &out.lse);
  if (!shared) return out;
  if (sums_.size() >= kShared) sums_.clear();
  return sums_.emplace(std::move(key), std::move(out)).first->second;
}

// Weights of one pass over the sum of the other: what the maxima are relative to cancels out.
Prediction Predictor::one_pass_of_two(const Rules& rules, const Cell& asked) {
  Rules wrong = rules, right_ones = right();
  wrong.passes = Passes::kBoth;
  wrong.unrounded = right_ones.unrounded = true;
  Prediction of_output = predict(wrong, asked), of_sum = predict(right_ones, asked);
  if (rules.passes == Passes::kSum) std::swap(of_output, of_sum);
  const double factor = of_output.lse == -kInf ? 0 : std::exp(of_output.lse - of_sum.lse);
  for (double& x : of_output.o) x = round_fast(problem_.o_format, x * factor);
  of_output.lse = of_sum.lse;
  return of_output;
}

Prediction Predictor::predict(const Rules& rules, const Cell& asked) {
  // A hook that asks for the right rules means those of a right kernel, whatever is proposed on top of.
  struct Aside {
    const Rules*& at;
    const Rules* held;
    ~Aside() { at = held; }
  } const aside{base_, base_};
  base_ = nullptr;
  if (rules.passes != Passes::kBoth) return one_pass_of_two(rules, asked);
  if (rules.world) {
    Rules inside = rules;
    inside.world = nullptr;
    Predictor& altered = in_world(*rules.world);
    worlds_[rules.world.get()]->world = rules.world;
    return altered.predict(inside, asked);
  }
  if (rules.o_of || rules.lse_of) {
    Rules own = rules;
    own.o_of = own.lse_of = nullptr;
    Prediction out = predict(own, asked);
    if (const Cell c = rules.o_of ? rules.o_of(asked) : asked; !(c == asked)) out.o = predict(own, c).o;
    if (const Cell c = rules.lse_of ? rules.lse_of(asked) : asked; !(c == asked))
      out.lse = predict(own, c).lse;
    return out;
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
  Scene scene{problem_, cell, keys, keys.keys(), place_of_row(problem_, cell), kv_head, this};
  double sink = problem_.sinks ? reader_.sink(cell.head) : -kInf;
  if (rules.sink) sink = rules.sink(scene, sink);
  const assay_arithmetic& a = rules.arithmetic;
  Prediction out;
  Summed summed = sums(rules, scene, asked, sink);
  out.nan_scores = summed.nan_scores;
  LseParts lse = summed.lse;
  if (!summed.merged) {
    out.o = std::move(summed.parts[0].o);
    out.lse = summed.parts[0].lse;
  } else {
    std::vector<SplitPart>& results = summed.parts;
    for (SplitPart& part : results) {
      if (a.partial_format != ASSAY_FORMAT_NONE && a.partial_format != ASSAY_FP32)
        for (double& x : part.o) x = round_step(a.partial_format, x);
      if (a.partial_lse_format != ASSAY_FORMAT_NONE && a.partial_lse_format != ASSAY_FP32)
        part.lse = round_step(a.partial_lse_format, part.lse);
    }
    if (rules.edit_parts) rules.edit_parts(scene, results);
    double top = rules.sink_per_split ? -kInf : sink;
    for (const SplitPart& part : results) top = std::max(top, part.lse);
    out.o.assign(problem_.head_dim_v, 0.0);
    out.lse = top;
    const bool by_exp_of = rules.exp_everywhere && rules.exp_of;
    if (by_exp_of) {  // relative to the largest maximum
      top = rules.sink_per_split ? -kInf : sink;
      for (const SplitPart& part : results) top = std::max(top, part.maximum);
    }
    if (top != -kInf) {
      double total = 0;
      for (const SplitPart& part : results) {
        if (part.lse == -kInf) continue;
        const double w = by_exp_of ? rules.exp_of(part.maximum - top) * std::exp(part.lse - part.maximum)
                         : rules.merge_weight ? rules.merge_weight(part.lse, top)
                                              : std::exp(part.lse - top);
        total += w;
        for (int32_t d = 0; d < problem_.head_dim_v; ++d) out.o[d] += w * part.o[d];
      }
      const double keys_only = total;
      const double joined = rules.sink_per_split ? -kInf : sink;
      if (joined != -kInf)
        total += std::exp(rules.sink_exponent * (rules.sink_unshifted ? joined : joined - top));
      const double more = rules.sum_offset_of_parts ? 0 : rules.sum_offset, divisor = total + more;
      if (rules.merge_divides || results.size() < 2)
        for (double& x : out.o) x = divisor == 0 ? 0.0 : x / divisor;
      if (rules.sum_offset_in_lse) total = divisor;
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
    for (const Scored& s : score_all(rules, scene, asked)) {
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
  if (rules.unrounded) return out;
  for (double& x : out.o)
    x = rules.truncate_output ? truncate_to(problem_.o_format, x) : round_fast(problem_.o_format, x);
  return out;
}

}  // namespace assay
