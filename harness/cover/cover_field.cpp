// SPDX-License-Identifier: Apache-2.0
// Finite fields, permutation groups on the symbols of a covering array, and arrays made of linear maps.
// Sources: Bush, "Orthogonal arrays of index unity" (1952); Sherwood, Martirosyan, Colbourn, "Covering
// arrays of higher strength from permutation vectors" (2006) for several families of vectors.
#include <algorithm>
#include <cmath>

#include "harness/base/error.hpp"
#include "harness/cover/cover_parts.hpp"

namespace assay::cover {
namespace {

// q = p^e, or p = 0.
struct PrimePower {
  int p = 0, e = 0;
};

PrimePower factor(int q) {
  for (int p = 2; p <= q; ++p) {
    if (q % p != 0) continue;
    int e = 0;
    for (; q % p == 0; q /= p) ++e;
    return q == 1 ? PrimePower{p, e} : PrimePower{};
  }
  return {};
}

// Elements are polynomials over Z_p, written as numbers in base p.
int polynomial_product(int a, int b, int p, int e, int modulus) {
  std::vector<int> product(2 * e, 0);
  for (int i = 0, x = a; x > 0; ++i, x /= p)
    for (int j = 0, y = b; y > 0; ++j, y /= p) product[i + j] = (product[i + j] + (x % p) * (y % p)) % p;
  // The modulus is x^e + its lower digits: replace x^i by -lower * x^(i-e), from the top.
  for (int i = 2 * e - 1; i >= e; --i) {
    const int top = product[i];
    product[i] = 0;
    for (int j = 0, m = modulus; j < e; ++j, m /= p)
      product[i - e + j] = (product[i - e + j] + (p - top) * (m % p)) % p;
  }
  int out = 0;
  for (int i = e - 1; i >= 0; --i) out = out * p + product[i];
  return out;
}

// Whether every non-zero element has an inverse, i.e. the modulus is irreducible.
bool fill_products(Field* f, int p, int e, int modulus) {
  for (int a = 0; a < f->q; ++a)
    for (int b = 0; b < f->q; ++b)
      f->product[a][b] = e == 1 ? a * b % p : polynomial_product(a, b, p, e, modulus);
  for (int a = 1; a < f->q; ++a) {
    const auto one = std::find(f->product[a].begin(), f->product[a].end(), 1);
    if (one == f->product[a].end()) return false;
    f->inverse[a] = static_cast<int>(one - f->product[a].begin());
  }
  return true;
}

// Determinant != 0 of the t vectors, by elimination.
bool independent(const Field& f, std::array<std::array<int, kMaxStrength>, kMaxStrength> m, int t) {
  for (int c = 0; c < t; ++c) {
    int pivot = c;
    while (pivot < t && m[pivot][c] == 0) ++pivot;
    if (pivot == t) return false;
    std::swap(m[c], m[pivot]);
    for (int r = c + 1; r < t; ++r) {
      const int factor = f.negative[f.product[m[r][c]][f.inverse[m[c][c]]]];
      for (int i = c; i < t; ++i) m[r][i] = f.sum[m[r][i]][f.product[factor][m[c][i]]];
    }
  }
  return true;
}

using Vector = std::array<int, kMaxStrength>;

// (1, x, x^2, ...) for every x, then (0, ..., 0, 1); for t = 3 and even q also (0, 1, 0): any t of them
// are independent.
std::vector<Vector> bush_vectors(const Field& f, int t) {
  std::vector<Vector> out;
  for (int x = 0; x < f.q; ++x) {
    Vector v{};
    v[0] = 1;
    for (int i = 1; i < t; ++i) v[i] = f.product[v[i - 1]][x];
    out.push_back(v);
  }
  Vector last{};
  last[t - 1] = 1;
  out.push_back(last);
  if (t == 3 && f.q % 2 == 0) out.push_back({0, 1, 0, 0});
  return out;
}

class FamilySearch {
 public:
  FamilySearch(const Field& field, int t, int columns, int families)
      : f_(field), t_(t), families_(families), space_(std::vector<int>(columns, 1), t) {
    // First coordinate 1: then multiples of the first unit vector give the q constant rows in every
    // family, and they are needed once only.
    int count = 1;
    for (int i = 1; i < t; ++i) count *= field.q;
    for (int i = 0; i < count; ++i) {
      Vector v{};
      v[0] = 1;
      for (int j = 1, rest = i; j < t; ++j, rest /= field.q) v[j] = rest % field.q;
      points_.push_back(v);
    }
    Random random(97);
    chosen_.assign(families, Row(columns));
    for (Row& row : chosen_)
      for (int& v : row) v = random.below(static_cast<int>(points_.size()));
    bad_.resize(space_.sets.size());
    for (size_t s = 0; s < bad_.size(); ++s) cost_ += bad_[s] = dependent_everywhere(space_.sets[s]);
  }

