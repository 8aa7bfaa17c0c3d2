// SPDX-License-Identifier: Apache-2.0
// Offsets beyond 32 bits without the memory for them: every paged kernel of the emulated backends on a cache
// whose pages lie 2^31 elements and more apart, in address space of which only the pages named are ever
// touched. The same pages side by side give the same bits; an offset computed in 32 bits gives others, or
// ends the test.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "harness/abi/assay_kernel.h"

namespace {

constexpr int kPage = 16, kHeads = 2, kDim = 32, kGroup = 2, kKeys = 300,
              kPages = (kKeys + kPage - 1) / kPage;
constexpr int64_t kPageElements = int64_t{kPage} * kHeads * kDim;

// One request of one row, fp16 throughout; block i of the cache starts at i * block_stride elements.
struct Call {
  int64_t block_stride;
  assay_problem p{};
  assay_tensors t{};
  std::vector<uint16_t> q, o;
  std::vector<float> lse;
  std::vector<unsigned char> workspace;
  int32_t cu_q[2] = {0, 1}, kv_len[1] = {kKeys}, q_len[1] = {1}, table[kPages];

  static uint16_t half(int n) {  // small multiples of 1/8, all exact
    const float value = static_cast<float>(n % 23 - 11) / 8;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (value == 0) return 0;
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | ((bits >> 23 & 0xffu) - 112u) << 10 |
                                 (bits >> 13 & 0x3ffu));
  }
  static assay_tensor tensor(void* data, int32_t format, std::vector<int64_t> shape,
                             std::vector<int64_t> stride = {}) {
    assay_tensor t{};
    t.data = data, t.format = format, t.rank = static_cast<int32_t>(shape.size());
    int64_t packed = 1;
    for (int i = t.rank - 1; i >= 0; --i) {
      t.shape[i] = shape[i];
      t.stride[i] = stride.empty() ? packed : stride[i];
      packed *= shape[i];
    }
    return t;
  }

  Call(uint16_t* k, uint16_t* v, int64_t stride, int32_t blocks) : block_stride(stride) {
    p.struct_size = sizeof p, p.op = ASSAY_OP_PAGED, p.mask = ASSAY_MASK_CAUSAL;
    p.heads_q = kHeads * kGroup, p.heads_kv = kHeads, p.head_dim_qk = p.head_dim_v = kDim;
    p.q_format = p.k_format = p.v_format = p.o_format = ASSAY_FP16;
    p.softmax_scale = 1 / std::sqrt(static_cast<float>(kDim));
    p.window_left = p.window_right = -1;
    p.layout = ASSAY_LAYOUT_NHD, p.page_size = kPage, p.table = ASSAY_TABLE_BLOCK;
    p.requests = 1, p.max_q_len = 1, p.max_kv_len = kKeys, p.total_q = 1, p.total_kv = kKeys;
    p.q_len = q_len, p.kv_len = kv_len;
    q.resize(static_cast<size_t>(p.heads_q) * kDim), o.assign(q.size(), 0x7e00), lse.assign(p.heads_q, NAN);
    for (size_t i = 0; i < q.size(); ++i) q[i] = half(static_cast<int>(i) * 5 + 3);
    for (int i = 0; i < kPages; ++i) {
      table[i] = (i * 7) % blocks;  // 7 and the number of blocks have no common factor
      for (int64_t e = 0; e < kPageElements; ++e) {
        k[table[i] * stride + e] = half(static_cast<int>(i * 31 + e * 3));
        v[table[i] * stride + e] = half(static_cast<int>(i * 17 + e * 5 + 1));
      }
    }
    t.struct_size = sizeof t;
    t.q = tensor(q.data(), ASSAY_FP16, {1, p.heads_q, kDim});
    t.o = tensor(o.data(), ASSAY_FP16, {1, p.heads_q, kDim});
    t.lse = tensor(lse.data(), ASSAY_FP32, {1, p.heads_q});
    const std::vector<int64_t> shape = {blocks, kPage, kHeads, kDim},
                               strides = {stride, kHeads * kDim, kDim, 1};
    t.k = tensor(k, ASSAY_FP16, shape, strides), t.v = tensor(v, ASSAY_FP16, shape, strides);
    t.cu_q = tensor(cu_q, ASSAY_INT32, {2}), t.kv_len = tensor(kv_len, ASSAY_INT32, {1});
    t.block_table = tensor(table, ASSAY_INT32, {1, kPages});
  }

