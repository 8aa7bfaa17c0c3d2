// SPDX-License-Identifier: Apache-2.0
// Sixteen columns at a time: GCC vectors, which become whatever the machine has. All buffers the model kernel
// works on are padded to kColumns, so no loop has a tail.
#pragma once

#include <cstdint>
#include <cstring>

namespace assay_faulty {

inline constexpr int kColumns = 16;
typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef int16_t Shorts __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef float HalfFloats __attribute__((vector_size(32)));
typedef int32_t HalfInts __attribute__((vector_size(32)));

inline int padded(int n) { return (n + kColumns - 1) / kColumns * kColumns; }

// By memcpy: the buffers are aligned to their elements only.
template <class Vector, class T>
inline Vector load(const T* from) {
  Vector v;
  memcpy(&v, from, sizeof v);
  return v;
}
template <class Vector, class T>
inline void store(T* to, Vector v) {
  memcpy(to, &v, sizeof v);
}

}  // namespace assay_faulty
