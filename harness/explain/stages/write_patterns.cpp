// SPDX-License-Identifier: Apache-2.0
// What a cache write left, read off the cache: rows, dimensions or one side that were left out, rows that lie
// elsewhere or stand for others, codes rounded otherwise, a token's scale taken of all its heads. See
// explain_step.hpp. Each says how many of the wrong elements it gives, less the right ones it would change.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "harness/explain/rounding.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/quantize.hpp"

namespace assay {
namespace {

constexpr double kWriteShare =
    0.98;  // of what a pattern explains: a misreading that explains as much is plainer
constexpr double kWriteLeast = 0.3;
constexpr double kSameCode = 1e-6;  // relative: codes of x / scale that a kernel may come to
constexpr size_t kNamedWriteRows = 6;

class WriteLook {
 public:
  explicit WriteLook(const StageCase& c) : c_(c), r_(c.given()), p_(r_.problem) {
    latent_ = p_.layout == ASSAY_LAYOUT_MLA;
    const assay_tensor& slots = r_.tensors.slot_mapping;
    rows_ = slots.shape[0];
    for (int64_t at = 0; at < rows_; ++at)
      slots_.push_back(static_cast<const int64_t*>(slots.data)[at * slots.stride[0]]);
    for (const bool v : {false, true})
      if (!v || !latent_) sides_.push_back(v);
  }
  // Where rows come as numbers and scales are no channel's: else nothing is said.
  bool can() const {
    const auto fine = [&](bool v) {
      const int32_t kind = v ? p_.v_scale_kind : p_.k_scale_kind;
      return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_HOST || kind == ASSAY_SCALE_TENSOR ||
             kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_TOKEN_HEAD;
    };
    return p_.op == ASSAY_OP_CACHE_WRITE && p_.source_format != ASSAY_FORMAT_NONE && fine(false) &&
           (latent_ || fine(true)) && r_.has(Operand::kDenseK);
  }
  const std::vector<bool>& sides() const { return sides_; }
  int64_t rows() const { return rows_; }
  int64_t slot(int64_t row) const { return slots_[static_cast<size_t>(row)]; }
  int64_t slots() const { return cache(false).shape[0] * p_.page_size; }
  int32_t heads() const { return p_.heads_kv; }
  int32_t dims(bool v) const { return v ? p_.head_dim_v : p_.head_dim_qk; }
  const assay_tensor& cache(bool v) const { return v ? r_.tensors.v : r_.tensors.k; }
  int32_t format(bool v) const { return cache(v).format; }
  int32_t kind(bool v) const { return v ? p_.v_scale_kind : p_.k_scale_kind; }

