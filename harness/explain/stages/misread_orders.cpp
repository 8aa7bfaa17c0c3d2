// SPDX-License-Identifier: Apache-2.0
// Misreadings of orders and extents: heads in another order, entries of each table row, lengths in whole
// pages and tiles, windows of any other size. See misreadings.hpp.
#include <algorithm>
#include <cstring>
#include <set>

#include "harness/explain/stages/misreadings.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

void reorder(Reading& r, Operand o, int axis, const std::function<int64_t(int64_t)>& from) {
  assay_tensor& t = tensor_of(r.tensors, o);
  const auto width = static_cast<int64_t>(format_bytes(t.format));
  int64_t stride[4] = {}, size = width;
  for (int a = t.rank - 1; a >= 0; --a) stride[a] = size / width, size *= t.shape[a];
  r.lists->emplace_back(static_cast<size_t>(size));
  std::byte* const to = r.lists->back().data();
  const auto* const own = static_cast<const std::byte*>(t.data);
  std::vector<int64_t> at(static_cast<size_t>(t.rank), 0);
  for (int64_t n = 0; n < size / width; ++n) {
    int64_t source = 0, rest = n;
    for (int a = 0; a < t.rank; ++a) {
      const int64_t i = rest / stride[a];
      rest -= i * stride[a];
      source += (a == axis ? from(i) : i) * t.stride[a];
    }
    std::memcpy(to + n * width, own + source * width, static_cast<size_t>(width));
  }
  t.data = to;
  std::copy(stride, stride + t.rank, t.stride);
}

void Misreadings::orders() {
  head_orders();
  table_rows();
  trees();
  extents();
}

void Misreadings::head_orders() {
  const auto along = [this](const char* cause, Operand o, int axis, const std::string& how, auto from) {
    if (!has(o) || axis >= tensor_of(given_.tensors, o).rank) return;
    const int64_t n = tensor_of(given_.tensors, o).shape[axis];
    if (n < 2) return;
    add(cause, fmt::format("{} {}", operand_name(o), how), [=](Reading& r) {
      reorder(r, o, axis, [=](int64_t i) { return from(i, n); });
      return true;
    });
  };
  const auto heads = [&](const char* cause, Operand o) {
    along(cause, o, 1, "of the heads backwards", [](int64_t i, int64_t n) { return n - 1 - i; });
    along(cause, o, 1, "of the next head", [](int64_t i, int64_t n) { return (i + 1) % n; });
    along(cause, o, 1, "of the head before", [](int64_t i, int64_t n) { return (i + n - 1) % n; });
    along(cause, o, 1, "of the head beside it, in pairs",
          [](int64_t i, int64_t n) { return (i ^ 1) < n ? i ^ 1 : i; });
  };
  if (case_.attends() && p().q_scale_kind == ASSAY_SCALE_NONE) heads("heads.q_swapped", Operand::kQ);
  dense_rows();
  dense_rows_of_first();
  if (case_.kernel().op != ASSAY_OP_CACHE_WRITE) return;
  for (const Operand o : {Operand::kDenseK, Operand::kDenseV}) {
    for (int32_t one = 0; one < std::min(8, p().heads_kv); ++one)
      along("heads.one_side", o, 1, fmt::format("of head {} for all", one),
            [=](int64_t, int64_t) { return one; });
    heads("heads.one_side", o);
    along("rows_shifted", o, 0, "of the row before, the first its own",
          [](int64_t i, int64_t) { return std::max<int64_t>(0, i - 1); });
    along("rows_shifted", o, 0, "of the next row, the last its own",
          [](int64_t i, int64_t n) { return std::min(n - 1, i + 1); });
    along("rows_shifted", o, 0, "of the rows backwards", [](int64_t i, int64_t n) { return n - 1 - i; });
  }
  for (const Operand o : {Operand::kKScale, Operand::kVScale}) {
    if (!has(o) || tensor_of(given_.tensors, o).rank != 1) continue;
    along("scale_other", o, 0, "of the next head", [](int64_t i, int64_t n) { return (i + 1) % n; });
    along("scale_other", o, 0, "of the head before", [](int64_t i, int64_t n) { return (i + n - 1) % n; });
  }
  if (has(Operand::kDenseK) && has(Operand::kDenseV) && p().heads_kv > 1)
    for (const bool backwards : {true, false})
      add("heads.kv_mapping", backwards ? "K and V of the heads backwards" : "K and V of the next head",
          [=](Reading& r) {
            for (const Operand o : {Operand::kDenseK, Operand::kDenseV}) {
              const int64_t n = tensor_of(r.tensors, o).shape[1];
              reorder(r, o, 1, [=](int64_t i) { return backwards ? n - 1 - i : (i + 1) % n; });
            }
            return true;
          });
  if (has(Operand::kDenseK) && has(Operand::kDenseV))
    add("rows_shifted", "K and V of the first row for all", [](Reading& r) {
      for (const Operand o : {Operand::kDenseK, Operand::kDenseV})
        reorder(r, o, 0, [](int64_t) { return 0; });
      return true;
    });
  if (!has(Operand::kKScale) || !has(Operand::kVScale) ||
      tensor_of(given_.tensors, Operand::kKScale).rank != 1 ||
      tensor_of(given_.tensors, Operand::kVScale).rank != 1)
    return;
  for (const int64_t by : {1, -1})
    add("scale_other", fmt::format("k_scale and v_scale of the {}", by > 0 ? "next head" : "head before"),
        [=](Reading& r) {
          for (const Operand o : {Operand::kKScale, Operand::kVScale}) {
            const int64_t n = tensor_of(r.tensors, o).shape[0];
            if (n < 2) return false;
            reorder(r, o, 0, [=](int64_t i) { return (i + by + n) % n; });
          }
          return true;
        });
}

