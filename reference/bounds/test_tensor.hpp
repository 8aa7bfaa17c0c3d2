// SPDX-License-Identifier: Apache-2.0
// A tensor over its own memory for tests: shape, padding and strides spelt out, every element that no index
// reaches holding NaN (int8: -128) or an absurd number.
#pragma once

#include <cstring>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay::test {

struct Block {
  std::vector<std::byte> bytes;
  assay_tensor view{};

  // `padded_axis` gets `padding` extra entries that no index reaches.
  void allocate(int32_t format, const std::vector<int64_t>& shape, int padded_axis = -1,
                int64_t padding = 0) {
    view.format = format;
    view.rank = int32_t(shape.size());
    int64_t step = 1;
    for (int axis = view.rank - 1; axis >= 0; --axis) {
      view.shape[axis] = shape[axis];
      view.stride[axis] = step;
      step *= shape[axis] + (axis == padded_axis ? padding : 0);
    }
    reserve(format, step);
    view.data = bytes.data();
  }
  void reserve(int32_t format, int64_t count) {
    const int size = format == ASSAY_INT64 ? 8 : format_bytes(format);
    bytes.assign(std::max<int64_t>(1, count) * size, std::byte(0));
    const bool integer = format == ASSAY_INT32 || format == ASSAY_INT64 || format == ASSAY_UINT8;
    for (int64_t i = 0; i < count; ++i) {
      if (integer) {
        store(format, bytes.data(), i, 123456789);
      } else {
        const uint32_t nan = nan_code(format);
        std::memcpy(bytes.data() + i * size, &nan, size);
      }
    }
  }
};

inline void put(const assay_tensor& t, const std::vector<int64_t>& index, double value) {
  int64_t at = 0;
  for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * t.stride[axis];
  ASSAY_CHECK(round_to(t.format, value) == value, "{} is not representable", value);
  store(t.format, t.data, at, value);
}

inline void put_integer(const assay_tensor& t, const std::vector<int64_t>& index, int64_t value) {
  int64_t at = 0;
  for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * t.stride[axis];
  store(t.format, t.data, at, double(value));
}

}  // namespace assay::test
