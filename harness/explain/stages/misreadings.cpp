// SPDX-License-Identifier: Apache-2.0
// What a stage may be taken to have read in place of what it was given. Each is tried by judging what it left
// as if that had been given. In the order of their plainness: equal explanations are told in this order.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "harness/explain/stages/step_causes.hpp"
#include "harness/ops/op.hpp"
#include "reference/attention/attention.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Make = std::function<bool(Reading&)>;

class Misreadings {
 public:
  explicit Misreadings(const StageCase& c) : case_(c), given_(c.given()), op_(op_of(c.kernel().op)) {}

  std::vector<Misreading> all() {
    masks();
    lengths();
    starts();
    tables();
    scalars();
    scales();
    merges();
    rows();
    drafts();
    return std::move(list_);
  }

 private:
  void add(const char* cause, std::string how, Make make) {
    list_.push_back({cause, std::move(how), std::move(make)});
  }
  bool has(Operand o) const { return given_.has(o); }
  const assay_problem& p() const { return given_.problem; }

  template <class Value>
  void set(const char* cause, const std::string& how, Value assay_problem::*field, Value value) {
    add(cause, how, [=](Reading& r) {
      if (r.problem.*field == value) return false;
      r.problem.*field = value;
      return true;
    });
  }
  // Every entry of a list by a rule (value, index).
  void change(const char* cause, const std::string& how, Operand o,
              const std::function<int32_t(const Reading&, int32_t, int32_t)>& rule) {
    if (!has(o)) return;
    add(cause, how, [=](Reading& r) {
      std::vector<int32_t> old = r.ints(o), now;
      for (size_t i = 0; i < old.size(); ++i) now.push_back(rule(r, old[i], static_cast<int32_t>(i)));
      if (now == old) return false;
      r.put(o, now);
      return true;
    });
  }
  void one_for_all(const char* cause, const std::string& how, Operand o, int axis) {
    const assay_tensor& t = tensor_of(given_.tensors, o);
    if (t.data == nullptr || axis >= t.rank || t.shape[axis] < 2) return;
    add(cause, how, [=](Reading& r) {
      tensor_of(r.tensors, o).stride[axis] = 0;
      return true;
    });
  }

  void masks() {
    if (!op_.attends_rows) return;
    set("mask_causal", "a causal mask", &assay_problem::mask, int32_t{ASSAY_MASK_CAUSAL});
    set("mask_full", "no mask", &assay_problem::mask, int32_t{ASSAY_MASK_FULL});
    const int32_t left = p().window_left, right = p().window_right;
    const auto window = [&](const char* cause, int32_t l, int32_t r) {
      add(cause, fmt::format("a window of {} to the left and {} to the right", l, r), [=](Reading& reading) {
        if (reading.problem.window_left == l && reading.problem.window_right == r) return false;
        reading.problem.window_left = l, reading.problem.window_right = r;
        return true;
      });
    };
    if (left >= 0) {
      window("window_missing", -1, right);
      for (const int32_t by : {1, -1}) window("window_off_by_one", left + by, right);
    }
    if (right >= 0) {
      window("window_missing", left, -1);
      for (const int32_t by : {1, -1}) window("window_off_by_one", left, right + by);
      if (right > 0) window("window_other", left, 0);
    } else {
      window("window_added", left, 0);
    }
    if (left < 0)
      for (int32_t w = 0; w < std::min(64, p().max_kv_len); ++w) window("window_added", w, right);
    set("chunk_missing", "no chunks", &assay_problem::chunk, 0);
    if (p().chunk > 1)
      for (const int32_t chunk : {p().chunk / 2, p().chunk * 2})
        set("chunk_other", fmt::format("chunks of {}", chunk), &assay_problem::chunk, chunk);
  }

