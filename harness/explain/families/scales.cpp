// SPDX-License-Identifier: Apache-2.0
// Hypotheses about scales: missing, applied twice, exchanged, or of another head, token, request or channel.
// K is the code times its scale, so a wrong scale is a factor per key or per channel.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "harness/explain/families/head_maps.hpp"
#include "harness/explain/families/scale_reading.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/explain/narrow.hpp"
#include "harness/explain/rounding.hpp"
#include "harness/ops/op.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct KeyPlace {
  int32_t request, kv_head, position;
};

// Scale of a key of K or V with displaced indexes.
struct Shift {
  int32_t head = 0, token = 0;
  bool head_zero = false, token_zero = false;
  bool query_head = false;  // indexed with the query head instead of the KV head
  bool slot_only = false;   // a token moved within its page
  bool logical = false;     // token = position instead of its place in the cache
  bool page_start = false;  // first slot of its page
  bool group_head = false;  // indexed with KV head times group, no further than the last
  bool clamped = false;     // slots do not go round the page
  int32_t run = 1;          // one token for so many, the first
  bool run_last = false;    // ... or the last, as far as there are keys
  IndexOrder axes = IndexOrder::kGiven;
  std::function<int32_t(int32_t)> request_of = {}, head_of = {};         // of a request; of a query head
  std::function<int32_t(const Scene&, int32_t position)> token_of = {};  // in its place, by the row too
};

double kv_scale(const Scales& s, KvStore& keys, const KeyPlace& k, const Shift& by, int32_t query_head,
                int32_t dim) {
  const Problem& p = s.clues.problem();
  int64_t head = by.query_head ? query_head : k.kv_head;
  if (by.group_head) head = std::min<int64_t>(int64_t{k.kv_head} * p.group(), p.heads_kv - 1);
  head = (by.head_zero ? 0 : head) + by.head;
  if (by.head_of) head = by.head_of(query_head);
  int64_t request = by.request_of ? by.request_of(k.request) : k.request;
  const auto exchange = [&](int64_t& i, int64_t& j, int64_t n, int64_t m) {
    if (by.axes != IndexOrder::kGiven) std::tie(i, j) = indexes(by.axes, i, j, n, m);
  };
  int64_t channel = dim;
  if (s.kind == ASSAY_SCALE_REQUEST_HEAD)
    exchange(request, head, static_cast<int64_t>(p.requests.size()), p.heads_kv);
  if (s.kind == ASSAY_SCALE_CHANNEL) exchange(head, channel, s.tensor.shape[0], s.tensor.shape[1]);
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
      return s.at({head, channel});
    case ASSAY_SCALE_TOKEN_HEAD:
      break;
  }
  int32_t position = k.position;
  if (by.token_zero) position = 0;
  if (by.page_start) position = position / std::max(1, p.page_size) * std::max(1, p.page_size);
  position = by.run_last ? std::min(position / by.run * by.run + by.run, std::max(1, keys.keys())) - 1
                         : position / by.run * by.run;
  if (by.slot_only && by.clamped)
    position = position / p.page_size * p.page_size +
               std::clamp(position % p.page_size + by.token, 0, p.page_size - 1);
  else if (by.slot_only)
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
  if (!op_of(p).has_cache) {
    exchange(block, head, s.tensor.shape[0], s.tensor.shape[1]);
    return s.at({block, head});
  }
  exchange(head, slot, s.tensor.shape[1], s.tensor.shape[2]);
  return s.at({block, head, slot});
}

// What stands in place of the right scale: that of displaced indexes, of the other operand, or a power of it.
struct Wrong {
  Shift by = {};
  double power = 1;                     // 0: taken as 1; 2: applied twice; -1: divided by
  bool of_the_other = false;            // K's for V and V's for K
  int32_t rounded = ASSAY_FORMAT_NONE;  // to it
  // Of these keys only; unset: of all.
  std::function<bool(const Scene&, int32_t position)> where = {};
  std::function<double(double)> made = {};  // of it, in place of a power
};
enum class Side { kKeys, kValues, kBoth };

