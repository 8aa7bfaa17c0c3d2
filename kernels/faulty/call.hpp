// SPDX-License-Identifier: Apache-2.0
// One call of the model kernel: the operands, the arithmetic as it applies to their formats, and the lengths
// and row starts as the kernel believes them. The stages (mask, cache, stream, output) are functions of it.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/operands.hpp"
#include "kernels/faulty/model.hpp"

namespace assay_faulty {

using assay_kernels::KeyInterval;
using assay_kernels::KeyPlace;
using assay_kernels::Operands;

// An Arithmetic on a case of given formats and scales.
struct Resolved {
  Accumulator qk, pv;
  bool promote_pv = false;
  int32_t promote_every = 1;
  int32_t p_format = ASSAY_FP32;  // ASSAY_INT8: codes of 127 (or of 127 / largest of the tile)
  float p_offset = 0;
  bool p_tile_max = false;
  // K and V: dequantised element by element to this format (FP32: rounded to fp32). Otherwise the codes are
  // the operands, K's scale multiplies scores and V's multiplies results.
  bool dequant_k = false, dequant_v = false;
  int32_t dequant_format = ASSAY_FP32;
  // Q: what is multiplied into it before the product, and the format it is then rounded to.
  bool q_takes_scale = false, q_takes_q_channel = false, q_takes_k_channel = false;
  float q_factor = 0;             // Q is fp32(Q * this), rounded: known to the reference; 0 = not so
  bool q_takes_channels = false;  // Q is fp32(Q * fp32(scale * scale)), rounded: known to the reference
  int32_t q_format = ASSAY_FP32;
  bool q_rounded() const { return q_takes_scale || q_takes_q_channel || q_takes_k_channel; }
  int32_t parts = 1;  // of the longest request
  int32_t row_sum_chain = 0;
  Accumulator row_sum{.block = 0};  // BLOCK: the sum is one more column of the second product
  bool sink_first = false;
  bool sink_tops_parts = false;  // the sink starts the maximum of every part, and joins in the merge
  int32_t p_roundings = 1;
  bool bias_by_column = false;
  int32_t weights_lse_format = ASSAY_FORMAT_NONE;  // see Arithmetic
  bool v_scale_in_p = false;  // V's codes are the operands, a key's scale multiplies P before it is rounded
};
Resolved resolve(const Arithmetic&, const assay_problem&);

// Of the workspace, for the one fault that has one.
inline constexpr int kWorkspaceFloats = 1024;

struct Part {
  int32_t first_tile, end_tile;
  bool beyond = false;  // would hold keys if the request were longer
  int32_t step = 1;     // between its tiles
  int32_t count() const { return end_tile > first_tile ? (end_tile - first_tile + step - 1) / step : 0; }
};

struct Call {
  Operands ops;
  const assay_tensors* tensors;
  const Arithmetic& arithmetic;
  const Switches& sw;
  Resolved how;
  State& state;
  int32_t blocks;  // of the cache; prefill: packed keys
  std::vector<int32_t> first_row, q_len, kv_len;
  std::vector<int32_t> key_end;  // keys from here on are not visited; positions follow kv_len
  float softmax_scale;
  const assay_problem& p() const { return ops.p; }
};

// What a fault keeps from the first call in place of what this one says.
void recall_first_call(const Switches&, const State&, assay_problem&);
void remember_first_call(const assay_problem&, const assay_tensors&, State&);
// Lengths, row starts and scale as the kernel takes them from its metadata (metadata.cpp).
void read_metadata(Call&);
std::vector<Part> parts_of(const Call&, int request);

// Parts of what the rows of an item see (items.cpp).
class ItemParts {
 public:
  explicit ItemParts(const Call&);
  std::vector<Part> parts(int request, int32_t kv_head, int32_t item) const;

 private:
  struct Item {
    int32_t first = 0, tiles = 0;
    int64_t place = 0;  // in the list, of the first KV head
  };
  struct Request {
    std::vector<Item> items;
    int64_t tiles = 0;  // of one KV head
  };
  int64_t share_end(int64_t share) const;
  const Arithmetic& a_;
  std::vector<Request> requests_;
  int64_t all_ = 0;
};

// A fixed number for each pair: where faults that hit "some" key or row hit.
inline uint32_t mix(uint32_t a, uint32_t b) {
  uint32_t h = a * 0x9e3779b1u ^ (b + 0x7f4a7c15u) * 0x85ebca6bu;
  h ^= h >> 15;
  h *= 0x2c1b3c6du;
  return h ^ h >> 13;
}
// One of 0 .. count - 1, or -1 when nothing is picked.
inline int32_t picked(Pick pick, int32_t count, uint32_t seed) {
  if (pick == Pick::kNone || count <= 0) return -1;
  switch (pick) {
    case Pick::kFirst:
      return 0;
    case Pick::kSecond:
      return count > 1 ? 1 : 0;
    case Pick::kMiddle:
      return count / 2;
    case Pick::kLast:
      return count - 1;
    default:
      return static_cast<int32_t>(mix(seed, 17) % static_cast<uint32_t>(count));
  }
}

}  // namespace assay_faulty
