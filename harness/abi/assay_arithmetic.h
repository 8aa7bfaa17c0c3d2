/* SPDX-License-Identifier: Apache-2.0
 *
 * Presets for `arithmetic()` of a kernel: how kernels of a known kind round, for authors who did not write
 * the kernel they bring, or do not want to count additions. Each takes the struct that arithmetic() was given
 * (it holds the defaults), changes what the kind is known for, and returns ASSAY_OK; fields may be changed
 * after. A preset is wide where the kind leaves a choice (smallest tile, undeclared order), so a kernel of
 * the kind passes; what it costs is stated at each. What to do when you know less: harness/abi/README.md.
 */
#ifndef ASSAY_ARITHMETIC_H_
#define ASSAY_ARITHMETIC_H_

#include "assay_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fp32 multiply-adds throughout, P in fp32, keys in any order; the products of a dot product are dealt to
 * `lanes` threads or vector lanes (1: one after the other). As long as tile_keys is 0 the running maximum may
 * move at any key, which makes the bounds of a long row wide: at 700 keys of one decode they accept a row sum
 * kept in fp16. Say tile_keys where you know it. */
static inline int assay_like_fp32(assay_arithmetic* a, int32_t lanes) {
  a->qk.kind = a->pv.kind = ASSAY_ACC_FMA;
  a->qk.block = lanes, a->pv.block = 1;
  a->p_format = ASSAY_FP32;
  return ASSAY_OK;
}

/* Tensor cores of unknown make with fp32 accumulators, P in `p_format` (bf16 or fp16), up to `splits` partial
 * results in fp32. The widest sums measured on 16-bit units: steps of 8 products, 24 bits kept at alignment
 * (Ampere, Ada: Fasi et al., PeerJ CS 7:e330; Khattak and Mikaitis, doi 10.1145/3830409); Hopper's,
 * Blackwell's and CDNA 3's err less. The row sum is taken to add P before it is rounded: set
 * row_sum_from_rounded_p where it adds rounded P (a tensor core that multiplies by ones, say). */
static inline int assay_like_tensor_cores(assay_arithmetic* a, int32_t p_format, int32_t splits) {
  a->qk.kind = a->pv.kind = ASSAY_ACC_BLOCK;
  a->qk.block = a->pv.block = 8;
  a->qk.fraction_bits = a->pv.fraction_bits = 24;
  a->qk.mantissa_bits = a->pv.mantissa_bits = 23;
  a->p_format = p_format;
  a->splits = splits > 1 ? splits : 1;
  a->partial_format = a->partial_lse_format = ASSAY_FP32;
  return ASSAY_OK;
}

/* FlashAttention-2 and kernels built like it (Dao, arXiv:2307.08691): mma.sync with fp32 accumulators, P in
 * the format of Q, row sum of P before rounding, keys in tiles of at least 32 from last to first, ex2.approx
 * and lg2.approx, a linear position bias as slope x column (what it does under a causal mask), partial
 * results in fp32. The order stays undeclared: tile sizes differ between head dimensions and versions. */
static inline int assay_like_flash_attention_2(assay_arithmetic* a, int32_t format, int32_t splits) {
  assay_like_tensor_cores(a, format, splits);
  a->tile_keys = 32, a->tile_reverse = 1;
  a->exp_relative_error = 0x1p-22, a->exp_instruction = "ex2.approx.ftz";
  a->log_absolute_error = a->log_relative_error = 0x1p-22;
  a->bias_form = ASSAY_BIAS_COLUMN;
  return ASSAY_OK;
}

/* FlashAttention-3 (Shah et al., arXiv:2407.08608): wgmma, tiles of at least 64 keys from last to first. bf16
 * and fp16: steps of 16 products, 25 bits at alignment, measured on an H200. fp8_e4m3: steps of 32 with 13
 * bits, measured there too, P scaled by 2^8. */
static inline int assay_like_flash_attention_3(assay_arithmetic* a, int32_t format, int32_t splits) {
  const int fp8 = format == ASSAY_FP8_E4M3;
  assay_like_flash_attention_2(a, format, splits);
  a->qk.block = a->pv.block = fp8 ? 32 : 16;
  a->qk.fraction_bits = a->pv.fraction_bits = fp8 ? 13 : 25;
  a->qk.mantissa_bits = a->pv.mantissa_bits = fp8 ? 13 : 23;
  a->qk_instruction = a->pv_instruction = fp8                    ? "wgmma fp8_e4m3"
                                          : format == ASSAY_FP16 ? "wgmma fp16"
                                                                 : "wgmma bf16";
  a->p_offset_log2 = fp8 ? 8 : 0;
  a->tile_keys = 64;
  return ASSAY_OK;
}

#ifdef __cplusplus
}
#endif
#endif /* ASSAY_ARITHMETIC_H_ */
