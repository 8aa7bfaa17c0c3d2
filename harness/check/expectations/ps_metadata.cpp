// SPDX-License-Identifier: Apache-2.0
// A schedule is judged by what it covers (reference/data_ops/schedule.hpp), so that any way of making one
// passes: all lists are read, and whatever is wrong with them is said of the first entry of work_indptr, the
// one element that all schedules have in common.
#include "harness/check/expectations/lists.hpp"
#include "harness/check/expectations/schedules.hpp"

namespace assay {
namespace {

class ScheduleExpectation final : public ListExpectation {
 public:
  explicit ScheduleExpectation(const Inputs& inputs)
      : ListExpectation(inputs), facts_(read_facts(inputs)), shape_(schedule_shape(inputs.problem)) {}

 private:
  void check_lists(RunOutputs& out) override {
    const Schedule s = read_schedule(inputs_.tensors, [&](Operand operand, int64_t at) {
      return static_cast<int32_t>(out.value(operand, at));
    });
    const auto each = [&](Operand operand, const auto& visit) {
      each_entry(tensor_of(inputs_.tensors, operand), visit);
    };
    if (const auto fault = schedule_fault(facts_.q_len, facts_.kv_len, shape_, s))
      name_ = fmt::format("entry (first {}[{}]{}: {})", fault->list, fault->row,
                          fault->list == "work_info" || fault->list == "reduce_final_map"
                              ? fmt::format("[{}]", fault->column)
                              : "",
                          fault->text);
    for (const Operand operand :
         {Operand::kWorkInfo, Operand::kReduceIndptr, Operand::kReduceFinalMap, Operand::kReducePartialMap})
      each(operand, [&](int64_t at) { out.allow(operand, at); });
    bool wrong = !blameless();
    int32_t index = 0;
    each(Operand::kWorkIndptr, [&](int64_t at) {
      const auto code = static_cast<uint32_t>(s.work_indptr[static_cast<size_t>(index)]);
      out.expect_bits(Operand::kWorkIndptr, at, wrong ? ~code : code, entry_of_list(index));
      wrong = false;
      ++index;
    });
  }

  ListFacts facts_;
  ScheduleShape shape_;
};

}  // namespace

std::unique_ptr<Expectation> expectations::ps_metadata(const Inputs& inputs, double) {
  return std::make_unique<ScheduleExpectation>(inputs);
}

}  // namespace assay
