// SPDX-License-Identifier: Apache-2.0
// What the results themselves show, where it is no misreading. See explain_step.hpp.
#include <algorithm>
#include <cmath>

#include "harness/check/verdict.hpp"
#include "harness/explain/causes.hpp"
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
        const bool changed = !(before == after || (std::isnan(before) && std::isnan(after)));
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

std::vector<StepRanked> part_patterns(const StageCase& c, const StageVerdict& nothing) {
  std::vector<StepRanked> list;
  if (c.kernel().op != ASSAY_OP_PAGED) return list;
  Reading r = c.given();
  Problem p = c.problem_of(r);
  const std::vector<int32_t> first = p.cu_q();
  std::vector<RowId> rows;
  for (size_t i = 0; i < p.requests.size(); ++i)
    for (int32_t n = 0; n < p.requests[i].q_len; ++n)
      if (nothing.bad_rows[static_cast<size_t>(first[i] + n)] != 0 && rows.size() < 64)
        rows.push_back({static_cast<int32_t>(i), n});
  if (rows.empty()) return list;
  const assay_tensor& o = r.tensors.o;
  int64_t not_numbers = 0;
  for (const RowId& id : rows) {
    const int64_t row = first[static_cast<size_t>(id.request)] + id.row;
    not_numbers += !std::isfinite(c.written(Operand::kO, row * o.stride[0]));
  }
  if (not_numbers > 0)
    list.push_back({"out_of_order", "rows hold no numbers: what they read was not written yet",
                    0.96 * static_cast<double>(not_numbers) / static_cast<double>(rows.size()), 0, ""});
  const HostOperands host{&r.tensors, r.problem.q_scale_host, r.problem.k_scale_host, r.problem.v_scale_host,
                          r.dense.empty() ? nullptr : &r.dense};
  // Context and new keys, the border between them so many keys on.
  const auto part = [&](bool context, int32_t on) {
    p.only_keys.clear();
    for (const Request& request : p.requests) {
      const int32_t cut = std::clamp(std::max(0, request.context_len()) + on, 0, request.kv_len);
      p.only_keys.push_back(context ? KeyRange{0, cut} : KeyRange{cut, request.kv_len});
    }
    return attention_simple(p, host, rows);
  };
  const AttentionResult a = part(true, 0), b = part(false, 0), a_longer = part(true, 1),
                        a_shorter = part(true, -1), b_longer = part(false, -1), b_shorter = part(false, 1);
  const assay_tensor& slopes = r.tensors.alibi_slopes;
  const auto slope = [&](int32_t head) {
    return p.alibi == ASSAY_ALIBI_LINEAR ? load(slopes.format, slopes.data, head * slopes.stride[0]) : 0.0;
  };
  using Weights = void (*)(double la, double lb, double& wa, double& wb);
  constexpr Weights kRight = [](double la, double lb, double& wa, double& wb) {
    const double top = std::max(la, lb);
    wa = std::exp(la - top), wb = std::exp(lb - top);
  };
  const struct {
    const char *cause, *how;
    Weights weights;
    const AttentionResult *context = nullptr, *fresh = nullptr;  // where they are other keys
    bool from_end = false;  // without what a bias takes off between the context's end and the row
  } ways[] = {
      {"new_keys_missing", "the context alone",
       [](double, double, double& wa, double& wb) { wa = 1, wb = 0; }},
      {"context_missing", "the new keys alone",
       [](double, double, double& wa, double& wb) { wa = 0, wb = 1; }},
      {"merge_unweighted", "the mean of context and new keys",
       [](double, double, double& wa, double& wb) { wa = wb = 1; }},
      {"merge_largest", "context or new keys, whichever has the larger LSE",
       [](double la, double lb, double& wa, double& wb) { wa = la >= lb, wb = la < lb; }},
      {"merge_base2", "weights of base 2 for natural LSE",
       [](double la, double lb, double& wa, double& wb) { wa = 1, wb = std::exp2(lb - la); }},
      {"state_twice", "new keys weighed twice",
       [](double la, double lb, double& wa, double& wb) { wa = 1, wb = 2 * std::exp(lb - la); }},
      {"state_twice", "the weight of the new keys squared",
       [](double la, double lb, double& wa, double& wb) {
         const double top = std::max(la, lb);
         wa = std::exp(la - top), wb = std::exp(2 * (lb - top));
       }},
      {"keys.one_doubled", "the first new key with the context as well", kRight, &a_longer, nullptr},
      {"keys.one_doubled", "the last key of the context with the new ones as well", kRight, nullptr,
       &b_longer},
      {"keys.one_dropped", "the last key of the context in neither part", kRight, &a_shorter, nullptr},
      {"keys.one_dropped", "the first new key in neither part", kRight, nullptr, &b_shorter},
      {"bias_other", "distances within the context counted from its end", kRight, nullptr, nullptr, true},
  };
  for (const auto& way : ways) {
    const AttentionResult &context = way.context != nullptr ? *way.context : a,
                          &fresh = way.fresh != nullptr ? *way.fresh : b;
    int64_t fits = 0;
    for (size_t n = 0; n < rows.size(); ++n) {
      bool fine = true;
      const int64_t row = first[static_cast<size_t>(rows[n].request)] + rows[n].row;
      for (int32_t h = 0; h < p.heads_q && fine; ++h) {
        const double la = context.lse_at(static_cast<int64_t>(n), h) +
                          (way.from_end ? slope(h) * (1 + rows[n].row) : 0),
                     lb = fresh.lse_at(static_cast<int64_t>(n), h);
        double wa = 1, wb = 1;
        if (std::isinf(la))
          wa = 0;
        else if (std::isinf(lb))
          wb = 0;
        else
          way.weights(la, lb, wa, wb);
        if (!(wa + wb > 0)) wa = 1;
        double error = 0, size = 0;
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          const double wanted = (wa * context.o_at(static_cast<int64_t>(n), h, d) +
                                 wb * fresh.o_at(static_cast<int64_t>(n), h, d)) /
                                (wa + wb);
          const double got = c.written(Operand::kO, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]);
          error += (got - wanted) * (got - wanted), size += wanted * wanted;
        }
        // An eighth of what parts of different keys differ by; rounding of 16 bits is a hundredth of it.
        fine = error <= 1e-4 * size + 1e-12;
      }
      fits += fine;
    }
    const double explained = 0.97 * static_cast<double>(fits) / static_cast<double>(rows.size());
    if (explained > 0.3)
      list.push_back({way.cause, way.how, explained, 0, std::string(meaning_of(way.cause))});
  }
  return list;
}

}  // namespace assay