  double source(bool v, int64_t row, int32_t head, int32_t d) const {
    const assay_tensor* t = v ? &r_.tensors.dense_v : &r_.tensors.dense_k;
    if (!v && latent_ && r_.has(Operand::kDenseV) && d >= t->shape[t->rank - 1]) {
      d -= static_cast<int32_t>(t->shape[t->rank - 1]);
      t = &r_.tensors.dense_v;
    }
    return load(t->format, t->data, row * t->stride[0] + head * t->stride[1] + d * t->stride[t->rank - 1]);
  }
  double left(bool v, int64_t slot, int32_t head, int32_t d) const {
    return c_.written(v ? Operand::kV : Operand::kK, element(v, slot, head, d));
  }
  double before(bool v, int64_t slot, int32_t head, int32_t d) const {
    return load(format(v), cache(v).data, element(v, slot, head, d));
  }
  // The one that was written, where it is dynamic.
  double scale(bool v, int64_t slot, int32_t head) const {
    const assay_tensor& t = v ? r_.tensors.v_scale : r_.tensors.k_scale;
    const int32_t of = kind(v);
    if (of == ASSAY_SCALE_HOST) return v ? p_.v_scale_host : p_.k_scale_host;
    if (of == ASSAY_SCALE_TENSOR) return load(t.format, t.data, 0);
    if (of == ASSAY_SCALE_HEAD) return load(t.format, t.data, head * t.stride[0]);
    if (of == ASSAY_SCALE_TOKEN_HEAD)
      return c_.written(v ? Operand::kVScale : Operand::kKScale, scale_at(v, slot, head));
    return 1;
  }
  double quotient(bool v, int64_t row, int64_t slot, int32_t head, int32_t d) const {
    return source(v, row, head, d) / scale(v, slot, head);
  }
  bool right(bool v, int64_t row, int32_t head, int32_t d) const {
    return holds(v, row, slot(row), v, head, d);
  }
  // Whether a place holds what a row is to become there; `in_v`: of V's part of the cache.
  bool holds(bool v, int64_t row, int64_t slot, bool in_v, int32_t head, int32_t d) const {
    const double got = left(in_v, slot, head, d), q = quotient(v, row, slot, head, d);
    for (const double by : {1.0, 1 - kSameCode, 1 + kSameCode})
      if (got == round_to(format(v), q * by)) return true;
    return false;
  }
  bool kept(bool v, int64_t row, int32_t head, int32_t d) const {
    const double got = left(v, slot(row), head, d), was = before(v, slot(row), head, d);
    return got == was || (std::isnan(got) && std::isnan(was));
  }
  int32_t request_of(int64_t row) const {
    for (int32_t r = 0; r < p_.requests; ++r)
      if ((row -= r_.rows_of(r)) < 0) return r;
    return -1;  // padding
  }
  const Reading& reading() const { return r_; }

 private:
  int64_t element(bool v, int64_t slot, int32_t head, int32_t d) const {
    return cache_element(cache(v), p_.layout, v, slot / p_.page_size, slot % p_.page_size, head, d);
  }
  int64_t scale_at(bool v, int64_t slot, int32_t head) const {
    const assay_tensor& t = v ? r_.tensors.v_scale : r_.tensors.k_scale;
    return slot / p_.page_size * t.stride[0] + head * t.stride[1] + slot % p_.page_size * t.stride[2];
  }
  const StageCase& c_;
  const Reading& r_;
  const assay_problem& p_;
  bool latent_ = false;
  int64_t rows_ = 0;
  std::vector<int64_t> slots_;
  std::vector<bool> sides_;
};

struct WriteElement {
  bool v;
  int64_t row;
  int32_t head, d;
};

std::string write_sides(const std::set<bool>& sides, bool latent) {
  return latent ? "" : sides.size() == 2 ? "K and V of " : *sides.begin() ? "V of " : "K of ";
}

// Which rows these are, in words.
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

class WritePatterns {
 public:
  explicit WritePatterns(const StageCase& c) : w_(c) {
    if (!w_.can()) return;
    for (const bool v : w_.sides())
      for (int64_t n = 0; n < w_.rows(); ++n)
        for (int32_t h = 0; h < w_.heads() && w_.slot(n) >= 0; ++h)
          for (int32_t d = 0; d < w_.dims(v); ++d)
            (w_.right(v, n, h, d) ? right_ : wrong_).push_back({v, n, h, d});
  }
  std::vector<StepRanked> all() {
    if (!w_.can()) return {};
    scales();
    if (wrong_.empty()) return std::move(list_);
    roundings();
    left_out();
    elsewhere();
    return std::move(list_);
  }

 private:
  void put(const char* cause, const std::string& how, double share) {
    if (share > kWriteLeast) list_.push_back({cause, how, kWriteShare * share, 0, ""});
  }
  double share(int64_t fits, int64_t spoilt = 0) const {
    return static_cast<double>(fits - spoilt) / static_cast<double>(wrong_.size());
  }