// New keys at the rows where their requests stand in another order of the batch: decodes, extends and
// prefills, each as they came, or backwards.
void Misreadings::dense_rows() {
  if (!has(Operand::kDenseK) || !has(Operand::kDenseV)) return;
  const auto kind = [this](int32_t r) {
    const int32_t rows = given_.rows_of(r);
    return rows <= p().threshold ? 0 : p().kv_len[r] > rows ? 1 : 2;
  };
  for (const bool backwards : {false, true}) {
    std::vector<int32_t> order;
    for (int32_t r = 0; r < p().requests; ++r) order.push_back(r);
    if (backwards)
      std::reverse(order.begin(), order.end());
    else
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return kind(a) < kind(b); });
    std::vector<int64_t> begin(order.size(), 0), from;
    int64_t at = 0;
    for (const int32_t r : order) begin[static_cast<size_t>(r)] = at, at += given_.rows_of(r);
    bool same = true;
    for (int32_t r = 0; r < p().requests; ++r)
      for (int32_t i = 0; i < given_.rows_of(r); ++i) {
        same = same && begin[static_cast<size_t>(r)] + i == static_cast<int64_t>(from.size());
        from.push_back(begin[static_cast<size_t>(r)] + i);
      }
    if (same) continue;
    add("rows_shifted",
        backwards ? "K and V where the request stands in the batch backwards"
                  : "K and V where the request stands behind decodes, extends and prefills",
        [=](Reading& r) {
          for (const Operand o : {Operand::kDenseK, Operand::kDenseV})
            reorder(r, o, 0, [&](int64_t i) { return i < static_cast<int64_t>(from.size()) ? from[i] : i; });
          return true;
        });
  }
}

