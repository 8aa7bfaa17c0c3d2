// SPDX-License-Identifier: Apache-2.0
// See beyond_codes.hpp.
#include "harness/input/beyond_codes.hpp"

#include <cmath>

#include "harness/input/code_kinds.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// The scales of a cache that are given with it.
struct GivenScales {
  int32_t kind;
  const assay_tensor& tensor;
  float host;
  double at(int64_t head, int64_t d) const {
    if (kind == ASSAY_SCALE_NONE) return 1;
    if (kind == ASSAY_SCALE_HOST) return host;
    int64_t at = 0;
    if (kind == ASSAY_SCALE_HEAD) at = head * tensor.stride[0];
    if (kind == ASSAY_SCALE_CHANNEL) at = head * tensor.stride[0] + d * tensor.stride[1];
    return load(ASSAY_FP32, tensor.data, at);
  }
};

bool is_given(int32_t kind) {
  return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST ||
         kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_CHANNEL;
}

}  // namespace

BeyondCodes beyond_codes(const Inputs& inputs, bool of_v) {
  const Problem& p = inputs.problem;
  const assay_tensors& t = inputs.tensors;
  const bool latent = p.layout == ASSAY_LAYOUT_MLA;
  const int32_t format = of_v ? p.v_format : p.k_format;
  const GivenScales scales = of_v ? GivenScales{p.v_scale, t.v_scale, inputs.v_scale_host}
                                  : GivenScales{p.k_scale, t.k_scale, inputs.k_scale_host};
  BeyondCodes n;
  if (t.slot_mapping.data == nullptr || p.no_write || p.source_format == ASSAY_FORMAT_NONE ||
      !format_is_quantized(format) || !is_given(scales.kind) || (of_v && latent))
    return n;
  const CodeGrid grid = CodeGrid::of(format);
  const double ulp = grid.ulp_of_largest();
  // Dimensions of the cache from `first` on; of one head for all where it has one.
  const auto count = [&](const assay_tensor& source, int64_t first) {
    for (int64_t row = 0; row < source.shape[0]; ++row) {
      if (load(ASSAY_INT64, t.slot_mapping.data, row * t.slot_mapping.stride[0]) < 0) continue;
      for (int64_t head = 0; head < p.heads_kv; ++head)
        for (int64_t d = 0; d < source.shape[2]; ++d) {
          const int64_t of = source.shape[1] > 1 ? head : 0;
          const double x = load(source.format, source.data,
                                row * source.stride[0] + of * source.stride[1] + d * source.stride[2]);
          const double code = std::nearbyint(std::fabs(x) / scales.at(head, first + d) / ulp) * ulp;
          ++n.values, n.beyond += code > grid.largest;
        }
    }
  };
  const assay_tensor& first = of_v ? t.dense_v : t.dense_k;
  count(first, 0);
  if (!of_v && p.split_latent) count(latent ? t.dense_v : t.rope, first.shape[2]);
  return n;
}

}  // namespace assay
