// SPDX-License-Identifier: Apache-2.0
// Test support: reads what a kernel would read, from the tensors alone, through documented shapes, strides
// and page tables. It shares no code with the builder or PagedCache on purpose.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <vector>

#include "harness/input/inputs.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {

class StoredReader {
 public:
  explicit StoredReader(const Inputs& inputs) : in_(inputs), p_(inputs.problem), t_(inputs.tensors) {
    for (auto& list : real) list.clear();
    for (int i = 0; i < kOperandCount; ++i) {
      const assay_tensor& t = tensor_of(t_, static_cast<Operand>(i));
      if (t.data != nullptr) real[i].assign(in_.buffers[i].bytes() / format_bytes(t.format), 0);
    }
  }

  // Elements met so far, by buffer: 1 = a value stands here.
  std::vector<char> real[kOperandCount];

  double at(Operand operand, std::initializer_list<int64_t> index) {
    const assay_tensor& t = tensor_of(t_, operand);
    bool inside = static_cast<size_t>(t.rank) == index.size();
    int64_t element = 0;
    int axis = 0;
    for (int64_t i : index) {
      inside = inside && i >= 0 && i < t.shape[axis];
      element += i * t.stride[axis++];
    }
    const int bytes = format_bytes(t.format);
    const auto& buffer = in_.buffers[static_cast<int>(operand)];
    const int64_t first = (static_cast<const std::byte*>(t.data) - buffer.payload()) / bytes;
    if (!inside || first + element < 0 || (first + element + 1) * bytes > buffer.bytes()) {
      ADD_FAILURE() << operand_name(operand) << ": index outside shape or buffer";
      return std::nan("");
    }
    real[static_cast<int>(operand)][first + element] = 1;
    return load(t.format, t.data, element);
  }
  int32_t integer(Operand operand, std::initializer_list<int64_t> index) {
    return static_cast<int32_t>(at(operand, index));
  }

  // Physical place of a key, through whichever table the problem has.
  void find(int r, int32_t key, int64_t* block, int64_t* slot) {
    if (p_.table == ASSAY_TABLE_TOKEN) {
      const int32_t flat = integer(Operand::kBlockTable, {r, key});
      *block = flat / p_.page_size;
      *slot = flat % p_.page_size;
    } else {
      const int32_t page = key / p_.page_size;
      *block = p_.table == ASSAY_TABLE_CSR
                   ? integer(Operand::kIndices, {integer(Operand::kIndptr, {r}) + page})
                   : integer(Operand::kBlockTable, {r, page});
      *slot = key % p_.page_size;
    }
  }

  // The stored code as a number, before any scale.
  double code(bool v, int r, int32_t key, int32_t head, int32_t dim) {
    const Operand operand = v ? Operand::kV : Operand::kK;
    if (!op_of(p_).has_cache) return at(operand, {integer(Operand::kCuKv, {r}) + key, head, dim});
    int64_t b = 0, s = 0;
    find(r, key, &b, &s);
    const int64_t x = 16 / format_bytes(p_.k_format);
    switch (static_cast<assay_layout>(p_.layout)) {
      case ASSAY_LAYOUT_NHD:
        return at(operand, {b, s, head, dim});
      case ASSAY_LAYOUT_HND:
        return at(operand, {b, head, s, dim});
      case ASSAY_LAYOUT_MLA:
        return at(operand, {b, s, dim});
      case ASSAY_LAYOUT_X:
        if (v) return at(operand, {b, head, dim, s});
        break;
      case ASSAY_LAYOUT_SHUFFLED:
        if (v) return at(operand, {b, head, s / x, dim, s % x});
        break;
    }
    return at(operand, {b, head, dim / x, s, dim % x});
  }
  double q_code(int r, int32_t row, int32_t head, int32_t dim) {
    const auto own = static_cast<int32_t>(t_.q.shape[2]);  // of two sources without the rope part
    if (dim >= own) return at(Operand::kRope, {integer(Operand::kCuQ, {r}) + row, head, dim - own});
    return at(Operand::kQ, {integer(Operand::kCuQ, {r}) + row, head, dim});
  }

  double scale(bool v, int r, int32_t key, int32_t head, int32_t dim) {
    const Operand operand = v ? Operand::kVScale : Operand::kKScale;
    switch (static_cast<assay_scale>(v ? p_.v_scale : p_.k_scale)) {
      case ASSAY_SCALE_NONE:
        return 1;
      case ASSAY_SCALE_HOST:
        return v ? in_.view->get()->v_scale_host : in_.view->get()->k_scale_host;
      case ASSAY_SCALE_TENSOR:
        return at(operand, {0});
      case ASSAY_SCALE_HEAD:
        return at(operand, {head});
      case ASSAY_SCALE_REQUEST_HEAD:
        return at(operand, {r, head});
      case ASSAY_SCALE_CHANNEL:
        return at(operand, {head, dim});
      case ASSAY_SCALE_TOKEN_HEAD:
        break;
    }
    if (!op_of(p_).has_cache) return at(operand, {integer(Operand::kCuKv, {r}) + key, head});
    int64_t b = 0, s = 0;
    find(r, key, &b, &s);
    return at(operand, {b, head, s});
  }
  double q_scale(int r, int32_t row, int32_t head, int32_t dim) {
    switch (static_cast<assay_scale>(p_.q_scale)) {
      case ASSAY_SCALE_NONE:
        return 1;
      case ASSAY_SCALE_HOST:
        return in_.view->get()->q_scale_host;
      case ASSAY_SCALE_TENSOR:
        return at(Operand::kQScale, {0});
      case ASSAY_SCALE_HEAD:
        return at(Operand::kQScale, {head});
      case ASSAY_SCALE_REQUEST_HEAD:
        return at(Operand::kQScale, {r, head / (p_.heads_q / p_.heads_kv)});
      case ASSAY_SCALE_CHANNEL:
        return at(Operand::kQScale, {head, dim});
      case ASSAY_SCALE_TOKEN_HEAD:
        break;
    }
    return at(Operand::kQScale, {integer(Operand::kCuQ, {r}) + row, head});
  }

  double k(int r, int32_t key, int32_t h, int32_t d) {
    return code(false, r, key, h, d) * scale(false, r, key, h, d);
  }
  double v(int r, int32_t key, int32_t h, int32_t d) {
    return code(true, r, key, h, d) * scale(true, r, key, h, d);
  }
  double q(int r, int32_t row, int32_t h, int32_t d) { return q_code(r, row, h, d) * q_scale(r, row, h, d); }

 private:
  const Inputs& in_;
  const Problem& p_;
  const assay_tensors& t_;
};

// Half a step of the format around a code value, plus the clamp of a value just past the largest code.
inline double half_step(int32_t format, double code) {
  if (format == ASSAY_INT8) return 0.5 + 1e-4;
  const FormatInfo& info = format_info(format);
  return std::max(info.unit_roundoff * std::abs(code) * 1.13, info.half_subnormal) + 1e-12;
}

}  // namespace assay