void Misreadings::table_rows() {
  if (!has(Operand::kBlockTable)) return;
  const int64_t columns = tensor_of(given_.tensors, Operand::kBlockTable).shape[1];
  const auto entries = [&](const std::string& how, auto from) {
    add("table_shifted", how, [=](Reading& r) {
      const std::vector<int32_t> old = r.ints(Operand::kBlockTable);
      reorder(r, Operand::kBlockTable, 1,
              [=](int64_t i) { return std::clamp<int64_t>(from(i), 0, columns - 1); });
      return r.ints(Operand::kBlockTable) != old;
    });
  };
  const int64_t page = std::max(1, p().page_size);
  for (int64_t n = 1; n < std::min<int64_t>(32, columns); ++n)
    // As many as a chunk of the context has: every chunk begins where the context does.
    add(n * page == p().token_budget ? "starts_zero" : "table_other",
        fmt::format("the first {} entries of every request again and again", n), [=](Reading& r) {
          const std::vector<int32_t> old = r.ints(Operand::kBlockTable);
          reorder(r, Operand::kBlockTable, 1, [=](int64_t i) { return i % n; });
          return r.ints(Operand::kBlockTable) != old;
        });
  for (const int64_t n : {2, 4, 8})
    if (n < 2 * columns)
      add("table_other", fmt::format("one entry for every {}, their first", n), [=](Reading& r) {
        const std::vector<int32_t> old = r.ints(Operand::kBlockTable);
        reorder(r, Operand::kBlockTable, 1, [=](int64_t i) { return i / n * n; });
        return r.ints(Operand::kBlockTable) != old;
      });
  // The page of the last key, or of the first new one on, as it was before the batch grew.
  for (const bool of_new : {false, true})
    for (const bool zero : {true, false})
      add("table_other",
          fmt::format("{} of every request is {}", of_new ? "what holds new keys alone" : "the last page",
                      zero ? "block 0" : "the page before"),
          [=](Reading& r) {
            if (r.problem.table != ASSAY_TABLE_BLOCK) return false;
            const std::vector<int32_t> old = r.ints(Operand::kBlockTable);
            std::vector<int32_t> now = old;
            const int32_t page = std::max(1, r.problem.page_size);
            const std::vector<int32_t> lengths = r.ints(Operand::kKvLen);
            for (size_t i = 0; i < lengths.size(); ++i) {
              const int32_t last = (lengths[i] - 1) / page;
              const int32_t context = lengths[i] - r.rows_of(static_cast<int32_t>(i));
              const int32_t first = of_new ? (context + page - 1) / page : last;
              for (int32_t at = std::max(first, zero ? 0 : 1); at <= last && at < columns; ++at) {
                const auto to = i * static_cast<size_t>(columns) + static_cast<size_t>(at);
                now[to] = zero ? 0 : now[to - 1];
              }
            }
            if (now == old) return false;
            r.put(Operand::kBlockTable, now);
            return true;
          });
  for (const int64_t by : {1, -1}) {
    const char* which = by > 0 ? "the entry behind" : "the entry before";
    entries(fmt::format("in place of every entry {}, within a request's row", which),
            [=](int64_t i) { return i + by; });
    for (int64_t one = 0; one < std::min<int64_t>(16, columns); ++one)
      entries(fmt::format("in place of entry {} of every request {}", one, which),
              [=](int64_t i) { return i == one ? i + by : i; });
  }
}

// One position for all rows of a request, as a kernel of one length a request has it. Where nothing but the
// causal limit looks at positions that limit may be the mistake as well, and is told with it.
void Misreadings::one_position() {
  if (!case_.attends() || has(Operand::kPositions) || !has(Operand::kKvLen) || p().max_q_len < 2 ||
      p().mask != ASSAY_MASK_CAUSAL)
    return;
  const bool others = p().window_left >= 0 || p().chunk > 0 || p().alibi != ASSAY_ALIBI_NONE;
  const auto at_row = [this](const char* cause, const std::string& how, auto row_of) {
    add(cause, how, [=](Reading& r) {
      const std::vector<int32_t> lengths = r.ints(Operand::kKvLen);
      std::vector<int32_t> at;
      bool other = false;
      for (size_t q = 0; q < lengths.size(); ++q) {
        const int32_t rows = r.rows_of(static_cast<int32_t>(q));
        for (int32_t n = 0; n < rows; ++n) {
          const int32_t row = row_of(n, rows);
          at.push_back(std::max(0, lengths[q] - rows + row));
          other = other || row != n;
        }
      }
      if (!other) return false;
      r.tensors.positions =
          assay_tensor{nullptr, ASSAY_INT32, 1, {static_cast<int64_t>(at.size())}, {1}, ASSAY_ROLE_IN};
      r.put(Operand::kPositions, at);
      r.problem.positions = static_cast<const int32_t*>(r.tensors.positions.data);
      return true;
    });
  };
  const auto first = [](int32_t, int32_t) { return 0; };
  if (!others)
    for (const char* cause : {"mask.causal_anchor", "mask.causal_short"}) {
      at_row(cause, "the causal limit of the first row of the request for all of them", first);
      for (const int32_t most : {2, 4, 5, 8, 16, 32})
        at_row(cause, fmt::format("no row sees more than row {} of its request does", most - 1),
               [=](int32_t n, int32_t) { return std::min(n, most - 1); });
      for (const int32_t block : {2, 4, 8, 16, 32})
        at_row(cause, fmt::format("rows of a block of {} see what its first one does", block),
               [=](int32_t n, int32_t) { return n / block * block; });
    }
  at_row("positions_other", "every row where the first of its request stands", first);
  // The last row's for all is no causal mask, where nothing else looks at it.
  if (others)
    at_row("positions_other", "every row where the last of its request stands",
           [](int32_t, int32_t rows) { return rows - 1; });
}

