// SPDX-License-Identifier: Apache-2.0
// See facts.hpp.
#include "harness/cli/facts.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "harness/base/error.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/re_aim.hpp"

namespace assay {
namespace {

constexpr uint32_t kFinite = ASSAY_CONTRACT_FINITE_UNUSED;

class Trials {
 public:
  Trials(Dispatcher& dispatcher, const KernelInfo& kernel, const std::string& fields,
         const std::atomic<bool>& stop)
      : dispatcher_(dispatcher), kernel_(kernel), stop_(stop), op_(name_of(op_names(), kernel.op)) {
    if (!fields.empty()) aim_ = ReAim(fields);
    const KernelAnswers answers = ask_kernel(dispatcher, op_, kernel.name);
    shape_ = answers.shape, taken_ = answers.takes_it, answers_ = answers;
  }

  FactSheet gather() {
    sheet_.kernel = kernel_.name, sheet_.op = op_;
    sheet_.shape = shape_text(shape_);
    sheet_.declared = contracts_text(kernel_.contracts);
    shapes();
    // Some ops take one row of a request, and so do some kernels.
    mixed_ = buildable(fmt::format("{} {} batch=1q3s40", op_, shape_text(shape_))) &&
             !run(line("2q1s33_1q3s40_1q1s7"), kernel_.contracts).refused();
    sheet_.right = op_of(kernel_.op).whole_context ? lse() : right();
    if (!sheet_.right) return std::move(sheet_);
    unused_memory();
    rows_and_requests();
    repeatable();
    batch_invariant();
    graphs();
    strides();
    alignment();
    sheet_.contracts = contracts_;
    return std::move(sheet_);
  }

 private:
  // A line of the kernel's shape; `more` are further fields.
  std::string line(const std::string& batch, const std::string& more = "") {
    std::string text = fmt::format("{} {}{}{} batch={} seed=1", op_, shape_text(shape_),
                                   more.empty() ? "" : " ", more, batch);
    const std::optional<Scenario> s = aim_(parse_scenario(text));
    if (!s) throw InputError(fmt::format("--set leaves no case of {}: {}", kernel_.name, aim_.first()));
    return print(*s);
  }
  std::string base(const std::string& more = "") {
    return line(mixed_ ? "2q1s33_1q3s40_1q1s7" : "2q1s33_1q1s7", more);
  }

  FactTrial run(const std::string& text, uint32_t contracts, uint32_t promises = 0, bool graphs = false) {
    return try_case(dispatcher_, kernel_, text, {contracts, promises}, graphs, stop_);
  }
  void add(std::string name, std::string value, std::vector<FactTrial> trials) {
    sheet_.facts.push_back({std::move(name), std::move(value), std::move(trials)});
  }

  void shapes() {
    std::string value = taken_ ? "" : "none of those asked";
    for (const auto& [field, values] : answers_.axes)
      value += fmt::format("{}{}: {}", value.empty() ? "" : "; ", field, values);
    add("shapes", value, {});
    const std::vector<Probe> probes = support_probes(op_, shape_);
    std::string formats;
    for (size_t i = 0; i < probes.size(); ++i) {
      const std::string& f = probes[i].feature;
      const bool format = f == "plain bf16" || f == "fp16" || f == "fp32" || f.starts_with("kv ") ||
                          f.starts_with("q, kv") || f == "output fp32";
      if (format && answers_.features[i].status == ASSAY_OK) formats += (formats.empty() ? "" : ", ") + f;
    }
    add("formats", formats.empty() ? "none of those asked" : formats, {});
  }

