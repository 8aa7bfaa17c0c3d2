// SPDX-License-Identifier: Apache-2.0
// cover=t of a suite line: turns the rules and the line's except() into constraints over its axes and
// asks covering_array(). Every combination of values a constraint looks at is judged once.
#include <algorithm>
#include <memory>
#include <unordered_map>

#include "harness/cover/cover.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/extent.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/suite_line.hpp"

namespace assay {
namespace {

constexpr int64_t kMaxCoverLevels = 4096;
// Constraints with at most this many combinations are judged completely before the search, so that
// those which forbid nothing can be dropped.
constexpr int64_t kMaxJudgedUpFront = 50000;

}  // namespace

class CoverLine {
 public:
  explicit CoverLine(const LineCases& line) : line_(line) {}

  std::vector<std::vector<int>> rows() {
    CoverProblem problem;
    problem.strength = line_.strength_;
    for (const int64_t size : line_.axes_.size) {
      if (size > kMaxCoverLevels)
        throw TextError(
            line_.cover_offset_,
            fmt::format("cover= takes axes of at most {} values, one here has {}", kMaxCoverLevels, size));
      problem.levels.push_back(static_cast<int>(size));
    }
    for (const Rule& rule : rules()) {
      if (rule.name == "size" && never_too_large()) continue;
      add(problem, rule.fields, [&rule](const Scenario& s) { return rule.holds(s); });
    }
    for (const Exception& exception : line_.exceptions_) {
      std::vector<std::string_view> names;
      for (const Exception::Condition& c : exception.conditions) names.push_back(fields()[c.field].name);
      add(problem, names, [&exception](const Scenario& s) { return !exception.matches(s); });
    }
    try {
      return covering_array(problem);
    } catch (const CheckError&) {
      if (some_case_is_valid()) throw;
      throw TextError(line_.cover_offset_,
                      "every combination of this line breaks a rule or an except(); change its axes");
    }
  }

 private:
  using Predicate = std::function<bool(const Scenario&)>;

  // Answers of one constraint, by the mixed-radix number of its axes' values.
  struct Judge {
    const LineCases* line;
    std::vector<int> axes;
    std::vector<const LineWord*> words;  // those that depend on the axes
    Predicate holds;
    std::unordered_map<uint64_t, bool> known;

    bool allowed(std::span<const int> assignment) {
      uint64_t key = 0;
      for (const int axis : axes)
        key = key * static_cast<uint64_t>(line->axes_.size[axis]) + static_cast<uint64_t>(assignment[axis]);
      const auto [entry, fresh] = known.try_emplace(key, false);
      if (fresh) {
        std::vector<int64_t> index(line->axes_.size.size(), 0);
        for (const int axis : axes) index[axis] = assignment[axis];
        Scenario scenario = line->raw_;
        for (const LineWord* word : words) line->set_word(*word, index, scenario);
        entry->second = holds(line->resolved(scenario));
      }
      return entry->second;
    }
  };

  void add(CoverProblem& problem, const std::vector<std::string_view>& names, Predicate holds) {
    const std::set<int> axes = line_.axes_of(names);
    if (axes.empty()) return;  // a constant rule, checked; a constant except() leaves out all or nothing
    auto judge = std::make_shared<Judge>();
    judge->line = &line_;
    judge->axes.assign(axes.begin(), axes.end());
    judge->holds = std::move(holds);
    for (const LineWord& word : line_.words_)
      if (std::any_of(axes.begin(), axes.end(), [&](int axis) { return word.uses(axis); }))
        judge->words.push_back(&word);
    if (!forbids_something(*judge)) return;
    problem.constraints.push_back(
        {judge->axes, [judge](std::span<const int> assignment) { return judge->allowed(assignment); }});
  }

  bool forbids_something(Judge& judge) const {
    double combinations = 1;
    for (const int axis : judge.axes) combinations *= static_cast<double>(line_.axes_.size[axis]);
    if (combinations > static_cast<double>(kMaxJudgedUpFront)) return true;
    std::vector<int> assignment(line_.axes_.size.size(), 0);
    while (true) {
      if (!judge.allowed(assignment)) return true;
      size_t i = 0;
      while (i < judge.axes.size() && ++assignment[judge.axes[i]] == line_.axes_.size[judge.axes[i]])
        assignment[judge.axes[i++]] = 0;
      if (i == judge.axes.size()) return false;
    }
  }

