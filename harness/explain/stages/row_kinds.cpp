// SPDX-License-Identifier: Apache-2.0
// See row_kinds.hpp.
#include "harness/explain/stages/row_kinds.hpp"

#include <fmt/format.h>

#include <functional>
#include <set>

#include "harness/problem/request_class.hpp"

namespace assay {
namespace {

struct RowAt {
  size_t request = 0, requests = 0;
  int32_t row = 0;
  const Request* of = nullptr;
};
struct RowKind {
  std::string words;
  std::function<bool(const RowAt&)> holds;
};

std::vector<RowKind> row_kinds(const Problem& step) {
  std::vector<RowKind> kinds;
  const auto add = [&](std::string words, std::function<bool(const RowAt&)> holds) {
    kinds.push_back({std::move(words), std::move(holds)});
  };
  const struct {
    const char* words;
    std::vector<assay_request_class> of;
  } classes[] = {{"decodes", {ASSAY_REQUEST_DECODE}},
                 {"extends", {ASSAY_REQUEST_EXTEND}},
                 {"prefills", {ASSAY_REQUEST_PREFILL}},
                 {"extends and prefills", {ASSAY_REQUEST_EXTEND, ASSAY_REQUEST_PREFILL}},
                 {"decodes and extends", {ASSAY_REQUEST_DECODE, ASSAY_REQUEST_EXTEND}}};
  for (const auto& c : classes)
    add(c.words, [&step, of = c.of](const RowAt& at) {
      for (const assay_request_class one : of)
        if (request_class(step, *at.of) == one) return true;
      return false;
    });
  add("requests with one row", [](const RowAt& at) { return at.of->q_len == 1; });
  add("requests with several rows", [](const RowAt& at) { return at.of->q_len > 1; });
  add("requests with context", [](const RowAt& at) { return at.of->context_len() > 0; });
  add("requests without context", [](const RowAt& at) { return at.of->context_len() <= 0; });
  add("requests with context and several rows",
      [](const RowAt& at) { return at.of->context_len() > 0 && at.of->q_len > 1; });
  add("all requests but the first", [](const RowAt& at) { return at.request > 0; });
  add("the first request", [](const RowAt& at) { return at.request == 0; });
  add("all requests but the last", [](const RowAt& at) { return at.request + 1 < at.requests; });
  add("the last request", [](const RowAt& at) { return at.request + 1 == at.requests; });
  add("all rows of a request but the first", [](const RowAt& at) { return at.row > 0; });
  add("the first row of every request", [](const RowAt& at) { return at.row == 0; });
  add("all rows of a request but the last", [](const RowAt& at) { return at.row + 1 < at.of->q_len; });
  add("the last row of every request", [](const RowAt& at) { return at.row + 1 == at.of->q_len; });
  // Where a part ends with the context, or with the last key, or holds a few keys alone. Of the page by that
  // name as well, which other lines have in another size.
  const auto ends = [&](int32_t unit, const std::string& with, const std::string& within) {
    add("requests whose context ends " + with,
        [=](const RowAt& at) { return at.of->context_len() > 0 && at.of->context_len() % unit == 0; });
    add("requests whose context ends " + within,
        [=](const RowAt& at) { return at.of->context_len() % unit != 0; });
    add("requests whose keys end " + with, [=](const RowAt& at) { return at.of->kv_len % unit == 0; });
    add("requests whose keys end " + within, [=](const RowAt& at) { return at.of->kv_len % unit != 0; });
  };
  if (step.page_size > 1) ends(step.page_size, "with a page", "within a page");
  for (const int32_t unit : std::set<int32_t>{std::max(2, step.page_size), 16, 32, 64, 128, 256})
    ends(unit, fmt::format("with a run of {} keys", unit), fmt::format("within a run of {} keys", unit));
  return kinds;
}

}  // namespace

std::vector<std::string> told_by_kinds(const Problem& step, const std::vector<uint8_t>& in,
                                       const std::vector<uint8_t>& out) {
  std::vector<std::string> all;
  const auto is = [](const std::vector<uint8_t>& rows, size_t at) {
    return at < rows.size() && rows[at] != 0;
  };
  for (const RowKind& kind : row_kinds(step)) {
    bool fits = true;
    size_t at = 0;
    for (size_t r = 0; r < step.requests.size() && fits; ++r)
      for (int32_t i = 0; i < step.requests[r].q_len && fits; ++i, ++at) {
        const bool holds = kind.holds({r, step.requests.size(), i, &step.requests[r]});
        fits = holds ? !is(out, at) : !is(in, at);
      }
    for (; at < in.size() && fits; ++at) fits = !is(in, at);  // rows of no request
    if (fits) all.push_back(kind.words);
  }
  return all;
}

}  // namespace assay
