// SPDX-License-Identifier: Apache-2.0
// Misreadings of values: scales, partial results, rows and slots, sinks, drafts. See misreadings.hpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/explain/stages/misreadings.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

void Misreadings::fitted_sinks() {
  add("empty_as_zero", "a part of zeros joins the sum, of one LSE for all heads",
      [this](Reading& r) { return put_fitted_sinks(r, true); });
  add("sink_extra", "a logit of every head joins the sum",
      [this](Reading& r) { return put_fitted_sinks(r, false); });
}

bool Misreadings::put_fitted_sinks(Reading& r, bool one_for_all) const {
  constexpr double kRight = 0.998;  // share of the keys in the sum from which on a row says nothing
  constexpr float kSameLogit = 0.25f;
  Reading own = r;
  own.problem.has_sinks = 0, own.tensors.sinks = assay_tensor{};
  const Problem p = case_.problem_of(own);
  std::vector<RowId> rows;
  for (size_t i = 0; i < p.requests.size(); ++i)
    if (p.requests[i].q_len > 0 && p.requests[i].kv_len > 0) rows.push_back({static_cast<int32_t>(i), 0});
  if (rows.empty()) return false;
  const HostOperands host{&own.tensors, own.problem.q_scale_host, own.problem.k_scale_host,
                          own.problem.v_scale_host};
  const AttentionResult a = attention_simple(p, host, rows);
  std::vector<float> sinks;
  for (size_t n = 0; n < rows.size() && sinks.empty(); ++n) {
    const int64_t row = p.cu_q()[static_cast<size_t>(rows[n].request)];
    for (int32_t h = 0; h < p.heads_q; ++h) {
      double dot = 0, norm = 0;
      const assay_tensor& o = r.tensors.o;
      for (int32_t d = 0; d < p.head_dim_v; ++d) {
        const double exact = a.o_at(static_cast<int64_t>(n), h, d);
        dot += exact * case_.written(Operand::kO, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]);
        norm += exact * exact;
      }
      double share = norm > 0 ? dot / norm : 1;  // of the keys in the sum
      const double lse = a.lse_at(static_cast<int64_t>(n), h);
      if (r.tensors.lse.data != nullptr)
        share = std::exp(
            lse - case_.written(Operand::kLse, row * r.tensors.lse.stride[0] + h * r.tensors.lse.stride[1]));
      if (!(share > 0 && share < kRight)) break;
      sinks.push_back(static_cast<float>(lse + std::log(1 / share - 1)));
    }
    if (std::ssize(sinks) < p.heads_q) sinks.clear();
  }
  if (sinks.empty()) return false;
  const auto [least, most] = std::minmax_element(sinks.begin(), sinks.end());
  if ((p.heads_q > 1 && *most - *least < kSameLogit) != one_for_all) return false;
  if (one_for_all) {  // parts of an LSE of 0 are a whole number of them
    float weight = 0;
    for (const float x : sinks) weight += std::exp(x) / static_cast<float>(sinks.size());
    const float parts = std::max(1.0f, std::round(weight));
    if (std::fabs(std::log(parts) - std::log(weight)) < kSameLogit) weight = parts;
    std::fill(sinks.begin(), sinks.end(), std::log(weight));
  }
  r.problem.has_sinks = 1;
  r.lists->emplace_back(sinks.size() * sizeof(float));
  std::memcpy(r.lists->back().data(), sinks.data(), sinks.size() * sizeof(float));
  r.tensors.sinks = assay_tensor{r.lists->back().data(), ASSAY_FP32, 1, {p.heads_q}, {1}, ASSAY_ROLE_IN};
  return true;
}

