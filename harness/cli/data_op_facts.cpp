// SPDX-License-Identifier: Apache-2.0
// See facts.hpp: kernels that attend no rows. Their ops share few fields, so what is asked is what the
// language has for the op: a case that cannot be built is no fact.
#include <array>

#include "harness/base/error.hpp"
#include "harness/cli/facts.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/scenario/re_aim.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

// From the plainest on; a kernel may be made for one of them.
constexpr std::array kPlain = {"h=4/2 d=64", "h=4/2 d=128", "h=4 d=64", "h=4/1 d=576/512 layout=mla", "h=4"};
constexpr std::array kDataOpFormats = {"", " kv=fp8_e4m3", " kv=int8", " kv=int8:token_head"};
constexpr std::array kBatches = {"2q5s40_1q9s77", "2q5_1q9", "1q40s40_2q9s9", "2q1s40_1q1s9"};
constexpr std::array kWithoutRows = {"2q5s40_1q0s9", "2q5_1q0", "1q40s40_1q0s0", "2q1s40_1q0s9"};

class DataOpTrials {
 public:
  DataOpTrials(Dispatcher& dispatcher, const KernelInfo& kernel, const std::string& fields,
               const std::atomic<bool>& stop)
      : dispatcher_(dispatcher), kernel_(kernel), stop_(stop), op_(name_of(op_names(), kernel.op)) {
    if (!fields.empty()) aim_ = ReAim(fields);
  }

  FactSheet gather() {
    sheet_.kernel = kernel_.name, sheet_.op = op_;
    sheet_.declared = contracts_text(kernel_.contracts);
    sheet_.contracts = kernel_.contracts;
    const FactTrial plain = plainest();
    sheet_.shape = plain_;
    add("right", word_of(plain), {plain});
    sheet_.right = plain.passed();
    if (!sheet_.right) return std::move(sheet_);
    add("repeatable to the bit", plain.repeatable.empty() ? "not found out" : plain.repeatable, {plain});
    one("rows of padding behind the last", base(" pad=3"));
    one("a request of no rows", line(plain_, kWithoutRows[batch_]));
    graphs();
    strides();
    alignment();
    return std::move(sheet_);
  }

 private:
  // "" where the language has no such case.
  std::string line(const std::string& shape, const std::string& batch, const std::string& more = "") {
    const std::string text = fmt::format("{} {}{} batch={} seed=1", op_, shape, more, batch);
    try {
      const std::optional<Scenario> s = aim_(parse_scenario(text));
      if (!s) return "";
      make_problem(*s);  // some batches are refused here alone
      return print(*s);
    } catch (const InputError&) {
      return "";
    }
  }
  std::string base(const std::string& more = "") { return line(plain_, kBatches[batch_], more); }

  // The first case it does not refuse; the last refusal where it takes none.
  FactTrial plainest() {
    FactTrial seen;
    for (const char* shape : kPlain)
      for (const char* format : kDataOpFormats)
        for (size_t batch = 0; batch < kBatches.size(); ++batch) {
          const std::string text = line(std::string(shape) + format, kBatches[batch]);
          if (text.empty() || stop_) continue;
          seen = try_case(dispatcher_, kernel_, text, {kernel_.contracts, 0}, false, stop_);
          plain_ = std::string(shape) + format, batch_ = batch;
          if (!seen.refused()) return seen;
        }
    if (seen.line.empty())
      throw InputError(fmt::format("none of the plain cases of {} goes with {}: {}", op_, kernel_.name,
                                   aim_.first().empty() ? "the language has none" : aim_.first()));
    return seen;
  }
  void add(std::string name, std::string value, std::vector<FactTrial> trials) {
    sheet_.facts.push_back({std::move(name), std::move(value), std::move(trials)});
  }
  void one(const char* name, const std::string& text) {
    if (text.empty()) return;
    const FactTrial t = try_case(dispatcher_, kernel_, text, {kernel_.contracts, 0}, false, stop_);
    add(name, word_of(t), {t});
  }
  void graphs() {
    const FactTrial t =
        try_case(dispatcher_, kernel_, base(), {kernel_.contracts, ASSAY_PROMISE_GRAPH}, true, stop_);
    add("graphs", word_of_graphs(t), {t});
  }
  void strides() {
    std::string taken, others;
    std::vector<FactTrial> seen;
    for (const char* operand : {"q", "kv", "out", "table", "scales"}) {
      const std::string text = base(fmt::format(" strides={}", operand));
      if (text.empty()) continue;
      seen.push_back(try_case(dispatcher_, kernel_, text, {kernel_.contracts, 0}, false, stop_));
      if (seen.back().passed())
        taken += (taken.empty() ? "" : " ") + std::string(operand);
      else
        others += fmt::format("; {}: {}", operand, word_of(seen.back()));
    }
    if (!seen.empty()) add("strides", (taken.empty() ? "none" : taken) + others, std::move(seen));
  }
  void alignment() { add("alignment", word_of_alignment(dispatcher_, base(), kernel_.name), {}); }

  Dispatcher& dispatcher_;
  const KernelInfo& kernel_;
  const std::atomic<bool>& stop_;
  std::string op_, plain_;
  size_t batch_ = 0;
  ReAim aim_;
  FactSheet sheet_;
};

}  // namespace

FactSheet gather_data_op_facts(Dispatcher& dispatcher, const KernelInfo& kernel, const std::string& fields,
                               const std::atomic<bool>& stop) {
  return DataOpTrials(dispatcher, kernel, fields, stop).gather();
}

}  // namespace assay