  // Codes of the quotient by another rule; what it gives where the nearest one stands must be that.
  void roundings() {
    using Rule = double (*)(int32_t, double);
    const struct {
      const char *cause, *how;
      Rule of;
      bool whole;  // of whole numbers alone
    } rules[] = {
        {"codes_rounded", "toward zero",
         [](int32_t f, double q) { return f == ASSAY_INT8 ? round_to(f, std::trunc(q)) : truncate_to(f, q); },
         false},
        {"codes_rounded", "down", [](int32_t f, double q) { return round_to(f, std::floor(q)); }, true},
        {"codes_rounded", "up", [](int32_t f, double q) { return round_to(f, std::ceil(q)); }, true},
        {"codes_rounded", "halves away from zero",
         [](int32_t f, double q) { return round_to(f, std::round(q)); }, true},
        {"codes_rounded", "to bf16 before",
         [](int32_t f, double q) { return round_to(f, round_to(ASSAY_BF16, q)); }, false},
        {"codes_rounded", "to fp16 before",
         [](int32_t f, double q) { return round_to(f, round_to(ASSAY_FP16, q)); }, false},
        {"codes_wrap", "numbers beyond the largest code taken modulo 256",
         [](int32_t, double q) {
           return static_cast<double>(static_cast<int8_t>(static_cast<int64_t>(std::nearbyint(q)) & 0xff));
         },
         true},
    };
    for (const auto& rule : rules) {
      int64_t fits = 0, spoilt = 0;
      const auto given = [&](const WriteElement& e) {
        if (rule.whole && w_.format(e.v) != ASSAY_INT8) return false;
        const double q = w_.quotient(e.v, e.row, w_.slot(e.row), e.head, e.d);
        if (!std::isfinite(q) || std::fabs(q) > 1e15) return false;
        const double got = w_.left(e.v, w_.slot(e.row), e.head, e.d);
        for (const double by : {1.0, 1 - kSameCode, 1 + kSameCode})
          if (rule.of(w_.format(e.v), q * by) == got) return true;
        return false;
      };
      for (const WriteElement& e : wrong_) fits += given(e);
      if (share(fits) <= kWriteLeast) continue;
      for (const WriteElement& e : right_) spoilt += !given(e);
      put(rule.cause, rule.how, share(fits, spoilt));
    }
  }