Scales scales_of(const Clues& clues, bool values, bool low) {
  const Problem& p = clues.problem();
  const HostOperands host = clues.evidence.operands(low);
  const bool of_v = values && !(op_of(p).has_cache && p.layout == ASSAY_LAYOUT_MLA);
  return {clues, of_v ? host.tensors->v_scale : host.tensors->k_scale, of_v ? p.v_scale : p.k_scale,
          of_v ? host.v_scale_host : host.k_scale_host};
}

// Factor per key: wrong scale over right scale.
void add_kv(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
            Side side, const Wrong& wrong) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  std::vector<std::pair<bool, std::function<double(const Scene&, int32_t position, int32_t dim)>>> per_key;
  for (bool values : {false, true}) {
    if (side == (values ? Side::kKeys : Side::kValues)) continue;
    const bool of_other = values != wrong.of_the_other;
    const Scales own_nan = scales_of(clues, values, false), other_nan = scales_of(clues, of_other, false);
    if (own_nan.kind == ASSAY_SCALE_NONE) continue;
    // Places that no key occupies hold what they hold in the call that is predicted.
    const Scales own_low = scales_of(clues, values, true), other_low = scales_of(clues, of_other, true);
    const auto ratio = [=, predictor_of_low = clues.low](const Scene& s, int32_t position, int32_t d) {
      const bool low = predictor_of_low != nullptr && s.predictor == predictor_of_low;
      const Scales &own = low ? own_low : own_nan, &other = low ? other_low : other_nan;
      if (wrong.where && !wrong.where(s, position)) return 1.0;
      const KeyPlace k{s.cell.request, s.kv_head, position};
      KeyPlace from = k;
      if (wrong.by.token_of)
        from.position = std::clamp(wrong.by.token_of(s, position), 0, std::max(0, s.kv_len - 1));
      const double right = kv_scale(own, s.keys, k, {}, s.cell.head, d),
                   read = kv_scale(other, s.keys, from, wrong.by, s.cell.head, d);
      if (wrong.rounded != ASSAY_FORMAT_NONE) return round_step(wrong.rounded, read) / right;
      if (wrong.made) return wrong.made(read) / right;
      return std::pow(read, wrong.power) / right;
    };
    if (own_nan.kind != ASSAY_SCALE_CHANNEL)
      per_key.emplace_back(values, ratio);
    else if (values)
      h.rules.finish = [ratio](const Scene& s, std::vector<double>& o, double&) {
        for (size_t d = 0; d < o.size(); ++d) o[d] *= ratio(s, 0, static_cast<int32_t>(d));
      };
    else
      h.rules.edit_q = [ratio](const Scene& s, double* q) {
        for (int32_t d = 0; d < s.problem.head_dim_qk; ++d) q[d] *= ratio(s, 0, d);
      };
  }
  if (!per_key.empty()) {
    h.rules.edit_per_key = true;
    h.rules.edit_terms = [per_key](Scene& s, std::vector<Term>& terms) {
      for (Term& t : terms)
        for (const auto& [values, ratio] : per_key)
          (values ? t.v_factor : t.k_factor) = ratio(s, t.position, 0);
    };
  }
  out.push_back(std::move(h));
}

bool per_head(int32_t kind) {
  return kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_REQUEST_HEAD || kind == ASSAY_SCALE_TOKEN_HEAD ||
         kind == ASSAY_SCALE_CHANNEL;
}

