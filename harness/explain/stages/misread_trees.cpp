// SPDX-License-Identifier: Apache-2.0
// Misreadings of draft trees: bits of another row, column, request or step, and what rows see whatever the
// bits say. See misreadings.hpp.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "harness/explain/stages/misreadings.hpp"

namespace assay {

void Misreadings::trees() {
  if (!case_.attends() || !has(Operand::kTreeMask) || !has(Operand::kTreeIndptr) || p().flat_tree != 0)
    return;
  // A bit of row i and column j of n drafts is that of another place, none, or set. Behind `steps` of drafts
  // that are cached stand the rows' own.
  constexpr int64_t kSeen = -2;
  const int64_t steps = p().drafted, wide = steps + 1;
  const auto bits = [&](const char* cause, const std::string& how, auto rule) {
    add(cause, how, [=](Reading& r) {
      assay_tensor& t = r.tensors.tree_mask;
      const auto* own = static_cast<const uint8_t*>(t.data);
      std::vector<std::byte> now(static_cast<size_t>(t.shape[0]));
      for (int64_t i = 0; i < t.shape[0]; ++i) now[static_cast<size_t>(i)] = std::byte{own[i * t.stride[0]]};
      const std::vector<std::byte> old = now;
      const auto* starts = static_cast<const int64_t*>(r.tensors.tree_indptr.data);
      for (int32_t request = 0; request < r.problem.requests; ++request) {
        const int64_t n = r.rows_of(request), first = starts[request * r.tensors.tree_indptr.stride[0]];
        if (first < 0 || first + n * n * wide > t.shape[0]) return false;
        const auto sees = [&](int64_t i, int64_t j) {
          return old[static_cast<size_t>(first + i * n * wide + j)] != std::byte{0};
        };
        for (int64_t i = 0; i < n; ++i)
          for (int64_t j = 0; j < n * wide; ++j) {
            int64_t from;
            if constexpr (std::is_invocable_v<decltype(rule), int64_t, int64_t, int64_t, decltype(sees)>)
              from = rule(i, j, n, sees);
            else
              from = rule(i, j, n);
            now[static_cast<size_t>(first + i * n * wide + j)] =
                from < 0 ? std::byte{from == kSeen} : old[static_cast<size_t>(first + from)];
          }
      }
      if (now == old) return false;
      r.lists->push_back(std::move(now));
      t.data = r.lists->back().data(), t.stride[0] = 1;
      return true;
    });
  };
  const auto starts_at = [&](const std::string& how, auto rule) {
    add("mask.tree_shifted", how, [=](Reading& r) {
      assay_tensor& starts = r.tensors.tree_indptr;
      std::vector<int64_t> now;
      int64_t row = 0, before = 0;
      for (int32_t request = 0; request < r.problem.requests; ++request) {
        const int64_t n = r.rows_of(request);
        now.push_back(rule(request, row, before, n));
        if (now.back() < 0 || now.back() + n * n * wide > r.tensors.tree_mask.shape[0]) return false;
        row += n, before = n;
      }
      now.push_back(r.tensors.tree_mask.shape[0]);
      r.lists->emplace_back(now.size() * sizeof(int64_t));
      std::memcpy(r.lists->back().data(), now.data(), now.size() * sizeof(int64_t));
      starts.data = r.lists->back().data(), starts.stride[0] = 1;
      return true;
    });
  };
  starts_at("trees begin at the number of rows before them",
            [](int64_t, int64_t row, int64_t, int64_t) { return row; });
  starts_at("trees begin at the number of requests before them",
            [](int64_t request, int64_t, int64_t, int64_t) { return request; });
  starts_at("trees as large as a request's own lie before it",
            [=](int64_t request, int64_t, int64_t, int64_t n) { return request * n * n * wide; });
  for (int32_t one = 0; one < std::min(8, p().requests); ++one) {
    const int64_t size = given_.rows_of(one);
    starts_at(fmt::format("trees as large as request {}'s lie before each", one),
              [=](int64_t request, int64_t, int64_t, int64_t) { return request * size * size * wide; });
  }
  starts_at("of the trees before a request a row each is counted",
            [](int64_t request, int64_t, int64_t, int64_t n) { return request * n; });
  // The row that is looked at, and whether a draft sees itself all the same.
  const struct {
    const char *cause, *words;
    int64_t (*row)(int64_t i, int64_t n);
  } rows[] = {
      {"mask.tree_shifted", "the last draft", [](int64_t, int64_t n) { return n - 1; }},
      {"mask.tree_shifted", "the first draft", [](int64_t, int64_t) { return int64_t{0}; }},
      {"mask.tree_shifted", "the draft behind", [](int64_t i, int64_t n) { return std::min(n - 1, i + 1); }},
      {"mask_tree", "the draft before", [](int64_t i, int64_t) { return std::max<int64_t>(0, i - 1); }}};
  for (const auto& one : rows)
    for (const bool self : {false, true})
      bits(one.cause, fmt::format("the row of {}{}", one.words, self ? ", and every draft sees itself" : ""),
           [=, row = one.row](int64_t i, int64_t j, int64_t n) {
             return self && j == steps * n + i ? kSeen : row(i, n) * n * wide + j;
           });
  for (const int64_t width : {8, 16, 32, 64})
    if (p().max_q_len * wide > width)
      bits("mask.tree_shifted", fmt::format("bit {} and what follows are the first ones again", width),
           [=](int64_t i, int64_t j, int64_t n) { return i * n * wide + j % width; });
  if (steps > 0) {
    bits("mask.tree_shifted", "rows of the mask are taken to be as long as there are rows",
         [](int64_t i, int64_t j, int64_t n) { return i * n + j; });
    bits("mask.tree_shifted", "steps of every branch for branches of every step",
         [=](int64_t i, int64_t j, int64_t n) { return i * n * wide + j % n * wide + j / n; });
    bits("mask.tree_shifted", "branches of every step for steps of every branch",
         [=](int64_t i, int64_t j, int64_t n) { return i * n * wide + j % wide * n + j / wide; });
    bits("mask.tree_shifted", "of the steps before, steps of every branch for branches of every step",
         [=](int64_t i, int64_t j, int64_t n) {
           return i * n * wide + (j < steps * n ? j % n * steps + j / n : j);
         });
    bits("mask.tree_shifted", "of the steps before, branches of every step for steps of every branch",
         [=](int64_t i, int64_t j, int64_t n) {
           return i * n * wide + (j < steps * n ? j % steps * n + j / steps : j);
         });
    bits("mask.tree_shifted", "bits of the last step for all",
         [=](int64_t i, int64_t j, int64_t n) { return i * n * wide + steps * n + j % n; });
    bits("mask.tree_shifted", "bits of the first step for all",
         [=](int64_t i, int64_t j, int64_t n) { return i * n * wide + j % n; });
    bits("mask_tree", "of the steps before every draft of the first branch is seen, and no other",
         [=](int64_t i, int64_t j, int64_t n) {
           return j >= steps * n ? i * n * wide + j : j % n == 0 ? kSeen : -1;
         });
    bits("mask_tree", "of the steps before every draft of a row's own number is seen, and no other",
         [=](int64_t i, int64_t j, int64_t n) {
           return j >= steps * n ? i * n * wide + j : j % n == i ? kSeen : -1;
         });
    bits("mask.tree_cut", "of the steps before the last alone is seen",
         [=](int64_t i, int64_t j, int64_t n) { return j < (steps - 1) * n ? -1 : i * n * wide + j; });
    bits("drafts_new_alone", "no draft of the steps before is seen",
         [=](int64_t i, int64_t j, int64_t n) { return j < steps * n ? -1 : i * n * wide + j; });
    bits("mask.tree_cut", "every draft of the steps before is seen",
         [=](int64_t i, int64_t j, int64_t n) { return j < steps * n ? kSeen : i * n * wide + j; });
    return;
  }
  bits("mask.tree_transposed", "rows and columns exchanged",
       [](int64_t i, int64_t j, int64_t n) { return j * n + i; });
  bits("mask_tree", "drafts from the last to the first",
       [](int64_t i, int64_t j, int64_t n) { return (n - 1 - i) * n + (n - 1 - j); });
  bits("mask_tree", "bits of a row from the last to the first",
       [](int64_t i, int64_t j, int64_t n) { return i * n + (n - 1 - j); });
  bits("mask_tree", "no draft sees itself",
       [](int64_t i, int64_t j, int64_t n) { return i == j ? -1 : i * n + j; });
  bits("mask_tree", "every draft sees itself alone",
       [](int64_t i, int64_t j, int64_t n) { return i == j ? i * n + j : -1; });
  bits("mask_tree", "every draft sees itself alone, whatever the tree says of that",
       [](int64_t i, int64_t j, int64_t) { return i == j ? kSeen : -1; });
  bits("mask_tree", "every draft sees itself too",
       [](int64_t i, int64_t j, int64_t n) { return i == j ? kSeen : i * n + j; });
  // The last draft before a row that it sees, -1: none; the first one likewise.
  const auto last_seen = [](int64_t i, const auto& sees) {
    int64_t at = i - 1;
    while (at >= 0 && !sees(i, at)) --at;
    return at;
  };
  const auto first_seen = [](int64_t i, const auto& sees) {
    int64_t at = 0;
    while (at < i && !sees(i, at)) ++at;
    return at < i ? at : -1;
  };
  bits("mask.tree_cut", "of its ancestors every draft sees the last alone",
       [=](int64_t i, int64_t j, int64_t n, const auto& sees) {
         return j == i || j == last_seen(i, sees) ? i * n + j : -1;
       });
  bits("mask.tree_cut", "of its ancestors every draft sees the first alone",
       [=](int64_t i, int64_t j, int64_t n, const auto& sees) {
         return j == i || j == first_seen(i, sees) ? i * n + j : -1;
       });
  bits("mask.tree_cut", "no draft sees the last of its ancestors",
       [=](int64_t i, int64_t j, int64_t n, const auto& sees) {
         return j == last_seen(i, sees) ? -1 : i * n + j;
       });
  bits("mask.tree_cut", "no draft sees the first of its ancestors",
       [=](int64_t i, int64_t j, int64_t n, const auto& sees) {
         return j == first_seen(i, sees) ? -1 : i * n + j;
       });
  bits("mask_tree", "drafts of one parent see each other",
       [=](int64_t i, int64_t j, int64_t n, const auto& sees) {
         return j < i && last_seen(i, sees) == last_seen(j, sees) ? kSeen : i * n + j;
       });
  bits("mask_tree", "every draft sees itself and the one before alone",
       [](int64_t i, int64_t j, int64_t) { return i == j || i == j + 1 ? kSeen : -1; });
}

}  // namespace assay