void Misreadings::heads() {
  // One number a head, each that of the head beside it.
  const auto turned = [this](const char* cause, Operand o) {
    if (!has(o) || tensor_of(given_.tensors, o).rank != 1) return;
    for (const int by : {1, -1})
      add(cause, fmt::format("{} of the {} head", operand_name(o), by > 0 ? "next" : "last"),
          [=](Reading& r) {
            const assay_tensor& t = tensor_of(r.tensors, o);
            const int64_t n = t.shape[0];
            if (n < 2 || format_bytes(t.format) != 4) return false;
            reorder(r, o, 0, [=](int64_t h) { return (h + by + n) % n; });
            return true;
          });
  };
  turned("sinks.other_head", Operand::kSinks);
  turned("alibi.other_head", Operand::kAlibiSlopes);
  // Other numbers in place of those of one axis, in all that are named.
  const auto numbers = [this](const char* cause, const std::string& how, std::vector<Operand> of, auto rule) {
    for (const Operand o : of)
      if (!has(o) || tensor_of(given_.tensors, o).rank != 1) return;
    add(cause, how, [=](Reading& r) {
      for (const Operand o : of) {
        reorder(r, o, 0, [](int64_t i) { return i; });
        const assay_tensor& t = tensor_of(r.tensors, o);
        if (format_bytes(t.format) != 4) return false;
        auto* list = static_cast<float*>(t.data);
        for (int64_t i = 0; i < t.shape[0]; ++i) list[i] = rule(list[i]);
      }
      return true;
    });
  };
  numbers("bias_other", "slopes of the other sign", {Operand::kAlibiSlopes}, [](float x) { return -x; });
  for (const float by : {static_cast<float>(M_LOG2E), static_cast<float>(M_LN2)})
    numbers("sinks.unscaled", by > 1 ? "sinks times log2(e)" : "sinks times ln(2)", {Operand::kSinks},
            [=](float x) { return x * by; });
  const struct {
    const char* words;
    std::vector<Operand> of;
  } sides[] = {{"K and V", {Operand::kKScale, Operand::kVScale}},
               {"K", {Operand::kKScale}},
               {"V", {Operand::kVScale}}};
  for (const auto& side : sides) {
    const auto of = [&](const char* how) { return fmt::format("{} of {}", how, side.words); };
    numbers("scale_other", of("one over the scales"), side.of, [](float x) { return 1 / x; });
    numbers("scale_twice", of("the scales"), side.of, [](float x) { return x * x; });
    numbers("scale_other", of("roots of the scales"), side.of, [](float x) { return std::sqrt(x); });
  }
}

