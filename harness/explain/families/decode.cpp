// SPDX-License-Identifier: Apache-2.0
// Hypotheses about what the codes of an operand are taken for: another format, another sign, no subnormals,
// another layout, coarser values after their scale. Each is the same case with changed operands.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "harness/explain/families/decode_some.hpp"
#include "harness/explain/families/read_orders.hpp"
#include "harness/explain/families/reread.hpp"
#include "harness/explain/families/sister_format.hpp"
#include "harness/explain/hypothesis.hpp"
#include "harness/explain/rounding.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

void add_world(const Clues& clues, Hypotheses& out, std::string_view cause, std::string text, double cost,
               World world) {
  Hypothesis h = propose(clues, cause, std::move(text), cost);
  h.rules.world = std::make_shared<World>(std::move(world));
  out.push_back(std::move(h));
}

using Applies = std::function<bool(int32_t format)>;
using Value = std::function<double(int32_t format, uint32_t code)>;

// `numbers` from the codes at `data`. A code of two bytes at most means one number wherever it stands; asking
// for it is most of what reading costs, so of many elements it is asked for once.
template <class Code>
void read_codes(const void* data, int32_t format, const Value& value, std::vector<float>& numbers) {
  constexpr size_t kCodes = sizeof(Code) > 2 ? 0 : size_t{1} << 8 * sizeof(Code);
  const bool once = kCodes > 0 && numbers.size() > kCodes / 8;
  std::vector<float> known(once ? kCodes : 0);
  std::vector<bool> asked(known.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    Code code;
    std::memcpy(&code, static_cast<const std::byte*>(data) + i * sizeof code, sizeof code);
    if (!once) {
      numbers[i] = static_cast<float>(value(format, code));
      continue;
    }
    if (!asked[code]) known[code] = static_cast<float>(value(format, code)), asked[code] = true;
    numbers[i] = known[code];
  }
}

// The operands as numbers of fp32 under another reading of their codes.
void reread(const Clues& clues, Hypotheses& out, std::string_view cause, std::string_view how, double cost,
            const Applies& applies, const Value& value) {
  const assay_tensors& t = *clues.evidence.operands(false).tensors;
  for (const OperandGroup& group : operand_groups()) {
    if (!can_be_reread(t, group, [&](OperandMember m) { return applies((t.*m).format); })) continue;
    World world;
    world.rewrite = [members = group.members, value](assay_tensors& a,
                                                     std::vector<std::vector<float>>& owned) {
      for (const OperandMember m : members) {
        assay_tensor& tensor = a.*m;
        std::vector<float>& numbers = owned.emplace_back(elements_spanned(tensor));
        const int bytes = format_bytes(tensor.format);
        const auto read = bytes == 1   ? read_codes<uint8_t>
                          : bytes == 2 ? read_codes<uint16_t>
                                       : read_codes<uint32_t>;
        read(tensor.data, tensor.format, value, numbers);
        tensor.data = numbers.data();
        tensor.format = ASSAY_FP32;
      }
    };
    add_world(clues, out, cause, fmt::format("{}: {}", group.name, how), cost + cost_of_one(group),
              std::move(world));
  }
}

bool is_half(int32_t f) { return f == ASSAY_BF16 || f == ASSAY_FP16; }

