// SPDX-License-Identifier: Apache-2.0
// Codes of 8 bits read by bit fields, as by a decoder of one's own: other widths and biases, no special
// codes, subnormals lost or taken as normal numbers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/explain/hypothesis.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int64_t kMostElements = 4'000'000;

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

int64_t span(const assay_tensor& t) {
  int64_t last = 0;
  for (int axis = 0; axis < t.rank; ++axis) last += (t.shape[axis] - 1) * t.stride[axis];
  return last + 1;
}

}  // namespace

void other_code_family(const Clues& clues, Hypotheses& out) {
  using Member = assay_tensor assay_tensors::*;
  struct Who {
    const char* name;
    std::vector<Member> members;
  };
  const Who whos[] = {{"K and V", {&assay_tensors::k, &assay_tensors::v}},
                      {"K", {&assay_tensors::k}},
                      {"V", {&assay_tensors::v}},
                      {"Q", {&assay_tensors::q}}};
  const assay_tensors& t = *clues.evidence.operands(false).tensors;
  for (const Who& who : whos) {
    const bool all = std::all_of(who.members.begin(), who.members.end(), [&](Member m) {
      return (t.*m).data != nullptr && format_bytes((t.*m).format) == 1 && span(t.*m) <= kMostElements;
    });
    if (!all) continue;
    const auto add = [&](std::string_view cause, std::string text, double cost,
                         const std::function<double(uint32_t)>& of) {
      Hypothesis h = propose(clues, cause, fmt::format("{}: {}", who.name, text),
                             cost + 0.05 * (who.members.size() < 2));
      auto world = std::make_shared<World>();
      world->rewrite = [members = who.members, of](assay_tensors& a, std::vector<std::vector<float>>& owned) {
        for (const Member m : members) {
          assay_tensor& tensor = a.*m;
          std::vector<float>& numbers = owned.emplace_back(span(tensor));
          for (size_t i = 0; i < numbers.size(); ++i)
            numbers[i] = static_cast<float>(of(static_cast<const uint8_t*>(tensor.data)[i]));
          tensor.data = numbers.data();
          tensor.format = ASSAY_FP32;
        }
      };
      h.rules.world = std::move(world);
      out.push_back(std::move(h));
    };
    const int32_t format = (t.*who.members[0]).format;
    const bool one_format = std::all_of(who.members.begin(), who.members.end(),
                                        [&](Member m) { return (t.*m).format == format; });
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
