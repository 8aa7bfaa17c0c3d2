// SPDX-License-Identifier: Apache-2.0
// See draw_line.hpp.
#include "harness/campaign/draw_line.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/campaign/draw_value.hpp"
#include "harness/ops/op.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/fields.hpp"

namespace assay::campaign {
namespace {

constexpr uint64_t kStreamLines = 2001;
// Proposals for one field until its rules hold; passes over all fields, because some need others (an index of
// a window needs the window).
constexpr int kProposals = 3, kPasses = 2;
// Bytes filled, poisoned, compared and snapshotted cost about so many multiply-adds each.
constexpr double kCostOfByte = 4;
constexpr double kLeastCost = 1e4;
// Drawn lines that contradict what is set, before it is said that all do.
constexpr int kContradicted = 3000;
// And of ops that lack a field: the rarest is one in some fifty, so e^-60 is the chance to miss it.
constexpr int kLacking = 3000;
// And of lines that have what is set and cost too much however few their requests are: a latent page of 16
// bits alone is 3e5.
constexpr int kTooDear = 300;

// Values given so far, by index of the field, and the scenario they make.
using Given = std::map<int, std::string>;

std::optional<Scenario> made_of(const Op& op, const Given& given) {
  Scenario s;
  s.op = op.id;
  FieldSet set = field_bit(0);
  try {
    for (const auto& [index, text] : given) {
      fields()[static_cast<size_t>(index)].parse({text, 0}, s);
      set |= field_bit(index);
    }
  } catch (const TextError&) {
    return std::nullopt;
  }
  resolve_defaults(s, set);
  if (broken_rule(s) != nullptr) return std::nullopt;
  return s;
}

void set_where_taken(const Op& op, std::string_view field, const char* text, Given& given) {
  const int index = field_index(field);
  if ((fields()[static_cast<size_t>(index)].ops & op_bit(op.id)) != 0) given[index] = text;
}

const Op& draw_op(Draws& d) {
  // Attention has the masks, biases and aggregates, and most of the kernels.
  std::vector<const Op*> bag;
  for (const Op* op : all_ops()) bag.insert(bag.end(), op->whole_context ? 8 : op->attends_rows ? 3 : 1, op);
  return *d.one_of(std::span<const Op* const>(bag));
}

std::optional<Problem> buildable(const Scenario& s) {
  try {
    return make_problem(s);
  } catch (const InputError&) {
    return std::nullopt;  // what only drawn lengths or numbers show
  }
}

std::optional<Scenario> draw_scenario(Draws& d, int64_t most_keys) {
  const Op& op = draw_op(d);
  Given given;
  LineSoFar line{op, 1};
  std::optional<Scenario> made;
  const auto propose = [&](int index) {
    const Field& field = fields()[static_cast<size_t>(index)];
    for (int i = 0; i < kProposals; ++i) {
      Given more = given;
      more[index] = draw_value(d, field, line);
      // The two parts of a latent row want three other fields at once, which no drawing one by one meets; of
      // unfolded heads they want the dimensions.
      if (field.name == "sources" && op.attends_rows && d.one_of({true, false}))
        more[field_index("d")] = d.one_of({"192/128", "72/64", "24/16"});
      else if (field.name == "sources")
        more[field_index("layout")] = "mla", more[field_index("h")] = "1",
        more[field_index("d")] = d.one_of({"576/512", "72/64", "24/16"});
      // Tokens in another order want a table of tokens, where there is a table.
      if (field.name == "slots" && more[index] == "drawn") set_where_taken(op, "table", "token", more);
      // A mask of drafts fits requests of as many; layers lie in one form of storage; scales are computed of
      // channels.
      if (field.name == "bits") {
        const auto drafts = static_cast<int64_t>((more[index] + "/").find('/'));
        const int64_t keys = drafts + d.log_uniform(1, std::max<int64_t>(1, line.longest)) - 1;
        more[field_index("batch")] =
            fmt::format("{}q{}s{}_1q{}s{}", d.log_uniform(1, 4), drafts, keys, drafts, drafts);
        set_where_taken(op, "mask", "tree", more);
      } else if (field.name == "layers") {
        set_where_taken(op, "storage", "interleaved", more);
        set_where_taken(op, "layout", d.one_of({"nhd", "hnd"}), more);
      } else if (field.name == "scales") {
        set_where_taken(op, "q", d.one_of({"int8:channel", "fp8_e4m3:channel"}), more);
      }
      if (auto scenario = made_of(op, more)) {
        given = std::move(more), made = std::move(scenario);
        return true;
      }
    }
    return false;
  };
  line.longest = d.log_uniform(1, most_keys);
  if (!propose(field_index("batch"))) return std::nullopt;

  std::vector<int> order(fields().size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) {
    const Field& field = fields()[static_cast<size_t>(i)];
    return i == 0 || field.name == "batch" || (field.ops & op_bit(op.id)) == 0;
  });
  // A line of few fields shows what a field does alone, one of many how they meet.
  const double share = d.one_of({0.1, 0.25, 0.5, 0.9});
  for (int pass = 0; pass < kPasses; ++pass) {
    for (size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(d.below(static_cast<int64_t>(i)))]);
    std::vector<int> again;
    for (const int index : order) {
      const std::string_view name = fields()[static_cast<size_t>(index)].name;
      const bool always = name == "h" || name == "d" || name == "seed";
      if ((pass > 0 || always || d.chance(share)) && !propose(index)) again.push_back(index);
    }
    order = std::move(again);
  }
  return made;
}

