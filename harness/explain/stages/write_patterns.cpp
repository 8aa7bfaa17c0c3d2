// SPDX-License-Identifier: Apache-2.0
// What a cache write left, read off the cache: rows, dimensions or one side that were left out, rows that lie
// elsewhere or stand for others, codes rounded otherwise, a token's scale taken of all its heads. See
// explain_step.hpp. Each says how many of the wrong elements it gives, less the right ones it would change.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "harness/explain/stages/write_look.hpp"

namespace assay {
namespace {

constexpr size_t kNamedWriteRows = 6;
constexpr double kPaddingShare = 0.97;  // where rows are wrong too: whose slot holds it is the plainer word

}  // namespace

std::string write_sides(const std::set<bool>& sides, bool latent) {
  return latent ? "" : sides.size() == 2 ? "K and V of " : *sides.begin() ? "V of " : "K of ";
}

std::string write_rows(const WriteLook& w, const std::set<int64_t>& rows) {
  std::map<int32_t, std::vector<int64_t>> of;
  for (int64_t n = 0; n < w.rows(); ++n) of[w.request_of(n)].push_back(n);
  const auto are = [&](auto which) {
    std::set<int64_t> due;
    for (const auto& [request, list] : of)
      if (request >= 0)
        for (size_t i = 0; i < list.size(); ++i)
          if (w.slot(list[i]) >= 0 && which(i, list.size())) due.insert(list[i]);
    return due == rows;
  };
  if (are([](size_t, size_t) { return true; })) return "all rows";
  if (are([](size_t i, size_t n) { return i + 1 == n; })) return "the last row of every request";
  if (are([](size_t i, size_t n) { return n > 1 && i + 1 == n; }))
    return "the last row of every request with several";
  if (are([](size_t i, size_t) { return i == 0; })) return "the first row of every request";
  if (are([](size_t i, size_t) { return i > 0; })) return "all rows but the first of every request";
  if (are([](size_t, size_t n) { return n > 1; })) return "the rows of requests with several";
  if (are([](size_t, size_t n) { return n == 1; })) return "the rows of requests with one";
  std::string words;
  for (const int64_t n : rows) {
    if (words.size() / 4 >= kNamedWriteRows) return words + " ...";
    words += fmt::format("{}{}", words.empty() ? "rows " : ", ", n);
  }
  return words;
}

namespace {

class WritePatterns {
 public:
  explicit WritePatterns(const StageCase& c) : w_(c) {
    if (!w_.can()) return;
    for (const bool v : w_.sides())
      for (int64_t n = 0; n < w_.rows(); ++n)
        for (int32_t h = 0; h < w_.heads() && w_.slot(n) >= 0; ++h)
          for (int32_t d = 0; d < w_.dims(v); ++d)
            (w_.right(v, n, h, d) ? all_.right : all_.wrong).push_back({v, n, h, d});
  }
  std::vector<StepRanked> all() {
    if (!w_.can()) return {};
    if (!w_.coded()) list_ = write_scales(w_);
    padding();
    if (all_.wrong.empty()) {
      for (StepRanked& r : write_beside(w_)) list_.push_back(std::move(r));
      return std::move(list_);
    }
    for (auto* more : {write_codes, write_places, write_altered})
      for (StepRanked& r : more(w_, all_)) list_.push_back(std::move(r));
    std::vector<StepRanked> plainer = std::move(list_);
    list_.clear();
    elsewhere();  // says which rows are not left out
    std::swap(plainer, list_);
    left_out();
    list_.insert(list_.end(), plainer.begin(), plainer.end());
    return std::move(list_);
  }

 private:
  void put(const char* cause, const std::string& how, double share) { put_write(list_, cause, how, share); }
  double share(int64_t fits) const { return all_.share(fits); }