  // Which LSE it writes; unused memory is finite here, whatever the kernel needs of it.
  bool lse() {
    const std::string text = base();
    const uint32_t others =
        kernel_.contracts & (ASSAY_CONTRACT_NO_EMPTY_REQUESTS | ASSAY_CONTRACT_ROWS_BEHIND_LOST);
    std::vector<FactTrial> seen;
    for (const uint32_t unit : {0u, uint32_t{ASSAY_CONTRACT_LSE_BASE_2}}) {
      const FactTrial rows = run(text, others | kFinite | unit);
      const FactTrial heads = run(text, others | kFinite | unit | ASSAY_CONTRACT_LSE_HEADS_FIRST);
      seen.push_back(rows), seen.push_back(heads);
      if (!rows.passed() && !heads.passed()) continue;
      contracts_ = others | unit | (rows.passed() ? 0u : uint32_t{ASSAY_CONTRACT_LSE_HEADS_FIRST});
      const char* layout = rows.passed() && heads.passed() ? "laid out by its strides"
                           : rows.passed()                 ? "dense, rows first"
                                                           : "dense, heads first";
      add("lse", fmt::format("{}, {}", unit == 0 ? "natural" : "base 2", layout), {rows, heads});
      return true;
    }
    const FactTrial none = run(text, others | kFinite | ASSAY_CONTRACT_NO_LSE);
    if (none.passed()) {
      contracts_ = others | ASSAY_CONTRACT_NO_LSE;
      seen.erase(seen.begin() + 1, seen.end());
      seen.push_back(none);
      add("lse", "absent", std::move(seen));
      return true;
    }
    add("lse", "none of natural, base 2, absent: it is not right under any of them", std::move(seen));
    return false;
  }

  // Of ops whose kernels cannot declare another LSE: steps, parts of requests.
  bool right() {
    contracts_ = kernel_.contracts & ~kFinite;
    const FactTrial t = run(base(), contracts_ | kFinite);
    add("right where unused memory is finite", word_of(t), {t});
    return t.passed();
  }

  void unused_memory() {
    const std::string text = op_of(kernel_.op).has_cache ? base() : base("strides=kv");
    const FactTrial nan = run(text, contracts_);
    const FactTrial finite = run(text, contracts_ | kFinite);
    if (!nan.passed() && finite.passed()) contracts_ |= kFinite;
    add("unused K and V",
        nan.refused()     ? "refused with gaps"
        : nan.passed()    ? "may hold NaN"
        : finite.passed() ? "must be finite"
                          : "matters",
        {nan, finite});
  }

  void rows_and_requests() {
    const std::string rows = mixed_ ? "2" : "1", rest = fmt::format("_1q{}s33", rows);
    // Of a step every row is a key, too: whether there is such a case is asked of the language.
    const auto one = [&](const char* name, const std::string& batch) {
      if (!buildable(fmt::format("{} {} batch={}", op_, shape_text(shape_), batch)))
        return FactTrial{"", {}, false, "passed", "", "", "", ""};
      const FactTrial t = run(line(batch), contracts_ & ~uint32_t{ASSAY_CONTRACT_NO_EMPTY_REQUESTS});
      add(name, word_of(t), {t});
      return t;
    };
    bool fine = one("request of no rows and no keys", "1q0s0" + rest).passed();
    fine = one("request of no rows", "1q0s9" + rest).passed() && fine;
    fine = one("request without keys", fmt::format("1q{}s0", rows) + rest).passed() && fine;
    fine = one("nothing but requests without keys", fmt::format("2q{}s0", rows)).passed() && fine;
    if (!fine) contracts_ |= ASSAY_CONTRACT_NO_EMPTY_REQUESTS;
    if (mixed_) one("rows that see no key", "1q9s5_1q2s33");
  }

  void repeatable() {
    const FactTrial a = run(base(), contracts_), b = run(line("1q1s3000"), contracts_);
    const auto both = [&](const char* word) { return a.repeatable == word && b.repeatable == word; };
    add("repeatable to the bit",
        both("yes")                                    ? "yes"
        : a.repeatable == "no" || b.repeatable == "no" ? "no"
                                                       : "not found out",
        {a, b});
  }

  void batch_invariant() {
    if (!takes(op_of(kernel_.op), "relate")) return;
    const FactTrial t = run(base("relate=order+alone"), contracts_);
    add("batch invariant", t.batch_invariant.empty() ? "not found out" : t.batch_invariant, {t});
  }

  void graphs() {
    const FactTrial t = run(base(), contracts_, ASSAY_PROMISE_GRAPH, true);
    add("graphs", word_of_graphs(t), {t});
  }