  // Elements that hold what lay there before: whole rows, or dimensions of all rows.
  void left_out() {
    std::map<std::pair<bool, int64_t>, int64_t> of_row, due_row;
    std::map<std::pair<bool, int32_t>, int64_t> of_dim, due_dim;
    int64_t kept = 0;
    for (const WriteElement& e : right_) ++due_row[{e.v, e.row}], ++due_dim[{e.v, e.d}];
    for (const WriteElement& e : wrong_) {
      ++due_row[{e.v, e.row}], ++due_dim[{e.v, e.d}];
      if (!w_.kept(e.v, e.row, e.head, e.d)) continue;
      ++kept, ++of_row[{e.v, e.row}], ++of_dim[{e.v, e.d}];
    }
    if (kept == 0) return;
    int64_t fits = 0, dims = 0;
    std::set<int64_t> rows;
    std::set<bool> sides;
    for (const auto& [at, count] : of_row)
      if (count == due_row[at]) fits += count, rows.insert(at.second), sides.insert(at.first);
    // All of one side has a plainer name.
    if (!rows.empty() && (w_.sides().size() == sides.size() || write_rows(w_, rows) != "all rows"))
      put("row_missing", write_sides(sides, w_.sides().size() == 1) + write_rows(w_, rows), share(fits));
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

  // In the slot of a row stands another row; or the row lies in another slot.
  void elsewhere() {
    std::map<std::pair<bool, int64_t>, int64_t> bad;
    for (const WriteElement& e : wrong_) ++bad[{e.v, e.row}];
    int64_t others = 0, moved = 0;
    std::string how_other, how_moved;
    for (const auto& [at, count] : bad) {
      const auto [v, row] = at;
      for (int64_t n = 0; n < w_.rows(); ++n)
        if (n != row && lies(v, n, w_.slot(row), v)) {
          others += count;
          if (how_other.empty())
            how_other = fmt::format("the slot of row {} holds row {}{}", row, n,
                                    w_.request_of(n) < 0 ? ", which is padding" : "");
          break;
        }
      if (w_.kind(v) == ASSAY_SCALE_TOKEN_HEAD) continue;
      for (int64_t slot = 0, found = 0; slot < w_.slots() && !found; ++slot)
        for (const bool in_v : w_.sides())
          if (!found && (slot != w_.slot(row) || in_v != v) && lies(v, row, slot, in_v)) {
            moved += count, found = 1;
            if (how_moved.empty())
              how_moved = fmt::format("{} of row {} lies in {}slot {} in place of {}", v ? "V" : "K", row,
                                      in_v == v ? ""
                                      : in_v    ? "V's "
                                                : "K's ",
                                      slot, w_.slot(row));
          }
    }
    put("slots_shifted", how_other, share(others));
    put("slots_shifted", how_moved, share(moved));
    in_first_page();
  }

  // Rows behind the first of a request in its page, round and round: of those that meet the last one stands.
  void in_first_page() {
    const int64_t page = w_.reading().problem.page_size;
    std::map<int64_t, int64_t> stands;  // row by slot
    int64_t begin = 0;
    for (int64_t n = 0; n < w_.rows(); ++n) {
      if (n > 0 && w_.request_of(n) != w_.request_of(n - 1)) begin = n;
      if (w_.slot(n) < 0 || w_.slot(begin) < 0) continue;
      const int64_t first = w_.slot(begin);
      stands[first / page * page + (first % page + n - begin) % page] = n;
    }
    int64_t fits = 0;
    for (const WriteElement& e : wrong_) {
      const auto at = stands.find(w_.slot(e.row));
      fits += at == stands.end() ? w_.kept(e.v, e.row, e.head, e.d)
                                 : w_.holds(e.v, at->second, at->first, e.v, e.head, e.d);
    }
    put("slots_shifted", "rows behind the first of a request go round the page of that one", share(fits));
  }

  // Dynamic scales of a token that are those of its largest head.
  void scales() {
    int64_t wrong = 0, fits = 0, spoilt = 0;
    for (const bool v : w_.sides()) {
      if (w_.kind(v) != ASSAY_SCALE_TOKEN_HEAD) continue;
      for (int64_t n = 0; n < w_.rows(); ++n) {
        if (w_.slot(n) < 0) continue;
        double largest = 0;
        std::vector<double> of_head;
        for (int32_t h = 0; h < w_.heads(); ++h) {
          double one = 0;
          for (int32_t d = 0; d < w_.dims(v); ++d) one = std::max(one, std::fabs(w_.source(v, n, h, d)));
          of_head.push_back(one), largest = std::max(largest, one);
        }
        for (int32_t h = 0; h < w_.heads(); ++h) {
          const double got = w_.scale(v, w_.slot(n), h);
          const auto is = [&](double size) {
            const Interval due = dynamic_scale(size, w_.format(v), kSameCode);
            return due.low <= got && got <= due.high;
          };
          if (is(of_head[static_cast<size_t>(h)]))
            spoilt += !is(largest);
          else
            ++wrong, fits += is(largest);
        }
      }
    }
    if (wrong > 0)
      put("scale_of_one", "a token's scale is that of the largest of its heads",
          static_cast<double>(fits - spoilt) / static_cast<double>(wrong));
  }

  WriteLook w_;
  std::vector<WriteElement> right_, wrong_;
  std::vector<StepRanked> list_;
};

}  // namespace

std::vector<StepRanked> write_patterns(const StageCase& c) {
  if (c.kernel().op != ASSAY_OP_CACHE_WRITE || !c.given().has(Operand::kSlotMapping)) return {};
  return WritePatterns(c).all();
}

}  // namespace assay
