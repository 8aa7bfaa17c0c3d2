// SPDX-License-Identifier: Apache-2.0
// What the results themselves show, where it is no misreading. See explain_step.hpp.
#include <algorithm>
#include <cmath>

#include "harness/check/verdict.hpp"
#include "harness/explain/causes.hpp"
#include "harness/explain/same_number.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

std::vector<StepRanked> list_patterns(const std::vector<StageCase::Entry>& wrong, const Reading& given) {
  std::vector<StepRanked> list;
  if (wrong.empty()) return list;
  const auto share = [&](const char* cause, const std::string& how, auto fits) {
    const auto count = std::count_if(wrong.begin(), wrong.end(), fits);
    const double explained = static_cast<double>(count) / static_cast<double>(wrong.size());
    if (explained > 0.3) list.push_back({cause, how, 0.98 * explained, 0, ""});
  };
  using Entry = StageCase::Entry;
  const int64_t page = std::max(1, given.problem.page_size);
  const auto off = wrong[0].got - wrong[0].wanted;
  share("list_unwritten", "entries are as they were before", [&](const Entry& e) {
    const assay_tensor& t = tensor_of(given.tensors, e.operand);
    const int64_t at = e.row < 0 ? e.column * t.stride[0] : e.row * t.stride[0] + e.column * t.stride[1];
    return static_cast<const int32_t*>(t.data)[at] == e.got;
  });
  if (off == 1 || off == -1)
    share("list_off_by_one", fmt::format("entries are {:+} off", off),
          [&](const Entry& e) { return e.got - e.wanted == off; });
  share("list_units", "entries count pages for slots, or slots for pages",
        [&](const Entry& e) { return page > 1 && (e.got == e.wanted / page || e.got / page == e.wanted); });
  // All in what belongs to the last request: the last entry of lists and last row of tables.
  int64_t last = -1;
  for (const Entry& e : wrong) last = std::max(last, e.row < 0 ? e.column : e.row);
  const auto requests = static_cast<int64_t>(given.problem.requests);
  if (std::all_of(wrong.begin(), wrong.end(),
                  [&](const Entry& e) { return (e.row < 0 ? e.column : e.row) >= requests - 1; }))
    share("last_request_missing", "only what belongs to the last request is wrong",
          [](const Entry&) { return true; });
  if (wrong.size() > 2 && off != 0)
    share("list_base", fmt::format("entries are {:+} off", off),
          [&](const Entry& e) { return e.got - e.wanted == off; });
  std::vector<int64_t> got, due;
  for (const Entry& e : wrong) got.push_back(e.got), due.push_back(e.wanted);
  std::sort(got.begin(), got.end()), std::sort(due.begin(), due.end());
  if (got == due && wrong.size() > 1)
    list.push_back({"list_order", "the same entries in another order", 0.97, 0, ""});
  return list;
}

std::vector<StepRanked> scale_patterns(const StageCase& c) {
  std::vector<StepRanked> list;
  const Reading& r = c.given();
  if (c.kernel().op != ASSAY_OP_CACHE_WRITE && c.kernel().op != ASSAY_OP_QUANTIZE_INT8) return list;
  const struct {
    Operand o;
    int32_t kind;
  } all[] = {{Operand::kQScale, r.problem.q_scale_kind},
             {Operand::kKScale, r.problem.k_scale_kind},
             {Operand::kVScale, r.problem.v_scale_kind}};
  for (const auto& s : all) {
    const assay_tensor& t = tensor_of(r.tensors, s.o);
    if (s.kind != ASSAY_SCALE_TOKEN_HEAD || t.data == nullptr || t.rank < 2) continue;
    for (int axis = 0; axis < t.rank; ++axis) {
      if (t.shape[axis] < 2) continue;
      int64_t first = 0, others = 0;  // entries that were written
      std::vector<int64_t> index(static_cast<size_t>(t.rank), 0);
      for (bool more = true; more;) {
        int64_t at = 0;
        for (int a = 0; a < t.rank; ++a) at += index[static_cast<size_t>(a)] * t.stride[a];
        const double before = static_cast<const float*>(t.data)[at], after = c.written(s.o, at);
        const bool changed = !same_number(before, after);
        if (changed) ++(index[static_cast<size_t>(axis)] == 0 ? first : others);
        more = false;
        for (int a = t.rank - 1; a >= 0 && !more; --a) {
          if (++index[static_cast<size_t>(a)] < t.shape[a])
            more = true;
          else
            index[static_cast<size_t>(a)] = 0;
        }
      }
      if (first > 0 && others == 0)
        list.push_back(
            {"scale_of_one",
             fmt::format("{}: only the first entry of axis {} is ever written", operand_name(s.o), axis),
             0.98, 0, ""});
    }
  }
  return list;
}

}  // namespace assay