void kv_scales(const Clues& clues, Hypotheses& out, Side side) {
  const Problem& p = clues.problem();
  // A mistake of both sides is looked for where both have a scale of one kind, and named after K.
  if (side == Side::kBoth && p.k_scale != p.v_scale) return;
  const bool values = side == Side::kValues;
  const int32_t kind = values ? p.v_scale : p.k_scale;
  if (kind == ASSAY_SCALE_NONE) return;
  const bool both = side == Side::kBoth;
  const std::string name = both ? "K and V" : values ? "V" : "K";
  const auto cause = [values](std::string_view k, std::string_view v) { return values ? v : k; };
  const auto add = [&](std::string_view which, std::string text, double cost, const Wrong& wrong) {
    add_kv(clues, out, which, std::move(text) + (both ? ", K and V" : ""), cost + (both ? 0.02 : 0), side,
           wrong);
  };
  const auto moved = [](auto set) {
    Wrong wrong;
    set(wrong.by);
    return wrong;
  };
  add(cause("scale.k_missing", "scale.v_missing"), fmt::format("scale of {} taken as 1", name), 0,
      {{}, 0, false});
  add("scale.applied_twice", fmt::format("scale of {} applied twice", name), 0.1, {{}, 2, false});
  for (const int32_t format : {ASSAY_BF16, ASSAY_FP16})
    for (const bool cut : {false, true}) {
      Wrong rounded;
      rounded.rounded = cut ? format | kCut : format;
      add("precision.scale",
          fmt::format("scale of {} {} {}", name, cut ? "cut to" : "in",
                      format == ASSAY_BF16 ? "bf16" : "fp16"),
          0.1 + 0.02 * cut, rounded);
    }
  // A scale that has an exponent alone.
  const std::pair<const char*, double (*)(double)> exponents[] = {
      {"the nearest power of two", [](double x) { return std::exp2(std::nearbyint(std::log2(x))); }},
      {"a power of two, from 1.5 times it up",
       [](double x) { return std::exp2(std::floor(std::log2(x / 1.5)) + 1); }},
      {"the power of two below", [](double x) { return std::exp2(std::floor(std::log2(x))); }},
      {"the power of two above", [](double x) { return std::exp2(std::ceil(std::log2(x))); }},
  };
  for (const auto& [how, of] : exponents) {
    Wrong rounded;
    rounded.made = of;
    add(cause("scale.k_factor", "scale.v_factor"), fmt::format("scale of {} taken as {}", name, how), 0.15,
        rounded);
  }
  add("scale.inverted", fmt::format("{} divided by its scale", name), 0.1, {{}, -1, false});
  if (p.k_scale == p.v_scale)
    add("scale.swapped",
        both ? "scales of K and V exchanged" : fmt::format("{} has the other one's scale", name), 0.1,
        {{}, 1, true});
  if (kind != ASSAY_SCALE_CHANNEL)
    for (const SomeKeys& some : some_keys(clues)) {
      if (!some.holds) continue;
      add(cause("scale.k_missing", "scale.v_missing"),
          fmt::format("scale of {} taken as 1 {}", name, some.words), 0.1 + some.cost,
          {{}, 0, false, ASSAY_FORMAT_NONE, some.holds});
      add("scale.applied_twice", fmt::format("scale of {} applied twice {}", name, some.words),
          0.2 + some.cost, {{}, 2, false, ASSAY_FORMAT_NONE, some.holds});
    }
  const std::vector<int32_t> steps = {1, -1, 2};
  if (per_head(kind)) {
    const auto other_head = cause("scale.k_of_other_head", "scale.v_of_other_head");
    for (int32_t step : steps)
      add(other_head, fmt::format("scale of head {:+}", step), 0.1,
          moved([=](Shift& by) { by.head = step; }));
    add(other_head, "scale of head 0", 0.1, moved([](Shift& by) { by.head_zero = true; }));
    add(other_head, "scale of the last head", 0.12,
        moved([](Shift& by) { by.head_zero = true, by.head = -1; }));
    for (const HeadMap& map : kv_head_maps(p))
      add(other_head, "scale of another head: " + map.name, 0.15 + map.cost,
          moved([&](Shift& by) { by.head_of = map.of; }));
    add(other_head, "scale indexed with the query head", 0.15,
        moved([](Shift& by) { by.query_head = true; }));
    add(other_head, "scale indexed with the first query head of the group, clamped", 0.17,
        moved([](Shift& by) { by.group_head = true; }));
  }
  if (kind == ASSAY_SCALE_REQUEST_HEAD) {
    const auto other = cause("scale.k_of_other_request", "scale.v_of_other_request");
    for (const IndexMap& map : request_maps(p))
      add(other, "scale of " + map.name, 0.1 + map.cost, moved([&](Shift& by) { by.request_of = map.of; }));
  }
  if (kind == ASSAY_SCALE_REQUEST_HEAD || kind == ASSAY_SCALE_TOKEN_HEAD) {
    const bool of_tokens = kind == ASSAY_SCALE_TOKEN_HEAD, paged = op_of(p).has_cache;
    for (const IndexOrder axes : kExchanges)
      add(of_tokens ? cause("scale.k_of_other_token", "scale.v_of_other_token")
                    : cause("scale.k_of_other_request", "scale.v_of_other_request"),
          !of_tokens ? words_of(axes, "request", "head")
          : paged    ? words_of(axes, "head", "slot")
                     : words_of(axes, "token", "head"),
          0.1, moved([axes](Shift& by) { by.axes = axes; }));
  }
  if (kind == ASSAY_SCALE_TOKEN_HEAD) {
    const auto other = cause("scale.k_of_other_token", "scale.v_of_other_token");
    const bool paged = op_of(p).has_cache;
    for (int32_t step : {1, -1, 2, -2}) {
      add(other, fmt::format("scale of token {:+}", step), 0.1, moved([=](Shift& by) { by.token = step; }));
      if (!paged) continue;
      add(other, fmt::format("scale of slot {:+} of the page", step), 0.15,
          moved([=](Shift& by) { by.token = step, by.slot_only = true; }));
      add(other, fmt::format("scale of slot {:+} of the page, clamped", step), 0.17,
          moved([=](Shift& by) { by.token = step, by.slot_only = by.clamped = true; }));
    }
    // Of the page or tile before or behind, in all keys or where a table or buffer was not moved on.
    std::vector<int32_t> far = clues.tile_sizes;
    if (paged && p.page_size > 1) far.push_back(p.page_size);
    std::sort(far.begin(), far.end());
    far.erase(std::unique(far.begin(), far.end()), far.end());
    const std::vector<SomeKeys> somewhere = some_keys(clues);
    for (int32_t size : far)
      for (int32_t step : {-size, size}) {
        Wrong wrong = moved([=](Shift& by) { by.token = step; });
        add(other, fmt::format("scale of token {:+}", step), 0.2, wrong);
        for (const SomeKeys& some : somewhere) {
          if (!some.holds) continue;
          wrong.where = some.holds;
          add(other, fmt::format("scale of token {:+} {}", step, some.words), 0.2 + some.cost, wrong);
        }
      }
    add(other, "scale of token 0", 0.1, moved([](Shift& by) { by.token_zero = true; }));
    // Indexed by what else is at hand: the row, or the key counted from elsewhere.
    using Token = int32_t (*)(const Scene&, int32_t);
    const std::pair<const char*, Token> tokens[] = {
        {"the row's number in the request", [](const Scene& s, int32_t) { return s.cell.row; }},
        {"the row's own position", [](const Scene& s, int32_t) { return s.position; }},
        {"the last key", [](const Scene& s, int32_t) { return s.kv_len - 1; }},
        {"the key's distance to the row", [](const Scene& s, int32_t j) { return std::abs(s.position - j); }},
        {"the key as far from the end", [](const Scene& s, int32_t j) { return s.kv_len - 1 - j; }},
        {"the key as far behind the context",
         [](const Scene& s, int32_t j) { return j + s.problem.requests[s.cell.request].context_len(); }},
        {"the key counted from the first new token",
         [](const Scene& s, int32_t j) { return j - s.problem.requests[s.cell.request].context_len(); }},
        {"the head's number", [](const Scene& s, int32_t) { return s.cell.head; }},
        {"the request's number", [](const Scene& s, int32_t) { return s.cell.request; }},
    };
    for (const auto& [name, of] : tokens)
      add(other, fmt::format("scale of the token of {}", name), 0.15,
          moved([of = of](Shift& by) { by.token_of = of; }));
    for (const int32_t tile : {8, 16, 32, 64, 128})
      if (tile < p.max_kv_len())
        add(other, fmt::format("scale of the token of the key's number modulo {}", tile), 0.2,
            moved([tile](Shift& by) { by.token_of = [tile](const Scene&, int32_t j) { return j % tile; }; }));
    for (const int32_t run : {2, 4, 8, 16, 32, 64})
      if (run < p.max_kv_len() && !(paged && run == p.page_size))
        add(other, fmt::format("scale of the first of {} tokens for all of them", run), 0.15,
            moved([=](Shift& by) { by.run = run; }));
    for (const int32_t run : {2, 4, 8, 16, 32, 64})
      if (run < p.max_kv_len())
        add(other, fmt::format("scale of the last of {} tokens for all of them", run), 0.15,
            moved([=](Shift& by) { by.run = run, by.run_last = true; }));
    if (paged)
      add(other, "scale of the first slot of the page", 0.15, moved([](Shift& by) { by.page_start = true; }));
    add(other, "scale indexed with the position instead of its place", 0.15,
        moved([](Shift& by) { by.logical = true; }));
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
    if (n % 2 == 0) {
      maps.emplace_back("scale of the channel half the dimensions further on, round",
                        [n](int32_t d) { return (d + n / 2) % n; });
      maps.emplace_back("scales of halves laid in turn", [n](int32_t d) { return d % 2 * (n / 2) + d / 2; });
      maps.emplace_back("scales in turn laid in halves",
                        [n](int32_t d) { return d % (n / 2) * 2 + d / (n / 2); });
    }
    for (int32_t step = 4; step < n; step *= 2)
      for (const int32_t sign : {1, -1})
        maps.emplace_back(fmt::format("scale of channel {:+}", sign * step),
                          [step, sign](int32_t d) { return d + sign * step; });
    for (int32_t bit = 2; bit < n; bit *= 2)
      maps.emplace_back(fmt::format("scales of channels exchanged by {}", bit),
                        [n, bit](int32_t d) { return (d ^ bit) < n ? d ^ bit : d; });
    for (int32_t width : {2, 4, 8, 16, 32, 64, 128}) {
      maps.emplace_back(fmt::format("one scale for {} channels, the first one's", width),
                        [width](int32_t d) { return d / width * width; });
      maps.emplace_back(fmt::format("channel number divided by {}", width),
                        [width](int32_t d) { return d / width; });
      maps.emplace_back(fmt::format("channel number modulo {}", width),
                        [width](int32_t d) { return d % width; });
    }
    using Ratio = std::function<double(int32_t head, int32_t d)>;
    std::vector<std::pair<std::string, Ratio>> ratios;
    for (const auto& [name, map] : maps)
      ratios.emplace_back(name, [s, map = map](int32_t head, int32_t d) {
        return s.at({head, map(d)}) / s.at({head, d});
      });
    for (const IndexOrder axes : kExchanges)
      ratios.emplace_back(words_of(axes, "head", "channel"), [s, axes](int32_t head, int32_t d) {
        const auto [i, j] = indexes(axes, head, d, s.tensor.shape[0], s.tensor.shape[1]);
        return s.at({i, j}) / s.at({head, d});
      });
    for (const auto& [name, ratio] : ratios) {
      Hypothesis h =
          propose(clues, values ? "scale.v_of_other_channel" : "scale.k_of_other_channel", name, 0.1);
      if (values)
        h.rules.finish = [ratio = ratio, n](const Scene& scene, std::vector<double>& o, double&) {
          for (int32_t d = 0; d < n; ++d) o[d] *= ratio(scene.kv_head, d);
        };
      else
        h.rules.edit_q = [ratio = ratio, n](const Scene& scene, double* q) {
          for (int32_t d = 0; d < n; ++d) q[d] *= ratio(scene.kv_head, d);
        };
      out.push_back(std::move(h));
    }
  }
}

}  // namespace

void scale_family(const Clues& clues, Hypotheses& out) {
  for (Side side : {Side::kKeys, Side::kValues, Side::kBoth}) kv_scales(clues, out, side);
  channels(clues, out);
  query_scales(clues, out);
}

}  // namespace assay
