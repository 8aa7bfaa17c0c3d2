// SPDX-License-Identifier: Apache-2.0
// The rules, read in the test files named in the table (late 2025 to 2026; the numbers are theirs). What a
// test does not look at, its rule does not look at: the LSE only where the test compares it. A rule covers
// the operators, masks and formats that its test's reference can express; within that it is applied to any
// shape.
#include "harness/mutants/peer_rules.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "harness/base/error.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// ---- what a test covers

bool is_8bit(int32_t format) { return format_is_fp8(format) || format == ASSAY_INT8; }
bool cache_8bit(const Problem& p) { return is_8bit(p.k_format) || is_8bit(p.v_format); }
bool any_8bit(const Problem& p) { return is_8bit(p.q_format) || cache_8bit(p); }
bool fp8_only(const Problem& p) {
  return p.q_format != ASSAY_INT8 && p.k_format != ASSAY_INT8 && p.v_format != ASSAY_INT8;
}
bool is_16bit(int32_t format) { return format == ASSAY_BF16 || format == ASSAY_FP16; }
bool all_16bit(const Problem& p) {
  return is_16bit(p.q_format) && is_16bit(p.k_format) && is_16bit(p.v_format) && is_16bit(p.o_format);
}
bool paged(const Problem& p) { return op_of(p).has_cache; }
bool mla(const Problem& p) { return paged(p) && p.layout == ASSAY_LAYOUT_MLA; }
bool decode(const Problem& p) { return paged(p) && p.max_q_len() <= 1; }
bool nhd(const Problem& p) { return p.layout == ASSAY_LAYOUT_NHD; }
bool plain_mask(const Problem& p) { return p.mask == ASSAY_MASK_CAUSAL || p.mask == ASSAY_MASK_FULL; }
bool no_extras(const Problem& p) { return p.alibi == ASSAY_ALIBI_NONE && !p.sinks && p.softcap == 0; }
bool no_window(const Problem& p) { return p.window_left < 0 && p.window_right < 0 && p.chunk == 0; }
bool coarse_scales(const Problem& p) {
  const auto coarse = [](int32_t kind) {
    return kind == ASSAY_SCALE_NONE || kind == ASSAY_SCALE_TENSOR || kind == ASSAY_SCALE_HOST ||
           kind == ASSAY_SCALE_HEAD || kind == ASSAY_SCALE_REQUEST_HEAD;
  };
  return coarse(p.q_scale) && coarse(p.k_scale) && coarse(p.v_scale);
}

// ---- comparisons

double max_abs_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double e = std::fabs(a[i] - b[i]);
    if (std::isnan(e))
      return std::numeric_limits<double>::infinity();  // NaN fails every comparison of a test
    worst = std::max(worst, e);
  }
  return worst;
}

double mean_abs_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::fabs(a[i] - b[i]);
  return a.empty() ? 0 : sum / static_cast<double>(a.size());
}

// torch.allclose: |got - expected| <= atol + rtol |expected|; at most `quota` of the elements may fail.
std::string allclose(const std::vector<double>& got, const std::vector<double>& expected, double atol,
                     double rtol, double quota = 0) {
  size_t bad = 0;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double e = std::fabs(got[i] - expected[i]), allowed = atol + rtol * std::fabs(expected[i]);
    if (got[i] == expected[i] || e <= allowed) continue;
    ++bad;
    worst = std::isnan(e) ? e : std::max(worst, e);
  }
  if (static_cast<double>(bad) <= quota * static_cast<double>(got.size())) return {};
  return fmt::format("{} of {} elements differ by more than {:g} + {:g}|x|, by up to {:.3g}", bad, got.size(),
                     atol, rtol, worst);
}