void Misreadings::extents() {
  if (has(Operand::kKvLen)) {
    std::vector<int32_t> units = {16, 32, 64, 128};
    units.insert(units.begin(), std::max(1, p().page_size));
    for (const int32_t unit : units) {
      if (unit < 2) continue;
      change("lengths_other", fmt::format("lengths in whole runs of {} keys, rounded down", unit),
             Operand::kKvLen, [=](const Reading&, int32_t n, int32_t) { return n / unit * unit; });
      change("lengths_other", fmt::format("lengths in whole runs of {} keys, rounded up", unit),
             Operand::kKvLen,
             [=](const Reading&, int32_t n, int32_t) { return (n + unit - 1) / unit * unit; });
      change("lengths_other",
             fmt::format("lengths in whole runs of {} keys, rounded down, as many as rows at least", unit),
             Operand::kKvLen,
             [=](const Reading& r, int32_t n, int32_t i) { return std::max(r.rows_of(i), n / unit * unit); });
    }
  }
  // A buffer or a loop of a fixed size, a loop that begins late; rows stay where they are.
  const auto keys = [&](const char* cause, const std::string& how, int32_t from, int32_t to) {
    add(cause, how, [=, this](Reading& r) {
      bool other = false;
      for (const Request& request : case_.problem_of(r).requests) {
        const int32_t end = std::min(to, request.kv_len);
        r.only_keys.push_back({std::min(from, end), end});
        other = other || from > 0 || end < request.kv_len;
      }
      return other;
    });
  };
  if (case_.attends()) {
    for (int32_t most = 16; most < p().max_kv_len; most *= 2)
      for (const int32_t n : {most, most / 2 * 3})
        keys("lengths_other", fmt::format("no more than {} keys of a request", n), 0, n);
    for (const int32_t n : std::set<int32_t>{std::max(1, p().page_size), 16, 32, 64})
      keys("keys.head_dropped", fmt::format("the first {} keys of every request left out", n), n,
           p().max_kv_len);
  }
  for (int32_t by = 2; by <= 8 && has(Operand::kKvLen); ++by)
    for (const int32_t sign : {-1, 1})
      change("lengths_other", fmt::format("every length {:+}", sign * by), Operand::kKvLen,
             [=](const Reading&, int32_t n, int32_t) { return std::max(0, n + sign * by); });
  if (!op_.attends_rows || p().window_left < 0) return;
  // Those beside it have a name of their own (masks()).
  const int32_t own = p().window_left;
  // One that reaches over all keys is none.
  const int32_t most = std::min(p().max_kv_len - 2, 4 * own + 4);
  for (int32_t left = 0; left <= std::min(most, 256); ++left)
    if (left < own - 1 || left > own + 1)
      set("window_other", fmt::format("a window of {} to the left in place of {}", left, own),
          &assay_problem::window_left, left);
}

}  // namespace assay