void formats(const Clues& clues, Hypotheses& out) {
  const Applies int8 = [](int32_t f) { return f == ASSAY_INT8; };
  reread(clues, out, "format.sign", "codes read as unsigned", 0.1, int8,
         [](int32_t, uint32_t code) { return double(code & 255); });
  reread(clues, out, "format.sign", "codes read with an offset of 128", 0.2, int8,
         [](int32_t, uint32_t code) { return double(code & 255) - 128; });
  reread(clues, out, "format.sign", "codes read as sign and magnitude", 0.3, int8,
         [](int32_t, uint32_t code) { return (code & 128 ? -1.0 : 1.0) * double(code & 127); });
  const auto of_code = [](uint32_t code) { return double(static_cast<int8_t>(code)); };
  for (double sign : {1.0, -1.0})
    reread(clues, out, "format.sign", sign > 0 ? "negative codes one too high" : "negative codes one too low",
           0.2, int8, [=](int32_t, uint32_t code) { return of_code(code) + (code & 128 ? sign : 0); });
  for (double zero : {0.5, -0.5, 1.0, -1.0, 8.0, -8.0, 128.0, -128.0, 127.0, -127.0})
    reread(clues, out, "format.zero_point", fmt::format("a zero point of {:g}", zero), 0.25, int8,
           [=](int32_t, uint32_t code) { return of_code(code) - zero; });
  for (int32_t lost = 1; lost <= 4; ++lost) {
    const uint32_t mask = ~((1u << lost) - 1);
    reread(clues, out, "format.other",
           fmt::format("the lowest {} of a code lost", lost > 1 ? fmt::format("{} bits", lost) : "bit"), 0.25,
           format_is_quantized, [=](int32_t f, uint32_t code) { return decode(f, code & mask & 255); });
  }
  reread(clues, out, "format.other", "the halves of a code exchanged", 0.3, format_is_quantized,
         [](int32_t f, uint32_t code) { return decode(f, ((code >> 4) | (code << 4)) & 255); });
  reread(
      clues, out, "format.sign", "signs lost", 0.3, [](int32_t) { return true; },
      [](int32_t f, uint32_t code) { return std::fabs(decode(f, code)); });
  reread(
      clues, out, "format.subnormals", "subnormals taken as zero", 0.1,
      [](int32_t f) { return format_is_fp8(f) || f == ASSAY_FP16; },
      [](int32_t f, uint32_t code) {
        const double x = decode(f, code);
        return std::fabs(x) < std::ldexp(1.0, format_info(f).min_exponent) ? 0.0 : x;
      });
  for (int32_t other : {ASSAY_FP8_E4M3, ASSAY_FP8_E5M2, ASSAY_FP8_E4M3FNUZ, ASSAY_FP8_E5M2FNUZ, ASSAY_INT8})
    reread(
        clues, out, "format.other", "codes read as " + std::string(name_of(format_names(), other)), 0.2,
        [other](int32_t f) { return format_is_quantized(f) && f != other && f != sister(other); },
        [other](int32_t, uint32_t code) { return decode(other, code); });
  reread(
      clues, out, "format.fnuz_as_fn", "codes read in the sister format", 0.1,
      [](int32_t f) { return sister(f) != f; },
      [](int32_t f, uint32_t code) { return decode(sister(f), code); });
  for (int32_t other : {ASSAY_BF16, ASSAY_FP16}) {
    reread(
        clues, out, "format.other", "codes read as " + std::string(name_of(format_names(), other)), 0.2,
        [other](int32_t f) { return is_half(f) && f != other; },
        [other](int32_t, uint32_t code) { return decode(other, code); });
    reread(
        clues, out, "precision.operand", "rounded to " + std::string(name_of(format_names(), other)), 0.2,
        [other](int32_t f) { return f == ASSAY_FP32 || (is_half(f) && f != other); },
        [other](int32_t f, uint32_t code) { return round_to(other, decode(f, code)); });
    reread(
        clues, out, "precision.operand", "cut to " + std::string(name_of(format_names(), other)), 0.25,
        [other](int32_t f) { return f == ASSAY_FP32 || (is_half(f) && f != other); },
        [other](int32_t f, uint32_t code) { return truncate_to(other, decode(f, code)); });
  }
  const assay_arithmetic& declared = clues.predictor.declared();
  const int32_t own = declared.dequant_replayed ? declared.dequant_format : int32_t{ASSAY_FORMAT_NONE};
  const auto dequantised = [&](const char* who, const char* how, int32_t format, double cost, int32_t cut) {
    World world;
    world.dequant_format = format | cut;
    const char* whose = cut == 0 || cut == kCut ? "their" : "its";
    add_world(clues, out, "precision.operand",
              fmt::format("{} {} {} after {} scale", who, how, name_of(format_names(), format), whose), cost,
              std::move(world));
  };
  for (int32_t format : {ASSAY_BF16, ASSAY_FP16}) {
    if (format != own) dequantised("K and V", "rounded to", format, 0.15, 0);
    dequantised("K and V", "cut to", format, 0.17, kCut);
    if (format != own) continue;  // of one alone: the other is rounded as it is declared
    dequantised("K", "cut to", format, 0.2, kCutK);
    dequantised("V", "cut to", format, 0.2, kCutV);
  }
  if (own != ASSAY_FORMAT_NONE) dequantised("K and V", "kept in", ASSAY_FP32, 0.17, 0);
}

