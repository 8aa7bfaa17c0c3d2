// SPDX-License-Identifier: Apache-2.0
// Where the wrong cells lie, in words. A sentence is said when a property holds for all wrong cells and for
// no right one, or for all wrong cells and few right ones; so a new property is one row of the table.
#include <algorithm>
#include <cmath>
#include <set>

#include "harness/explain/explanation.hpp"
#include "harness/explain/misfit.hpp"
#include "harness/ops/op.hpp"

namespace assay {
namespace {

struct Property {
  std::string words;
  std::function<bool(const Problem&, const Cell&)> holds;
};

KeyRange range_of(const Problem& p, const Cell& c) { return visible_range(p, c.request, c.row); }
bool sees_any(const Problem& p, const Cell& c) {
  const KeyRange r = range_of(p, c);
  return r.begin < r.end;
}

std::vector<Property> properties(const Evidence& e) {
  const Problem& p = e.problem;
  std::vector<Property> list = {
      {"rows that see no key", [](const Problem& q, const Cell& c) { return !sees_any(q, c); }},
      {"rows of requests with one new token",
       [](const Problem& q, const Cell& c) { return q.requests[c.request].q_len == 1; }},
      {"rows of requests with several new tokens",
       [](const Problem& q, const Cell& c) { return q.requests[c.request].q_len > 1; }},
      {"the first row of each request", [](const Problem&, const Cell& c) { return c.row == 0; }},
      {"all rows but the first of each request", [](const Problem&, const Cell& c) { return c.row > 0; }},
      {"the last row of each request",
       [](const Problem& q, const Cell& c) { return c.row == q.requests[c.request].q_len - 1; }},
      {"all rows but the last of each request",
       [](const Problem& q, const Cell& c) { return c.row < q.requests[c.request].q_len - 1; }},
      {"rows whose visible keys begin after key 0",
       [](const Problem& q, const Cell& c) { return sees_any(q, c) && range_of(q, c).begin > 0; }},
      {"rows that see key 0",
       [](const Problem& q, const Cell& c) { return sees_any(q, c) && range_of(q, c).begin == 0; }},
      {"rows that do not see the last key",
       [](const Problem& q, const Cell& c) {
         return sees_any(q, c) && range_of(q, c).end < q.requests[c.request].kv_len;
       }},
      {"rows of requests with more new tokens than keys",
       [](const Problem& q, const Cell& c) { return q.requests[c.request].context_len() < 0; }},
      {"rows of the first request", [](const Problem&, const Cell& c) { return c.request == 0; }},
      {"rows of all requests but the first", [](const Problem&, const Cell& c) { return c.request > 0; }},
      {"rows of the last request",
       [](const Problem& q, const Cell& c) {
         return c.request + 1 == static_cast<int32_t>(q.requests.size());
       }},
      {"rows of requests that share a prefix",
       [](const Problem& q, const Cell& c) { return q.requests[c.request].shared_with >= 0; }},
  };
  if (p.window_left >= 0)
    list.push_back({"rows whose window lies within the keys", [](const Problem& q, const Cell& c) {
                      return q.requests[c.request].context_len() + c.row >= q.window_left;
                    }});
  if (p.heads_q > 1) {
    list.push_back({"odd heads", [](const Problem&, const Cell& c) { return c.head % 2 == 1; }});
    list.push_back({"all heads but head 0", [](const Problem&, const Cell& c) { return c.head > 0; }});
    if (p.group() > 1)
      list.push_back({"all heads but the first of each KV head",
                      [](const Problem& q, const Cell& c) { return c.head % q.group() > 0; }});
    if (p.heads_kv > 1)
      list.push_back({"heads of all KV heads but the first",
                      [](const Problem& q, const Cell& c) { return c.head / q.group() > 0; }});
  }
  const auto grain = [&](int32_t g, const std::string& what) {
    if (g < 2) return;
    list.push_back(
        {fmt::format("rows whose visible keys begin inside a {}", what),
         [g](const Problem& q, const Cell& c) { return sees_any(q, c) && range_of(q, c).begin % g != 0; }});
    list.push_back({fmt::format("rows of requests whose last {} is partly filled", what),
                    [g](const Problem& q, const Cell& c) { return q.requests[c.request].kv_len % g != 0; }});
    list.push_back({fmt::format("rows whose visible keys lie in more than one {}", what),
                    [g](const Problem& q, const Cell& c) {
                      const KeyRange r = range_of(q, c);
                      return r.begin < r.end && r.begin / g != (r.end - 1) / g;
                    }});
    list.push_back({fmt::format("rows whose visible keys lie in more than two {}s", what),
                    [g](const Problem& q, const Cell& c) {
                      const KeyRange r = range_of(q, c);
                      return r.begin < r.end && (r.end - 1) / g - r.begin / g > 1;
                    }});
  };
  if (op_of(p).has_cache) grain(p.page_size, "page");
  if (e.declared.tile_keys > 1) grain(e.declared.tile_keys, fmt::format("tile of {}", e.declared.tile_keys));
  const assay_arithmetic a = e.declared;
  if (a.splits > 1 && a.tile_keys > 0 && a.shares == 0) {
    const auto filled = [a](const Problem& q, const Cell& c) {
      const KeyRange r = range_of(q, c);
      const int32_t tiles = (q.requests[c.request].kv_len + a.tile_keys - 1) / a.tile_keys;
      int32_t count = 0;
      for (int32_t s = 0; s < a.splits; ++s) {
        const auto first = static_cast<int32_t>(int64_t{tiles} * s / a.splits) * a.tile_keys;
        const auto last = static_cast<int32_t>(int64_t{tiles} * (s + 1) / a.splits) * a.tile_keys;
        count += std::max(first, r.begin) < std::min(last, r.end);
      }
      return count;
    };
    list.push_back({"rows with keys in more than one split",
                    [filled](const Problem& q, const Cell& c) { return filled(q, c) > 1; }});
    list.push_back({"rows for which a split holds no key",
                    [filled, n = a.splits](const Problem& q, const Cell& c) { return filled(q, c) < n; }});
  }
  return list;
}

// "1, 3..5, 9"
std::string ranges(const std::vector<int32_t>& sorted) {
  std::string text;
  int parts = 0;
  for (size_t i = 0; i < sorted.size();) {
    size_t j = i;
    while (j + 1 < sorted.size() && sorted[j + 1] == sorted[j] + 1) ++j;
    if (++parts > 8) return text + ", ...";
    text += (text.empty() ? "" : ", ") +
            (i == j ? fmt::format("{}", sorted[i]) : fmt::format("{}..{}", sorted[i], sorted[j]));
    i = j + 1;
  }
  return text;
}

std::string counted(const std::set<int32_t>& which, int64_t all, const char* name) {
  if (static_cast<int64_t>(which.size()) == all) return fmt::format("all {}s", name);
  return fmt::format("{}{} {}", name, which.size() > 1 ? "s" : "", ranges({which.begin(), which.end()}));
}

// "every 16th dimension from 15", "dimensions 112..127"
std::string dimensions(const std::vector<int32_t>& dims, int32_t all) {
  if (static_cast<int32_t>(dims.size()) == all) return "all dimensions";
  if (dims.size() > 2) {
    const int32_t step = dims[1] - dims[0];
    bool even = step > 1;
    for (size_t i = 1; i < dims.size() && even; ++i) even = dims[i] - dims[i - 1] == step;
    if (even && dims.back() + step >= all) return fmt::format("every {}th dimension from {}", step, dims[0]);
  }
  return fmt::format("dimension{} {}", dims.size() > 1 ? "s" : "", ranges(dims));
}

}  // namespace

void describe_pattern(const Evidence& e, Call call, Predictor& predictor, Explanation& x) {
  const Problem& p = e.problem;
  std::vector<Cell> bad, good;
  std::set<int32_t> heads, kv_heads, requests;
  std::vector<int32_t> dims;
  std::vector<int64_t> bad_dim(p.head_dim_v, 0);
  Cell worst{};
  double largest = -1;
  for (const RowId& row : e.bounded.value.rows)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      const Cell c{row.request, row.row, h};
      ++x.cells;
      int64_t in_o = 0;
      for (int32_t d = 0; d < p.head_dim_v; ++d)
        if (!accepted(e, call, c, d)) ++in_o, ++bad_dim[d];
      const bool in_lse = !accepted(e, call, c, -1);
      x.bad_in_o += in_o > 0;
      x.bad_in_lse += in_lse;
      if (in_o == 0 && !in_lse) {
        good.push_back(c);
        continue;
      }
      if (x.first.empty()) {
        int32_t dim = -1;
        for (int32_t d = p.head_dim_v - 1; d >= 0; --d)
          if (!accepted(e, call, c, d)) dim = d;
        const int64_t slot = e.row_of[e.packed_row(c)] * p.heads_q + h,
                      at = dim < 0 ? slot : slot * p.head_dim_v + dim;
        const BoundedAttention& b = e.bounded;
        x.first.push_back({c, dim, e.got(call, c, dim), dim < 0 ? b.value.lse[at] : b.value.o[at],
                           dim < 0 ? b.lse_low[at] : b.o_low[at], dim < 0 ? b.lse_high[at] : b.o_high[at]});
      }
      // A request with several rows makes the better picture.
      const double size = in_o + (in_lse ? 0.5 : 0) + (p.requests[row.request].q_len > 1 ? 0.25 : 0);
      if (size > largest) largest = size, worst = c;
      bad.push_back(c);
      heads.insert(h);
      kv_heads.insert(h / p.group());
      requests.insert(row.request);
    }
  x.bad_cells = static_cast<int64_t>(bad.size());
  if (bad.empty()) return;
  x.pattern.push_back(fmt::format("{} of {} cells (row x head): O wrong in {}, LSE wrong in {}", bad.size(),
                                  x.cells, x.bad_in_o, x.bad_in_lse));
  std::set<int32_t> with_rows;
  for (const RowId& row : e.bounded.value.rows) with_rows.insert(row.request);
  std::string where = counted(heads, p.heads_q, "head");
  if (p.group() > 1 && static_cast<int32_t>(kv_heads.size()) < p.heads_kv)
    where += fmt::format(" ({})", counted(kv_heads, p.heads_kv, "KV head"));
  where += "; " + (requests.size() == with_rows.size()
                       ? std::string("all requests")
                       : counted(requests, static_cast<int64_t>(p.requests.size()), "request"));
  for (int32_t d = 0; d < p.head_dim_v; ++d)
    if (bad_dim[d] > 0) dims.push_back(d);
  if (!dims.empty()) where += "; " + dimensions(dims, p.head_dim_v);
  x.pattern.push_back(where);
  // Properties: exact ones first; else those that hold for all wrong cells and at most a third of the right
  // ones.
  std::vector<std::string> exact, near;
  if (!good.empty())
    for (const Property& q : properties(e)) {
      const auto holds = [&](const Cell& c) { return q.holds(p, c); };
      if (!std::all_of(bad.begin(), bad.end(), holds)) continue;
      const auto also = std::count_if(good.begin(), good.end(), holds);
      if (also == 0)
        exact.push_back("exactly " + q.words);
      else if (also * 3 < static_cast<int64_t>(good.size()))
        near.push_back(fmt::format("only {} ({} of those are right)", q.words, also));
    }
  for (const std::string& text : exact.empty() ? near : exact) x.pattern.push_back(text);
  // One head or row that is wrong throughout.
  if (heads.size() == 1 && static_cast<int64_t>(bad.size()) == x.cells / p.heads_q)
    x.pattern.push_back(fmt::format("all rows of head {}", *heads.begin()));

