// SPDX-License-Identifier: Apache-2.0
// A kernel to copy: paged attention of bf16 on the CPU in three loops. run() does the work, supports() says
// for which cases. Its arithmetic is undeclared: what the defaults assume, plain fp32. The second entry is
// wrong on purpose: its context makes run() forget the oldest visible key.
#include <assay/assay_kit.hpp>
#include <cmath>
#include <vector>

using assay_kit::at, assay_kit::from_bf16, assay_kit::to_bf16;

static int supports(const assay_kernel*, const assay_problem* p, const assay_tensors*, const assay_device*,
                    char* why, size_t size) {
  const bool bf16 = p->q_format == ASSAY_BF16 && p->k_format == ASSAY_BF16 && p->o_format == ASSAY_BF16;
  const bool plain = p->mask == ASSAY_MASK_CAUSAL && p->window_right < 0 && !p->chunk && !p->alibi &&
                     !(p->softcap > 0) && !p->has_sinks && p->layout == ASSAY_LAYOUT_NHD &&
                     p->table == ASSAY_TABLE_BLOCK && p->v_format == ASSAY_BF16 && !p->first_key &&
                     !p->positions;
  return bf16 && plain ? ASSAY_OK : assay_kit::refuse(why, size, "supported: bf16, nhd, block table, causal");
}

static int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
               char*, size_t) {
  std::vector<float> o(p->head_dim_v);
  for (int r = 0, row = 0; r < p->requests; ++r)
    for (int i = 0; i < p->q_len[r]; ++i, ++row)
      for (int h = 0; h < p->heads_q; ++h) {
        const int position = p->kv_len[r] - p->q_len[r] + i, head = h / (p->heads_q / p->heads_kv);
        const int oldest = p->window_left < 0 ? 0 : std::max(0, position - p->window_left);
        float top = -INFINITY, sum = 0;
        std::fill(o.begin(), o.end(), 0.0f);
        for (int j = oldest + (self->context != nullptr ? 1 : 0); j <= position; ++j) {
          const int block = at<int32_t>(t->block_table, r, j / p->page_size), slot = j % p->page_size;
          float s = 0;
          for (int d = 0; d < p->head_dim_qk; ++d)
            s += from_bf16(at<uint16_t>(t->q, row, h, d)) *
                 from_bf16(at<uint16_t>(t->k, block, slot, head, d));
          s *= p->softmax_scale;
          const float higher = std::max(s, top), old = std::exp(top - higher), weight = std::exp(s - higher);
          for (int d = 0; d < p->head_dim_v; ++d)
            o[d] = o[d] * old + weight * from_bf16(at<uint16_t>(t->v, block, slot, head, d));
          top = higher, sum = sum * old + weight;
        }
        for (int d = 0; d < p->head_dim_v; ++d)
          at<uint16_t>(t->o, row, h, d) = to_bf16(sum > 0 ? o[d] / sum : 0);
        at<float>(t->lse, row, h) = sum > 0 ? top + std::log(sum) : -INFINITY;
      }
  return ASSAY_OK;
}

static int forgets = 1;
static const assay_kernel kernels[] = {
    assay_kit::kernel("paged_example_cpu", ASSAY_OP_PAGED, "x86-64", supports, run),
    assay_kit::kernel("paged_forgetful_cpu", ASSAY_OP_PAGED, "x86-64", supports, run, nullptr, &forgets)};
ASSAY_EXPORT_BACKEND(assay_kit::cpu_backend("example", kernels, 2))
