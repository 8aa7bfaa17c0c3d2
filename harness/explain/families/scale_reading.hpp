// SPDX-License-Identifier: Apache-2.0
// How a kernel reads a tensor of scales: what the hypotheses about the scales of K, V and Q share.
#pragma once

#include <initializer_list>
#include <string>
#include <utility>

#include "harness/explain/hypothesis.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

// Reads scale tensors the way a kernel indexes them; indexes wrap round their axis.
struct Scales {
  const Clues& clues;
  const assay_tensor& tensor;
  int32_t kind;
  float host;

  double at(std::initializer_list<int64_t> index) const {
    int64_t offset = 0;
    int axis = 0;
    for (int64_t i : index) {
      const int64_t n = tensor.shape[axis];
      offset += ((i % n) + n) % n * tensor.stride[axis];
      ++axis;
    }
    return load(ASSAY_FP32, tensor.data, offset);
  }
};

// How the indexes of two axes [n, m] are taken: as they are; of an array that is [m, n]; exchanged, with the
// rows' own width; or of one that was written as [m, n] and is read as it is.
enum class IndexOrder { kGiven, kAsExchanged, kExchanged, kOtherWay };
inline constexpr IndexOrder kExchanges[] = {IndexOrder::kAsExchanged, IndexOrder::kExchanged,
                                            IndexOrder::kOtherWay};
inline std::pair<int64_t, int64_t> indexes(IndexOrder axes, int64_t i, int64_t j, int64_t n, int64_t m) {
  const int64_t at = axes == IndexOrder::kAsExchanged ? j * n + i
                     : axes == IndexOrder::kExchanged ? (j * m + i) % (n * m)
                                                      : i * m + j;
  if (axes == IndexOrder::kOtherWay) return {at % n, at / n};
  return {at / m, at % m};
}
inline std::string words_of(IndexOrder axes, const char* first, const char* second) {
  return axes == IndexOrder::kAsExchanged
             ? fmt::format("scales by {0} and {1} taken as by {1} and {0}", first, second)
         : axes == IndexOrder::kExchanged
             ? fmt::format("indexes of {} and {} of the scales exchanged", first, second)
             : fmt::format("scales read as if {}s came before {}s", second, first);
}

// Those of Q; of K and V: scale_family.
void query_scales(const Clues&, Hypotheses&);

}  // namespace assay
