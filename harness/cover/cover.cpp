// SPDX-License-Identifier: Apache-2.0
// covering_array(): tries every construction that applies and keeps the smallest array. Without
// constraints and with even levels that is usually an algebraic one (orthogonal array, starter rows under
// a group); otherwise the greedy one, post-optimised. Sizes reached, beside published ones, are in
// cover.md. Effort is counted in table look-ups, never in seconds, so results do not depend on the
// machine; the constants below keep the largest problem of a suite under ten seconds on one core.
#include "harness/cover/cover.hpp"

#include <algorithm>

#include "harness/base/error.hpp"
#include "harness/cover/cover_parts.hpp"

namespace assay {
namespace {

using cover::Constraints;
using cover::Rows;
using cover::TupleSpace;

// Beyond this the tables of tuples do not fit in memory comfortably (one byte each, a few of them).
constexpr double kMaxTuples = 1 << 28;

void check_problem(const CoverProblem& problem, int strength) {
  ASSAY_CHECK(problem.strength >= 1 && problem.strength <= cover::kMaxStrength, "strength {} is not 1 to {}",
              problem.strength, cover::kMaxStrength);
  for (size_t i = 0; i < problem.levels.size(); ++i)
    ASSAY_CHECK(problem.levels[i] >= 1, "axis {} has {} values", i, problem.levels[i]);
  // Sum over column sets of the product of levels: an elementary symmetric polynomial.
  std::vector<double> tuples(strength + 1, 0);
  tuples[0] = 1;
  for (const int v : problem.levels)
    for (int i = strength; i >= 1; --i) tuples[i] += tuples[i - 1] * v;
  if (tuples[strength] > kMaxTuples)
    throw InputError(
        fmt::format("cover={}: {} axes have {:.3g} value combinations to cover; at most {:.3g} are accepted: "
                    "lower the strength or split the line",
                    problem.strength, problem.levels.size(), tuples[strength], kMaxTuples));
}

// Effort that the size of a problem deserves: small ones are done in milliseconds.
int64_t effort_for(const TupleSpace& space, int64_t per_tuple, int64_t most) {
  return std::min(most, space.total * per_tuple);
}

class Best {
 public:
  Best(const TupleSpace& space, const Constraints& constraints, Rows first, std::vector<uint8_t> wanted)
      : space_(space), constraints_(constraints), wanted_(std::move(wanted)), rows_(std::move(first)) {}

  int size() const { return static_cast<int>(rows_.size()); }
  const Rows& rows() const { return rows_; }
  const std::vector<uint8_t>& wanted() const { return wanted_; }

  // Takes an array for at least these axes and levels if it ends up smaller.
  void offer(Rows rows, int64_t effort) {
    if (rows.empty()) return;
    // Worth post-optimising only when it is already near.
    if (static_cast<int>(rows.size()) > size() + size() / 4) return;
    rows = cover::compact(space_, constraints_, wanted_, std::move(rows), effort);
    if (static_cast<int>(rows.size()) < size()) rows_ = std::move(rows);
  }

 private:
  const TupleSpace& space_;
  const Constraints& constraints_;
  std::vector<uint8_t> wanted_;
  Rows rows_;
};

// Arrays for `v` values on every axis of the space, smaller than what is known.
void offer_uniform(const TupleSpace& space, int v, Best* best) {
  const int k = space.columns(), t = space.strength;
  const int64_t polish = effort_for(space, 3000, 150'000'000);
  // A field of at least v elements; surplus symbols become free cells for the post-optimisation.
  for (int q = v, fields = 0; q <= 2 * v && q <= 128 && fields < 2; ++q) {
    if (!cover::is_prime_power(q)) continue;
    ++fields;
    double family = 1;
    for (int i = 0; i < t; ++i) family *= q;
    for (int families = 1; families <= 3; ++families) {
      if ((families - 1) * (family - q) + family > 1.25 * best->size()) break;
      Rows rows = cover::linear_array(t, k, q, families, polish);
      if (rows.empty()) continue;
      best->offer(std::move(rows), polish);
      break;
    }
  }
  const TupleSpace even(std::vector<int>(k, v), t);
  // Developed starters hardly ever lose a row to the post-optimisation, so little is spent on it.
  best->offer(cover::starter_array(even, best->size(), effort_for(even, 20000, 1'000'000'000)), polish / 10);
}

}  // namespace

std::vector<std::vector<int>> covering_array(const CoverProblem& problem) {
  const int axes = static_cast<int>(problem.levels.size());
  if (axes == 0) return {{}};
  const int strength = std::min(problem.strength, axes);
  check_problem(problem, strength);

  const TupleSpace space(problem.levels, strength);
  const Constraints constraints(problem.levels, problem.constraints);
  cover::Row any(axes, -1);
  ASSAY_CHECK(constraints.complete(&any), "the constraints allow no row at all");

  std::vector<uint8_t> wanted;
  Rows first = cover::greedy(space, constraints, &wanted);
  Best best(space, constraints, std::move(first), std::move(wanted));
  best.offer(best.rows(), effort_for(space, 3000, 150'000'000));

  // The t largest level counts multiply to a lower bound; only an array above it can shrink.
  std::vector<int> sorted = problem.levels;
  std::sort(sorted.rbegin(), sorted.rend());
  int64_t bound = 1;
  for (int i = 0; i < strength; ++i) bound *= sorted[i];
  // With mixed levels an array for the largest of them on every axis contains one for the problem. It can
  // only win when it is not itself bound to be larger.
  int64_t even_bound = 1;
  for (int i = 0; i < strength; ++i) even_bound *= sorted[0];
  if (constraints.none() && best.size() > bound && even_bound <= best.size() && strength >= 2 &&
      sorted[0] >= 2)
    offer_uniform(space, sorted[0], &best);

  ASSAY_CHECK(cover::uncovered(space, best.wanted(), best.rows()) == 0, "a combination is left uncovered");
  return best.rows();
}

}  // namespace assay
