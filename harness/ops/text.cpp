// SPDX-License-Identifier: Apache-2.0
// See text.hpp.
#include "harness/ops/text.hpp"

#include <fmt/format.h>

#include "harness/problem/names.hpp"

namespace assay {

std::string quantization_text(int32_t format, int32_t scale) {
  std::string text(name_of(format_names(), format));
  if (scale != ASSAY_SCALE_NONE) text += fmt::format(", scale per {}", name_of(scale_names(), scale));
  return text;
}

std::string kv_text(const Problem& p) {
  return fmt::format(
      "K {}; V {}", quantization_text(p.k_format, p.k_scale),
      p.layout == ASSAY_LAYOUT_MLA ? "the front of K" : quantization_text(p.v_format, p.v_scale));
}

std::string attention_text(const Problem& p) {
  return fmt::format(
      "heads     {} query, {} key/value (group {}); dim {} / {}\n"
      "formats   q {}; k {}; v {}; out {}\n"
      "scores    scale {:.9g}{}{}{}; mask {}{}{}",
      p.heads_q, p.heads_kv, p.group(), p.head_dim_qk, p.head_dim_v, quantization_text(p.q_format, p.q_scale),
      quantization_text(p.k_format, p.k_scale), quantization_text(p.v_format, p.v_scale),
      name_of(format_names(), p.o_format), p.softmax_scale,
      p.softcap > 0 ? fmt::format(", soft cap {:.9g}", p.softcap) : "",
      p.alibi != ASSAY_ALIBI_NONE ? fmt::format(", ALiBi {}", name_of(alibi_names(), p.alibi)) : "",
      p.sinks ? ", sinks" : "", name_of(mask_names(), p.mask),
      p.window_left >= 0 || p.window_right >= 0
          ? fmt::format(", window {} left {} right (-1 unlimited)", p.window_left, p.window_right)
          : "",
      p.chunk > 0 ? fmt::format(", chunks of {}", p.chunk) : "");
}

}  // namespace assay
