// SPDX-License-Identifier: Apache-2.0
// Attacks on tier P's dot products (BOUNDS.md, L22): keys that differ in their last dimensions alone. What a
// kernel rounds before it comes to these is one error of all of them, however many there are, and O sees it
// where V knows which key is of which kind.
#pragma once

#include "reference/attacks/attacks_found.hpp"

namespace assay::attacks {

// Keys of `kinds` kinds; those of one are the same but for their last `own` dimensions. Their products grow
// to `size` each and cancel.
struct Kinship {
  int32_t keys = 2000, dims = 64, kinds = 1, own = 1;
  double size = 10;
  bool v_by_kind = false;  // V has the kind's sign
  bool opposed = false;    // every other kind is the one before with its sign turned
  double apart = 1;        // a key in so many is of a kind, all others score far lower and differ everywhere
  bool sparse_q = false;   // dimensions in which all keys differ, and Q has zeros
};

inline std::function<DenseCase(uint64_t)> kin(const Kinship& k) {
  return [=](uint64_t seed) {
    DenseCase c = make_case(Family::kNormal, 1, 1, k.dims, seed, ASSAY_FP32);
    Problem& p = c.problem;
    p.requests = {{1, k.keys}}, p.softmax_scale = 1;
    const int32_t d = k.dims, closes = d - k.own - 1, from = k.sparse_q ? d / 4 : 0;
    for (int32_t t = 0; t < d; ++t)
      c.q[t] = c.q[d + t] = t < from ? 0 : t > closes ? 1 / std::sqrt(k.own) : normal(seed, 1, t);
    c.k.assign(size_t{1} * k.keys * d, 0.0), c.v = c.k;
    for (int64_t j = 0; j < k.keys; ++j) {
      const auto kind = static_cast<int64_t>(k.kinds * uniform(seed, 9, j));
      const bool far = uniform(seed, 8, j) * k.apart >= 1, turned = k.opposed && kind % 2 == 1;
      double sum = 0;
      for (int32_t t = 0; t < d; ++t) {
        double& x = c.k[j * d + t];
        const int64_t of = far ? 100000 + j : k.opposed ? kind / 2 : kind;
        if (t > closes)
          x = 0.3 * normal(seed, 3, j * d + t) - (far && t == d - 1 ? 25 : 0);
        else if (t == closes)
          x = -sum / double(static_cast<float>(c.q[closes]));
        else
          x = (turned ? -1 : 1) * k.size * normal(seed, 2, d * (t < from ? 200000 + j : of) + t);
        if (t < closes) sum += double(static_cast<float>(c.q[t])) * double(static_cast<float>(x));
        c.v[j * d + t] =
            (k.v_by_kind ? (kind % 2 ? 1 : -1) : 0) + (k.v_by_kind ? 0.01 : 1) * normal(seed, 4, j * d + t);
      }
    }
    c.store();
    return c;
  };
}

// The dimensions the other way round.
inline DenseCase turned_dimensions(const DenseCase& c) {
  DenseCase turned = c;
  const int64_t d = c.problem.head_dim_qk;
  for (const auto member : {&DenseCase::q, &DenseCase::k})
    for (size_t i = 0; i < (c.*member).size(); ++i)
      (turned.*member)[i / d * d + d - 1 - i % d] = (c.*member)[i];
  turned.store();
  return turned;
}

// Q's code times its scale is rounded once, for all keys, which are near each other.
inline std::function<DenseCase(uint64_t)> near_keys(double size, double noise) {
  return [=](uint64_t seed) {
    constexpr int32_t kKeys = 8000, kDims = 128;
    DenseCase c = make_case(Family::kNormal, 1, 1, kDims, seed, ASSAY_BF16);
    c.problem.requests = {{1, kKeys}}, c.problem.softmax_scale = 1;
    c.problem.q_format = ASSAY_FP8_E4M3, c.problem.q_scale = ASSAY_SCALE_TENSOR;
    c.q_scale = {0.0137f + 0.0013f * static_cast<float>(seed)};
    std::vector<double> mean(kDims);
    double dot = 0, square = 0;
    for (int32_t t = 0; t < kDims; ++t) {
      c.q[t] = c.q[kDims + t] = round_to(ASSAY_FP8_E4M3, 100 * normal(seed, 1, t));
      mean[t] = size * normal(seed, 2, t), dot += mean[t] * c.q[t], square += c.q[t] * c.q[t];
    }
    for (int32_t t = 0; t < kDims; ++t) mean[t] -= dot / square * c.q[t];
    c.k.resize(size_t{kKeys} * kDims), c.v.resize(c.k.size());
    for (size_t i = 0; i < c.k.size(); ++i)
      c.k[i] = mean[i % kDims] + noise * normal(seed, 3, int64_t(i)), c.v[i] = normal(seed, 4, int64_t(i));
    c.store();
    return c;
  };
}

inline std::vector<Attack> of_shared_products() {
  using A = assay_arithmetic;
  std::vector<Attack> all;
  const char* aim = "P: errors of dot products average over the keys";
  const auto same = [&](const char* name, const Kinship& k, const A& a) {
    all.push_back({name, aim, kin(k), a, a, {}, 6});
  };
  const A four = fp32(4, 64), one = fp32(1, 64);
  same("keys of one kind, four lanes", {}, four);
  same("the same, one lane", {}, one);
  same("the same, order undeclared", {}, unordered(four));
  same("the same, P in bf16", {}, with(arithmetic(ASSAY_BF16, 4, 64), [](A& a) { a.order_declared = 1; }));
  same("the same, 32 dimensions of a size of 30", {.dims = 32, .size = 30}, one);
  same("the same, few keys", {.keys = 200, .dims = 128}, four);
  same("the same, an eighth of the dimensions their own", {.dims = 128, .own = 16}, four);
  same("two kinds, V by kind", {.kinds = 2, .v_by_kind = true}, four);
  same("the same, one lane", {.kinds = 2, .v_by_kind = true}, one);
  same("the same, order undeclared", {.kinds = 2, .v_by_kind = true}, unordered(four));
  same("a kind and its opposite, V by kind", {.kinds = 2, .v_by_kind = true, .opposed = true}, four);
  same("eight kinds, V by kind", {.keys = 4000, .kinds = 8, .v_by_kind = true}, four);
  same("a kind that has the weight, others everywhere", {.keys = 6000, .apart = 40}, four);
  same("two such kinds, V by kind", {.keys = 6000, .kinds = 2, .v_by_kind = true, .apart = 40}, four);
  same("keys that differ where Q is zero", {.sparse_q = true}, four);
  // fp32 sums take any order: the first dimension is the one in which keys differ, and comes last.
  all.push_back({"keys of one kind, the first dimension last",
                 aim,
                 [](uint64_t seed) { return turned_dimensions(kin({})(seed)); },
                 four,
                 four,
                 {},
                 6,
                 turned_dimensions});
  for (const double noise : {0.01, 0.1})
    all.push_back({"Q times its scale, near keys",
                   "P: errors of Q's elements average over the keys",
                   near_keys(10, noise),
                   four,
                   four,
                   {},
                   2});
  return all;
}

}  // namespace assay::attacks