  std::string run(const assay_kernel& kernel) {
    const int64_t bytes = kernel.workspace_bytes != nullptr ? kernel.workspace_bytes(&kernel, &p) : 0;
    workspace.assign(static_cast<size_t>(bytes), 0xff);
    if (bytes > 0) t.workspace = tensor(workspace.data(), ASSAY_UINT8, {bytes});
    char error[2048] = "";
    assay_plan* plan = nullptr;
    if (kernel.plan != nullptr && kernel.plan(&kernel, &p, &t, &plan, error, sizeof error) != ASSAY_OK)
      return error;
    const int status = kernel.run(&kernel, &p, &t, plan, nullptr, error, sizeof error);
    if (kernel.free_plan != nullptr) kernel.free_plan(&kernel, plan);
    return status == ASSAY_OK ? "" : error;
  }
};

class FarPages : public ::testing::TestWithParam<const char*> {};

TEST_P(FarPages, GiveTheBitsOfPagesSideBySide) {
  void* library =
      dlopen((std::string(ASSAY_BINARY_DIR "/emulator/libassay_") + GetParam() + ".so").c_str(), RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto open = reinterpret_cast<assay_backend_open_fn>(dlsym(library, "assay_backend_open"));
  const assay_backend& backend = *open(ASSAY_ABI_VERSION);
  ASSERT_EQ(backend.use_device(0, nullptr, 0), ASSAY_OK);

  // 20 pages 2^27 + 64 elements apart: the last start beyond 2^31 elements, their bytes beyond 2^32.
  constexpr int32_t kBlocks = 20;
  static_assert(kBlocks > kPages && (kBlocks - 1) * ((int64_t{1} << 27) + 64) > int64_t{1} << 31);
  constexpr int64_t kStride = (int64_t{1} << 27) + 64;
  constexpr size_t kBytes = static_cast<size_t>(kBlocks) * kStride * 2;
  void* space =
      mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) GTEST_SKIP() << "no address space of " << 2 * kBytes << " bytes";
  auto* const far = static_cast<uint16_t*>(space);
  std::vector<uint16_t> near_k(kBlocks * kPageElements), near_v(kBlocks * kPageElements);

  int ran = 0;
  for (int32_t i = 0; i < backend.kernel_count; ++i) {
    const assay_kernel& kernel = *backend.kernels[i];
    if (kernel.op != ASSAY_OP_PAGED) continue;
    Call apart(far, far + kBytes / 2, kStride, kBlocks);
    Call beside(near_k.data(), near_v.data(), kPageElements, kBlocks);
    assay_device device{};
    if (kernel.supports(&kernel, &apart.p, &apart.t, &device, nullptr, 0) != ASSAY_OK) continue;
    EXPECT_EQ(beside.run(kernel), "") << kernel.name;
    EXPECT_EQ(apart.run(kernel), "") << kernel.name;
    EXPECT_EQ(apart.o, beside.o) << kernel.name;
    EXPECT_EQ(apart.lse, beside.lse) << kernel.name;
    for (const float l : apart.lse) EXPECT_TRUE(std::isfinite(l)) << kernel.name;
    ++ran;
  }
  EXPECT_GE(ran, 1);
  munmap(space, 2 * kBytes);
}

INSTANTIATE_TEST_SUITE_P(Backends, FarPages, ::testing::Values("emu32", "emu64"));

}  // namespace