  void lengths() {
    if (has(Operand::kKvLen)) {
      const Operand o = Operand::kKvLen;
      change("lengths_without_new", "lengths less the new rows", o,
             [](const Reading& r, int32_t n, int32_t i) { return std::max(0, n - r.rows_of(i)); });
      if (case_.attends())
        add("new_keys_missing", "the context alone, without a mask", [=](Reading& r) {
          std::vector<int32_t> list = r.ints(o);
          for (size_t i = 0; i < list.size(); ++i)
            list[i] = std::max(0, list[i] - r.rows_of(static_cast<int32_t>(i)));
          r.put(o, list);
          r.problem.mask = ASSAY_MASK_FULL;
          return true;
        });
      change("lengths_with_new", "lengths and the new rows", o,
             [](const Reading& r, int32_t n, int32_t i) { return n + r.rows_of(i); });
      change("lengths_with_new", "the host's lengths", o,
             [](const Reading& r, int32_t, int32_t i) { return r.problem.kv_len[i]; });
      change("lengths_are_rows", "as many keys as rows", o,
             [](const Reading& r, int32_t, int32_t i) { return r.rows_of(i); });
      // How many rows are dropped to the host's may be a group's: by the drafts of the steps before too.
      const int32_t steps = p().drafted + 1;
      if (steps > 1)
        change("lengths_with_new", "lengths and all drafts", o,
               [=](const Reading& r, int32_t n, int32_t i) { return n + r.rows_of(i) * steps; });
      for (const int32_t by : {-1, 1})
        change("lengths_off_by_one", fmt::format("every length {:+}", by), o,
               [=](const Reading&, int32_t n, int32_t) { return std::max(0, n + by); });
      const int32_t page = std::max(1, p().page_size);
      for (const int32_t by : {-page, page})
        change("lengths_off_by_page", fmt::format("every length {:+}", by), o,
               [=](const Reading&, int32_t n, int32_t) { return std::max(0, n + by); });
      for (int32_t one = 0; one < std::min(8, p().requests) && p().requests > 1; ++one)
        change("lengths_of_one", fmt::format("the length of request {} for all", one), o,
               [=](const Reading& r, int32_t, int32_t) { return r.ints(o)[static_cast<size_t>(one)]; });
    }
    if (case_.kernel().op == ASSAY_OP_PREFILL) {
      const auto keys = [&](const char* cause, const char* how, int32_t from, int32_t to) {
        add(cause, how, [=, this](Reading& r) {
          for (const Request& request : case_.problem_of(r).requests)
            r.only_keys.push_back({std::min(from, request.kv_len), std::max(0, request.kv_len - to)});
          return true;
        });
      };
      keys("lengths_off_by_one", "the last key of every request is missing", 0, 1);
      keys("lengths_off_by_one", "the first key of every request is missing", 1, 0);
    }
    if (has(Operand::kEncoderLen)) {
      const Operand o = Operand::kEncoderLen;
      const int32_t page = std::max(1, p().page_size);
      add("encoder_missing", "nothing before a request's own entries", [=](Reading& r) {
        r.tensors.encoder_len = assay_tensor{};
        return true;
      });
      for (const int32_t by : {-1, 1})
        change("encoder_off_by_one", fmt::format("encoders of {:+} token", by), o,
               [=](const Reading&, int32_t n, int32_t) { return std::max(0, n + by); });
      change("encoder_rounded_down", "whole pages of an encoder", o,
             [=](const Reading&, int32_t n, int32_t) { return n / page * page; });
      for (int32_t one = 0; one < std::min(8, p().requests) && p().requests > 1; ++one)
        change("encoder_of_one", fmt::format("the encoder of request {} for all", one), o,
               [=](const Reading& r, int32_t, int32_t) { return r.ints(o)[static_cast<size_t>(one)]; });
    }
  }

  void starts() {
    if (has(Operand::kCuQ)) {
      change("starts_arange", "a row of every request", Operand::kCuQ,
             [](const Reading&, int32_t, int32_t i) { return i; });
    }
    if (has(Operand::kSeqStarts)) {
      change("starts_zero", "every request from its first token", Operand::kSeqStarts,
             [](const Reading&, int32_t, int32_t) { return 0; });
      for (const int32_t by : {-1, 1, -p().page_size, p().page_size})
        change("starts_other", fmt::format("every start {:+}", by), Operand::kSeqStarts,
               [=](const Reading&, int32_t n, int32_t) { return std::max(0, n + by); });
    }
    if (has(Operand::kIndptr)) one_for_all("starts_of_one", "the first start for all", Operand::kIndptr, 0);
  }

