// SPDX-License-Identifier: Apache-2.0
// See row_places.hpp.
#include "harness/explain/families/row_places.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "harness/explain/families/head_maps.hpp"

namespace assay {

std::vector<RowPlace> row_places(const Problem& p) {
  const int32_t longest = p.max_kv_len(), most_rows = p.max_q_len();
  const Request first = p.requests.empty() ? Request{} : p.requests[0];
  std::vector<RowPlace> places = {
      {"the row counted back from the longest request's keys",
       [longest](const Scene& s) { return longest - s.problem.requests[s.cell.request].q_len + s.cell.row; }},
      {"the keys of the longest request in place of the context",
       [longest](const Scene& s) { return s.position + longest - s.kv_len; }},
      {"the row counted on from keys minus the longest request's rows",
       [most_rows](const Scene& s) { return s.kv_len - most_rows + s.cell.row; }},
      {"the context of the first request",
       [first](const Scene& s) { return first.context_len() + s.cell.row; }},
      {"the row behind all keys", [](const Scene& s) { return s.kv_len + s.cell.row; }},
      {"the last row for all", [](const Scene& s) { return s.kv_len - 1; }},
      {"the first row for all",
       [](const Scene& s) { return s.problem.requests[s.cell.request].context_len(); }},
      {"rows from the last to the first", [](const Scene& s) { return s.kv_len - 1 - s.cell.row; }},
  };
  for (RowPlace& place : places) place.plain = true;
  if (p.group() > 1)
    places.push_back({"the row counted with the heads of the group", [](const Scene& s) {
                        const int32_t g = s.problem.group();
                        return s.problem.requests[s.cell.request].context_len() + s.cell.row * g +
                               s.cell.head % g;
                      }});
  if (p.group() > 1)
    places.push_back({"the row of the packed (row, head of the group)", [](const Scene& s) {
                        const int32_t g = s.problem.group(), n = s.problem.requests[s.cell.request].q_len;
                        return s.problem.requests[s.cell.request].context_len() +
                               (s.cell.row * g + s.cell.head % g) % n;
                      }});
  // A row and a head in one number.
  for (const int32_t sign : {1, -1}) {
    const char* how = sign > 0 ? "and" : "less";
    if (p.group() > 1)
      places.push_back(
          {fmt::format("the row's position {} the head's number in its group", how),
           [sign](const Scene& s) { return s.position + sign * (s.cell.head % s.problem.group()); }});
    if (p.heads_kv > 1)
      places.push_back(
          {fmt::format("the row's position {} the KV head's number", how),
           [sign](const Scene& s) { return s.position + sign * (s.cell.head / s.problem.group()); }});
    if (p.requests.size() > 1)
      places.push_back({fmt::format("the row's position {} the request's number", how),
                        [sign](const Scene& s) { return s.position + sign * s.cell.request; }});
  }
  for (int32_t size = 1; size <= 2 * p.group() && p.group() > 1; ++size) {
    if (size == p.group()) continue;
    places.push_back(
        {fmt::format("packed rows divided by {} instead of the group", size), [size](const Scene& s) {
           const int32_t g = s.problem.group(), n = s.problem.requests[s.cell.request].q_len;
           const int32_t row = (s.cell.row * g + s.cell.head % g) / size;
           return s.problem.requests[s.cell.request].context_len() + std::min(row, n - 1);
         }});
  }
  for (int32_t grain : {2, 4, 8, 16, 32, 64, 128})
    for (bool of_rows : {true, false})
      for (bool last : {true, false})
        places.push_back(
            {fmt::format("the {} of {} {}", last ? "last" : "first", grain,
                         of_rows ? "rows of the request for all of them" : "positions for all of them"),
             [=](const Scene& s) {
               const int32_t own = of_rows ? s.cell.row : s.position;
               const int32_t to = own / grain * grain + (last ? grain - 1 : 0);
               const int32_t n = s.problem.requests[s.cell.request].q_len;
               return s.position + (of_rows && last ? std::min(to, n - 1) : to) - own;
             },
             last ? "mask.causal_long" : "mask.causal_short"});
  for (const IndexMap& map : request_maps(p)) {
    places.push_back(
        {"the row counted on from keys minus the rows of " + map.name, [&p, of = map.of](const Scene& s) {
           return s.kv_len - p.requests[of(s.cell.request)].q_len + s.cell.row;
         }});
    places.push_back({"the row counted back from the keys of " + map.name, [&p, of = map.of](const Scene& s) {
                        return p.requests[of(s.cell.request)].kv_len - p.requests[s.cell.request].q_len +
                               s.cell.row;
                      }});
  }
  if (!p.positions.empty())
    places.push_back({"the row of that number in the batch", [&p](const Scene& s) {
                        const int64_t first = p.first_key.empty() ? 0 : p.first_key[s.cell.request];
                        size_t r = 0;
                        int32_t row = s.cell.row;
                        while (r + 1 < p.requests.size() && row >= p.requests[r].q_len)
                          row -= p.requests[r++].q_len;
                        const bool held = row < static_cast<int32_t>(p.positions[r].size());
                        return held ? static_cast<int32_t>(p.positions[r][row] - first) : s.position;
                      }});
  // Positions that the case gives and the kernel does not read, or counts from elsewhere.
  if (!p.positions.empty())
    places.push_back(
        {"rows at the end of the keys, the given positions not read",
         [](const Scene& s) { return s.problem.requests[s.cell.request].context_len() + s.cell.row; },
         "mask.causal_anchor", true});
  if (!p.first_key.empty())
    places.push_back({"the row's position, the first key's not taken off",
                      [](const Scene& s) { return s.position + s.problem.first_key[s.cell.request]; }});
  // Tiles of rows that forget where they start.
  for (int32_t tile : {2, 4, 8, 16, 32, 64, 128})
    if (tile < most_rows)
      places.push_back({fmt::format("the row's number in its tile of {} rows", tile),
                        [tile](const Scene& s) { return s.position - s.cell.row / tile * tile; }});
  // A position that is kept in few bits.
  for (int32_t size = 16; size < p.max_kv_len(); size *= 2)
    places.push_back({fmt::format("the row's position modulo {}", size),
                      [size](const Scene& s) { return s.position % size; }, "mask.causal_short"});
  return places;
}

}  // namespace assay
