// SPDX-License-Identifier: Apache-2.0
// What a stage may be taken to have read in place of what it was given. Each is tried by judging what it left
// as if that had been given. In the order of their plainness: equal explanations are told in this order.
#include "harness/explain/stages/misreadings.hpp"

#include <algorithm>
#include <cmath>
#include <list>
#include <set>

namespace assay {

void Misreadings::masks() {
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
  } else if (left >= 0 || (p().mask != ASSAY_MASK_FULL && p().mask != ASSAY_MASK_CROSS)) {
    window("window_added", left, 0);  // of those masks alone it is a causal one
  }
  if (left < 0)
    for (int32_t w = 0; w < std::min(64, p().max_kv_len); ++w) window("window_added", w, right);
  if (has(Operand::kPositions) && p().positions != nullptr) {
    add("positions_other", "the last row at the last key, whatever is given", [](Reading& r) {
      r.tensors.positions = assay_tensor{}, r.problem.positions = nullptr;
      return true;
    });
    for (const int32_t by : {-1, 1})
      change("positions_other", fmt::format("every row {:+}", by), Operand::kPositions,
             [=](const Reading&, int32_t n, int32_t) { return n + by; });
  }
  one_position();
  set("chunk_missing", "no chunks", &assay_problem::chunk, 0);
  if (p().chunk > 1)
    for (const int32_t chunk : {p().chunk / 2, p().chunk * 2})
      set("chunk_other", fmt::format("chunks of {}", chunk), &assay_problem::chunk, chunk);
}

// One for each number that there is, wherever in the batch: the shortest may be the last request's.
void Misreadings::of_one(const char* cause, const char* what, Operand o) {
  constexpr size_t kMost = 16;
  if (p().requests < 2) return;
  std::set<int32_t> numbers;
  const std::vector<int32_t> list = given_.ints(o);
  for (size_t one = 0; one < list.size() && numbers.size() < kMost; ++one)
    if (numbers.insert(list[one]).second)
      change(cause, fmt::format("the {} of request {} for all", what, one), o,
             [=](const Reading& r, int32_t, int32_t) { return r.ints(o)[one]; });
}

void Misreadings::lengths() {
  if (case_.kernel().op == ASSAY_OP_PAGED)
    add("context_missing", "the new keys alone", [this](Reading& r) {
      bool any = false;
      for (const Request& request : case_.problem_of(r).requests) {
        r.only_keys.push_back({std::max(0, request.kv_len - request.q_len), request.kv_len});
        any = any || request.kv_len > request.q_len;
      }
      return any;
    });
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
    of_one("lengths_of_one", "length", o);
    for (int32_t by = 1; by < std::min(8, p().requests); ++by)
      change("lengths_other", fmt::format("lengths of the request {} on", by), o,
             [=](const Reading& r, int32_t, int32_t i) {
               const std::vector<int32_t> list = r.ints(o);
               const auto n = static_cast<int32_t>(list.size());
               return n > 0 ? list[static_cast<size_t>((i + by) % n)] : 0;
             });
  }
  seen_keys();
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
    of_one("encoder_of_one", "encoder", o);
  }
}

// Keys that no row sees, while rows stand where they do.
void Misreadings::seen_keys() {
  if (!case_.attends()) return;
  const auto keys = [&](const char* cause, const std::string& how, auto first, auto last) {
    add(cause, how, [=, this](Reading& r) {
      bool any = false;
      for (const Request& request : case_.problem_of(r).requests) {
        const int32_t n = request.kv_len, from = std::min(n, first(n)), to = std::max(0, n - last(n));
        any = any || from > 0 || to < n;
        r.only_keys.push_back({from, to});
      }
      return any;
    });
  };
  const auto none = [](int32_t) { return 0; };
  const auto one = [](int32_t) { return 1; };
  keys("lengths_off_by_one", "the last key of every request is missing", none, one);
  keys("lengths_off_by_one", "the first key of every request is missing", one, none);
  const int32_t page = p().page_size;
  if (case_.kernel().op != ASSAY_OP_PAGED || page < 2) return;
  keys("keys.tail_dropped", "the keys of a last page that is not full are missing", none,
       [=](int32_t n) { return n % page; });
  keys("lengths_off_by_page", "the keys of the last page are missing", none,
       [=](int32_t n) { return n > 0 ? (n - 1) % page + 1 : 0; });
  keys(
      "keys.head_dropped", "the keys of the first page are missing", [=](int32_t) { return page; }, none);
}

void Misreadings::starts() {
  if (has(Operand::kCuQ)) {
    change("starts_arange", "a row of every request", Operand::kCuQ,
           [](const Reading&, int32_t, int32_t i) { return i; });
  }
  if (has(Operand::kSeqStarts)) {
    change("starts_zero", "every request from its first token", Operand::kSeqStarts,
           [](const Reading&, int32_t, int32_t) { return 0; });
    const int32_t page = std::max(1, p().page_size);
    change("starts_other", "starts of whole pages", Operand::kSeqStarts,
           [=](const Reading&, int32_t n, int32_t) { return n / page * page; });
    for (const int32_t by : {-1, 1, -p().page_size, p().page_size})
      change("starts_other", fmt::format("every start {:+}", by), Operand::kSeqStarts,
             [=](const Reading&, int32_t n, int32_t) { return std::max(0, n + by); });
  }
  if (has(Operand::kIndptr)) one_for_all("starts_of_one", "the first start for all", Operand::kIndptr, 0);
}

