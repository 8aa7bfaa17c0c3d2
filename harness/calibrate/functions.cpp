// SPDX-License-Identifier: Apache-2.0
// See functions.hpp. The device is asked for pieces of four million results; all threads compare them.
#include "harness/calibrate/functions.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"

namespace assay {
namespace {

constexpr int64_t kPiece = int64_t{1} << 22;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <double (*kExact)(double)>
void compare(uint32_t first, int64_t count, const float* got, bool relative, double* worst, uint32_t* at) {
  double all = *worst;
  uint32_t all_at = *at;
#pragma omp parallel
  {
    double mine = -1;
    uint32_t mine_at = 0;
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < count; ++i) {
      const double exact =
          kExact(static_cast<double>(std::bit_cast<float>(first + static_cast<uint32_t>(i))));
      double error = std::fabs(got[i] - exact);
      if (relative) error /= std::fabs(exact);
      if (!(error <= mine))
        mine = std::isnan(error) ? kInfinity : error, mine_at = first + static_cast<uint32_t>(i);
    }
#pragma omp critical
    if (mine > all || (mine == all && mine_at < all_at)) all = mine, all_at = mine_at;
  }
  *worst = all, *at = all_at;
}

double exact_exp2(double x) { return std::exp2(x); }
double exact_log2(double x) { return std::log2(x); }
double exact_tanh(double x) { return std::tanh(x); }
double exact_reciprocal(double x) { return 1 / x; }

using Compare = void (*)(uint32_t, int64_t, const float*, bool, double*, uint32_t*);
Compare comparison(int32_t function) {
  switch (function) {
    case ASSAY_FUNCTION_EXP2:
      return compare<exact_exp2>;
    case ASSAY_FUNCTION_LOG2:
      return compare<exact_log2>;
    case ASSAY_FUNCTION_TANH:
      return compare<exact_tanh>;
    case ASSAY_FUNCTION_RECIPROCAL:
      return compare<exact_reciprocal>;
    default:
      break;
  }
  ASSAY_CHECK(false, "function {} is none of 1 (exp2) to 4 (reciprocal)", function);
  return nullptr;
}

}  // namespace

std::vector<ArgumentRange> arguments_of(int32_t function) {
  comparison(function);
  const float most = std::numeric_limits<float>::max();
  if (function == ASSAY_FUNCTION_EXP2) return {{-0x1p-30f, -126}, {0x1p-30f, 127}};
  if (function == ASSAY_FUNCTION_TANH) return {{0x1p-30f, 64}, {-0x1p-30f, -64}};
  if (function == ASSAY_FUNCTION_RECIPROCAL) return {{0x1p-126f, 0x1p126f}};
  const float half = std::nextafter(0.5f, 0.0f), two = std::nextafter(2.0f, 3.0f);
  return {{0x1p-126f, half}, {0.5f, 2, false}, {two, most}};
}

FunctionFindings find_function(int32_t function, const RunFunction& run,
                               const std::vector<ArgumentRange>& ranges) {
  const Compare compare_piece = comparison(function);
  FunctionFindings found;
  std::vector<float> got(kPiece);
  double worst[2] = {-1, -1};
  uint32_t at[2] = {};
  for (const ArgumentRange& range : ranges) {
    const auto first = std::bit_cast<uint32_t>(range.first), last = std::bit_cast<uint32_t>(range.last);
    ASSAY_CHECK(first <= last && std::signbit(range.first) == std::signbit(range.last),
                "a range from {} to {} is not ordered by bit pattern", range.first, range.last);
    const int64_t total = int64_t{last} - first + 1;
    for (int64_t done = 0; done < total; done += kPiece) {
      const int64_t count = std::min(kPiece, total - done);
      run(first + static_cast<uint32_t>(done), count, got.data());
      const int which = range.relative ? 0 : 1;
      compare_piece(first + static_cast<uint32_t>(done), count, got.data(), range.relative, &worst[which],
                    &at[which]);
    }
    found.arguments += total;
  }
  found.relative_error = std::max(worst[0], 0.0);
  found.absolute_error = std::max(worst[1], 0.0);
  found.relative_at = std::bit_cast<float>(at[0]);
  found.absolute_at = std::bit_cast<float>(at[1]);
  return found;
}

}  // namespace assay
