// SPDX-License-Identifier: Apache-2.0
// Each family says what of it a size is, the range, and how a size becomes a switch. Sizes of formats are
// unit roundoffs: 2^-8 is bf16, 2^-11 fp16, 2^-4 e4m3. The arithmetic is Hopper's, order declared, in four
// parts, so that all tiers of the bounds apply and there are partial results to get wrong.
#include "kernels/faulty/sized.hpp"

#include <cmath>
#include <cstdio>
#include <string>

#include "kernels/faulty/bases.hpp"
#include "kernels/faulty/faults.hpp"
#include "kernels/faulty/reach.hpp"

namespace assay_faulty {
namespace {

struct Family {
  const char *name, *unit, *stage, *museum, *cause;
  int smallest, largest;  // exponents of two
  void (*plant)(Switches&, double size);
  int (*reached)(const assay_problem*);
};

int bits_of(double roundoff) { return static_cast<int>(std::lround(-std::log2(roundoff))) - 1; }

int visible(const assay_problem* p) { return reach::any_visible(*p); }

const Family kFamilies[] = {
    {"key_weight", "relative error of the weight of one key; 1: the key is dropped", "softmax", "proto:DROP1",
     "keys.one_dropped", -12, 12,
     [](Switches& s, double size) { s.key_weight_error = static_cast<float>(size <= 1 ? -size : size); },
     visible},
    {"softmax_scale", "relative error of the softmax scale", "scores", "proto:SCALE_BF16", "scale.softmax",
     -20, 0, [](Switches& s, double size) { s.softmax_scale_error = size; }, visible},
    {"output_bias", "relative error of O before it is rounded", "output", "proto:VSCALE_QUARTER",
     "scale.v_factor", -18, 0, [](Switches& s, double size) { s.output_error = size; }, visible},
    {"p_format", "unit roundoff of the format of P", "softmax", "proto:P_FP8", "precision.p_coarse", -12, -2,
     [](Switches& s, double size) { s.p_bits = bits_of(size); }, visible},
    {"v_format", "unit roundoff of a format that V is rounded to once more", "values", "proto:P_FP8",
     "precision.operand", -12, -2, [](Switches& s, double size) { s.v_bits = bits_of(size); }, visible},
    {"partial_format", "unit roundoff of the format of partial results", "merge", "proto:PART_BF16",
     "precision.partials", -16, -2, [](Switches& s, double size) { s.partial_bits = bits_of(size); },
     visible},
    {"accumulator", "unit roundoff of the accumulator of P V", "values", "proto:O_BF16",
     "precision.o_accumulator", -20, -4, [](Switches& s, double size) { s.o_bits = bits_of(size); }, visible},
    {"mask_shift", "newest keys that a causal row does not see", "mask", "AI-14", "mask.causal_short", 0, 10,
     [](Switches& s, double size) { s.causal_delta = -static_cast<int32_t>(size); },
     [](const assay_problem* p) { return p->mask == ASSAY_MASK_CAUSAL ? visible(p) : 0; }},
};

struct Built {
  std::vector<std::string> names;
  std::vector<Row> rows;
  Built() {
    for (const Family& f : kFamilies)
      for (int e = f.smallest; e <= f.largest; ++e)
        names.push_back(std::string(f.name) + "_2^" + std::to_string(e));
    size_t n = 0;
    for (const Family& f : kFamilies)
      for (int e = f.smallest; e <= f.largest; ++e) {
        Row row{};
        row.name = names[n++].c_str();
        row.summary = f.unit, row.stage = f.stage, row.museum = f.museum, row.cause = f.cause;
        row.arithmetic = kSplit;
        row.reached = f.reached;
        row.family = f.name, row.unit = f.unit;
        row.size = std::ldexp(1.0, e);
        f.plant(row.switches, row.size);
        rows.push_back(row);
      }
  }
};

}  // namespace

Table sized_faults() {
  static const Built all;
  return {all.rows.data(), static_cast<int32_t>(all.rows.size())};
}

Table sized_variants() {
  static const Row right{.name = "sized_right",
                         .summary = "the kernel that faults of any size are planted in",
                         .stage = "variant",
                         .museum = nullptr,
                         .cause = nullptr,
                         .arithmetic = kSplit};
  return {&right, 1};
}

}  // namespace assay_faulty