  // Elements that hold what lay there before: whole rows, or dimensions of all rows.
  void left_out() {
    std::map<std::pair<bool, int64_t>, int64_t> of_row, due_row;
    std::map<std::pair<bool, int32_t>, int64_t> of_dim, due_dim, of_head, due_head;
    int64_t kept = 0;
    for (const WriteElement& e : all_.right)
      ++due_row[{e.v, e.row}], ++due_dim[{e.v, e.d}], ++due_head[{e.v, e.head}];
    for (const WriteElement& e : all_.wrong) {
      ++due_row[{e.v, e.row}], ++due_dim[{e.v, e.d}], ++due_head[{e.v, e.head}];
      if (!w_.kept(e.v, e.row, e.head, e.d)) continue;
      ++kept, ++of_row[{e.v, e.row}], ++of_dim[{e.v, e.d}], ++of_head[{e.v, e.head}];
    }
    if (kept == 0) return;
    int64_t fits = 0, dims = 0;
    std::set<int64_t> rows;
    std::set<bool> sides;
    for (const auto& [at, count] : of_row)
      if (count == due_row[at] && moved_.count(at) == 0)
        fits += count, rows.insert(at.second), sides.insert(at.first);
    // All of one side has a plainer name.
    if (!rows.empty() && (w_.sides().size() == sides.size() || write_rows(w_, rows) != "all rows"))
      put("row_missing", write_sides(sides, w_.sides().size() == 1) + write_rows(w_, rows), share(fits));
    int64_t of_heads = 0;
    std::set<bool> head_sides;
    std::string heads;
    const auto all_heads = [&](bool v) {  // of one side: it has a plainer name
      for (int32_t h = 0; h < w_.heads(); ++h)
        if (of_head.count({v, h}) == 0 || of_head[{v, h}] != due_head[{v, h}]) return false;
      return true;
    };
    for (const auto& [at, count] : of_head)
      if (count == due_head[at] && !all_heads(at.first)) {
        of_heads += count, head_sides.insert(at.first);
        heads += fmt::format("{}{}", heads.empty() ? "" : ", ", at.second);
      }
    if (of_heads > 0)
      put("heads_missing", fmt::format("{}head {}", write_sides(head_sides, w_.sides().size() == 1), heads),
          share(of_heads));
    int32_t first = -1, last = -1;
    for (const auto& [at, count] : of_dim)
      if (count == due_dim[at]) {
        dims += count;
        if (first < 0) first = at.second;
        first = std::min(first, at.second), last = std::max(last, at.second);
      }
    if (dims > 0 && static_cast<size_t>(last - first) + 1 < due_dim.size() / w_.sides().size())
      put("dims_missing", fmt::format("dimensions {} to {} of all rows", first, last), share(dims));
  }

  // All of a row's elements of one side at a place.
  bool lies(bool v, int64_t row, int64_t slot, bool in_v) const {
    if (w_.dims(v) != w_.dims(in_v)) return false;
    for (int32_t h = 0; h < w_.heads(); ++h)
      for (int32_t d = 0; d < w_.dims(v); ++d)
        if (!w_.holds(v, row, slot, in_v, h, d)) return false;
    return true;
  }

  // Rows that have no slot and were written all the same: of what changed where no row is due, or is due and
  // not there, how much they are.
  void padding() {
    std::set<int64_t> due;
    std::vector<int64_t> rows;
    for (int64_t n = 0; n < w_.rows(); ++n)
      if (w_.slot(n) >= 0)
        due.insert(w_.slot(n));
      else
        rows.push_back(n);
    if (rows.empty()) return;
    std::set<std::pair<bool, int64_t>> wrong;
    for (const WriteElement& e : all_.wrong) wrong.insert({e.v, w_.slot(e.row)});
    int64_t changed = 0, fits = 0;
    std::string how;
    for (const bool v : w_.sides())
      for (int64_t slot = 0; slot < w_.slots(); ++slot) {
        if (due.contains(slot) ? !wrong.contains({v, slot}) : !w_.changes(v, slot)) continue;
        ++changed;
        const auto from =
            std::find_if(rows.begin(), rows.end(), [&](int64_t n) { return lies(v, n, slot, v); });
        if (from == rows.end()) continue;
        ++fits;
        if (how.empty())
          how = fmt::format("row {}, which is padding, lies in {}slot {}", *from,
                            w_.sides().size() == 1 ? ""
                            : v                    ? "V's "
                                                   : "K's ",
                            slot);
      }
    if (fits == 0) return;
    list_.push_back({"rows_beyond", how,
                     (all_.wrong.empty() ? kWriteShare : kPaddingShare) * static_cast<double>(fits) /
                         static_cast<double>(changed),
                     0, ""});
    list_.back().whole = fits == changed;
  }

  // Whether a row that lies in `at` is beside its own slot, round the page or not: 1 behind, -1 before.
  int beside(int64_t own, int64_t at) const {
    const int64_t page = w_.page(), first = own / page * page;
    for (const int by : {1, -1})
      if (at == own + by || at == first + (own - first + page + by) % page) return by;
    return 0;
  }

