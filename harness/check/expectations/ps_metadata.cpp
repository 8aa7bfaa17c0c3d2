// SPDX-License-Identifier: Apache-2.0
// A schedule is judged by what it covers (reference/data_ops/schedule.hpp), so that any way of making one
// passes: all lists are read, and whatever is wrong with them is said of the first entry of work_indptr, the
// one element that all schedules have in common.
#include "harness/check/expectations/lists.hpp"
#include "reference/data_ops/schedule.hpp"

namespace assay {
namespace {

class ScheduleExpectation final : public ListExpectation {
 public:
  explicit ScheduleExpectation(const Inputs& inputs) : ListExpectation(inputs), facts_(read_facts(inputs)) {
    const Problem& p = inputs.problem;
    const int32_t pages = (p.tile_keys + p.page_size - 1) / p.page_size;
    shape_ = {p.heads_kv, p.workers, p.tile_rows, pages * p.page_size};
  }

 private:
  void check_lists(RunOutputs& out) override {
    const Schedule s = read(out);
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

  // Every element of a list or table, row after row.
  template <class Visit>
  void each(Operand operand, const Visit& visit) const {
    const assay_tensor& t = tensor_of(inputs_.tensors, operand);
    for (int64_t i = 0; i < t.shape[0]; ++i)
      for (int64_t j = 0; j < (t.rank > 1 ? t.shape[1] : 1); ++j)
        visit(i * t.stride[0] + (t.rank > 1 ? j * t.stride[1] : 0));
  }
  std::vector<int32_t> list(const RunOutputs& out, Operand operand) const {
    std::vector<int32_t> values;
    each(operand, [&](int64_t at) { values.push_back(static_cast<int32_t>(out.value(operand, at))); });
    return values;
  }
  Schedule read(const RunOutputs& out) const {
    Schedule s{list(out, Operand::kWorkIndptr),
               {},
               list(out, Operand::kReduceIndptr),
               {},
               list(out, Operand::kReducePartialMap)};
    const std::vector<int32_t> work = list(out, Operand::kWorkInfo);
    for (size_t i = 0; i < work.size(); i += kWorkColumns)
      s.work.push_back({work[i], work[i + 1], work[i + 2], work[i + 3], work[i + 4], work[i + 5], work[i + 6],
                        work[i + 7]});
    const std::vector<int32_t> merged = list(out, Operand::kReduceFinalMap);
    for (size_t i = 0; i < merged.size(); i += kMergedColumns)
      s.reduce_final_map.push_back({merged[i], merged[i + 1], merged[i + 2]});
    return s;
  }

  ListFacts facts_;
  ScheduleShape shape_;
};

}  // namespace

std::unique_ptr<Expectation> expectations::ps_metadata(const Inputs& inputs, double) {
  return std::make_unique<ScheduleExpectation>(inputs);
}

}  // namespace assay
