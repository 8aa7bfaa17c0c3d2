// SPDX-License-Identifier: Apache-2.0
// Where the index of a head or request goes wrong: one table for queries, results, sinks, slopes, and one for
// the KV head that a query head is given.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "harness/problem/problem.hpp"

namespace assay {

struct IndexMap {
  std::string name;
  double cost;
  std::function<int32_t(int32_t)> of;
};
using HeadMap = IndexMap;  // of a query head

// Requests by their places in a schedule that takes the longest (or shortest) first, and by a search that
// stops at a request without rows.
inline std::vector<IndexMap> schedule_maps(const Problem& p) {
  const auto n = static_cast<int32_t>(p.requests.size());
  std::vector<IndexMap> maps;
  const auto sorted = [&](const std::string& words, const std::function<int64_t(const Request&)>& of) {
    std::vector<int32_t> order(p.requests.size()), place(p.requests.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return of(p.requests[a]) < of(p.requests[b]); });
    if (std::is_sorted(order.begin(), order.end())) return;
    for (int32_t i = 0; i < n; ++i) place[order[i]] = i;
    maps.push_back({"the request of its place, " + words, 0.08, [place](int32_t r) { return place[r]; }});
    maps.push_back(
        {"the request scheduled in its place, " + words, 0.08, [order](int32_t r) { return order[r]; }});
  };
  sorted("longest first", [](const Request& r) { return -int64_t{r.kv_len}; });
  sorted("shortest first", [](const Request& r) { return int64_t{r.kv_len}; });
  sorted("most rows first", [](const Request& r) { return -int64_t{r.q_len}; });
  const auto behind_empty = [&p](int32_t r) {
    return r > 0 && p.requests[r].q_len > 0 && p.requests[r - 1].q_len == 0 ? r - 1 : r;
  };
  for (int32_t r = 1; r < n; ++r)
    if (behind_empty(r) != r) {
      maps.push_back({"the request without rows before it", 0.08, behind_empty});
      break;
    }
  return maps;
}

// Requests for requests: for scales, lengths, tables, whatever is looked up by a request's number.
inline std::vector<IndexMap> request_maps(const Problem& p) {
  const auto n = static_cast<int32_t>(p.requests.size());
  if (n < 2) return {};
  std::vector<IndexMap> maps = {
      {"request +1", 0, [n](int32_t r) { return std::min(r + 1, n - 1); }},
      {"request -1", 0, [](int32_t r) { return std::max(r - 1, 0); }},
      {"request 0", 0, [](int32_t) { return 0; }},
      {"request +1, round", 0.03, [n](int32_t r) { return (r + 1) % n; }},
      {"request -1, round", 0.03, [n](int32_t r) { return (r + n - 1) % n; }},
      {"request +2, round", 0.1, [n](int32_t r) { return (r + 2) % n; }},
      {"request +2", 0.1, [n](int32_t r) { return std::min(r + 2, n - 1); }},
      {"the last request", 0.03, [n](int32_t) { return n - 1; }},
      {"request 1", 0.1, [](int32_t) { return 1; }},
      {"the neighbouring request, pairwise", 0.05, [n](int32_t r) { return std::min(r ^ 1, n - 1); }},
      {"the first of two requests", 0.1, [](int32_t r) { return r / 2 * 2; }},
      {"half the request's number", 0.1, [](int32_t r) { return r / 2; }},
      {"the request as far from the end", 0.05, [n](int32_t r) { return n - 1 - r; }},
  };
  for (int32_t size : {2, 3, 4, 8})
    if (size < n)
      maps.push_back({"the request's number modulo " + std::to_string(size), 0.1,
                      [size](int32_t r) { return r % size; }});
  for (IndexMap& map : schedule_maps(p)) maps.push_back(std::move(map));
  return maps;
}