  x.pictured = call;
  for (const Cell& c : picture_cells(e, worst)) x.picture.push_back(attribute(e, predictor, call, c));
  const assay_arithmetic& a = e.declared;
  const int32_t n = p.requests[worst.request].kv_len;
  const int32_t tile = std::max(1, a.tile_keys), tiles = (n + tile - 1) / tile;
  for (int32_t s = 1; s < a.splits && a.order_declared && a.item_rows == 0; ++s)
    x.split_edges.push_back(a.split_keys > 0 ? s * a.split_keys
                                             : static_cast<int32_t>(int64_t{tiles} * s / a.splits) * tile);
  std::erase_if(x.split_edges, [&](int32_t edge) { return edge <= 0 || edge >= n; });
  // Keys that carry the error of the worst cell.
  const Attribution at = attribute(e, predictor, call, worst);
  if (!at.finite || n == 0) return;
  double total = 0;
  for (double c : at.change) total += std::fabs(c);
  std::vector<int32_t> order(n);
  for (int32_t k = 0; k < n; ++k) order[k] = k;
  std::sort(order.begin(), order.end(),
            [&](int32_t l, int32_t r) { return std::fabs(at.change[l]) > std::fabs(at.change[r]); });
  std::vector<int32_t> carriers;
  double carried = 0;
  for (int32_t k : order) {
    if (carried > 0.7 * total || total == 0 || carriers.size() > 24) break;
    carriers.push_back(k);
    carried += std::fabs(at.change[k]);
  }
  std::sort(carriers.begin(), carriers.end());
  if (carriers.empty() || carriers.size() > 20 || static_cast<int32_t>(carriers.size()) * 3 > n) return;
  std::set<int32_t> pages;
  const int32_t page = op_of(p).has_cache ? p.page_size : 0;
  for (int32_t k : carriers)
    if (page > 1) pages.insert(k / page);
  x.pattern.push_back(fmt::format(
      "in request {} row {} head {} {:.0f} % of the change of weight lies on key{} {}{}", worst.request,
      worst.row, worst.head, 100 * carried / total, carriers.size() > 1 ? "s" : "", ranges(carriers),
      pages.empty()
          ? ""
          : fmt::format(" (page{} {})", pages.size() > 1 ? "s" : "", ranges({pages.begin(), pages.end()}))));
}

}  // namespace assay