  void strides() {
    std::string taken, refused, wrong;
    std::vector<FactTrial> seen;
    for (const char* operand : {"q", "kv", "out", "table"}) {
      if (!buildable(fmt::format("{} {} strides={} batch=1q1s9", op_, shape_text(shape_), operand))) continue;
      const FactTrial t = run(base(fmt::format("strides={}", operand)), contracts_);
      std::string& list = t.passed() ? taken : t.refused() ? refused : wrong;
      list += (list.empty() ? "" : " ") + std::string(operand);
      seen.push_back(t);
    }
    std::string value = taken.empty() ? "none" : taken;
    if (!refused.empty()) value += "; refused: " + refused;
    if (!wrong.empty()) value += "; wrong and not refused: " + wrong;
    add("strides", value, std::move(seen));
  }

  void alignment() { add("alignment", word_of_alignment(dispatcher_, base(), kernel_.name), {}); }

  Dispatcher& dispatcher_;
  const KernelInfo& kernel_;
  const std::atomic<bool>& stop_;
  std::string op_;
  ReAim aim_;
  KernelAnswers answers_;
  Shape shape_;
  bool taken_ = false, mixed_ = true;
  uint32_t contracts_ = 0;
  FactSheet sheet_;
};

}  // namespace

FactTrial try_case(Dispatcher& dispatcher, const KernelInfo& kernel, const std::string& line,
                   const Assumed& assumed, bool graphs, const std::atomic<bool>& stop) {
  FactTrial trial{line, assumed, graphs, "not run", "", "", "", ""};
  const CaseRequest request{line, "", {{kernel.name, {}}}, assumed, graphs};
  dispatcher.run(
      request,
      [&](const Row& row, const Samples&) {
        trial.outcome = row.outcome, trial.check = row.check, trial.reason = row.reason;
        trial.repeatable = row.repeatable, trial.batch_invariant = row.batch_invariant;
      },
      [](const std::string&, const std::string&) {}, stop);
  return trial;
}

FactSheet gather_facts(Dispatcher& dispatcher, const KernelInfo& kernel, const std::string& fields,
                       const std::atomic<bool>& stop) {
  return Trials(dispatcher, kernel, fields, stop).gather();
}

std::string word_of(const FactTrial& t) { return t.passed() ? "right" : t.refused() ? "refused" : t.outcome; }

std::string word_of_graphs(const FactTrial& t) {
  if (t.refused() && t.reason.find("missing capture and replay") != std::string::npos)
    return "the backend has none";
  return t.passed() ? "safe to replay at other lengths" : "not safe: " + word_of(t);
}

// Nothing is run: supports() says so of addresses it is shown.
std::string word_of_alignment(Dispatcher& dispatcher, const std::string& line, const std::string& kernel) {
  int32_t least = 0;
  for (const int32_t bytes : {128, 64, 32, 16, 8, 4, 2}) {
    if (!dispatcher.supports_aligned(line, kernel, bytes)) break;
    least = bytes;
  }
  return least == 0 ? "supports() refuses operands aligned to 128 bytes and no more"
                    : fmt::format("supports() takes operands aligned to {} bytes", least);
}

nlohmann::json facts_json(const FactSheet& sheet) {
  nlohmann::json facts = nlohmann::json::array();
  for (const Fact& fact : sheet.facts) {
    nlohmann::json trials = nlohmann::json::array();
    for (const FactTrial& t : fact.trials)
      trials.push_back({{"scenario", t.line},
                        {"contract", contracts_text(t.assumed.contracts)},
                        {"graphs", t.graphs},
                        {"outcome", t.outcome},
                        {"check", t.check},
                        {"reason", t.reason}});
    facts.push_back({{"fact", fact.name}, {"value", fact.value}, {"tried", std::move(trials)}});
  }
  return {{"kernel", sheet.kernel},     {"op", sheet.op},       {"shape", sheet.shape},
          {"declared", sheet.declared}, {"right", sheet.right}, {"contract", contracts_text(sheet.contracts)},
          {"facts", std::move(facts)}};
}

}  // namespace assay