// 1 - cosine of whole tensors, as 1 - 2 sum xy / sum (x^2 + y^2) in the tests of MLA kernels.
std::string cosine(const std::vector<double>& got, const std::vector<double>& expected, double most) {
  double xy = 0, squares = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] && std::isinf(got[i])) continue;
    xy += got[i] * expected[i];
    squares += got[i] * got[i] + expected[i] * expected[i];
  }
  const double distance = squares == 0 ? 0 : 1 - 2 * xy / squares;
  if (distance < most) return {};
  return fmt::format("1 - cos is {:.3g}, {:g} allowed", distance, most);
}

// FlashAttention: the error against the exact result, as a multiple of a low-precision PyTorch's.
std::string times_torch(const PeerCase& c, const PeerOutputs& got, double factor, double slack) {
  const double error = max_abs_difference(got.o, c.exact().o);
  const double torch = max_abs_difference(c.low_precision().o, c.exact().o);
  if (error <= factor * torch + slack) return {};
  return fmt::format("max error {:.3g} exceeds {:g} x {:.3g} (PyTorch's) + {:.3g}", error, factor, torch,
                     slack);
}

std::string mean_times_torch(const PeerCase& c, const PeerOutputs& got, double factor) {
  const double error = mean_abs_difference(got.o, c.exact().o);
  const double torch = mean_abs_difference(c.low_precision().o, c.exact().o);
  if (error <= factor * torch) return {};
  return fmt::format("mean error {:.3g} exceeds {:g} x {:.3g} (PyTorch's)", error, factor, torch);
}

// 2 max |(o + 0.3 - 0.3) - o| in the output's format: FlashAttention-3's probe of rounding.
double rounding_probe(const PeerCase& c) {
  const int32_t f = c.problem().o_format;
  double most = 0;
  for (double o : c.exact().o) most = std::max(most, std::fabs(round_to(f, round_to(f, o + 0.3) - 0.3) - o));
  return 2 * most;
}

std::string first_of(std::string a, std::string b) { return a.empty() ? b : a; }

std::string lse_prefixed(std::string text) { return text.empty() ? text : "LSE: " + text; }

// ---- the table