  void tables() {
    const Operand table = has(Operand::kBlockTable) ? Operand::kBlockTable : Operand::kIndices;
    if (!has(table)) return;
    const int32_t page = std::max(1, p().page_size);
    if (table == Operand::kBlockTable) {
      const int64_t requests = tensor_of(given_.tensors, table).shape[0];
      const auto rows = [&](const char* cause, const std::string& how, auto source) {
        if (requests < 2) return;
        add(cause, how, [=](Reading& r) {
          const std::vector<int32_t> old = r.ints(table);
          const auto columns = static_cast<int64_t>(old.size()) / requests;
          std::vector<int32_t> now;
          for (int64_t i = 0; i < requests; ++i) {
            const int64_t from = source(i);
            now.insert(now.end(), old.begin() + from * columns, old.begin() + (from + 1) * columns);
          }
          if (now == old) return false;
          r.put(table, now);
          return true;
        });
      };
      for (int64_t one = 0; one < std::min<int64_t>(8, requests); ++one)
        rows("table_of_one", fmt::format("the table of request {} for all", one),
             [=](int64_t) { return one; });
      rows("table_of_next", "the table of the next request", [=](int64_t i) { return (i + 1) % requests; });
      rows("table_of_next", "the table of the request before",
           [=](int64_t i) { return (i + requests - 1) % requests; });
      for (int64_t a = 0; a < std::min<int64_t>(6, requests); ++a)
        for (int64_t b = a + 1; b < std::min<int64_t>(6, requests); ++b)
          rows("table_of_next", fmt::format("tables of requests {} and {} exchanged", a, b), [=](int64_t i) {
            return i == a ? b : i == b ? a : i;
          });
      one_for_all("table_first_entry", "the first entry for all", table, 1);
      first_entries_exchanged(table);
    }
    for (const int64_t by : {1, -1})
      add("table_shifted", fmt::format("every entry {}", by > 0 ? "one late" : "one early"), [=](Reading& r) {
        std::vector<int32_t> all = r.ints(table);
        if (all.size() < 2) return false;
        std::rotate(all.begin(), by > 0 ? all.begin() + 1 : all.end() - 1, all.end());
        r.put(table, all);
        return true;
      });
    change("table_units", "slots for pages", table,
           [=](const Reading&, int32_t n, int32_t) { return n < 0 ? 0 : n / page; });
    change("table_units", "pages for slots", table,
           [=](const Reading&, int32_t n, int32_t) { return n * page; });
    if (has(Operand::kSlotMap)) {
      for (const int64_t by : {int64_t{page}, -int64_t{page}, int64_t{1}, int64_t{-1}})
        add("map_shifted", fmt::format("the map {:+} slots on", by), [=](Reading& r) {
          std::vector<int32_t> map = r.ints(Operand::kSlotMap);
          std::rotate(map.begin(), by > 0 ? map.begin() + by : map.end() + by, map.end());
          r.put(Operand::kSlotMap, map);
          return true;
        });
      add("map_missing", "slots of the full pool themselves", [](Reading& r) {
        r.tensors.slot_map = assay_tensor{};
        return true;
      });
    }
  }
  // What two requests hold first, exchanged: of one page each.
  void first_entries_exchanged(Operand table) {
    const int64_t requests = tensor_of(given_.tensors, table).shape[0];
    for (int64_t a = 0; a < std::min<int64_t>(4, requests); ++a)
      for (int64_t b = a + 1; b < std::min<int64_t>(4, requests); ++b)
        add("table_of_next", fmt::format("the first entries of requests {} and {} exchanged", a, b),
            [=](Reading& r) {
              std::vector<int32_t> all = r.ints(table);
              const int64_t columns = static_cast<int64_t>(all.size()) / requests;
              std::swap(all[static_cast<size_t>(a * columns)], all[static_cast<size_t>(b * columns)]);
              r.put(table, all);
              return true;
            });
  }