  // The size rule ties nearly all axes together, which makes a search slow. The largest value of every
  // axis at once usually fits, and then it forbids nothing.
  bool never_too_large() const {
    Scenario worst = line_.resolved(line_.raw_);
    Extent extent = extent_of(worst.batch);
    int32_t smallest_page = worst.page_size;
    auto larger = [](auto& a, auto b) { a = std::max<std::decay_t<decltype(a)>>(a, b); };
    auto wider = [](Quantization& a, const Quantization& b) {
      if (format_bytes(b.format) > format_bytes(a.format)) a.format = b.format;
      if (b.scale == ASSAY_SCALE_TOKEN_HEAD) a.scale = b.scale;
    };
    auto take = [&](const Scenario& s) {
      larger(worst.heads_q, s.heads_q), larger(worst.heads_kv, s.heads_kv);
      larger(worst.head_dim_qk, s.head_dim_qk), larger(worst.head_dim_v, s.head_dim_v);
      wider(worst.q, s.q), wider(worst.k, s.k), wider(worst.v, s.v);
      if (format_bytes(s.o_format) > format_bytes(worst.o_format)) worst.o_format = s.o_format;
      larger(worst.page_size, s.page_size);
      smallest_page = std::min(smallest_page, s.page_size);
      if (op_of(s.op).has_cache || !op_of(s.op).attends_rows) worst.op = s.op;
      if (format_bytes(s.source_format) > format_bytes(worst.source_format))
        worst.source_format = s.source_format;
      larger(worst.states, s.states), larger(worst.padded_rows, s.padded_rows);
      if (s.part_tokens > 0) worst.part_tokens = std::min(worst.part_tokens, s.part_tokens);
      if (s.table == ASSAY_TABLE_TOKEN || worst.table == ASSAY_TABLE_CSR) worst.table = s.table;
      if (s.mask == ASSAY_MASK_TREE) worst.mask = s.mask;
      const Extent e = extent_of(s.batch);
      larger(extent.requests, e.requests), larger(extent.total_q, e.total_q),
          larger(extent.total_kv, e.total_kv);
      larger(extent.max_kv, e.max_kv), larger(extent.tree_entries, e.tree_entries);
    };
    for (const LineWord& word : line_.words_) {
      if (word.constant()) continue;
      std::vector<int> used;
      for (const Part& part : word.parts)
        if (part.axis >= 0) used.push_back(part.axis);
      std::vector<int64_t> index(line_.axes_.size.size(), 0);
      double combinations = 1;
      for (const int axis : used) combinations *= static_cast<double>(line_.axes_.size[axis]);
      if (combinations > static_cast<double>(kMaxJudgedUpFront)) return false;
      for (size_t i = 0; i < used.size();) {
        Scenario s = line_.raw_;
        line_.set_word(word, index, s);
        take(line_.resolved(s));
        for (i = 0; i < used.size() && ++index[used[i]] == line_.axes_.size[used[i]]; ++i) index[used[i]] = 0;
      }
    }
    const bool large_pages = case_fits(worst, extent);
    worst.page_size = smallest_page;
    return large_pages && case_fits(worst, extent);
  }

  // Whether CheckError meant "no valid row" or a fault of the engine: bounded, on the error path only.
  bool some_case_is_valid() const {
    std::vector<int64_t> index(line_.axes_.size.size(), 0);
    for (int64_t tried = 0; tried < 2000000; ++tried) {
      Scenario s = line_.raw_;
      for (const LineWord& word : line_.words_)
        if (!word.constant()) line_.set_word(word, index, s);
      s = line_.resolved(s);
      const auto excluded = [&s](const Exception& e) { return e.matches(s); };
      if (!broken_rule(s) && std::none_of(line_.exceptions_.begin(), line_.exceptions_.end(), excluded))
        return true;
      size_t a = 0;
      while (a < index.size() && ++index[a] == line_.axes_.size[a]) index[a++] = 0;
      if (a == index.size()) break;
    }
    return false;
  }

  const LineCases& line_;
};

std::vector<std::vector<int>> cover_rows(const LineCases& line) { return CoverLine(line).rows(); }

}  // namespace assay