// Query heads for query heads.
inline std::vector<HeadMap> query_head_maps(const Problem& p) {
  const int32_t q = p.heads_q, g = p.group(), kv = p.heads_kv;
  std::vector<HeadMap> maps = {
      {"neighbouring heads exchanged", 0, [q](int32_t h) { return (h ^ 1) < q ? h ^ 1 : h; }},
      {"next head", 0, [q](int32_t h) { return (h + 1) % q; }},
      {"previous head", 0, [q](int32_t h) { return (h + q - 1) % q; }},
      {"heads in reverse", 0, [q](int32_t h) { return q - 1 - h; }},
      {"head 0 for all", 0, [](int32_t) { return 0; }},
      {"last head for all", 0.05, [q](int32_t) { return q - 1; }},
      {"upper and lower half exchanged", 0.05, [q](int32_t h) { return (h + q / 2) % q; }},
  };
  if (g > 1) {
    const std::vector<HeadMap> more = {
        {"heads in reverse within their group", 0, [g](int32_t h) { return h / g * g + g - 1 - h % g; }},
        {"next head of the group, round", 0, [g](int32_t h) { return h / g * g + (h + 1) % g; }},
        {"previous head of the group, round", 0.05, [g](int32_t h) { return h / g * g + (h + g - 1) % g; }},
        {"next head of the group, the last one itself", 0.05,
         [g](int32_t h) { return h / g * g + std::min(h % g + 1, g - 1); }},
        {"first head of the group for all", 0, [g](int32_t h) { return h / g * g; }},
        {"last head of the group for all", 0, [g](int32_t h) { return h / g * g + g - 1; }},
        {"the group's last head has its first one's", 0.05,
         [g](int32_t h) { return h % g == g - 1 ? h / g * g : h; }},
        {"the group's first head has its last one's", 0.05,
         [g](int32_t h) { return h % g == 0 ? h + g - 1 : h; }},
        {"the KV head's number", 0, [g](int32_t h) { return h / g; }},
        {"the number in the group", 0, [g](int32_t h) { return h % g; }},
        {"eight heads of every group", 0, [g](int32_t h) { return h / g * g + std::min(h % g, 7); }},
    };
    maps.insert(maps.end(), more.begin(), more.end());
    // A group that is worked on so many heads at a time: each pack has the first one's, or the one before's.
    for (const int32_t pack : {2, 4, 8, 16, 32}) {
      if (pack >= g) break;
      maps.push_back({"the group's number modulo " + std::to_string(pack), 0.05,
                      [g, pack](int32_t h) { return h / g * g + h % g % pack; }});
      if (2 * pack < g)
        maps.push_back({"the head " + std::to_string(pack) + " before it in the group", 0.1,
                        [g, pack](int32_t h) { return h % g >= pack ? h - pack : h; }});
    }
  }
  if (kv > 1) {
    const std::vector<HeadMap> more = {
        {"the head's number modulo KV heads", 0.05, [kv](int32_t h) { return h % kv; }},
        {"the same head of the next group", 0.05, [q, g](int32_t h) { return (h + g) % q; }},
        {"the same head of the previous group", 0.05, [q, g](int32_t h) { return (h + q - g) % q; }},
        {"the same head of the first group", 0.05, [g](int32_t h) { return h % g; }},
    };
    maps.insert(maps.end(), more.begin(), more.end());
  }
  if (kv > 1)
    for (int32_t size : {g - 1, g + 1, 2 * g, 2, 3, 4, 8})
      if (size > 0 && size != g)
        maps.push_back({"groups begin every " + std::to_string(size) + " heads", 0.1,
                        [=](int32_t h) { return (h / g * size + h % g) % q; }});
  if (g > 1 && kv > 1) {
    maps.push_back(
        {"heads modulo KV heads times the group", 0, [g, kv](int32_t h) { return h % kv * g + h / kv; }});
    maps.push_back({"heads divided by KV heads and the group exchanged", 0,
                    [g, kv](int32_t h) { return h % g * kv + h / g; }});
  }
  return maps;
}

// KV heads for query heads, within their number.
inline std::vector<HeadMap> kv_head_maps(const Problem& p) {
  const int32_t kv = p.heads_kv, g = p.group();
  std::vector<HeadMap> maps = {
      {"KV head 0 for all", 0, [](int32_t) { return 0; }},
      {"last KV head for all", 0.1, [kv](int32_t) { return kv - 1; }},
      {"next KV head", 0, [=](int32_t h) { return (h / g + 1) % kv; }},
      {"previous KV head", 0, [=](int32_t h) { return (h / g + kv - 1) % kv; }},
      {"next KV head, the last one itself", 0.1, [=](int32_t h) { return std::min(h / g + 1, kv - 1); }},
      {"previous KV head, the first one itself", 0.1, [=](int32_t h) { return std::max(h / g - 1, 0); }},
      {"neighbouring KV head, pairwise", 0.1, [=](int32_t h) { return std::min(h / g ^ 1, kv - 1); }},
      {"KV heads in reverse", 0.1, [=](int32_t h) { return kv - 1 - h / g; }},
      {"query head modulo KV heads", 0, [kv](int32_t h) { return h % kv; }},
      {"query head itself, clamped", 0.1, [kv](int32_t h) { return std::min(h, kv - 1); }},
      {"query head over the KV heads", 0.1, [=](int32_t h) { return std::min(h / kv, kv - 1); }},
      {"number in the group, clamped", 0.15, [=](int32_t h) { return std::min(h % g, kv - 1); }},
      {"KV head 0 for the last one", 0.1, [=](int32_t h) { return h / g == kv - 1 ? 0 : h / g; }},
      {"last KV head for the first one", 0.15, [=](int32_t h) { return h / g == 0 ? kv - 1 : h / g; }},
      {"two KV heads share the first one", 0.15, [=](int32_t h) { return h / g / 2 * 2; }},
      {"two KV heads share the second one", 0.2, [=](int32_t h) { return std::min(h / g | 1, kv - 1); }},
      {"half of the KV head's number", 0.15, [=](int32_t h) { return h / g / 2; }},
      {"twice the KV head's number, round", 0.2, [=](int32_t h) { return 2 * (h / g) % kv; }},
      {"the next group's KV head for the last query head", 0.15,
       [=](int32_t h) { return h % g == g - 1 ? (h / g + 1) % kv : h / g; }},
      {"the KV head before for the first query head", 0.15,
       [=](int32_t h) { return h % g == 0 ? (h / g + kv - 1) % kv : h / g; }},
  };
  int32_t down = 1;
  while (down * 2 <= g) down *= 2;
  std::vector<int32_t> sizes = {down, down * 2, g - 1, g + 1, 8, 4, 2};
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (int32_t size : sizes)
    if (size > 0 && size != g) {
      const std::string name =
          "groups of " + std::to_string(size) + " query heads instead of " + std::to_string(g);
      maps.push_back({name, 0.1, [=](int32_t h) { return h / size % kv; }});
      maps.push_back({name + ", clamped", 0.15, [=](int32_t h) { return std::min(h / size, kv - 1); }});
    }
  return maps;
}

}  // namespace assay
