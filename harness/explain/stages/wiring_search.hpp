// SPDX-License-Identifier: Apache-2.0
// The search for repairs (wiring.hpp): order and scalars in wiring.cpp, lists in wiring_lists.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/explain/child.hpp"
#include "harness/explain/stages/wiring.hpp"
#include "harness/ops/op.hpp"

namespace assay {

// Changes one run of a place; false: it changes nothing.
using Repair = std::function<bool(const StageRun&, assay_problem&, assay_tensors&)>;

// Of the wall: what loops is ended by its processor time, but what reads or writes out of range may as well
// wait for ever. A try takes milliseconds.
inline constexpr double kSecondsOfTry = 6;

// Devices' drivers do not survive a fork.
inline bool in_host_memory(const Backend& backend) {
  const std::string name = backend.name();
  return name.find("cuda") == std::string::npos && name.find("hip") == std::string::npos;
}

class Wiring {
 public:
  Wiring(StepApart& apart, StepEnd& end, const assay_kernel& kernel, const StepEnd::Look& nothing)
      : apart_(apart), end_(end), kernel_(kernel), nothing_(nothing), runs_(apart.runs()) {
    const Inputs& in = end.inputs();
    for (const Request& r : in.problem.requests) q_.push_back(r.q_len), kv_.push_back(r.kv_len);
  }
  ~Wiring() {
    char why[200];
    for (void* memory : memory_) apart_.backend().table()->release(memory, why, sizeof why);
  }
  Wiring(const Wiring&) = delete;
  Wiring& operator=(const Wiring&) = delete;

  std::vector<WiringCause> all() {
    missing();
    if (found_.empty()) order();
    if (found_.empty()) {
      std::set<std::string> done;
      for (const StageRun& run : runs_)
        if (done.insert(run.place).second) scalars_of(run);
      const bool found = std::any_of(found_.begin(), found_.end(),
                                     [](const WiringCause& w) { return w.ranked.explained == 1; });
      done.clear();
      for (const StageRun& run : runs_)
        if (!found && done.insert(run.place).second) operands_of(run);
    }
    std::stable_sort(found_.begin(), found_.end(), [](const WiringCause& a, const WiringCause& b) {
      return a.ranked.explained > b.ranked.explained;
    });
    return std::move(found_);
  }

 private:
  const assay_problem& step() const { return *end_.inputs().view->get(); }
  const assay_tensors& own() const { return *end_.tensors(); }

  // The places that a run should have, in order, as the kernel says.
  std::vector<std::string> dispatched() const;
  void missing();
  static bool writes(const StageRun& run, int operand);
  static bool overlaps(const Bytes& a, const assay_tensor& t);
  static bool overlaps(const Bytes& a, const Bytes& b);
  // A stage that runs behind one that reads what it writes: moved before that one.
  void order();
  // The end after `work`, from what stood there before the step; nothing where it changes nothing, or what a
  // stage then reads contradicts the rest. In a process of its own where memory is the host's: a stage may
  // follow what it is given anywhere.
  template <class Work>
  std::optional<StepEnd::Look> tried(const Work& work) {
    std::optional<StepEnd::Look> seen;
    const auto direct = [&]() -> std::optional<StepEnd::Look> {
      try {
        end_.clear();
        if (!work()) return {};
        return end_.look();
      } catch (const std::exception&) {
        return {};
      }
    };
    if (!in_host_memory(apart_.backend())) return direct();
    run_in_child(
        [&](const Report& report) {
          limit_processor_time();
          if (const std::optional<StepEnd::Look> l = direct(); l)
            report({{"o", l->bad_o}, {"cache", l->bad_cache}, {"checked", l->checked}, {"right", l->right}});
        },
        [&](const nlohmann::json& j) {
          seen.emplace();
          seen->bad_o = j["o"], seen->bad_cache = j["cache"], seen->checked = j["checked"];
          seen->right = j["right"];
        },
        kSecondsOfTry);
    return seen;
  }
  void attempt(const StageRun& of, const std::string& cause, const std::string& how, const Repair& repair);
  template <class Value>
  void scalar(const StageRun& of, const char* cause, const char* name, Value assay_problem::*field,
              Value right) {
    const Value given = of.problem.*field;
    if (given == right) return;
    attempt(of, cause, fmt::format("given {} {}; with {}", name, given, right),
            [=](const StageRun&, assay_problem& p, assay_tensors&) {
              p.*field = right;
              return true;
            });
  }
  void scalars_of(const StageRun& of);
  void operands_of(const StageRun& of);
  // Of this process, by what one run may take; a stage that is led astray may never end.
  static void limit_processor_time();
  void sinks(const StageRun& of);
  void kinds(const StageRun& of);
  static bool alike(const assay_tensor& a, const assay_tensor& b);
  void operand(const StageRun& of, Operand o, const Op& op);
  static const char* name_of_other(Operand o);
  // A stride of 0 reads one entry for all.
  void strides(const StageRun& of, Operand o);
  // Partial results as earlier stages left them, in another order.
  void states(const StageRun& of, Operand o);

  // Of int32 lists and tables.
  static std::vector<int32_t> numbers(const Bytes& bytes, const assay_tensor& t);
  assay_tensor on_device(const assay_tensor& like, const std::vector<int32_t>& list);
  bool sane(Operand o, const std::vector<int32_t>& list, const StageRun& of) const;
  void put(const StageRun& of, Operand o, const std::string& cause, const std::string& how,
           const std::function<std::vector<int32_t>(const StageRun&, const std::vector<int32_t>&)>& rule);
  static std::string name_of(Operand o);
  void lists(const StageRun& of, Operand o);
  int64_t count_of(const std::string& place) const;
  int64_t ordinal_of(const StageRun& run) const;
  static bool alike_but_rows(const assay_tensor& a, const assay_tensor& b);
  static bool arange(const std::vector<int32_t>& list);
  static std::string name_of_table(const std::vector<int32_t>& given, const std::vector<int32_t>& right,
                                   const assay_tensor& t, const std::string& otherwise);
  std::vector<int32_t> contents(const assay_tensor& t, const StageRun* maker, int operand) const;
  void derived_lengths(const StageRun& of, Operand o, const std::vector<int32_t>& rows, int32_t page);

  StepApart& apart_;
  StepEnd& end_;
  const assay_kernel& kernel_;
  const StepEnd::Look& nothing_;
  const std::vector<StageRun>& runs_;
  std::vector<int32_t> q_, kv_;
  std::vector<WiringCause> found_;
  std::vector<void*> memory_;
  std::map<std::string, std::set<std::vector<int32_t>>> tried_;
};

}  // namespace assay
