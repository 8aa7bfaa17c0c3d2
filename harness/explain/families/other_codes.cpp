// SPDX-License-Identifier: Apache-2.0
// Codes of 8 bits read by bit fields, as by a decoder of one's own: other widths and biases, no special
// codes, subnormals lost or taken as normal numbers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/explain/families/reread.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

double by_fields(uint32_t code, int exponent_bits, int bias, int low) {
  const int mantissa_bits = 7 - exponent_bits;
  const int e = static_cast<int>(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double m = std::ldexp(double(code & ((1u << mantissa_bits) - 1)), -mantissa_bits);
  // low: 0 subnormals, 1 they are zero, 2 they are read as normal numbers
  const double size = e > 0 || low == 2 ? std::ldexp(1 + m, e - bias)
                      : low == 1        ? 0
                                        : std::ldexp(m, 1 - bias);
  return code & 128 ? -size : size;
}

}  // namespace

void other_code_family(const Clues& clues, Hypotheses& out) {
  const assay_tensors& t = *clues.evidence.operands(false).tensors;
  for (const OperandGroup& group : operand_groups()) {
    if (!can_be_reread(t, group, [&](OperandMember m) { return format_bytes((t.*m).format) == 1; })) continue;
    const auto add = [&](std::string_view cause, std::string text, double cost,
                         const std::function<double(uint32_t)>& of) {
      Hypothesis h =
          propose(clues, cause, fmt::format("{}: {}", group.name, text), cost + cost_of_one(group));
      auto world = std::make_shared<World>();
      world->rewrite = [members = group.members, of](assay_tensors& a,
                                                     std::vector<std::vector<float>>& owned) {
        for (const OperandMember m : members) {
          assay_tensor& tensor = a.*m;
          std::vector<float>& numbers = owned.emplace_back(elements_spanned(tensor));
          for (size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = static_cast<float>(of(static_cast<const uint8_t*>(tensor.data)[i]));
          tensor.data = numbers.data();
          tensor.format = ASSAY_FP32;
        }
      };
      h.rules.world = std::move(world);
      out.push_back(std::move(h));
    };
    const int32_t format = (t.*group.members[0]).format;
    const bool one_format = std::all_of(group.members.begin(), group.members.end(),
                                        [&](OperandMember m) { return (t.*m).format == format; });
    for (int bits : {3, 4, 5}) {
      const int usual = (1 << (bits - 1)) - 1;
      for (int bias : {usual, usual + 1, usual - 1})
        for (int low : {0, 1, 2}) {
          // What differs in its subnormals alone has a name of its own.
          const bool own = one_format && low > 0 && format_is_fp8(format) &&
                           format_info(format).mantissa_bits == 7 - bits &&
                           format_info(format).min_exponent == 1 - bias;
          add(own ? "format.subnormals" : "format.other",
              fmt::format("codes read as {} bits of exponent less {}, none of them special{}", bits, bias,
                          low == 0   ? ""
                          : low == 1 ? ", subnormals zero"
                                     : ", subnormals as normal numbers"),
              0.2 + 0.1 * (bias != usual) + 0.05 * (low > 0),
              [=](uint32_t code) { return by_fields(code, bits, bias, low); });
        }
    }
    if (one_format)
      add("format.other", "codes read in the order of their halves", 0.4,
          [format](uint32_t code) { return decode(format, (code >> 4 | code << 4) & 255); });
  }
}

}  // namespace assay
