// SPDX-License-Identifier: Apache-2.0
// Which draft masks of one's own (bits=) fit a line: as many rows of as many bits as every request has
// drafts.
#include <algorithm>

#include "harness/ops/op.hpp"
#include "harness/scenario/field_names.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/rule_tables.hpp"

namespace assay {
namespace {

// Rows of bits, one for each draft of a request.
std::vector<std::string_view> rows_of(std::string_view bits) {
  std::vector<std::string_view> rows;
  for (size_t at = 0; at <= bits.size();) {
    const size_t end = std::min(bits.find('/', at), bits.size());
    rows.push_back(bits.substr(at, end - at));
    at = end + 1;
  }
  return rows;
}

// Every row sees itself and what its last ancestor sees: a row's depth is the number of drafts before it.
bool is_tree(const std::vector<std::string_view>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i][i] != '1' || rows[i].find('1', i + 1) != std::string_view::npos) return false;
    const size_t last = i == 0 ? std::string_view::npos : rows[i].rfind('1', i - 1);
    const std::string_view before = rows[i].substr(0, i);
    if (last == std::string_view::npos) continue;
    if (before.substr(0, last + 1) != rows[last].substr(0, last + 1)) return false;
  }
  return true;
}

// How many rows every group has that has any; -1: different numbers, or nobody knows.
int64_t common_rows(const BatchSpec& batch) {
  int64_t rows = 0;
  if (batch.kind != BatchSpec::Kind::kMix) return -1;
  for (const BatchGroup& g : batch.groups) {
    if (g.q_len == 0) continue;
    if (rows != 0 && rows != g.q_len) return -1;
    rows = g.q_len;
  }
  return rows;
}

}  // namespace

std::vector<Rule> tree_rules() {
  return {
      {"tree_bits_op",
       {"op", "bits", "mask", "drafted"},
       [](const Scenario& s) {
         const Op& op = op_of(s.op);
         return s.tree_bits.empty() ||
                (takes(op, "bits") && s.drafted == 0 && (s.mask == ASSAY_MASK_TREE || is_about_trees(op)));
       },
       [](const Scenario& s) {
         if (s.drafted != 0)
           return fmt::format("bits= are those of one step's drafts; leave out drafted={} or bits=",
                              s.drafted);
         return fmt::format("bits= say which drafts of a tree see each other; {} them",
                            takes(op_of(s.op), "mask") ? "write mask=tree with" : "leave out");
       }},
      {"tree_bits",
       {"bits", "batch"},
       [](const Scenario& s) {
         if (s.tree_bits.empty()) return true;
         const std::vector<std::string_view> rows = rows_of(s.tree_bits);
         return common_rows(s.batch) == static_cast<int64_t>(rows.size()) &&
                std::all_of(rows.begin(), rows.end(),
                            [&](std::string_view row) { return row.size() == rows.size(); });
       },
       [](const Scenario& s) {
         const std::vector<std::string_view> rows = rows_of(s.tree_bits);
         const int64_t wanted = common_rows(s.batch);
         if (wanted < 0)
           return std::string(
               "bits= are those of every request; give all groups the same number of new rows (q)");
         size_t shortest = rows[0].size(), longest = shortest;
         for (const std::string_view row : rows)
           shortest = std::min(shortest, row.size()), longest = std::max(longest, row.size());
         return fmt::format(
             "bits=: the draft mask has {} row{} of {} bits, and requests of {} drafts need {} rows of {}",
             rows.size(), rows.size() == 1 ? "" : "s",
             shortest == longest ? fmt::format("{}", longest) : fmt::format("{} to {}", shortest, longest),
             wanted, wanted, wanted);
       }},
      {"tree_bits_depth",
       {"op", "bits", "positions", "batch"},
       [](const Scenario& s) {
         if (s.tree_bits.empty() || s.positions != kDepthPositions || op_of(s.op).rows_anywhere) return true;
         const std::vector<std::string_view> rows = rows_of(s.tree_bits);
         const bool square = std::all_of(rows.begin(), rows.end(),
                                         [&](std::string_view row) { return row.size() == rows.size(); });
         return !square || is_tree(rows);
       },
       [](const Scenario&) {
         return std::string(
             "bits= with positions=depth are a tree: every draft sees itself, no later one, and what the "
             "last draft that it sees does; such as 100/110/101");
       }},
  };
}

}  // namespace assay
