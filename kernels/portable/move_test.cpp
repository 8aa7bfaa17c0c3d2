// SPDX-License-Identifier: Apache-2.0
// Rows whose values no suite draws (NaN, infinities, magnitudes at both ends, zeros of both signs) into
// caches by the kernels for many rows, against the one that divides every value (move.cu): the same bits.
// Built with the kernels of the emulator, once per width.
#include "kernels/portable/move.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace assay_gpu {
namespace {

constexpr int kDims = 128, kHeads = 2, kPage = 32;
constexpr int64_t kRows = 2048 + 5, kPages = kRows / kPage + 2;

struct Written {
  std::vector<unsigned char> codes;
  std::vector<float> scales;
};

struct Case {
  int32_t from, to;
  bool found, packed;  // scales; V by slots
  std::vector<uint16_t> rows[2];
  std::vector<int64_t> slots;
  std::vector<float> given;

  Case(int32_t from_format, int32_t to_format, bool scales_found, bool slots_together)
      : from(from_format), to(to_format), found(scales_found), packed(slots_together) {
    std::mt19937 random(7);
    const auto draw = [&](uint32_t n) { return static_cast<uint16_t>(random() % n); };
    const auto one = static_cast<uint16_t>(from == ASSAY_BF16 ? 0x3f80 : 0x3c00);
    for (auto& plane : rows) {
      plane.resize(static_cast<size_t>(kRows) * kHeads * kDims);
      for (size_t row = 0; row < plane.size() / kDims; ++row) {
        // Most rows are quick, and so are most groups of sixteen.
        const uint32_t kind = row / (16 * kHeads) % 4 == 1 ? draw(16) : 15;
        for (int d = 0; d < kDims; ++d) {
          uint16_t code = static_cast<uint16_t>((one - 0x180 + draw(0x200)) | draw(2) << 15);
          if (kind == 0 && d == 77) code = 0x7fff;                                    // NaN
          if (kind == 1 && d % 50 == 3) code = from == ASSAY_BF16 ? 0xff80 : 0xfc00;  // infinities
          if (kind == 2) code = draw(0x10000);                                        // anything
          if (kind == 3) code = static_cast<uint16_t>(draw(64) | draw(2) << 15);      // subnormal
          if (kind == 4) code = static_cast<uint16_t>(draw(2) << 15);                 // zeros
          if (kind == 5 && d == 9) code = from == ASSAY_BF16 ? 0x7f70 : 0x7bff;       // the largest
          if (kind == 6) code = static_cast<uint16_t>((d % 2 != 0 ? one : one - 0x80) | draw(2) << 15);
          plane[row * kDims + static_cast<size_t>(d)] = code;
        }
      }
    }
    // Runs of pages in another order, rows that go nowhere, and some whose runs begin within a page.
    for (int64_t i = 0; i < kRows; ++i) {
      const int64_t page = i / kPage, slot = (kPages - 1 - page) * kPage + i % kPage;
      slots.push_back(draw(300) == 0 ? -1 : page % 5 == 2 ? slot / kPage * kPage + (slot + 5) % kPage : slot);
    }
    for (int i = 0; i < kHeads; ++i) given.push_back(0.03f + 0.011f * static_cast<float>(i));
  }

  StoreRows call(Written& out) {
    StoreRows a{};
    a.planes = 2, a.heads = kHeads, a.page_size = kPage, a.rows = kRows;
    a.slots = slots.data(), a.slots_stride = 1;
    const size_t plane_bytes = static_cast<size_t>(kPages) * kPage * kHeads * kDims;
    out.codes.assign(2 * plane_bytes + 16, 0x5a), out.scales.assign(2 * plane_bytes / kDims, -1.0f);
    unsigned char* codes = out.codes.data() + (16 - reinterpret_cast<uintptr_t>(out.codes.data()) % 16) % 16;
    for (int i = 0; i < 2; ++i) {
      StoredPlane& p = a.plane[i];
      KvView& v = p.from.view;
      v.data = reinterpret_cast<const unsigned char*>(rows[i].data()), v.format = from, v.element_bytes = 2;
      v.block_stride = kHeads * kDims, v.head_stride = kDims, v.dim_inner = 1;
      v.slot_pack = 1, v.dim_pack = INT32_MAX;
      KvView& t = p.to.view;
      t.format = to, t.element_bytes = 1, t.block_stride = kPage * kHeads * kDims;
      t.head_stride = packed ? kPage * kDims : kDims;
      t.slot_pack = 1, t.slot_outer = kHeads * kDims, t.dim_pack = INT32_MAX, t.dim_inner = 1;
      if (packed && i == 0) t.slot_outer = 16, t.dim_pack = 16, t.dim_outer = 16 * kPage;
      if (packed && i == 1) t.slot_pack = 16, t.slot_outer = 16 * kDims, t.slot_inner = 1, t.dim_inner = 16;
      t.data = p.to.written = codes + static_cast<size_t>(i) * plane_bytes;
      p.from.whole = true, p.to.whole = !(packed && i == 1);
      p.dims = p.split = kDims;
      if (found) {
        p.dynamic = out.scales.data() + static_cast<size_t>(i) * plane_bytes / kDims;
        p.scale.kind = ASSAY_SCALE_TOKEN_HEAD;
        p.scale.stride[0] = kHeads * kPage, p.scale.stride[1] = kPage, p.scale.stride[2] = 1;
      } else {
        p.scale.kind = ASSAY_SCALE_HEAD, p.scale.data = given.data(), p.scale.stride[0] = 1;
      }
    }
    return a;
  }
};

TEST(Moves, RowsOfAnyValueAreThoseOfDivisions) {
  for (const int32_t from : {ASSAY_BF16, ASSAY_FP16})
    for (const int32_t to : {ASSAY_INT8, ASSAY_FP8_E4M3})
      for (const bool found : {true, false})
        for (const bool packed : {true, false}) {
          Case c(from, to, found, packed);
          for (const float scale : {0.03f, 0.0f, 0x1.fffffep-4f}) {
            if (found && scale != 0.03f) continue;
            c.given[1] = scale;
            Written quick, divided;
            ASSERT_EQ(launch_store(c.call(quick), nullptr), gpu::Status{});
            ASSERT_EQ(launch_store_elements(c.call(divided), nullptr), gpu::Status{});
            size_t wrong = 0;
            for (size_t i = 0; i < quick.codes.size(); ++i) {
              // NaN has no code of int8: these kernels make it -127, division by the emulator 0.
              const bool none = to == ASSAY_INT8 && quick.codes[i] == 0x81 && divided.codes[i] == 0;
              wrong += quick.codes[i] != divided.codes[i] && !none;
            }
            EXPECT_EQ(wrong, 0u) << "from " << from << " to " << to << (found ? " found " : " given ")
                                 << scale << (packed ? " packed" : "");
            EXPECT_EQ(std::memcmp(quick.scales.data(), divided.scales.data(), 4 * quick.scales.size()), 0);
          }
        }
}

}  // namespace
}  // namespace assay_gpu