void Misreadings::scales() {
  const struct {
    Operand o;
    int32_t assay_problem::*kind;
    float assay_problem::*host;
    const char* of;
  } all[] = {{Operand::kQScale, &assay_problem::q_scale_kind, &assay_problem::q_scale_host, "Q"},
             {Operand::kKScale, &assay_problem::k_scale_kind, &assay_problem::k_scale_host, "K"},
             {Operand::kVScale, &assay_problem::v_scale_kind, &assay_problem::v_scale_host, "V"}};
  for (const auto& s : all) {
    const int32_t kind = p().*s.kind;
    if (kind == ASSAY_SCALE_NONE) continue;
    const std::string name(operand_name(s.o));
    set("scale_missing", fmt::format("codes of {} as they are", s.of), s.kind, int32_t{ASSAY_SCALE_NONE});
    if (kind == ASSAY_SCALE_HOST) {
      const float own = p().*s.host;
      set("scale_twice", fmt::format("{} for {} as the scale of {}", own * own, own, s.of), s.host,
          own * own);
      set("scale_other", fmt::format("one over {} as the scale of {}", own, s.of), s.host, 1 / own);
    }
    if (kind == ASSAY_SCALE_HOST)
      for (const float by : {0.5f, 2.0f, 0.25f, 4.0f})
        set("scale_other", fmt::format("{} for {} as the scale of {}", p().*s.host * by, p().*s.host, s.of),
            s.host, p().*s.host * by);
    for (int axis = 0; axis < 3 && has(s.o); ++axis)
      one_for_all("scale_of_one", fmt::format("{} of the first entry of axis {} for all", name, axis), s.o,
                  axis);
  }
  if (p().k_scale_kind != ASSAY_SCALE_NONE && p().v_scale_kind != ASSAY_SCALE_NONE)
    add("scale_missing", "codes of K and V as they are", [](Reading& r) {
      r.problem.k_scale_kind = r.problem.v_scale_kind = ASSAY_SCALE_NONE;
      return true;
    });
  if (has(Operand::kKScale) && has(Operand::kVScale)) {
    if (p().k_scale_kind == p().v_scale_kind)
      add("scale_other", "the scales of K and V exchanged", [](Reading& r) {
        std::swap(r.tensors.k_scale, r.tensors.v_scale);
        return r.tensors.k_scale.shape[0] == r.tensors.v_scale.shape[0];
      });
    add("scale_of_one", "k_scale and v_scale of the first entry of axis 0 for all", [](Reading& r) {
      r.tensors.k_scale.stride[0] = r.tensors.v_scale.stride[0] = 0;
      return true;
    });
  }
  const auto exchange = [&](Operand to, Operand from, const char* cause, const std::string& how) {
    if (!has(to) || !has(from)) return;
    const assay_tensor &a = tensor_of(given_.tensors, to), &b = tensor_of(given_.tensors, from);
    if (a.rank != b.rank || a.format != b.format || !std::equal(a.shape, a.shape + a.rank, b.shape)) return;
    add(cause, how, [=](Reading& r) {
      tensor_of(r.tensors, to) = tensor_of(r.tensors, from);
      return true;
    });
  };
  exchange(Operand::kKScale, Operand::kVScale, "scale_other", "v_scale for k_scale");
  exchange(Operand::kVScale, Operand::kKScale, "scale_other", "k_scale for v_scale");
  exchange(Operand::kKScale, Operand::kQScale, "scale_other", "q_scale for k_scale");
  exchange(Operand::kQScale, Operand::kKScale, "scale_other", "k_scale for q_scale");
  for (const Operand o : {Operand::kDenseKScale, Operand::kDenseVScale})
    for (int axis = 0; axis < 2; ++axis)
      one_for_all("scale_of_one",
                  fmt::format("{} of the first entry of axis {} for all", operand_name(o), axis), o, axis);
  if (case_.kernel().op != ASSAY_OP_CACHE_GATHER) {
    exchange(Operand::kDenseK, Operand::kDenseV, "v_for_k", "dense_v for dense_k");
    exchange(Operand::kDenseV, Operand::kDenseK, "v_for_k", "dense_k for dense_v");
  }
  const auto both = [&](Operand a, Operand b) {
    if (!has(a) || !has(b) || tensor_of(given_.tensors, a).shape[2] != tensor_of(given_.tensors, b).shape[2])
      return;
    add("v_for_k", "K and V exchanged", [=](Reading& r) {
      std::swap(tensor_of(r.tensors, a).data, tensor_of(r.tensors, b).data);
      std::swap(tensor_of(r.tensors, a).stride, tensor_of(r.tensors, b).stride);
      return true;
    });
  };
  both(Operand::kDenseK, Operand::kDenseV);
  if (case_.kernel().op != ASSAY_OP_CACHE_WRITE) {
    exchange(Operand::kK, Operand::kV, "v_for_k", "V for K");
    exchange(Operand::kV, Operand::kK, "v_for_k", "K for V");
  }
  if (case_.attends() && has(Operand::kDenseK) && has(Operand::kDenseV))
    for (const uint8_t dense : {uint8_t{0}, uint8_t{1}})
      add(dense != 0 ? "dense_for_cache" : "cache_for_dense",
          dense != 0 ? "new keys as they came" : "new keys from the cache", [=](Reading& r) {
            const std::vector<uint8_t> old = r.dense;
            r.dense.resize(static_cast<size_t>(r.problem.requests));
            for (uint8_t& read : r.dense) read = static_cast<uint8_t>((read & ~1) | dense);
            return old != r.dense;
          });
}

void Misreadings::merges() {
  if (!has(Operand::kPartialLse) || case_.kernel().op != ASSAY_OP_MERGE_STATES) return;
  if (p().states > 1) {
    set("state_missing", "the first partial result alone", &assay_problem::states, 1);
    if (p().states > 2) set("state_missing", "all but the last", &assay_problem::states, p().states - 1);
  }
  const auto base = [&](const char* cause, const std::string& how, int32_t state, int32_t count) {
    add(cause, how, [=](Reading& r) {
      for (const Operand o : {Operand::kPartialO, Operand::kPartialLse}) {
        assay_tensor& t = tensor_of(r.tensors, o);
        t.data = static_cast<std::byte*>(t.data) + state * t.stride[0] * format_bytes(t.format);
        if (count == r.problem.states) t.stride[0] = 0;
      }
      r.problem.states = count;
      return true;
    });
  };
  for (int32_t s = 0; s < std::min(8, p().states); ++s)
    base("state_twice", fmt::format("partial result {} for all", s), s, p().states);
  for (int32_t s = 1; s < std::min(8, p().states); ++s)
    base("state_missing", fmt::format("partial result {} alone", s), s, 1);
  const auto weights = [&](const char* cause, const char* how, double by) {
    add(cause, how, [=](Reading& r) { return scale_lse(r, by); });
  };
  weights("merge_unweighted", "all LSE alike", 0);
  weights("merge_largest", "only the largest LSE counts", 1000);
  weights("merge_base2", "LSE of base 2 taken for natural ones", 0.6931471805599453);
  weights("merge_base2", "natural LSE taken for those of base 2", 1.4426950408889634);
  if (p().states > 1)
    for (int32_t s = 0; s < std::min(8, p().states); ++s)
      for (const double by : {0.6931471805599453, 1.4426950408889634})
        add("merge_base2", fmt::format("the LSE of state {} in another base", s),
            [=](Reading& r) { return scale_lse(r, by, s); });
  add("states_exchanged", "LSE of the states in the opposite order", [](Reading& r) {
    assay_tensor& t = r.tensors.partial_lse;
    t.data = static_cast<std::byte*>(t.data) + (r.problem.states - 1) * t.stride[0] * 4;
    t.stride[0] = -t.stride[0];
    return r.problem.states > 1;
  });
}