// About the least a batch can cost, before its pages and trees are drawn, which is what costs time here.
double least_cost(const Scenario& s) {
  const Extent e = extent_of(s.batch);
  const double pages = std::max(double{1} * s.min_blocks, e.total_kv / s.page_size);
  const double rows = s.heads_kv * (s.head_dim_qk + s.head_dim_v);
  const double cached = op_of(s.op).has_cache ? pages * s.page_size * rows : e.total_kv;
  return kCostOfByte * std::max({cached, e.total_q * s.heads_q, e.tree_entries / 4});
}

bool halve_number(int32_t& value, int32_t least) {
  if (value <= least) return false;
  value = std::max(least, value / 2);
  return true;
}

}  // namespace

double cost_of(const Problem& p) {
  double bytes = 0;
  for (const OperandUse& use : op_of(p).operands)
    if (const TensorLayout layout = use.layout(p); layout.rank > 0)
      bytes += static_cast<double>(layout.allocation) * format_bytes(layout.format);
  return multiply_adds(p) + kCostOfByte * bytes;
}

bool halve(BatchSpec& b) {
  if (b.kind != BatchSpec::Kind::kMix) {
    if (halve_number(b.n, 1)) return true;
    const bool some = halve_number(b.q.high, 0) | halve_number(b.s.high, 0);
    b.q.low = std::min(b.q.low, b.q.high), b.s.low = std::min(b.s.low, b.s.high);
    return some;
  }
  const auto size = [](const BatchGroup& g) {
    return double{1} * g.count * (g.q_len + 1.0) * (g.kv_len + 16.0);
  };
  const auto largest =
      std::max_element(b.groups.begin(), b.groups.end(), [&](auto& x, auto& y) { return size(x) < size(y); });
  if (largest == b.groups.end()) return false;
  BatchGroup& g = *largest;
  // Whichever is largest; rows that are all new stay all new.
  if (g.count >= std::max(g.q_len, g.kv_len / 8) && halve_number(g.count, 1)) return true;
  const bool all_new = g.q_len == g.kv_len;
  if (g.q_len > 16 && halve_number(g.q_len, 16)) {
    if (all_new) g.kv_len = g.q_len, g.shared = std::min(g.shared, g.kv_len);
    return true;
  }
  if (g.kv_len > std::max(g.q_len, 1)) {
    halve_number(g.kv_len, std::max(g.q_len, 1));
    g.shared = std::min(g.shared, g.kv_len);
    return true;
  }
  if (halve_number(g.count, 1) || halve_number(g.q_len, 1)) {
    if (all_new) g.kv_len = g.q_len, g.shared = std::min(g.shared, g.kv_len);
    return true;
  }
  return false;
}

std::optional<Line> affordable(Scenario s, double most) {
  for (bool more = true; more; more = halve(s.batch))
    if (least_cost(s) <= most && broken_rule(s) == nullptr)
      if (std::optional<Problem> p = buildable(s); p && cost_of(*p) <= most)
        return Line{std::move(s), std::move(*p)};
  return std::nullopt;
}

// What the case costs with its smallest legal batch; infinite when that cannot be built.
double least_of(Scenario s) {
  BatchSpec smallest = s.batch;
  while (halve(s.batch))
    if (broken_rule(s) == nullptr) smallest = s.batch;
  s.batch = smallest;
  const std::optional<Problem> p = buildable(s);
  return p ? cost_of(*p) : std::numeric_limits<double>::infinity();
}

Line draw_line(uint64_t seed, uint64_t index, double largest, const Corner& corner) {
  Draws d(seed, kStreamLines + index);
  double wanted = std::min(largest, std::exp(d.uniform(std::log(kLeastCost), std::log(largest))));
  ReAim set = corner.set;
  int lacking = 0, dear = 0;
  double least = std::numeric_limits<double>::infinity();  // of those
  const auto too_dear = [&] {
    throw InputError(
        fmt::format("--largest {:g}: of {} lines of a campaign {}none costs so little, the cheapest {:.2g}",
                    largest, dear, set.sets() ? "that have what --set says " : "", least));
  };
  while (true) {
    std::optional<Scenario> s = draw_scenario(d, corner.most_keys);
    if (s && set.sets()) {
      if (const std::string missing = set.lacking(*s); !missing.empty()) {
        if (++lacking > kLacking && dear > 0) too_dear();
        if (lacking > kLacking)
          throw InputError(
              fmt::format("--set: no op of a campaign was drawn that has all of these fields; {} has no {}",
                          op_of(s->op).name, missing));
        continue;
      }
      s = set(*s);
    }
    if (set.contradicted() > kContradicted && dear > 0) too_dear();
    if (set.contradicted() > kContradicted)
      throw InputError("--set: no line of a campaign can have this: " + set.first());
    if (!s) continue;
    if (auto line = affordable(*s, wanted)) return std::move(*line);
    if (wanted == largest) {
      least = std::min(least, least_of(std::move(*s)));
      if (++dear > kTooDear) too_dear();
    }
    wanted = std::min(largest, 2 * wanted);
  }
}

}  // namespace assay::campaign
