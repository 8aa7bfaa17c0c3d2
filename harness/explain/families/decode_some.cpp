// SPDX-License-Identifier: Apache-2.0
// See decode_some.hpp.
#include "harness/explain/families/decode_some.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "harness/explain/families/reread.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

using Applies = bool (*)(int32_t format);
using Value = double (*)(int32_t format, uint32_t code);

// The axes that count dimensions, last one first, and how many of each a step of it is; empty: not known.
std::vector<std::pair<int, int64_t>> axes_of_dims(const assay_tensor& t, int64_t dims) {
  const int last = t.rank - 1;
  if (last < 0) return {};
  if (t.shape[last] == dims) return {{last, 1}};
  if (t.rank == 5 && t.shape[2] * t.shape[4] == dims) return {{4, 1}, {2, t.shape[4]}};
  if (t.rank >= 4 && t.shape[3] == dims) return {{3, 1}};
  if (t.rank >= 4 && t.shape[2] == dims) return {{2, 1}};
  return {};
}

void reread_some(const Clues& clues, Hypotheses& out, std::string_view cause, std::string_view how,
                 double cost, const Applies& applies, const Value& value) {
  const Problem& p = clues.problem();
  const assay_tensors& t = *clues.evidence.operands(false).tensors;
  struct Some {
    int32_t of, at;
  };
  for (const OperandGroup& group : operand_groups()) {
    const auto fits = [&](OperandMember m) {
      const int64_t dims = m == &assay_tensors::v ? p.head_dim_v : p.head_dim_qk;
      return applies((t.*m).format) && format_bytes((t.*m).format) == 1 && !axes_of_dims(t.*m, dims).empty();
    };
    if (!can_be_reread(t, group, fits)) continue;
    for (const Some some : {Some{2, 0}, {2, 1}, {4, 0}, {4, 1}, {4, 2}, {4, 3}, {8, 7}, {16, 15}}) {
      World world;
      world.rewrite = [members = group.members, value, some, &p](assay_tensors& a,
                                                                 std::vector<std::vector<float>>& owned) {
        for (const OperandMember m : members) {
          assay_tensor& tensor = a.*m;
          const assay_tensor from = tensor;
          const auto axes = axes_of_dims(from, m == &assay_tensors::v ? p.head_dim_v : p.head_dim_qk);
          std::vector<float>& numbers = owned.emplace_back(elements_spanned(from));
          std::vector<float> given(256), wrong(256);
          for (uint32_t code = 0; code < 256; ++code) {
            given[code] = static_cast<float>(decode(from.format, code));
            wrong[code] = static_cast<float>(value(from.format, code));
          }
          std::vector<int64_t> at(from.rank, 0);
          for (bool more = std::none_of(from.shape, from.shape + from.rank, [](int64_t n) { return n == 0; });
               more;) {
            int64_t offset = 0, dim = 0;
            for (int i = 0; i < from.rank; ++i) offset += at[i] * from.stride[i];
            for (const auto& [axis, step] : axes) dim += at[axis] * step;
            const uint8_t code = static_cast<const uint8_t*>(from.data)[offset];
            numbers[offset] = (dim % some.of == some.at ? wrong : given)[code];
            int axis = from.rank - 1;
            while (axis >= 0 && ++at[axis] == from.shape[axis]) at[axis--] = 0;
            more = axis >= 0;
          }
          tensor.data = numbers.data();
          tensor.format = ASSAY_FP32;
        }
      };
      Hypothesis h = propose(
          clues, cause,
          fmt::format("{}: {}, in dimensions of number {} modulo {}", group.name, how, some.at, some.of),
          cost + cost_of_one(group));
      h.rules.world = std::make_shared<World>(std::move(world));
      out.push_back(std::move(h));
    }
  }
}

}  // namespace

void decode_some(const Clues& clues, Hypotheses& out) {
  reread_some(
      clues, out, "format.sign", "codes read as unsigned", 0.25, [](int32_t f) { return f == ASSAY_INT8; },
      [](int32_t, uint32_t code) { return double(code & 255); });
  reread_some(clues, out, "format.sign", "signs lost", 0.3, format_is_quantized,
              [](int32_t f, uint32_t code) { return std::fabs(decode(f, code)); });
}

}  // namespace assay