void Misreadings::tables() {
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
      rows("table_of_one", fmt::format("the table of request {} for all", one), [=](int64_t) { return one; });
    rows("table_of_next", "the table of the next request", [=](int64_t i) { return (i + 1) % requests; });
    rows("table_of_next", "the table of the request before",
         [=](int64_t i) { return (i + requests - 1) % requests; });
    for (int64_t by = 2; by < std::min<int64_t>(12, requests - 1); ++by) {
      rows("table_of_next", fmt::format("the table of the request {} on", by),
           [=](int64_t i) { return (i + by) % requests; });
      rows("table_of_next", fmt::format("the table of the request {} before", by),
           [=](int64_t i) { return (i + requests - by) % requests; });
    }
    for (int64_t a = 0; a < std::min<int64_t>(6, requests); ++a)
      for (int64_t b = a + 1; b < std::min<int64_t>(6, requests); ++b)
        rows("table_of_next", fmt::format("tables of requests {} and {} exchanged", a, b), [=](int64_t i) {
          return i == a ? b : i == b ? a : i;
        });
    one_for_all("table_first_entry", "the first entry for all", table, 1);
    first_entries_exchanged(table);
  }
  if (table == Operand::kIndices && has(Operand::kIndptr)) tables_of_lists();
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
    // ... in some pages of every request, as far as the cache has slots.
    const auto unmapped = [&](const char* pages, auto from, auto to) {
      add("map_missing", fmt::format("slots of the full pool themselves in {}", pages), [=](Reading& r) {
        std::vector<int32_t> map = r.ints(Operand::kSlotMap);
        const std::vector<int32_t> old = map, entries = r.ints(table);
        const int64_t columns = static_cast<int64_t>(entries.size()) / std::max(1, r.problem.requests);
        const auto slots = static_cast<int32_t>(r.tensors.k.shape[0] * page);
        for (int32_t q = 0; q < r.problem.requests && slots > 0; ++q) {
          const int32_t keys = r.problem.kv_len[q], context = keys - r.rows_of(q);
          for (int32_t n = from(keys, context) / page; n * page < to(keys, context) && n < columns; ++n) {
            const int32_t entry = entries[static_cast<size_t>(q * columns + n)];
            for (int32_t slot = entry * page; entry >= 0 && slot < (entry + 1) * page; ++slot)
              if (slot < static_cast<int32_t>(map.size())) map[static_cast<size_t>(slot)] = slot % slots;
          }
        }
        if (map == old) return false;
        r.put(Operand::kSlotMap, map);
        return true;
      });
    };
    if (table == Operand::kBlockTable) {
      unmapped(
          "the newest page", [](int32_t keys, int32_t) { return std::max(0, keys - 1); },
          [](int32_t keys, int32_t) { return keys; });
      unmapped(
          "the pages of new keys", [](int32_t, int32_t context) { return context; },
          [](int32_t keys, int32_t) { return keys; });
      unmapped(
          "the first page", [](int32_t, int32_t) { return 0; }, [](int32_t, int32_t) { return 1; });
    }
  }
}

void Misreadings::first_entries_exchanged(Operand table) {
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

void Misreadings::scalars() {
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
    for (const int32_t unit : {16, 32, 64, 128})
      if (p().head_dim_qk % unit != 0)
        set("softmax_scale", fmt::format("that of heads filled up to whole runs of {} dimensions", unit),
            &assay_problem::softmax_scale,
            static_cast<float>(1 / std::sqrt((p().head_dim_qk + unit - 1) / unit * unit)));
    set("cap_missing", "no soft cap", &assay_problem::softcap, 0.0f);
    // cap * tanh(s / cap) * scale is the cap times the scale over scaled scores.
    if (p().softcap > 0)
      set("softcap.before_scale", "scores are capped before they are scaled", &assay_problem::softcap,
          p().softcap * p().softmax_scale);
    if (p().softcap > 0)
      for (const float by : {2.0f, 0.5f, 1 / p().softmax_scale, 1 / p().softcap})
        set("cap_other", fmt::format("a soft cap of {:.6g}", p().softcap * by), &assay_problem::softcap,
            p().softcap * by);
    set("bias_missing", "no position bias", &assay_problem::alibi, int32_t{ASSAY_ALIBI_NONE});
    one_for_all("bias_other", "the slope of the first head for all", Operand::kAlibiSlopes, 0);
    set("dims_missing", "the first dimensions of Q and K alone", &assay_problem::head_dim_qk, p().head_dim_v);
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

std::vector<Misreading> misreadings(const StageCase& c) {
  // What they refer to lives in the case.
  static thread_local std::list<Misreadings> makers;
  makers.clear();
  return makers.emplace_back(c).all();
}

}  // namespace assay
