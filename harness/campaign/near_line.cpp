// SPDX-License-Identifier: Apache-2.0
// See near_line.hpp. Everything is proposed as text and kept when the language takes it, as in draw_line.
#include "harness/campaign/near_line.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "harness/base/error.hpp"
#include "harness/campaign/draw_value.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/fields.hpp"
#include "reference/formats/formats.hpp"

namespace assay::campaign {
namespace {

constexpr int kTries = 60;
constexpr int64_t kMostKeys = 6000;

// The line with a field set, or without it.
std::string with(const std::string& line, const std::string& field, const std::string& value) {
  const std::string word = " " + field + "=";
  const size_t from = line.find(word);
  std::string rest = line;
  if (from != std::string::npos) {
    const size_t end = line.find(' ', from + 1);
    rest = line.substr(0, from) + (end == std::string::npos ? "" : line.substr(end));
  }
  return value.empty() ? rest : rest + word + value;
}

const Field& field_named(std::string_view name) { return fields()[static_cast<size_t>(field_index(name))]; }

bool takes_field(const Scenario& s, std::string_view name) {
  return (field_named(name).ops & op_bit(s.op)) != 0;
}

std::string number(double x) { return fmt::format("{:.3g}", x); }

std::optional<Scenario> parsed(const std::string& line) {
  try {
    return parse_scenario(line);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// A few tokens more or less, or twice or half of them.
int32_t beside(Draws& d, int32_t n, int32_t least) {
  const int64_t other = d.chance(0.7) ? n + d.one_of<int64_t>({-2, -1, -1, 1, 1, 2})
                                      : d.one_of<int64_t>({n / 2, 2 * int64_t{n}, 2 * int64_t{n} + 1});
  return static_cast<int32_t>(std::clamp<int64_t>(other, least, std::max<int64_t>(n, kMostKeys)));
}

std::string other_batch(Draws& d, const Scenario& s) {
  BatchSpec batch = s.batch;
  if (batch.kind != BatchSpec::Kind::kMix || batch.groups.empty()) {
    batch.s.high = beside(d, batch.s.high, std::max(1, batch.s.low));
    return print(batch);
  }
  BatchGroup& g = batch.groups[static_cast<size_t>(d.below(static_cast<int64_t>(batch.groups.size())))];
  switch (d.below(4)) {
    case 0:
      g.q_len = beside(d, g.q_len, 1);
      break;
    case 1:
      g.count = std::min(beside(d, g.count, 1), 64);
      break;
    default:
      g.kv_len = beside(d, g.kv_len, 0);
  }
  if (op_of(s.op).rows == RowRule::kWithinCache) g.kv_len = std::max(g.kv_len, g.q_len);
  g.shared = std::min(g.shared, g.kv_len);
  return print(batch);
}

int64_t longest_of(const Scenario& s) {
  int64_t longest = std::max(1, s.batch.s.high);
  for (const BatchGroup& g : s.batch.groups) longest = std::max<int64_t>(longest, g.kv_len);
  return longest;
}

// The line with one thing changed.
std::string change(Draws& d, const Scenario& s, const std::string& line) {
  const LineSoFar so{op_of(s.op), longest_of(s)};
  const auto times = [&](double x) { return number(x * std::exp2(d.uniform(-2, 2))); };
  switch (d.below(9)) {
    case 0:
      if (s.softcap > 0) return with(line, "cap", times(s.softcap));
      return takes_field(s, "cap") ? with(line, "cap", number(std::exp2(d.uniform(-12, 5)))) : line;
    case 1:
      if (!takes_field(s, "scale")) return line;
      return with(line, "scale",
                  times(s.softmax_scale > 0 ? s.softmax_scale : 1 / std::sqrt(double{1} * s.head_dim_qk)));
    case 2:
    case 3:
      return with(line, "batch", other_batch(d, s));
    case 4:
      return with(line, "h", draw_value(d, field_named("h"), so));
    case 5:
      return with(line, "d", draw_value(d, field_named("d"), so));
    case 6:
      return with(line, "input", draw_value(d, field_named("input"), so));
    default: {
      std::vector<const Field*> all;
      for (const Field& field : fields().subspan(1))
        if ((field.ops & op_bit(s.op)) != 0 && field.name != "batch" && field.name != "seed")
          all.push_back(&field);
      const Field& field = *d.one_of(std::span<const Field* const>(all));
      if (!field.is_default(s) && d.chance(0.5)) return with(line, std::string(field.name), "");
      return with(line, std::string(field.name), draw_value(d, field, so));
    }
  }
}

// Numbers of tokens at which the kernel does something else: tiles, parts, windows of promotion, items.
std::vector<int64_t> units_of(const assay_arithmetic& a) {
  const int64_t tile = std::max(1, a.tile_keys);
  std::vector<int64_t> units{tile};
  if (a.splits > 1) units.push_back(tile * a.splits);
  if (a.split_keys > 0) units.push_back(a.split_keys);
  if (a.promote_every > 1) units.push_back(tile * a.promote_every);
  if (a.share_tiles > 0) units.push_back(tile * a.share_tiles);
  if (a.row_sum_chain > 0) units.push_back(a.row_sum_chain);
  if (a.pv.block > 1) units.push_back(a.pv.block);
  return units;
}

int64_t at_a_corner(Draws& d, const std::vector<int64_t>& units) {
  const int64_t unit = d.one_of(std::span(units));
  const int64_t most = std::max<int64_t>(1, kMostKeys / unit);
  return std::max<int64_t>(
      0, unit * d.log_uniform(1, std::min<int64_t>(most, 40)) + d.one_of<int64_t>({-1, 0, 0, 1, 1}));
}

std::string corner_batch(Draws& d, const Op& op, const assay_arithmetic& a, int32_t group) {
  const std::vector<int64_t> units = units_of(a);
  std::string text;
  // As many rows as show what they have in common: of one key, or of one beyond a tile.
  if (d.chance(0.15))
    return fmt::format("{}q1s{}", d.log_uniform(16, 300),
                       d.chance(0.8) ? 1 : std::max<int64_t>(1, at_a_corner(d, units)));
  const int64_t groups = d.log_uniform(1, 3);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t keys = std::max<int64_t>(1, at_a_corner(d, units));
    int64_t rows = d.chance(0.4) ? 1 : d.log_uniform(1, 12);
    if (a.item_rows > 0 && d.chance(0.5))
      rows = std::max<int64_t>(1, a.item_rows * d.log_uniform(1, 3) / group + d.one_of<int64_t>({-1, 0, 1}));
    if (op.rows == RowRule::kOneAtMost) rows = 1;
    text += fmt::format("{}{}q{}s{}", g > 0 ? "_" : "", d.log_uniform(1, 3), rows,
                        op.rows == RowRule::kWithinCache ? std::max(keys, rows) : keys);
  }
  return text;
}

// Half a step of the grid of P below 1, in powers of two.
double step_of_p(const assay_arithmetic& a) {
  if (a.p_format == ASSAY_INT8) return -8;
  if (a.p_format == ASSAY_FORMAT_NONE || a.p_format == ASSAY_FP32) return -24;
  return -1 - format_info(a.p_format).mantissa_bits;
}

// Fields that bring masks to ends of tiles and scores to the size of a step of P, of the lag, of the maximum.
std::string corner_fields(Draws& d, const assay_arithmetic& a, int32_t dim) {
  const std::vector<int64_t> units = units_of(a);
  std::string text;
  const auto add = [&](const char* field, const std::string& value) {
    text += fmt::format(" {}={}", field, value);
  };
  if (d.chance(a.item_rows > 0 ? 0.4 : 0.1))
    add("mask", "tree");
  else if (d.chance(0.2))
    add("mask", "full");
  else if (d.chance(0.15))
    add("chunk", fmt::format("{}", std::max<int64_t>(1, at_a_corner(d, units))));
  if (d.chance(0.2)) add("window", fmt::format("{}", at_a_corner(d, units)));
  if (d.chance(0.35)) add("sinks", "on");
  if (d.chance(0.1)) add("alibi", d.one_of({"linear", "sqrt"}));
  // Logits of standard deviation 2^spread, by the scale or by the cap.
  double spread = 0;
  if (d.chance(0.4))
    spread = step_of_p(a) + d.uniform(-3, 4);
  else if (a.rescale_lag_log2 > 0 && d.chance(0.7))
    spread = std::log2(a.rescale_lag_log2) + d.uniform(-3, 1);
  else if (d.chance(0.3))
    spread = d.uniform(-3, 5);
  if (spread != 0 && d.chance(0.3))
    add("cap", number(std::clamp(std::exp2(spread), 1e-6, 1e6)));
  else if (spread != 0)
    add("scale", number(std::exp2(spread) / std::sqrt(static_cast<double>(dim))));
  if (d.chance(0.5))
    add("input", d.one_of({"narrow", "narrow", "ascending", "peaked", "outlier", "boundary", "steep",
                           "negative", "patterned", "cancelling", "codes", "exact", "incidence"}));
  return text;
}

}  // namespace

std::optional<Line> neighbour(Draws& d, const Scenario& s, double largest) {
  for (int i = 0; i < kTries; ++i) {
    Scenario now = s;
    const int64_t changes = d.below(4);
    for (int64_t n = 0; n < changes; ++n)
      if (auto other = parsed(change(d, now, print(now)))) now = std::move(*other);
    auto other = parsed(with(print(now), "seed", fmt::format("{}", d.below(100000))));
    if (!other) continue;
    if (auto line = affordable(std::move(*other), largest)) return line;
  }
  return std::nullopt;
}

std::optional<Line> corner_line(Draws& d, const Op& op, const Declares& declares, double largest) {
  for (int i = 0; i < kTries; ++i) {
    const LineSoFar so{op, 64};
    std::string line = fmt::format("{} h={} d={}", op.name, draw_value(d, field_named("h"), so),
                                   draw_value(d, field_named("d"), so));
    for (const char* field : {"q", "kv", "out"})
      if (d.chance(0.4)) line += fmt::format(" {}={}", field, draw_value(d, field_named(field), so));
    // A scale of each token, which may have to stand in P.
    if (d.chance(0.15))
      line = with(line, "kv",
                  d.one_of({"int8", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz"}) +
                      std::string(":token_head"));
    const auto plain = parsed(line + " batch=1q1s64");
    if (!plain) continue;
    assay_arithmetic a;
    try {
      a = declares(make_problem(*plain));
    } catch (const InputError&) {
      continue;
    }
    line += corner_fields(d, a, plain->head_dim_qk);
    line += " batch=" + corner_batch(d, op, a, plain->heads_q / plain->heads_kv);
    const auto whole = parsed(line + fmt::format(" seed={}", d.below(100000)));
    if (!whole) continue;
    // One that has to be halved is at no corner any more.
    if (auto found = affordable(*whole, largest); found && found->scenario == *whole) return found;
  }
  return std::nullopt;
}

}  // namespace assay::campaign