const PeerRule kRules[] = {
    // vLLM compares with a reference in the tensors' own format.
    {Peer::kVllm, "MLA decode, fp8 cache", "1 - cos < 1e-4, LSE 1 - cos < 1e-3",
     "tests/kernels/attention/test_cutlass_mla_decode.py",
     [](const Problem& p) { return mla(p) && no_extras(p) && no_window(p) && cache_8bit(p) && fp8_only(p); },
     [](const PeerCase& c, const PeerOutputs& got) {
       return first_of(cosine(got.o, c.exact().o, 1e-4), lse_prefixed(cosine(got.lse, c.exact().lse, 1e-3)));
     }},
    {Peer::kVllm, "MLA decode, 16 bits", "1 - cos < 1e-5, LSE 1 - cos < 1e-5",
     "tests/kernels/attention/test_flashmla.py",
     [](const Problem& p) { return mla(p) && no_extras(p) && no_window(p) && all_16bit(p); },
     [](const PeerCase& c, const PeerOutputs& got) {
       return first_of(cosine(got.o, c.exact().o, 1e-5), lse_prefixed(cosine(got.lse, c.exact().lse, 1e-5)));
     }},
    {Peer::kVllm, "paged, fp8", "0.15 + 0.15|x|",
     "tests/kernels/attention/test_flash_attn.py, test_triton_unified_attention.py",
     [](const Problem& p) {
       return paged(p) && !mla(p) && nhd(p) && p.mask == ASSAY_MASK_CAUSAL && p.chunk == 0 &&
              p.window_right < 0 && p.alibi == ASSAY_ALIBI_NONE && !p.sinks && any_8bit(p) && fp8_only(p) &&
              coarse_scales(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.low_precision().o, 0.15, 0.15);
     }},
    {Peer::kVllm, "paged decode, packed or HND cache, ALiBi, 16 bits", "1e-3 + 1e-5|x|",
     "tests/kernels/attention/test_attention.py",
     [](const Problem& p) {
       return decode(p) && !mla(p) && !nhd(p) && p.mask == ASSAY_MASK_CAUSAL && no_window(p) && !p.sinks &&
              p.softcap == 0 && p.alibi != ASSAY_ALIBI_SQRT && all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.low_precision().o, 1e-3, 1e-5);
     }},
    {Peer::kVllm, "paged, 16 bits", "1.5e-2 + 1e-2|x|",
     "tests/kernels/attention/test_flash_attn.py, test_triton_unified_attention.py",
     [](const Problem& p) {
       return paged(p) && !mla(p) && nhd(p) && p.mask == ASSAY_MASK_CAUSAL && p.chunk == 0 &&
              p.window_right < 0 && p.alibi != ASSAY_ALIBI_SQRT && all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.low_precision().o, 1.5e-2, 1e-2);
     }},

    {Peer::kFa2, "ALiBi", "max error <= 5 x PyTorch's + 1e-5", "tests/test_flash_attn.py",
     [](const Problem& p) {
       return all_16bit(p) && p.alibi == ASSAY_ALIBI_LINEAR && plain_mask(p) && p.chunk == 0 && !p.sinks &&
              !mla(p) && (!paged(p) || nhd(p));
     },
     [](const PeerCase& c, const PeerOutputs& got) { return times_torch(c, got, 5, 1e-5); }},
    {Peer::kFa2, "paged", "max error <= 3 x PyTorch's + 1e-5", "tests/test_flash_attn.py",
     [](const Problem& p) {
       return paged(p) && nhd(p) && all_16bit(p) && plain_mask(p) && p.chunk == 0 &&
              p.alibi == ASSAY_ALIBI_NONE && !p.sinks;
     },
     [](const PeerCase& c, const PeerOutputs& got) { return times_torch(c, got, 3, 1e-5); }},
    {Peer::kFa2, "prefill", "max error <= 2 x PyTorch's + 1e-5", "tests/test_flash_attn.py",
     [](const Problem& p) {
       return !paged(p) && all_16bit(p) && plain_mask(p) && p.chunk == 0 && p.alibi == ASSAY_ALIBI_NONE &&
              !p.sinks;
     },
     [](const PeerCase& c, const PeerOutputs& got) { return times_torch(c, got, 2, 1e-5); }},

    {Peer::kFa3, "paged", "max error <= 2 x PyTorch's + 1e-5 (fp8 4 x), mean <= 1.5 x (fp8 3 x)",
     "hopper/test_flash_attn.py, kvcache",
     [](const Problem& p) {
       return paged(p) && nhd(p) && plain_mask(p) && p.alibi == ASSAY_ALIBI_NONE && !p.sinks &&
              p.chunk == 0 && (all_16bit(p) || (any_8bit(p) && fp8_only(p) && coarse_scales(p)));
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       const bool fp8 = any_8bit(c.problem());
       return first_of(times_torch(c, got, fp8 ? 4 : 2, 1e-5), mean_times_torch(c, got, fp8 ? 3 : 1.5));
     }},
    {Peer::kFa3, "prefill", "max error <= 2 x PyTorch's (softcap 3 x) + 2 max|(o + 0.3 - 0.3) - o|",
     "hopper/test_flash_attn.py, output",
     [](const Problem& p) {
       return !paged(p) && plain_mask(p) && p.alibi == ASSAY_ALIBI_NONE && !p.sinks &&
              (all_16bit(p) || (any_8bit(p) && fp8_only(p) && coarse_scales(p)));
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return times_torch(c, got, c.problem().softcap > 0 ? 3 : 2, rounding_probe(c));
     }},

    {Peer::kFlashInfer, "MLA", "1e-3 + 1e-3|x|", "tests/test_deepseek_mla.py",
     [](const Problem& p) { return mla(p) && no_extras(p) && no_window(p) && all_16bit(p); },
     [](const PeerCase& c, const PeerOutputs& got) { return allclose(got.o, c.exact().o, 1e-3, 1e-3); }},
    {Peer::kFlashInfer, "fp8 cache", "1e-2 + 0.2|x|", "tests/test_batch_prefill_kernels.py, fp8",
     [](const Problem& p) {
       return !mla(p) && plain_mask(p) && p.chunk == 0 && !p.sinks && p.alibi != ASSAY_ALIBI_SQRT &&
              cache_8bit(p) && fp8_only(p) && coarse_scales(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) { return allclose(got.o, c.exact().o, 1e-2, 0.2); }},
    {Peer::kFlashInfer, "bf16 through trtllm-gen", "1e-2 + 1e-2|x|, 5e-5 of the elements may fail",
     "tests/test_trtllm_gen_attention.py",
     [](const Problem& p) {
       return paged(p) && !mla(p) && plain_mask(p) && p.chunk == 0 && p.alibi == ASSAY_ALIBI_NONE &&
              all_16bit(p) && p.o_format == ASSAY_BF16;
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.exact().o, 1e-2, 1e-2, 5e-5);
     }},
    {Peer::kFlashInfer, "fp16 decode and prefill", "1e-3 + 1e-3|x|",
     "tests/test_batch_decode_kernels.py, test_batch_prefill_kernels.py, "
     "test_shared_prefix_kernels.py",
     [](const Problem& p) {
       return !mla(p) && p.mask != ASSAY_MASK_CROSS && p.chunk == 0 && !p.sinks &&
              p.alibi != ASSAY_ALIBI_SQRT && all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) { return allclose(got.o, c.exact().o, 1e-3, 1e-3); }},

    {Peer::kSglang, "MLA decode", "1e-2 + 1e-2|x|", "sgl-kernel/tests/test_cutlass_mla.py",
     [](const Problem& p) { return mla(p) && no_extras(p) && no_window(p) && all_16bit(p); },
     [](const PeerCase& c, const PeerOutputs& got) { return allclose(got.o, c.exact().o, 1e-2, 1e-2); }},
    {Peer::kSglang, "decode", "cos > 0.99 and 3e-2 + 1e-5|x|",
     "test/srt/test_triton_attention_kernels.py, grouped decode",
     [](const Problem& p) {
       return decode(p) && !mla(p) && nhd(p) && p.mask == ASSAY_MASK_CAUSAL && no_window(p) && no_extras(p) &&
              all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return first_of(cosine(got.o, c.exact().o, 1e-2), allclose(got.o, c.exact().o, 3e-2, 1e-5));
     }},
    {Peer::kSglang, "extend, tree masks", "1e-3 + 1e-2|x|",
     "test/srt/test_triton_attention_kernels.py, extend",
     [](const Problem& p) {
       return paged(p) && !mla(p) && nhd(p) && (p.mask == ASSAY_MASK_CAUSAL || p.mask == ASSAY_MASK_TREE) &&
              p.chunk == 0 && p.window_right < 0 && p.alibi == ASSAY_ALIBI_NONE && all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.low_precision().o, 1e-3, 1e-2);
     }},
    {Peer::kSglang, "prefill", "1 - cos < 1e-5 and 1e-2 + 1e-5|x|",
     "test/srt/test_triton_attention_kernels.py, context",
     [](const Problem& p) {
       return !paged(p) && plain_mask(p) && no_window(p) && no_extras(p) && !any_8bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return first_of(cosine(got.o, c.exact().o, 1e-5), allclose(got.o, c.exact().o, 1e-2, 1e-5));
     }},

    {Peer::kAiter, "MLA decode", "1 - cos < 1e-5 (fp8 3e-2)", "op_tests/test_mla.py",
     [](const Problem& p) { return mla(p) && no_extras(p) && no_window(p) && (all_16bit(p) || fp8_only(p)); },
     [](const PeerCase& c, const PeerOutputs& got) {
       return cosine(got.o, c.exact().o, any_8bit(c.problem()) ? 3e-2 : 1e-5);
     }},
    {Peer::kAiter, "paged decode", "1e-2 + 1e-2|x|, 5 % of the elements may fail",
     "op_tests/test_pa.py, aiter/test_common.py",
     [](const Problem& p) {
       return decode(p) && !mla(p) && p.mask == ASSAY_MASK_CAUSAL && no_window(p) && !p.sinks &&
              p.softcap == 0 && p.alibi != ASSAY_ALIBI_SQRT && is_16bit(p.q_format);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.low_precision().o, 1e-2, 1e-2, 0.05);
     }},
    {Peer::kAiter, "paged prefill", "2e-2 + 1e-2|x|", "op_tests/test_batch_prefill.py, bf16",
     [](const Problem& p) {
       return paged(p) && !mla(p) && nhd(p) && plain_mask(p) && p.chunk == 0 && p.window_right < 0 &&
              !p.sinks && p.alibi == ASSAY_ALIBI_NONE && all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return allclose(got.o, c.low_precision().o, 2e-2, 1e-2);
     }},
    {Peer::kAiter, "MHA prefill, fp8", "1.0 + 0|x| and cos >= 0.96", "op_tests/test_mha_fp8.py",
     [](const Problem& p) {
       return !paged(p) && plain_mask(p) && p.chunk == 0 && !p.sinks && p.softcap == 0 &&
              p.alibi == ASSAY_ALIBI_NONE && any_8bit(p) && fp8_only(p) && coarse_scales(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return first_of(allclose(got.o, c.exact().o, 1.0, 0), cosine(got.o, c.exact().o, 0.04));
     }},
    {Peer::kAiter, "MHA prefill, 16 bits", "max error <= max(2 x PyTorch's, 1e-2)", "op_tests/test_mha.py",
     [](const Problem& p) {
       return !paged(p) && plain_mask(p) && p.chunk == 0 && !p.sinks && p.softcap == 0 &&
              p.alibi != ASSAY_ALIBI_SQRT && all_16bit(p);
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       const double torch = max_abs_difference(c.low_precision().o, c.exact().o);
       return 2 * torch >= 1e-2 ? times_torch(c, got, 2, 0) : times_torch(c, got, 0, 1e-2);
     }},

    {Peer::kFlashMla, "MLA decode", "O 8e-4 + (2.01/128)|x| and 1 - cos < 5e-6; LSE 1e-6 + (8.01/65536)|x|",
     "tests/test_flash_mla_decoding.py",
     [](const Problem& p) {
       return mla(p) && no_extras(p) && no_window(p) && (all_16bit(p) || (cache_8bit(p) && fp8_only(p)));
     },
     [](const PeerCase& c, const PeerOutputs& got) {
       return first_of(
           first_of(allclose(got.o, c.exact().o, 8e-4, 2.01 / 128), cosine(got.o, c.exact().o, 5e-6)),
           lse_prefixed(allclose(got.lse, c.exact().lse, 1e-6, 8.01 / 65536)));
     }},
};

constexpr PeerInfo kPeers[] = {
    {Peer::kVllm, "vLLM", 'V', "vllm"},
    {Peer::kFa2, "FlashAttention-2", '2', "fa"},
    {Peer::kFa3, "FlashAttention-3", '3', "fa"},
    {Peer::kFlashInfer, "FlashInfer", 'I', "flashinfer"},
    {Peer::kSglang, "SGLang", 'S', "sglang"},
    {Peer::kAiter, "AITER", 'A', "aiter"},
    {Peer::kFlashMla, "FlashMLA", 'M', "flashmla"},
};
static_assert(std::size(kPeers) == kPeerCount);

}  // namespace

std::span<const PeerInfo> peers() { return kPeers; }
const PeerInfo& info_of(Peer peer) { return kPeers[static_cast<int>(peer)]; }
std::span<const PeerRule> peer_rules() { return kRules; }

const PeerRule* rule_for(Peer peer, const Problem& p) {
  for (const PeerRule& rule : kRules)
    if (rule.peer == peer && rule.applies(p)) return &rule;
  return nullptr;
}

}  // namespace assay