// K or V of a paged cache read in the other order of slots and heads.
void layouts(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (!op_of(p).has_cache) return;
  if (p.layout == ASSAY_LAYOUT_X || p.layout == ASSAY_LAYOUT_SHUFFLED) {
    // Axes: K block, head, dim / x, slot, dim % x; V block, head, dim, slot or block, head, slot / x, dim,
    // slot % x.
    const auto read_as = [&](std::string text, OperandMember of, std::vector<int64_t> strides) {
      World world;
      world.change = [of, strides = std::move(strides)](const Problem&, assay_tensors& a) {
        for (size_t i = 0; i < strides.size(); ++i) (a.*of).stride[2 + i] = strides[i];
      };
      add_world(clues, out, "memory.layout", std::move(text), 0.15, std::move(world));
    };
    // Runs of another length than x, in a tensor that has as many numbers.
    const auto runs_of = [&](std::string text, OperandMember of, int64_t run, int64_t outer,
                             std::vector<int64_t> strides) {
      World world;
      world.change = [of, run, outer, strides = std::move(strides)](const Problem&, assay_tensors& a) {
        assay_tensor& t = a.*of;
        t.shape[2] = outer, t.shape[4] = run;
        for (size_t i = 0; i < strides.size(); ++i) t.stride[2 + i] = strides[i];
      };
      add_world(clues, out, "memory.layout", std::move(text), 0.2, std::move(world));
    };
    const HostOperands host = clues.evidence.operands(false);
    const assay_tensor &k = host.tensors->k, &v = host.tensors->v;
    const int64_t x = k.shape[4], d = p.head_dim_v;
    read_as("K read as rows of dimensions", &assay_tensors::k, {x, p.head_dim_qk, 1});
    for (const int64_t run : {1, 2, 4, 8, 16, 32}) {
      if (p.head_dim_qk % run != 0) continue;
      const int64_t outer = p.head_dim_qk / run;
      if (run != x)
        runs_of(fmt::format("K read in runs of {} dimensions for {}", run, x), &assay_tensors::k, run, outer,
                {run * p.page_size, run, 1});
      if (run == x)
        runs_of("K: run and place in it exchanged", &assay_tensors::k, k.shape[2], x,
                {k.stride[4], k.stride[3], k.stride[2]});
      if (run == x) out.back().also_called = {"dims.qk_order"};  // a slot keeps its numbers
    }
    if (p.layout == ASSAY_LAYOUT_X) {
      read_as("V read as rows of dimensions", &assay_tensors::v, {1, d});
    } else {
      const int64_t y = v.shape[4];
      read_as("V read as rows of dimensions", &assay_tensors::v, {y * d, 1, d});
      read_as("V read as rows of slots", &assay_tensors::v, {y, p.page_size, 1});
      const int64_t outer = v.shape[2];
      for (const int64_t run :
           {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{8}, int64_t{16}, int64_t{32}, outer}) {
        if (run == 0 || p.page_size % run != 0) continue;
        if (run != y)
          runs_of(fmt::format("V read in runs of {} slots for {}", run, y), &assay_tensors::v, run,
                  p.page_size / run, {run * d, run, 1});
        // The index alone is cut into other runs, the strides are those of the tensor.
        if (run != y && format_bytes(v.format) > 0) {
          World world;
          world.rewrite = [run](assay_tensors& a, std::vector<std::vector<float>>& owned) {
            assay_tensor& t = a.v;
            const assay_tensor from = t;
            int64_t last = 0;
            for (int i = 0; i < t.rank; ++i) last += (t.shape[i] - 1) * t.stride[i];
            std::vector<float>& numbers = owned.emplace_back(last + 1);
            const int64_t slots = from.shape[2] * from.shape[4];
            for (int64_t b = 0; b < from.shape[0]; ++b)
              for (int64_t h = 0; h < from.shape[1]; ++h)
                for (int64_t j = 0; j < slots; ++j)
                  for (int64_t e = 0; e < from.shape[3]; ++e) {
                    const int64_t base = b * from.stride[0] + h * from.stride[1] + e * from.stride[3];
                    const int64_t own =
                        base + j / from.shape[4] * from.stride[2] + j % from.shape[4] * from.stride[4];
                    const int64_t read = base + j / run * from.stride[2] + j % run * from.stride[4];
                    // Behind the tensor nobody knows what stands.
                    if (own <= last)
                      numbers[own] = read <= last ? static_cast<float>(load(from.format, from.data, read))
                                                  : std::numeric_limits<float>::quiet_NaN();
                  }
            t.data = numbers.data();
            t.format = ASSAY_FP32;
          };
          add_world(clues, out, "memory.layout",
                    fmt::format("V: slots cut into runs of {} for {}, strides kept", run, y), 0.2,
                    std::move(world));
        }
        // The number of the run and the place in it exchanged.
        runs_of(run == outer ? "V: run and place in it exchanged"
                             : fmt::format("V: run and place in it exchanged, runs of {}", run),
                &assay_tensors::v, run, p.page_size / run, {v.stride[4], v.stride[3], v.stride[2]});
      }
    }
    return;
  }
  if (p.layout != ASSAY_LAYOUT_NHD && p.layout != ASSAY_LAYOUT_HND) return;
  const bool hnd = p.layout == ASSAY_LAYOUT_HND;
  // One side with the strides of the other, where these lead no further than its own.
  const HostOperands host = clues.evidence.operands(false);
  const auto as_the_other = [&](const char* text, OperandMember of, OperandMember other) {
    const assay_tensor &own = host.tensors->*of, &theirs = host.tensors->*other;
    if (own.rank != theirs.rank) return;
    bool shorter = false;
    for (int i = 0; i < own.rank; ++i) {
      if (theirs.stride[i] > own.stride[i]) return;
      shorter = shorter || theirs.stride[i] < own.stride[i];
    }
    if (!shorter) return;
    World world;
    world.change = [of, other](const Problem&, assay_tensors& a) {
      for (int i = 0; i < (a.*of).rank; ++i) (a.*of).stride[i] = (a.*other).stride[i];
    };
    add_world(clues, out, "memory.layout", text, 0.15, std::move(world));
  };
  as_the_other("V read with the strides of K", &assay_tensors::v, &assay_tensors::k);
  as_the_other("K read with the strides of V", &assay_tensors::k, &assay_tensors::v);
  for (const OperandGroup& group : operand_groups()) {
    if (group.members[0] == &assay_tensors::q) continue;
    World world;
    world.change = [members = group.members, hnd](const Problem& problem, assay_tensors& a) {
      for (const OperandMember m : members) {
        assay_tensor& t = a.*m;
        const int64_t inner = t.shape[3];
        // Axes of the tensor: NHD block, slot, head; HND block, head, slot.
        const int64_t slot = hnd ? problem.heads_kv * inner : inner,
                      head = hnd ? inner : problem.page_size * inner;
        t.stride[hnd ? 2 : 1] = slot;
        t.stride[hnd ? 1 : 2] = head;
      }
    };
    add_world(clues, out, "memory.layout",
              fmt::format("{} read as {}", group.name, hnd ? "slots of heads" : "heads of slots"), 0.15,
              std::move(world));
  }
}