  void scalars() {
    if (op_.attends_rows) {
      const double s = p().softmax_scale, qk = p().head_dim_qk, v = p().head_dim_v;
      const double scales[] = {1 / std::sqrt(v),
                               s * s,
                               std::sqrt(s),
                               1.0,
                               s * std::sqrt(2),
                               s / std::sqrt(2),
                               s * std::sqrt(qk / v),
                               1 / std::sqrt(qk),
                               1 / qk,
                               s * 1.4426950408889634,
                               s * 0.6931471805599453,
                               s * 2,
                               s / 2};
      for (const double scale : scales)
        if (std::fabs(scale - s) > 1e-6 * s)
          set("softmax_scale", fmt::format("{:.6g} in place of {:.6g}", scale, s),
              &assay_problem::softmax_scale, static_cast<float>(scale));
      set("cap_missing", "no soft cap", &assay_problem::softcap, 0.0f);
      set("bias_missing", "no position bias", &assay_problem::alibi, int32_t{ASSAY_ALIBI_NONE});
      one_for_all("bias_other", "the slope of the first head for all", Operand::kAlibiSlopes, 0);
      set("dims_missing", "the first dimensions of Q and K alone", &assay_problem::head_dim_qk,
          p().head_dim_v);
    }
    if (find_operand(op_, Operand::kSinks) != nullptr) {
      set("sink_missing", "no sink", &assay_problem::has_sinks, 0);
      if (case_.attends()) fitted_sinks();
    }
    if (find_operand(op_, Operand::kOutLen) == nullptr && find_operand(op_, Operand::kOutCuKv) == nullptr)
      return;
    for (const int32_t budget : {p().token_budget / 2, p().token_budget * 2, p().token_budget - 1})
      set("budget_other", fmt::format("a budget of {}", budget), &assay_problem::token_budget,
          std::max(1, budget));
    for (int32_t threshold = 0; threshold <= std::min(64, p().max_q_len + 1); ++threshold)
      set("threshold_other", fmt::format("decodes of up to {} rows", threshold), &assay_problem::threshold,
          threshold);
    if (p().chunk > 1)
      for (const int32_t chunk : {p().chunk / 2, p().chunk * 2, p().chunk - p().page_size})
        if (chunk > 0 && chunk % std::max(1, p().page_size) == 0)
          set("chunk_other", fmt::format("chunks of {}", chunk), &assay_problem::chunk, chunk);
    set("chunk_missing", "no chunks", &assay_problem::chunk, 0);
    for (const int32_t by : {1, -1})
      if (p().window_left >= 0)
        set("window_off_by_one", fmt::format("a window of {}", p().window_left + by),
            &assay_problem::window_left, p().window_left + by);
    set("window_missing", "no window", &assay_problem::window_left, -1);
    for (const int32_t prefix : {p().prefix_tokens - p().page_size, p().prefix_tokens + p().page_size})
      if (p().prefix_tokens > 0)
        set("lengths_off_by_page", fmt::format("a prefix of {}", prefix), &assay_problem::prefix_tokens,
            std::max(0, prefix));
    if (p().requests > 1)
      set("last_request_missing", "a request less", &assay_problem::requests, p().requests - 1);
  }