  // In the slot of a row stands another row; or the row lies in another slot.
  void elsewhere() {
    std::map<std::pair<bool, int64_t>, int64_t> bad;
    for (const WriteElement& e : all_.wrong) ++bad[{e.v, e.row}];
    int64_t others = 0, moved = 0, either = 0, lost = 0;
    std::string how_other, how_moved;
    // Slots by the row that they hold. A row is written to one slot: what lies in two was read twice.
    std::map<std::pair<bool, int64_t>, int64_t> stands;
    for (const bool v : w_.sides())
      for (int64_t n = 0; n < w_.rows(); ++n)
        if (w_.slot(n) >= 0 && bad.count({v, n}) == 0) ++stands[{v, n}];
    bool twice = false;
    std::set<int> steps;
    for (const auto& [at, count] : bad) {
      const auto [v, row] = at;
      bool other = false, found = false;
      for (int64_t n = 0; n < w_.rows() && !other; ++n)
        if (n != row && lies(v, n, w_.slot(row), v)) {
          others += count, other = true;
          twice = twice || ++stands[{v, n}] > 1;
          if (how_other.empty())
            how_other = fmt::format("the slot of row {} holds row {}{}", row, n,
                                    w_.request_of(n) < 0 ? ", which is padding" : "");
        }
      for (int64_t slot = 0; slot < w_.slots() && !found && w_.kind(v) != ASSAY_SCALE_TOKEN_HEAD; ++slot)
        for (const bool in_v : w_.sides())
          if (!found && (slot != w_.slot(row) || in_v != v) && lies(v, row, slot, in_v)) {
            moved += count, found = true, moved_.insert(at);
            steps.insert(in_v == v ? beside(w_.slot(row), slot) : 0);
            if (how_moved.empty())
              how_moved = fmt::format("{} of row {} lies in {}slot {} in place of {}", v ? "V" : "K", row,
                                      in_v == v ? ""
                                      : in_v    ? "V's "
                                                : "K's ",
                                      slot, w_.slot(row));
          }
      either += other || found ? count : 0;
      lost += !other && !found && w_.kept(v, row, 0, 0) ? count : 0;
    }
    by_rules();
    put(twice ? "rows_shifted" : "slots_shifted", how_other, share(others));
    if (steps.size() == 1 && *steps.begin() != 0) put("slots_off_by_one", how_moved, share(moved));
    put("slots_shifted", how_moved, share(moved));
    // What several rows were written to holds the last of them.
    if (!twice && 2 * either > static_cast<int64_t>(all_.wrong.size()))
      put("slots_shifted", how_moved.empty() ? how_other : how_moved, share(either + lost));
  }

  // Slots by a rule of their own: of rows that meet in one the last stands.
  void by_rules() {
    const int64_t page = w_.page(), most = w_.slots();
    const struct {
      const char* how;
      std::function<int64_t(int64_t slot, int64_t first, int64_t behind)> of;
    } rules[] = {
        {"rows behind the first of a request go round the page of that one",
         [=](int64_t, int64_t first, int64_t n) { return first / page * page + (first % page + n) % page; }},
        {"rows follow the first of their request, whichever page is next",
         [](int64_t, int64_t first, int64_t n) { return first + n; }},
        {"all rows of a page go to its first slot",
         [=](int64_t slot, int64_t, int64_t) { return slot / page * page; }},
        {"all rows of a request go to the slot of its first",
         [](int64_t, int64_t first, int64_t) { return first; }},
        {"a page on", [=](int64_t slot, int64_t, int64_t) { return (slot + page) % most; }},
        {"a page before", [=](int64_t slot, int64_t, int64_t) { return (slot + most - page) % most; }},
        {"the place within a page alone, in block 0",
         [=](int64_t slot, int64_t, int64_t) { return slot % page; }},
        {"places within a page backwards",
         [=](int64_t slot, int64_t, int64_t) { return slot / page * page + page - 1 - slot % page; }},
    };
    for (const auto& rule : rules) {
      std::map<int64_t, int64_t> stands;  // row by slot
      int64_t begin = 0, fits = 0;
      for (int64_t n = 0; n < w_.rows(); ++n) {
        if (n > 0 && w_.request_of(n) != w_.request_of(n - 1)) begin = n;
        if (w_.slot(n) >= 0 && w_.slot(begin) >= 0)
          stands[rule.of(w_.slot(n), w_.slot(begin), n - begin)] = n;
      }
      for (const WriteElement& e : all_.wrong) {
        const auto at = stands.find(w_.slot(e.row));
        fits += at == stands.end() ? w_.kept(e.v, e.row, e.head, e.d)
                                   : w_.holds(e.v, at->second, at->first, e.v, e.head, e.d);
      }
      // Nothing but what was left out says nothing of where it went.
      int64_t lie = 0, gone = 0;
      for (const auto& [slot, row] : stands)
        if (slot < most && slot != w_.slot(row)) ++gone, lie += lies(false, row, slot, false);
      if (2 * lie >= gone && gone > 0) put("slots_shifted", rule.how, share(fits));
    }
  }

  WriteLook w_;
  WriteElements all_;
  std::set<std::pair<bool, int64_t>> moved_;  // side and row: lie elsewhere
  std::vector<StepRanked> list_;
};

}  // namespace

std::vector<StepRanked> write_patterns(const StageCase& c) {
  if (c.kernel().op != ASSAY_OP_CACHE_WRITE || !c.given().has(Operand::kSlotMapping)) return {};
  return WritePatterns(c).all();
}

}  // namespace assay
