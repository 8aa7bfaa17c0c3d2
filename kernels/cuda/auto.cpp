// SPDX-License-Identifier: Apache-2.0
// paged_auto_sm90 and prefill_auto_sm90: one kernel per op for Hopper that takes what any kernel of the
// library takes and hands it to the fastest (chooser.hpp). The rows are in the order of preference measured
// on an H200 (results/h200/auto/README.md); a new kernel gets a row.
#include "kernels/cuda/auto.hpp"

#include "kernels/common/chooser.hpp"

namespace assay_gpu {
namespace {

using assay_kernels::Choice;
using assay_kernels::Chooser;

bool always(const assay_problem&) { return true; }
// Rows of a request and KV head, query heads and new tokens.
int64_t rows_of_head(const assay_problem& p) { return int64_t{p.max_q_len} * (p.heads_q / p.heads_kv); }
bool one_token(const assay_problem& p) { return p.max_q_len <= 1; }
// Where keys or dimensions are packed, the matrix kernel reads V element by element.
bool packed(const assay_problem& p) {
  return p.layout == ASSAY_LAYOUT_X || p.layout == ASSAY_LAYOUT_SHUFFLED;
}
bool packed_and_few(const assay_problem& p) { return packed(p) && rows_of_head(p) <= 32; }
// A latent cache of e4m3: from so many rows of a request on, items of 64 or 128 rows, whose codes are widened
// once, instead of items of 16, which keep up to two items of one or two requests
// (results/h100/sm90/mla_variants.txt).
constexpr int64_t kWidenedFrom = 17, kWidenedAlways = 33;
constexpr int32_t kWidenedRequests = 3;
bool widened(const assay_problem& p) {
  return rows_of_head(p) >= (p.requests >= kWidenedRequests ? kWidenedFrom : kWidenedAlways);
}
bool few_rows(const assay_problem& p) { return rows_of_head(p) <= 8; }

constexpr Choice kPaged[] = {
    {"latent", "paged_mla_widened_sm90", widened, "absorbed latent rows of e4m3, items of 64 or 128"},
    {"mla", "paged_mla_sm90", always, "absorbed latent rows, of e4m3 in items of 16"},
    {"decode", "decode_paged_splitkv_sm90", always, "up to 32 rows of a request and KV head"},
    {"many", "paged_wgmma_sm90", always, "more rows"},
    {"packed", "paged_split256_gpu", packed_and_few, "few rows, layouts x and shuffled"},
    {"one", "paged_splitkv_gpu", one_token, "one new token, features of no kernel above"},
    {"matrix", "paged_mma_gpu", always, "16-bit matrix instructions, features of no kernel above"},
    {"few", "paged_splitkv_gpu", few_rows, "few rows, no matrix instructions for them"},
    {"rest", "paged_tiled_gpu", always, "everything else"},
};

constexpr Choice kPrefill[] = {
    {"fp8", "prefill_fp8_sm90", always, "e4m3 throughout"},
    {"int8", "prefill_int8_sm90", always, "Q and K in int8, V in e4m3"},
    {"wgmma", "prefill_wgmma_sm90", always, "bf16 and fp16"},
    {"matrix", "prefill_mma_gpu", always, "16-bit matrix instructions, features of no kernel above"},
    {"rest", "prefill_tiled_gpu", always, "everything else"},
};

}  // namespace

std::vector<const assay_kernel*> auto_kernels(const std::vector<const assay_kernel*>& all) {
  std::vector<const assay_kernel*> made;
  for (const Chooser& chooser :
       {Chooser{"paged_auto_sm90", "the fastest of the library's paged kernels for the problem",
                ASSAY_OP_PAGED, kPaged},
        Chooser{"prefill_auto_sm90", "the fastest of the library's prefill kernels for the problem",
                ASSAY_OP_PREFILL, kPrefill}})
    if (const assay_kernel* kernel = assay_kernels::make_chooser(chooser, all)) made.push_back(kernel);
  return made;
}

}  // namespace assay_gpu