// Dimensions of Q or K in another order: the dot product is that of a changed Q.
void orders(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  const int32_t n = p.head_dim_qk;
  // `map`: which dimension of the operand is read in place of d.
  const auto add = [&](std::string text, double cost, const std::function<int32_t(int32_t)>& map) {
    std::vector<int32_t> from(n);
    for (int32_t d = 0; d < n; ++d) from[d] = std::clamp(map(d), 0, n - 1);
    for (bool of_q : {true, false}) {
      Hypothesis h = propose(clues, "dims.qk_order", fmt::format("{}: {}", of_q ? "Q" : "K", text), cost);
      h.rules.edit_q = [from, of_q, n](const Scene&, double* q) {
        const std::vector<double> old(q, q + n);
        if (!of_q) std::fill(q, q + n, 0.0);
        for (int32_t d = 0; d < n; ++d)
          if (of_q)
            q[d] = old[from[d]];
          else
            q[from[d]] += old[d];
      };
      out.push_back(std::move(h));
    }
  };
  for (int32_t bit = 1; bit < n; bit *= 2) {
    add(fmt::format("dimensions exchanged by {}", bit), 0.3, [bit](int32_t d) { return d ^ bit; });
    add(fmt::format("dimensions modulo {}", bit), 0.3, [bit](int32_t d) { return d % bit; });
    for (int32_t run : {8, 16, 32, 64})
      if (2 * bit < run && run <= n)
        for (bool last : {false, true})
          add(fmt::format("the {} dimensions of every {} exchanged by {}", last ? "last" : "first", run, bit),
              0.4, [=](int32_t d) {
                const bool in = last ? d % run >= run - 2 * bit : d % run < 2 * bit;
                return in ? d ^ bit : d;
              });
  }
  for (int32_t low = 1; low < n; low *= 2)
    for (int32_t high = 2 * low; high < n; high *= 2)
      add(fmt::format("bits {} and {} of the dimensions' numbers exchanged", low, high), 0.32,
          [=](int32_t d) { return with_bits_exchanged(d, low, high); });
  for (int32_t rows = 2; rows < n; rows *= 2)
    if (n % rows == 0)
      add(fmt::format("dimensions taken as {} rows, read by columns", rows), 0.3,
          [rows, n](int32_t d) { return d % rows * (n / rows) + d / rows; });
  // Halves for pairs, and the like, in what is behind some dimension alone: that of V, a half, the last 64.
  for (const int32_t begin : std::set<int32_t>{p.head_dim_v, n / 2, n - 64}) {
    const int32_t part = n - begin;
    if (begin <= 0 || part < 4) continue;
    for (int32_t rows = 2; rows < part; rows *= 2)
      if (part % rows == 0)
        add(fmt::format("dimensions from {} on taken as {} rows, read by columns", begin, rows), 0.35,
            [=](int32_t d) {
              const int32_t at = d - begin;
              return at < 0 ? d : begin + at % rows * (part / rows) + at / rows;
            });
  }
  // A part of them.
  struct Some {
    const char* words;
    int32_t from, to;
  };
  const Some somes[] = {{"second half", n / 2, n},
                        {"first half", 0, n / 2},
                        {"last quarter", n - n / 4, n},
                        {"first quarter", 0, n / 4}};
  for (const Some& some : somes) {
    const int32_t from = some.from, to = some.to, wide = to - from;
    if (wide < 2) continue;
    const auto part = [&](std::string how, const std::function<int32_t(int32_t)>& map) {
      add(fmt::format("{} of the {}", how, some.words), 0.35,
          [=](int32_t d) { return d < from || d >= to ? d : std::clamp(map(d), 0, n - 1); });
    };
    for (int32_t step : {1, -1, 2, -2, 4, -4, 8, -8}) {
      if (std::abs(step) >= wide) continue;
      part(fmt::format("dimensions {:+}, round,", step),
           [=](int32_t d) { return from + (d - from + step + wide) % wide; });
      part(fmt::format("dimensions {:+}, clamped,", step),
           [=](int32_t d) { return std::clamp(d + step, from, to - 1); });
      part(fmt::format("dimensions {:+}", step), [=](int32_t d) { return d + step; });
    }
    part("reverse", [=](int32_t d) { return from + to - 1 - d; });
    part("neighbours exchanged", [=](int32_t d) { return std::min(d ^ 1, n - 1); });
    part("other half's in place", [=](int32_t d) { return (d + n / 2) % n; });
  }
  add("even dimensions first", 0.3, [n](int32_t d) { return d < n / 2 ? 2 * d : 2 * (d - n / 2) + 1; });
  add("halves interleaved", 0.3, [n](int32_t d) { return d / 2 + d % 2 * (n / 2); });
  add("dimensions in reverse", 0.3, [n](int32_t d) { return n - 1 - d; });
  for (int32_t step : {1, -1, 2, -2, 4, -4, 8, -8, 16, -16})
    add(fmt::format("dimensions {:+}, round", step), 0.35, [=](int32_t d) { return (d + step + n) % n; });
  // The same for the result.
  const int32_t dv = p.head_dim_v;
  const auto result = [&](std::string text, const std::function<int32_t(int32_t)>& map) {
    Hypothesis h = propose(clues, "dims.v_shifted", std::move(text), 0.3);
    h.rules.finish = [map, dv](const Scene&, std::vector<double>& o, double&) {
      const std::vector<double> old = o;
      for (int32_t d = 0; d < dv; ++d) o[d] = old[std::clamp(map(d), 0, dv - 1)];
    };
    out.push_back(std::move(h));
  };
  for (int32_t run = 1; run < dv; run *= 2)
    result(fmt::format("dimensions modulo {}", run), [run](int32_t d) { return d % run; });
  result("even dimensions first", [dv](int32_t d) { return d < dv / 2 ? 2 * d : 2 * (d - dv / 2) + 1; });
  result("halves interleaved", [dv](int32_t d) { return d / 2 + d % 2 * (dv / 2); });
}

// K in place of V and the like.
void operands_confused(const Clues& clues, Hypotheses& out) {
  const Problem& p = clues.problem();
  if (p.head_dim_qk < p.head_dim_v || p.layout == ASSAY_LAYOUT_MLA) return;
  Hypothesis h = propose(clues, "keys.k_for_v", "K's row read for V", 0.05);
  h.rules.values_from_k = 0;
  out.push_back(std::move(h));
}

}  // namespace

void decode_family(const Clues& clues, Hypotheses& out) {
  decode_some(clues, out);
  formats(clues, out);
  layouts(clues, out);
  orders(clues, out);
  operands_confused(clues, out);
}

}  // namespace assay
