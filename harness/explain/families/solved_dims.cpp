// SPDX-License-Identifier: Apache-2.0
// Whole numbers of dimensions that no list holds: how many are missing, displaced, or in another order.
#include <algorithm>

#include "harness/explain/families/keys_solver.hpp"

namespace assay {
namespace {

// Dimensions of Q, K, V and O.
void dims(KeysSolver& add) {
  const int32_t n = add.problem().head_dim_qk, v = add.problem().head_dim_v;
  const auto q =
      [&](std::string_view cause, const char* text, int32_t low, int32_t high,
          const std::function<void(std::vector<double> & to, const std::vector<double>& from, int32_t x)>&
              of) {
        add.rule(cause, text, "", 0.5, low, high, [=](Rules& r, int32_t x) {
          r.edit_q = [=](const Scene&, double* out) {
            const std::vector<double> from(out, out + n);
            std::vector<double> to = from;
            of(to, from, x);
            std::copy(to.begin(), to.end(), out);
          };
        });
      };
  using V = std::vector<double>;
  q("dims.qk_dropped", "the last {} dimensions missing", 1, n - 1,
    [n](V& to, const V&, int32_t x) { std::fill(to.begin() + (n - x), to.end(), 0.0); });
  q("dims.qk_dropped", "the first {} dimensions missing", 1, n - 1,
    [](V& to, const V&, int32_t x) { std::fill(to.begin(), to.begin() + x, 0.0); });
  q("dims.qk_dropped", "the last dimension of every {} missing", 2, n, [n](V& to, const V&, int32_t x) {
    for (int32_t d = x - 1; d < n; d += x) to[static_cast<size_t>(d)] = 0;
  });
  q("dims.qk_order", "K's dimensions rotated by {}", 1, n - 1, [n](V& to, const V& from, int32_t x) {
    for (int32_t d = 0; d < n; ++d) to[static_cast<size_t>((d + x) % n)] = from[static_cast<size_t>(d)];
  });
  q("dims.qk_order", "dimensions in reverse in groups of {}", 2, n, [n](V& to, const V& from, int32_t x) {
    for (int32_t d = 0; d < n; ++d) {
      const int32_t start = d / x * x, end = std::min(n, start + x);
      to[static_cast<size_t>(d)] = from[static_cast<size_t>(start + end - 1 - d)];
    }
  });
  // K in vectors of x of which only `wide` stand together: dimension d is taken from where another vector
  // length would put it.
  for (int32_t wide : {2, 4, 8, 16, 32})
    q("dims.qk_order", "vectors of {} dimensions", 1, wide * 4, [=](V& to, const V& from, int32_t x) {
      if (x == wide || n % wide != 0) return;
      std::fill(to.begin(), to.end(), 0.0);
      for (int32_t d = 0; d < n; ++d)
        to[static_cast<size_t>((d / x % (n / wide) * wide + d % x) % n)] += from[static_cast<size_t>(d)];
    });
  const auto o = [&](std::string_view cause, const char* text,
                     const std::function<double(const std::vector<double>& from, int32_t d, int32_t x)>& of) {
    add.rule(cause, text, "", 0.5, 1, v - 1, [=](Rules& r, int32_t x) {
      r.finish = [=](const Scene&, std::vector<double>& to, double&) {
        const std::vector<double> from = to;
        for (int32_t d = 0; d < v; ++d) to[static_cast<size_t>(d)] = of(from, d, x);
      };
    });
  };
  o("dims.v_shifted", "dimensions of O rotated by {}",
    [v](const V& from, int32_t d, int32_t x) { return from[static_cast<size_t>((d + v - x) % v)]; });
  o("dims.v_shifted", "dimensions of O {} further on, none behind them",
    [v](const V& from, int32_t d, int32_t x) { return d + x < v ? from[static_cast<size_t>(d + x)] : 0; });
  o("dims.v_shifted", "dimensions of O in reverse in groups of {}", [v](const V& from, int32_t d, int32_t x) {
    const int32_t start = d / x * x, end = std::min(v, start + x);
    return from[static_cast<size_t>(start + end - 1 - d)];
  });
  o("dims.v_dropped", "the last {} dimensions of O zero",
    [v](const V& from, int32_t d, int32_t x) { return d < v - x ? from[static_cast<size_t>(d)] : 0; });
  o("dims.v_dropped", "the first {} dimensions of O zero",
    [](const V& from, int32_t d, int32_t x) { return d < x ? 0 : from[static_cast<size_t>(d)]; });
}

}  // namespace

void solved_dim_family(const Clues& clues, Hypotheses& out) {
  if (too_large(clues, kLargestCell)) return;
  KeysSolver add(clues, out);
  dims(add);
}

}  // namespace assay
