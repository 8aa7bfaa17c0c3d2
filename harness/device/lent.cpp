// SPDX-License-Identifier: Apache-2.0
// See lent.hpp.
#include "harness/device/lent.hpp"

#include <algorithm>
#include <cstring>

namespace assay {

void Lent::lend(std::string name, const void* data, size_t bytes) {
  if (data == nullptr || bytes == 0) return;
  auto* const at = static_cast<std::byte*>(const_cast<void*>(data));
  pieces_.push_back({std::move(name), at, {at, at + bytes}});
}

void Lent::lend(const assay_problem& p) {
  lend("the problem", &p, p.struct_size);
  const auto count = static_cast<size_t>(p.requests) * sizeof(int32_t);
  lend("the problem's q_len", p.q_len, count);
  lend("the problem's kv_len", p.kv_len, count);
}

void Lent::lend(const Backend& backend) {
  for (const assay_kernel* kernel : backend.kernels())
    lend(std::string("the entry of ") + kernel->name, kernel,
         std::min<size_t>(kernel->struct_size, sizeof *kernel));
}

std::string Lent::restore() {
  std::string changed;
  for (const Piece& piece : pieces_) {
    if (std::memcmp(piece.data, piece.bytes.data(), piece.bytes.size()) == 0) continue;
    std::memcpy(piece.data, piece.bytes.data(), piece.bytes.size());
    changed += (changed.empty() ? "" : ", ") + piece.name;
  }
  return changed;
}

}  // namespace assay