  // Descent with sideways moves on the number of column sets that no family separates.
  bool run(int64_t effort) {
    Random random(5);
    const int64_t per_move = int64_t{families_} * static_cast<int64_t>(space_.sets_of[0].size()) * t_ * t_;
    std::vector<char> now;
    for (int64_t left = effort / per_move; left > 0 && cost_ > 0; --left) {
      // Change a column of a set that is still bad.
      int skip = random.below(cost_);
      size_t s = 0;
      while (!bad_[s] || skip-- > 0) ++s;
      const int column = space_.sets[s].columns[random.below(t_)];
      int& value = chosen_[random.below(families_)][column];
      const int before = value;
      value = random.below(static_cast<int>(points_.size()));
      const auto& touched = space_.sets_of[column];
      now.clear();
      int cost = cost_;
      for (const int set : touched) {
        now.push_back(dependent_everywhere(space_.sets[set]));
        cost += now.back() - bad_[set];
      }
      if (cost <= cost_ || (cost == cost_ + 1 && random.below(200) == 0)) {
        for (size_t i = 0; i < touched.size(); ++i) bad_[touched[i]] = now[i];
        cost_ = cost;
      } else {
        value = before;
      }
    }
    return cost_ == 0;
  }

  std::vector<std::vector<Vector>> vectors() const {
    std::vector<std::vector<Vector>> out;
    for (const Row& row : chosen_) {
      out.emplace_back();
      for (const int v : row) out.back().push_back(points_[v]);
    }
    return out;
  }

 private:
  bool dependent_everywhere(const TupleSpace::Set& set) const {
    for (const Row& family : chosen_) {
      std::array<Vector, kMaxStrength> m{};
      for (int i = 0; i < t_; ++i) m[i] = points_[family[set.columns[i]]];
      if (independent(f_, m, t_)) return false;
    }
    return true;
  }

  const Field& f_;
  int t_, families_;
  TupleSpace space_;
  std::vector<Vector> points_;
  std::vector<Row> chosen_;  // per family and column, the number of its point
  std::vector<char> bad_;
  int cost_ = 0;
};

}  // namespace

bool is_prime_power(int q) { return q >= 2 && factor(q).p > 0; }

Field make_field(int q) {
  const auto [p, e] = factor(q);
  ASSAY_CHECK(p > 0, "{} is not a prime power", q);
  Field f;
  f.q = q;
  f.sum.assign(q, Row(q));
  f.product.assign(q, Row(q));
  f.negative.resize(q);
  f.inverse.resize(q);
  for (int a = 0; a < q; ++a)
    for (int b = 0; b < q; ++b) {
      int sum = 0;
      for (int i = 0, x = a, y = b, scale = 1; i < e; ++i, x /= p, y /= p, scale *= p)
        sum += (x % p + y % p) % p * scale;
      f.sum[a][b] = sum;
      if (sum == 0) f.negative[a] = b;
    }
  for (int modulus = 0; modulus < q; ++modulus)
    if (fill_products(&f, p, e, modulus)) return f;
  throw CheckError(fmt::format("no field of {} elements", q));
}

std::vector<Row> projective_group(const Field& f) {
  const int infinity = f.q;
  std::vector<Row> out;
  // Every map once: scaled so that c = 1, or c = 0 and d = 1.
  for (int c = 0; c < 2; ++c)
    for (int d = 0; d < f.q; ++d) {
      if (c == 0 && d != 1) continue;
      for (int a = 0; a < f.q; ++a)
        for (int b = 0; b < f.q; ++b) {
          if (f.product[a][d] == f.product[b][c]) continue;
          Row map(f.q + 1);
          for (int x = 0; x < f.q; ++x) {
            const int top = f.sum[f.product[a][x]][b], bottom = f.sum[f.product[c][x]][d];
            map[x] = bottom == 0 ? infinity : f.product[top][f.inverse[bottom]];
          }
          map[infinity] = c == 0 ? infinity : a;  // a / c with c = 1
          out.push_back(std::move(map));
        }
    }
  return out;
}

std::vector<Row> affine_group(const Field& f) {
  std::vector<Row> out;
  for (int a = 1; a < f.q; ++a)
    for (int b = 0; b < f.q; ++b) {
      Row map(f.q);
      for (int x = 0; x < f.q; ++x) map[x] = f.sum[f.product[a][x]][b];
      out.push_back(std::move(map));
    }
  return out;
}

Rows linear_array(int strength, int columns, int q, int families, int64_t effort) {
  const Field f = make_field(q);
  std::vector<std::vector<Vector>> vectors;
  if (families == 1) {
    vectors = {bush_vectors(f, strength)};
    if (static_cast<int>(vectors[0].size()) < columns) return {};
  } else {
    FamilySearch search(f, strength, columns, families);
    if (!search.run(effort)) return {};
    vectors = search.vectors();
  }
  int combinations = 1;
  for (int i = 0; i < strength; ++i) combinations *= q;
  Rows out;
  for (size_t family = 0; family < vectors.size(); ++family)
    for (int u = 0; u < combinations; ++u) {
      // The first q combinations are multiples of (1, 0, ...): constant rows in the searched families.
      if (family > 0 && u < q) continue;
      Row row(columns);
      for (int c = 0; c < columns; ++c)
        for (int i = 0, rest = u; i < strength; ++i, rest /= q)
          row[c] = f.sum[row[c]][f.product[rest % q][vectors[family][c][i]]];
      out.push_back(std::move(row));
    }
  return out;
}

}  // namespace assay::cover