  // One logit of every head that joins the sum, found from the first row that says it.
  void fitted_sinks() {
    add("sink_extra", "a logit of every head joins the sum", [this](Reading& r) {
      Reading own = r;
      own.problem.has_sinks = 0, own.tensors.sinks = assay_tensor{};
      const Problem p = case_.problem_of(own);
      std::vector<RowId> rows;
      for (size_t i = 0; i < p.requests.size() && rows.empty(); ++i)
        if (p.requests[i].q_len > 0 && p.requests[i].kv_len > 0) rows.push_back({static_cast<int32_t>(i), 0});
      if (rows.empty()) return false;
      const HostOperands host{&own.tensors, own.problem.q_scale_host, own.problem.k_scale_host,
                              own.problem.v_scale_host};
      const AttentionResult a = attention_simple(p, host, rows);
      const int64_t row = p.cu_q()[static_cast<size_t>(rows[0].request)];
      std::vector<float> sinks;
      for (int32_t h = 0; h < p.heads_q; ++h) {
        double dot = 0, norm = 0;
        const assay_tensor& o = r.tensors.o;
        for (int32_t d = 0; d < p.head_dim_v; ++d) {
          const double exact = a.o_at(0, h, d);
          dot += exact * case_.written(Operand::kO, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]);
          norm += exact * exact;
        }
        double share = norm > 0 ? dot / norm : 1;  // of the keys in the sum
        if (r.tensors.lse.data != nullptr)
          share = std::exp(a.lse_at(0, h) - case_.written(Operand::kLse, row * r.tensors.lse.stride[0] +
                                                                             h * r.tensors.lse.stride[1]));
        if (!(share > 0 && share < 1)) return false;
        sinks.push_back(static_cast<float>(a.lse_at(0, h) + std::log(1 / share - 1)));
      }
      r.problem.has_sinks = 1;
      r.lists->emplace_back(sinks.size() * sizeof(float));
      std::memcpy(r.lists->back().data(), sinks.data(), sinks.size() * sizeof(float));
      r.tensors.sinks = assay_tensor{r.lists->back().data(), ASSAY_FP32, 1, {p.heads_q}, {1}, ASSAY_ROLE_IN};
      return true;
    });
  }

  void scales() {
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
    if (case_.kernel().op != ASSAY_OP_CACHE_WRITE) {
      exchange(Operand::kK, Operand::kV, "v_for_k", "V for K");
      exchange(Operand::kV, Operand::kK, "v_for_k", "K for V");
    }
    if (case_.attends() && has(Operand::kDenseK) && has(Operand::kDenseV))
      for (const uint8_t dense : {uint8_t{0}, uint8_t{1}})
        add(dense != 0 ? "dense_for_cache" : "cache_for_dense",
            dense != 0 ? "new keys as they came" : "new keys from the cache", [=](Reading& r) {
              const std::vector<uint8_t> old = r.dense;
              r.dense.assign(static_cast<size_t>(r.problem.requests), dense);
              return old != r.dense;
            });
  }

  void merges() {
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
    add("states_exchanged", "LSE of the states in the opposite order", [](Reading& r) {
      assay_tensor& t = r.tensors.partial_lse;
      t.data = static_cast<std::byte*>(t.data) + (r.problem.states - 1) * t.stride[0] * 4;
      t.stride[0] = -t.stride[0];
      return r.problem.states > 1;
    });
  }
  static bool scale_lse(Reading& r, double by) {
    assay_tensor& t = r.tensors.partial_lse;
    std::vector<float> now;
    for (int64_t s = 0; s < t.shape[0]; ++s)
      for (int64_t i = 0; i < t.shape[1]; ++i)
        for (int64_t h = 0; h < t.shape[2]; ++h) {
          const float x =
              static_cast<const float*>(t.data)[s * t.stride[0] + i * t.stride[1] + h * t.stride[2]];
          now.push_back(std::isfinite(x) ? static_cast<float>(x * by) : by == 0 ? 0.0f : x);
        }
    r.lists->emplace_back(now.size() * sizeof(float));
    std::memcpy(r.lists->back().data(), now.data(), now.size() * sizeof(float));
    t.data = r.lists->back().data();
    t.stride[2] = 1, t.stride[1] = t.shape[2], t.stride[0] = t.shape[1] * t.shape[2];
    return true;
  }

  void rows() {
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
      slots("slots_shifted", "the slot of the next row",
            [](Slots& s) { std::rotate(s.begin(), s.begin() + 1, s.end()); });
      slots("slots_shifted", "the slot of the row before",
            [](Slots& s) { std::rotate(s.begin(), s.end() - 1, s.end()); });
      slots("slots_shifted", "slots in the opposite order",
            [](Slots& s) { std::reverse(s.begin(), s.end()); });
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
              fmt::format("{} {} {}", operand_name(o), axis == 0 ? "a row" : "a head",
                          by > 0 ? "on" : "back"),
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

  void drafts() {
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

  const StageCase& case_;
  const Reading& given_;
  const Op& op_;
  std::vector<Misreading> list_;
};

}  // namespace

std::vector<Misreading> misreadings(const StageCase& c) {
  // What they refer to lives in the case.
  static thread_local std::list<Misreadings> makers;
  makers.clear();
  return makers.emplace_back(c).all();
}

}  // namespace assay
