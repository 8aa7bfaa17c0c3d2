// SPDX-License-Identifier: Apache-2.0
// A cache as a write left it, and what was to be written: for write_patterns.cpp, write_places.cpp,
// write_altered.cpp and write_codes.cpp.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/explain/same_number.hpp"
#include "harness/explain/stages/explain_step.hpp"
#include "reference/formats/formats.hpp"
#include "reference/formats/quantize.hpp"

namespace assay {

// Relative: codes of x / scale that a kernel may come to.
inline constexpr double kSameCodeShare = 1e-6;

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
  // Where scales are no channel's: else nothing is said.
  bool can() const {
    const auto fine = [&](bool v) {
      const int32_t kind = v ? p_.v_scale_kind : p_.k_scale_kind;
      return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_HOST || kind == ASSAY_SCALE_TENSOR ||
             kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_TOKEN_HEAD;
    };
    return p_.op == ASSAY_OP_CACHE_WRITE && fine(false) && (latent_ || fine(true)) &&
           r_.has(Operand::kDenseK);
  }
  // Rows come as codes, which are copied.
  bool coded() const { return p_.source_format == ASSAY_FORMAT_NONE; }
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
    const int32_t of = coded() ? int32_t{ASSAY_SCALE_NONE} : kind(v);
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
    return is_code(v, left(in_v, slot, head, d), quotient(v, row, slot, head, d));
  }
  bool is_code(bool v, double got, double q) const {
    for (const double by : {1.0, 1 - kSameCodeShare, 1 + kSameCodeShare})
      if (got == round_to(format(v), q * by)) return true;
    return false;
  }
  // ... of another head or dimension of it, by the scale of the place.
  bool holds_of(bool v, int64_t row, int32_t from_head, int32_t from_d, int64_t slot, bool in_v, int32_t head,
                int32_t d) const {
    return is_code(in_v, left(in_v, slot, head, d),
                   source(v, row, from_head, from_d) / scale(in_v, slot, head));
  }
  // Whether the place of head `at` in the row's own slot holds head `from` of the row.
  bool holds_head(bool v, int64_t row, int32_t from, int32_t at) const {
    for (int32_t d = 0; d < dims(v); ++d)
      if (!holds_of(v, row, from, d, slot(row), v, at, d)) return false;
    return true;
  }
  // What lies at an element of the cache's memory; NaN outside of it.
  double at_memory(bool v, int64_t at) const {
    try {
      return c_.written(v ? Operand::kV : Operand::kK, at);
    } catch (const CheckError&) {
      return std::numeric_limits<double>::quiet_NaN();
    }
  }
  double scale_before(bool v, int64_t slot, int32_t head) const {
    const assay_tensor& t = v ? r_.tensors.v_scale : r_.tensors.k_scale;
    return load(t.format, t.data, scale_at(v, slot, head));
  }
  int32_t layout() const { return p_.layout; }
  int64_t page() const { return p_.page_size; }
  bool kept(bool v, int64_t row, int32_t head, int32_t d) const {
    return same_number(left(v, slot(row), head, d), before(v, slot(row), head, d));
  }
  // Whether anything of a slot is another than before.
  bool changes(bool v, int64_t slot) const {
    for (int32_t h = 0; h < heads(); ++h)
      for (int32_t d = 0; d < dims(v); ++d) {
        const double is = left(v, slot, h, d), was = before(v, slot, h, d);
        if (!same_number(is, was)) return true;
      }
    return false;
  }
  int32_t request_of(int64_t row) const {
    for (int32_t r = 0; r < p_.requests; ++r)
      if ((row -= r_.rows_of(r)) < 0) return r;
    return -1;  // padding
  }
  const Reading& reading() const { return r_; }

  int64_t element(bool v, int64_t slot, int32_t head, int32_t d) const {
    return cache_element(cache(v), p_.layout, v, slot / p_.page_size, slot % p_.page_size, head, d);
  }

 private:
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
// All that is due, by whether the cache holds it.
struct WriteElements {
  std::vector<WriteElement> right, wrong;
  // Of what is wrong, less what is right and would not be.
  double share(int64_t fits, int64_t spoilt = 0) const {
    return static_cast<double>(fits - spoilt) / static_cast<double>(wrong.size());
  }
};

inline constexpr double kWriteShare = 0.98;  // of a pattern: a misreading that explains as much is plainer
inline constexpr double kWriteLeast = 0.3;
inline void put_write(std::vector<StepRanked>& list, const char* cause, const std::string& how,
                      double share) {
  if (share <= kWriteLeast) return;
  list.push_back({cause, how, kWriteShare * share, 0, ""});
  list.back().whole = share >= 1;
}

// Whose vectors, dimensions and addresses are others'.
std::vector<StepRanked> write_places(const WriteLook&, const WriteElements&);
// What a vector became on its way.
std::vector<StepRanked> write_altered(const WriteLook&, const WriteElements&);
// Whose slots are changed where no row goes.
std::vector<StepRanked> write_beside(const WriteLook&);
// The slots that are changed where no row goes, on which sides, and those of them that hold keys of a
// context: request and key.
struct ChangedBeside {
  std::set<int64_t> slots;
  std::set<bool> sides;
  std::map<int64_t, std::pair<int32_t, int32_t>> of_context;
};
ChangedBeside changed_beside(const WriteLook&);
// "K of ", and which rows these are, in words: "the last row of every request", "rows 3, 4".
std::string write_sides(const std::set<bool>& sides, bool one_side);
std::string write_rows(const WriteLook&, const std::set<int64_t>& rows);
// How numbers become codes, and scales that are computed.
std::vector<StepRanked> write_codes(const WriteLook&, const WriteElements&);
std::vector<StepRanked> write_scales(const WriteLook&);

}  // namespace assay
