// SPDX-License-Identifier: Apache-2.0
// What became of new keys on their way into the cache: vectors in their slots that are a plain function of
// what came, each by itself (zeros, a multiple, less its mean, turned in pairs, mixed with its neighbour). A
// new one: a rule of vectors in `rules`, or of all of a side beside `by_dimension`. See write_look.hpp.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>

#include "harness/explain/stages/write_look.hpp"

namespace assay {
namespace {

constexpr int32_t kAlteredLeastDims = 8;  // of fewer two fitted numbers say nothing
constexpr double kAlteredShare = 0.96;    // of a vector's own numbers: whose number it is stands before it
constexpr double kAlteredSame = 0.02;
constexpr size_t kAlteredLeastVectors = 4;  // that share a number of each dimension

using VectorNumbers = std::vector<double>;

struct AlteredVector {
  bool v;
  int64_t row;
  int32_t head;
  VectorNumbers came, got, was;  // as codes
};

double product_of(const VectorNumbers& a, const VectorNumbers& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
double rms_of(const VectorNumbers& a) { return std::sqrt(product_of(a, a) / static_cast<double>(a.size())); }

bool all_close(const VectorNumbers& all, double to) {
  return !all.empty() && std::all_of(all.begin(), all.end(), [&](double x) {
    return std::fabs(x - to) <= kAlteredSame * std::fabs(to);
  });
}

class AlteredRows {
 public:
  AlteredRows(const WriteLook& w, const WriteElements& all) : w_(w), all_(all) {
    std::set<std::tuple<bool, int64_t, int32_t>> wrong;
    for (const WriteElement& e : all.wrong) wrong.insert({e.v, e.row, e.head});
    for (const auto& [v, row, head] : wrong) {
      // A scale that is computed goes with what came.
      if (w.dims(v) < kAlteredLeastDims || w.kind(v) == ASSAY_SCALE_TOKEN_HEAD) continue;
      AlteredVector x = vector_of(v, row, head);
      const bool kept = std::equal(x.got.begin(), x.got.end(), x.was.begin(), same_number);
      // Nor is what came, rounded otherwise.
      if (!kept && !are(x, x.came)) vectors_.push_back(std::move(x));
    }
  }
  std::vector<StepRanked> all() {
    if (vectors_.empty()) return {};
    rules();
    by_dimension();
    return std::move(list_);
  }

 private:
  VectorNumbers codes_of(bool v, int64_t row, int64_t slot, int32_t head) const {
    VectorNumbers x;
    for (int32_t d = 0; d < w_.dims(v); ++d) x.push_back(w_.quotient(v, row, slot, head, d));
    return x;
  }
  AlteredVector vector_of(bool v, int64_t row, int32_t head) const {
    AlteredVector x{v, row, head, codes_of(v, row, w_.slot(row), head), {}, {}};
    for (int32_t d = 0; d < w_.dims(v); ++d)
      x.got.push_back(w_.left(v, w_.slot(row), head, d)),
          x.was.push_back(w_.before(v, w_.slot(row), head, d));
    return x;
  }
  // Twice what rounding to a code takes away, as numbers were fitted to rounded ones; small codes as the
  // vector's usual one.
  bool is(const AlteredVector& x, size_t d, double due) const {
    const int32_t format = w_.format(x.v);
    const double most = format == ASSAY_INT8
                            ? 1
                            : 2 * half_spacing(format_info(format), std::max(std::fabs(due), rms_of(x.came)));
    return std::fabs(x.got[d] - due) <= most;
  }
  bool are(const AlteredVector& x, const VectorNumbers& due) const {
    for (size_t d = 0; d < due.size(); ++d)
      if (!is(x, d, due[d])) return false;
    return true;
  }
  // got = a came + b other, by least squares.
  std::array<double, 2> mixed(const AlteredVector& x, const VectorNumbers& other) const {
    const double xx = product_of(x.came, x.came), xy = product_of(x.came, other),
                 yy = product_of(other, other);
    const double gx = product_of(x.got, x.came), gy = product_of(x.got, other), det = xx * yy - xy * xy;
    if (!(det > 1e-9 * xx * yy)) return {0, 0};
    return {(gx * yy - gy * xy) / det, (gy * xx - gx * xy) / det};
  }

  // Of each vector by itself; `words` says it of those that fit.
  void rule(const std::function<bool(const AlteredVector&)>& fits,
            const std::function<std::string(const std::vector<const AlteredVector*>&)>& words) {
    std::vector<const AlteredVector*> fit;
    std::set<std::tuple<bool, int64_t, int32_t>> of;
    for (const AlteredVector& x : vectors_)
      if (fits(x)) fit.push_back(&x), of.insert({x.v, x.row, x.head});
    if (fit.empty()) return;
    int64_t elements = 0;
    std::set<int64_t> rows;
    std::set<bool> sides;
    for (const WriteElement& e : all_.wrong)
      if (of.contains({e.v, e.row, e.head})) ++elements, rows.insert(e.row), sides.insert(e.v);
    const std::string what = words(fit);
    const double share = all_.share(elements);
    if (what.empty() || share <= kWriteLeast) return;
    list_.push_back({"key_altered",
                     write_sides(sides, w_.sides().size() == 1) + write_rows(w_, rows) + ": " + what,
                     kAlteredShare * share, 0, ""});
  }

  void rules() {
    using Fit = std::vector<const AlteredVector*>;
    const auto plain = [this](const AlteredVector& x) { return w_.kind(x.v) == ASSAY_SCALE_NONE; };
    rule(
        [&](const AlteredVector& x) {
          return std::all_of(x.got.begin(), x.got.end(), [](double g) { return g == 0; });
        },
        [](const Fit&) { return "zeros"; });
    // One number times what came. Beside a scale that is the scale's matter, unless all come out as large.
    const auto factor = [](const AlteredVector& x) {
      return product_of(x.got, x.came) / product_of(x.came, x.came);
    };
    rule(
        [&](const AlteredVector& x) {
          VectorNumbers due = x.came;
          const double by = factor(x);
          for (double& n : due) n *= by;
          return by != 0 && are(x, due);
        },
        [&](const Fit& fit) -> std::string {
          VectorNumbers by, sizes;
          for (const AlteredVector* x : fit) by.push_back(factor(*x)), sizes.push_back(rms_of(x->got));
          const bool none =
              std::all_of(fit.begin(), fit.end(), [&](const AlteredVector* x) { return plain(*x); });
          if (all_close(by, 1)) return "";  // nothing but rounding
          if (all_close(by, by[0])) return none ? fmt::format("{:.3g} times what came", by[0]) : "";
          if (fit.size() > 1 && all_close(sizes, sizes[0])) return "normalised: all come out as large";
          return none ? "each times a number of its own" : "";
        });
    const auto beside = [&](const char* words, auto other_of, bool needs_both) {
      rule(
          [&](const AlteredVector& x) {
            const VectorNumbers other = other_of(x);
            if (other.size() != x.came.size()) return false;
            const auto [a, b] = mixed(x, other);
            VectorNumbers due = x.came;
            for (size_t d = 0; d < due.size(); ++d) due[d] = a * due[d] + b * other[d];
            return (needs_both ? std::fabs(a) > kAlteredSame : true) && std::fabs(b) > 0 && are(x, due);
          },
          [&](const Fit&) { return words; });
    };
    beside(
        "less their mean, or more by a number of their own",
        [](const AlteredVector& x) { return VectorNumbers(x.came.size(), 1.0); }, true);
    beside(
        "mixed with the row before",
        [&](const AlteredVector& x) {
          return x.row > 0 ? codes_of(x.v, x.row - 1, w_.slot(x.row), x.head) : VectorNumbers{};
        },
        true);
    beside(
        "mixed with the next row",
        [&](const AlteredVector& x) {
          return x.row + 1 < w_.rows() ? codes_of(x.v, x.row + 1, w_.slot(x.row), x.head) : VectorNumbers{};
        },
        true);
    beside(
        "mixed with what lay there before",
        [](const AlteredVector& x) {
          return std::all_of(x.was.begin(), x.was.end(), [](double n) { return std::isfinite(n); })
                     ? x.was
                     : VectorNumbers{};
        },
        true);
    for (const bool halves : {true, false})
      rule(
          [=, this](const AlteredVector& x) {
            const size_t half = x.came.size() / 2;
            for (size_t n = 0; n < half; ++n) {
              const size_t a = halves ? n : 2 * n, b = halves ? n + half : 2 * n + 1;
              const double due = std::hypot(x.came[a], x.came[b]), got = std::hypot(x.got[a], x.got[b]);
              const int32_t format = w_.format(x.v);
              const double most =
                  format == ASSAY_INT8 ? 1.5 : 3 * half_spacing(format_info(format), std::max(due, got));
              if (std::fabs(due - got) > most) return false;
            }
            return true;
          },
          [=](const Fit&) {
            return halves ? "turned in pairs of a dimension and the one half the head on"
                          : "turned in pairs of neighbouring dimensions";
          });
  }

  // A number of each dimension, the same in every row and head of a side, as the weights of a norm are.
  void by_dimension() {
    for (const bool v : w_.sides()) {
      std::vector<const AlteredVector*> of;
      for (const AlteredVector& x : vectors_)
        if (x.v == v) of.push_back(&x);
      if (of.size() < kAlteredLeastVectors || w_.kind(v) != ASSAY_SCALE_NONE) continue;
      VectorNumbers by;
      for (size_t d = 0; d < of[0]->came.size(); ++d) {
        double gx = 0, xx = 0;
        for (const AlteredVector* x : of) gx += x->got[d] * x->came[d], xx += x->came[d] * x->came[d];
        by.push_back(xx > 0 ? gx / xx : 0);
      }
      rule(
          [&](const AlteredVector& x) {
            if (x.v != v) return false;
            VectorNumbers due = x.came;
            for (size_t d = 0; d < due.size(); ++d) due[d] *= by[d];
            return are(x, due);
          },
          [](const std::vector<const AlteredVector*>&) {
            return "each dimension times a number of its own";
          });
    }
  }

  const WriteLook& w_;
  const WriteElements& all_;
  std::vector<AlteredVector> vectors_;
  std::vector<StepRanked> list_;
};

}  // namespace

std::vector<StepRanked> write_altered(const WriteLook& w, const WriteElements& all) {
  return AlteredRows(w, all).all();
}

}  // namespace assay