bool Misreadings::scale_lse(Reading& r, double by, int32_t state) {
  assay_tensor& t = r.tensors.partial_lse;
  std::vector<float> now;
  for (int64_t s = 0; s < t.shape[0]; ++s)
    for (int64_t i = 0; i < t.shape[1]; ++i)
      for (int64_t h = 0; h < t.shape[2]; ++h) {
        const float x =
            static_cast<const float*>(t.data)[s * t.stride[0] + i * t.stride[1] + h * t.stride[2]];
        now.push_back(state >= 0 && s != state ? x
                      : std::isfinite(x)       ? static_cast<float>(x * by)
                      : by == 0                ? 0.0f
                                               : x);
      }
  r.lists->emplace_back(now.size() * sizeof(float));
  std::memcpy(r.lists->back().data(), now.data(), now.size() * sizeof(float));
  t.data = r.lists->back().data();
  t.stride[2] = 1, t.stride[1] = t.shape[2], t.stride[0] = t.shape[1] * t.shape[2];
  return true;
}

void Misreadings::rows() {
  if (case_.kernel().op == ASSAY_OP_CACHE_WRITE) {
    const int64_t all = p().rows;
    for (int64_t n = all - 1; n >= std::max<int64_t>(0, all - 256); --n)
      set(n == 0 ? "left_out" : "row_missing", fmt::format("the first {} of {} rows", n, all),
          &assay_problem::rows, n);
    const auto slots = [&](const char* cause, const char* how, auto rule) {
      add(cause, how, [=](Reading& r) {
        assay_tensor& t = r.tensors.slot_mapping;
        std::vector<int64_t> list;
        for (int64_t i = 0; i < t.shape[0]; ++i)
          list.push_back(static_cast<const int64_t*>(t.data)[i * t.stride[0]]);
        const int64_t most = r.tensors.k.shape[0] * std::max(1, r.problem.page_size);
        rule(list);
        for (int64_t& slot : list) slot = std::min(slot, most - 1);
        r.lists->emplace_back(list.size() * sizeof(int64_t));
        std::memcpy(r.lists->back().data(), list.data(), list.size() * sizeof(int64_t));
        t.data = r.lists->back().data(), t.stride[0] = 1;
        return !list.empty();
      });
    };
    using Slots = std::vector<int64_t>;
    for (int64_t row = 0; row + 1 < std::min<int64_t>(all, 128); ++row)
      slots("row_missing", fmt::format("row {} alone is not written", row).c_str(), [=](Slots& s) {
        if (row < static_cast<int64_t>(s.size())) s[static_cast<size_t>(row)] = -1;
      });
    slots("slots_shifted", "the slot of the next row",
          [](Slots& s) { std::rotate(s.begin(), s.begin() + 1, s.end()); });
    slots("slots_shifted", "the slot of the row before",
          [](Slots& s) { std::rotate(s.begin(), s.end() - 1, s.end()); });
    slots("slots_shifted", "slots in the opposite order", [](Slots& s) { std::reverse(s.begin(), s.end()); });
    // Decodes, extends and prefills each begin behind as many slots as there are requests before them. What
    // two rows are written to holds the later one.
    std::vector<int32_t> from;
    std::vector<assay_request_class> classes;
    for (int32_t r = 0, first = 0, row = 0, first_row = 0; r < p().requests; ++r) {
      if (r > 0 && class_of(r) != class_of(r - 1)) first = r, first_row = row;
      for (int32_t i = 0; i < given_.rows_of(r); ++i, ++row)
        from.push_back(first + row - first_row), classes.push_back(class_of(r));
    }
    const std::pair<assay_request_class, const char*> kinds[] = {{ASSAY_REQUEST_DECODE, "decodes"},
                                                                 {ASSAY_REQUEST_EXTEND, "extends"},
                                                                 {ASSAY_REQUEST_PREFILL, "prefills"}};
    for (const auto& [kind, who] : kinds)
      slots("row_missing", fmt::format("rows of {} are not written", who).c_str(),
            [=, kind = kind](Slots& s) {
              for (size_t row = 0; row < std::min(s.size(), classes.size()); ++row)
                if (classes[row] == kind) s[row] = -1;
            });
    slots("slots_shifted", "slots counted in requests before decodes, extends and prefills", [=](Slots& s) {
      const Slots old = s;
      for (size_t row = 0; row < std::min(s.size(), from.size()); ++row) {
        const int64_t slot = old[static_cast<size_t>(from[row])];
        std::replace(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(row), slot, int64_t{-1});
        s[row] = slot;
      }
    });
    const int64_t size = std::max(1, p().page_size);
    slots("slots_turned", "block and place within it exchanged", [=](Slots& s) {
      for (int64_t& slot : s)
        if (slot >= 0 && slot / size < size) slot = slot % size * size + slot / size;
    });
    for (const int64_t by : {1, -1})
      slots("slots_off_by_one", by > 0 ? "the slot behind" : "the slot before", [=](Slots& s) {
        for (int64_t& slot : s)
          if (slot >= 0) slot = std::max<int64_t>(0, slot + by);
      });
  }
  for (const Operand o : {Operand::kSource, Operand::kDenseK, Operand::kDenseV, Operand::kQ}) {
    const OperandUse* use = find_operand(op_, o);
    if (!has(o) || use == nullptr || use->role != Role::kIn) continue;
    for (int axis = 0; axis < 2; ++axis)
      for (const int64_t by : {1, -1})
        add("rows_shifted",
            fmt::format("{} {} {}", operand_name(o), axis == 0 ? "a row" : "a head", by > 0 ? "on" : "back"),
            [=](Reading& r) {
              assay_tensor& t = tensor_of(r.tensors, o);
              const int64_t bytes = by * t.stride[axis] * format_bytes(t.format);
              if (by > 0) {
                t.data = static_cast<std::byte*>(t.data) + bytes;
                return true;
              }
              // Before the first there is nothing that is known: its own bytes, moved.
              const int64_t size = view_bytes(t);
              r.lists->emplace_back(static_cast<size_t>(size - bytes), std::byte{0});
              std::memcpy(r.lists->back().data() - bytes, t.data, static_cast<size_t>(size));
              t.data = r.lists->back().data();
              return true;
            });
  }
}

void Misreadings::drafts() {
  const int32_t op = case_.kernel().op;
  const bool lists = op == ASSAY_OP_TREE_TABLES || op == ASSAY_OP_SWA_TREE_TABLE;
  if (!lists && !has(Operand::kTreeMask)) return;
  set("drafts_new_alone", "no steps before", &assay_problem::drafted, 0);
  if (p().drafted > 1)
    set("drafts_step_less", "a step of drafts less", &assay_problem::drafted, p().drafted - 1);
  if (op == ASSAY_OP_SWA_TREE_TABLE)
    set("drafts_without_context", "drafts alone", &assay_problem::op, int32_t{ASSAY_OP_TREE_TABLES});
  if (op == ASSAY_OP_TREE_TABLES)
    set("drafts_with_context", "context and drafts", &assay_problem::op, int32_t{ASSAY_OP_SWA_TREE_TABLE});
  add("drafts_all", "every draft is seen", [](Reading& r) {
    assay_tensor& t = r.tensors.tree_mask;
    r.lists->emplace_back(static_cast<size_t>(t.shape[0] + 64), std::byte{1});
    t.data = r.lists->back().data(), t.stride[0] = 1;
    return true;
  });
  one_for_all("tree_of_one", "the first request's tree for all", Operand::kTreeIndptr, 0);
}

}  // namespace assay
