// SPDX-License-Identifier: Apache-2.0
// See redeclared.hpp.
#include "harness/check/declarations/redeclared.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numbers>
#include <utility>

#include "harness/abi/assay_arithmetic.h"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/request_class.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

// Row x key x head products of reference for each declaration that is tried, and how many that keep within
// their bounds there are judged in all rows: what a failure costs beside its own judgement.
constexpr double kBudgetOfOne = 1e5;
constexpr int kJudgedWhole = 3;

std::string format_word(int32_t format) {
  return format == ASSAY_FORMAT_NONE ? "none" : std::string(name_of(format_names(), format));
}

class Redeclarations {
 public:
  Redeclarations(const Problem& p, const assay_arithmetic& a, uint32_t contracts)
      : p_(p), op_(op_of(p)), a_(a), contracts_(contracts) {}

  std::vector<Redeclaration> make() {
    if (op_.whole_context) lse();
    if (!op_.attends_rows) return data_op(), std::move(list_);
    classes("dense_new_keys", &assay_arithmetic::dense_new_keys, p_.mask != ASSAY_MASK_CROSS);
    order();
    products();
    replayed();
    formats();
    scores();
    wide_ = true;
    units();
    // What nobody can repeat: the last way out, for it fits more than what it is.
    set("order_declared", &assay_arithmetic::order_declared, 0);
    return std::move(list_);
  }

 private:
  bool writes() const { return find_operand(op_, Operand::kSlotMapping) != nullptr; }
  bool is_short(int32_t format) const { return format != ASSAY_FP32 && format != ASSAY_FORMAT_NONE; }

  assay_arithmetic copied() const {  // with its padding: declarations are compared as bytes
    assay_arithmetic a;
    std::memcpy(&a, &a_, sizeof a);
    return a;
  }
  void add(std::string field, std::string now, std::string declared, const assay_arithmetic& a) {
    if (std::memcmp(&a, &a_, sizeof a) == 0) return;
    std::string words = fmt::format("{} were {} (declared: {})", field, now, declared);
    list_.push_back({std::move(field), std::move(words), a, contracts_, wide_});
  }
  void set(const char* field, double assay_arithmetic::*member, double value) {
    assay_arithmetic a = copied();
    a.*member = value;
    add(field, fmt::format("{:.4g}", value), fmt::format("{:.4g}", a_.*member), a);
  }
  void set(const char* field, int32_t assay_arithmetic::*member, int32_t value) {
    assay_arithmetic a = copied();
    a.*member = value;
    add(field, fmt::format("{}", value), fmt::format("{}", a_.*member), a);
  }
  void format(const char* field, int32_t assay_arithmetic::*member, int32_t value) {
    assay_arithmetic a = copied();
    a.*member = value;
    add(field, format_word(value), format_word(a_.*member), a);
  }
  void flip(const char* field, int32_t assay_arithmetic::*member) { set(field, member, a_.*member == 0); }
  // Raised to what a unit is known to err by, where less is declared.
  void raise(const char* field, double assay_arithmetic::*member, double error) {
    if (a_.*member < error) set(field, member, error);
  }

  // Bits of classes of requests: every other set of those that the batch has, the most alike first.
  void classes(const char* field, int32_t assay_arithmetic::*member, bool applies) {
    if (!writes() || !applies) return;
    int32_t here = 0;
    for (const Request& r : p_.requests) here |= request_class(p_, r);
    std::vector<int32_t> others;
    for (int32_t set = 0; set <= ASSAY_REQUEST_ANY; ++set)
      if ((set & ~here) == 0 && set != (a_.*member & here)) others.push_back(set);
    const auto changed = [&](int32_t set) {
      return std::popcount(static_cast<uint32_t>(set ^ (a_.*member & here)));
    };
    std::stable_sort(others.begin(), others.end(),
                     [&](int32_t x, int32_t y) { return changed(x) < changed(y); });
    for (const int32_t other : others) set(field, member, (a_.*member & ~here) | other);
  }

  void lse() {
    for (const uint32_t bit :
         {ASSAY_CONTRACT_LSE_BASE_2, ASSAY_CONTRACT_LSE_HEADS_FIRST, ASSAY_CONTRACT_NO_LSE}) {
      const bool declared = (contracts_ & bit) != 0;
      const uint32_t other = contracts_ ^ bit;
      if ((bit == ASSAY_CONTRACT_NO_LSE && declared) || !impossible_contracts(other, p_.op).empty()) continue;
      list_.push_back(
          {"contracts",
           fmt::format("the contract {} were {}declared", contracts_text(bit), declared ? "not " : ""), a_,
           other});
    }
  }

  void data_op() {
    format("merge_lse_format", &assay_arithmetic::merge_lse_format, ASSAY_FP32);
    raise("scaling_relative_error", &assay_arithmetic::scaling_relative_error, 0x1p-22);
  }

  // What repeats another order: a kernel is told which.
  void order() {
    if (a_.tile_keys > 0) flip("tile_reverse", &assay_arithmetic::tile_reverse);
    if (p_.sinks) flip("sink_first", &assay_arithmetic::sink_first);
    if (a_.splits > 1 && a_.tile_keys > 0 && a_.split_keys == 0)
      flip("split_interleaved", &assay_arithmetic::split_interleaved);
    if (a_.order_declared == 0 || a_.split_keys > 0 || a_.share_tiles > 0) return;
    for (int32_t tile = 16; tile <= 512; tile *= 2) set("tile_keys", &assay_arithmetic::tile_keys, tile);
  }

  // Roundings of Q, K and V that the reference repeats: an operand is another one, and no bound wider.
  void replayed() {
    if (a_.dequant_format != ASSAY_FORMAT_NONE && writes())
      classes("dequant_replayed", &assay_arithmetic::dequant_replayed, true);
    else if (a_.dequant_format != ASSAY_FORMAT_NONE)
      flip("dequant_replayed", &assay_arithmetic::dequant_replayed);
    const auto codes = [](int32_t format) { return format_is_quantized(format); };
    for (const int32_t f : {int32_t{ASSAY_FP16}, int32_t{ASSAY_BF16}}) {
      assay_arithmetic a = copied();
      if (codes(p_.k_format) || codes(p_.v_format)) {
        a.dequant_format = f, a.dequant_replayed = writes() ? int32_t{ASSAY_REQUEST_ANY} : 1;
        add("dequant_format", format_word(f) + " and replayed", format_word(a_.dequant_format), a);
      }
      if (a_.q_replayed_format != ASSAY_FORMAT_NONE || p_.q_scale != ASSAY_SCALE_NONE) continue;
      const double scale = static_cast<double>(p_.softmax_scale);
      for (const double factor : {scale, scale * std::numbers::log2e}) {
        a = copied();
        a.q_replayed_format = f, a.q_replayed_factor = static_cast<double>(static_cast<float>(factor));
        add("q_replayed_format", fmt::format("{}, of Q times {:.4g}", format_word(f), factor), "none", a);
      }
    }
    if (a_.q_replayed_format != ASSAY_FORMAT_NONE) {
      flip("q_replayed_scales", &assay_arithmetic::q_replayed_scales);
      format("q_replayed_format", &assay_arithmetic::q_replayed_format, ASSAY_FORMAT_NONE);
    }
  }

  // How P is rounded and added up, another way of as many bits.
  void products() {
    if (is_short(a_.p_format)) {
      flip("row_sum_from_rounded_p", &assay_arithmetic::row_sum_from_rounded_p);
      flip("p_truncated", &assay_arithmetic::p_truncated);
    }
    if (a_.p_format == ASSAY_INT8) flip("p_int8_tile_max", &assay_arithmetic::p_int8_tile_max);
    if (format_is_fp8(a_.p_format))
      set("p_offset_log2", &assay_arithmetic::p_offset_log2, a_.p_offset_log2 == 0 ? 8 : 0);
  }

  void formats() {
    for (const int32_t f : {int32_t{ASSAY_FP16}, int32_t{ASSAY_BF16}}) {
      if (!is_short(a_.p_format)) format("p_format", &assay_arithmetic::p_format, f);
      if (!is_short(a_.partial_format) && a_.splits > 1)
        format("partial_format", &assay_arithmetic::partial_format, f);
    }
  }

  void scores() {
    if (p_.alibi != ASSAY_ALIBI_NONE) flip("bias_form", &assay_arithmetic::bias_form);
    if (p_.softcap > 0) {
      raise("tanh_absolute_error", &assay_arithmetic::tanh_absolute_error, 0x1p-23);
      raise("tanh_relative_error", &assay_arithmetic::tanh_relative_error, 0x1p-11);
    }
    if (writes()) raise("scaling_relative_error", &assay_arithmetic::scaling_relative_error, 0x1p-22);
  }

  // Fp32 throughout is what is declared by saying nothing.
  void units() {
    if (a_.qk.kind != ASSAY_ACC_FMA || a_.pv.kind != ASSAY_ACC_FMA) return;
    const auto like = [&](const char* preset, int32_t format, const auto& declare) {
      assay_arithmetic a = copied();
      declare(&a, format, a_.splits);
      add(preset, format_word(format), "sums of fp32", a);
    };
    for (const int32_t f : {int32_t{ASSAY_FP16}, int32_t{ASSAY_BF16}})
      like("assay_like_tensor_cores", f, assay_like_tensor_cores);
    if (format_is_fp8(p_.q_format))
      like("assay_like_flash_attention_3", p_.q_format, assay_like_flash_attention_3);
  }

  const Problem& p_;
  const Op& op_;
  const assay_arithmetic& a_;
  uint32_t contracts_;
  bool wide_ = false;
  std::vector<Redeclaration> list_;
};

}  // namespace

std::vector<Redeclaration> redeclarations(const Problem& p, const assay_arithmetic& a, uint32_t contracts) {
  return Redeclarations(p, a, contracts).make();
}

std::string otherwise_declared(const JudgedWrong& f) {
  const uint32_t contracts = f.inputs.contracts;
  const auto fine = [&](Expectation& expected, const assay_arithmetic& a, uint32_t under) {
    meet_contracts(f.inputs, under);
    expected.prepare(a);
    RunOutputs out(f.inputs, f.left);
    expected.ask(out);
    const bool right = !objection_of(out, expected) && out.unwritten().empty() && !expected.distrust(out);
    meet_contracts(f.inputs, contracts);
    return right;
  };
  // Whether the kernel writes no LSE at all, and nothing else is wrong: what it writes wrong is no absence.
  const auto lse_left_out = [&](Expectation& expected) {
    expected.prepare(f.arithmetic);
    RunOutputs out(f.inputs, f.left);
    expected.ask(out);
    return out.values.bad == 0 && out.marks.checked > 0 && out.marks.bad == out.marks.checked &&
           !out.unwritten().empty();
  };
  const auto few = make_expectation(f.inputs, std::min(kBudgetOfOne, f.row_key_budget));
  std::string found, last;  // and the field that was named last
  int judged = 0;
  if (!fine(*few, f.arithmetic, contracts))
    for (const Redeclaration& other : redeclarations(f.inputs.problem, f.arithmetic, contracts)) {
      if (!found.empty() && (other.wide || other.field == last)) continue;
      if (!few->impossible(other.arithmetic).empty() || !fine(*few, other.arithmetic, other.contracts))
        continue;
      if ((other.contracts & ~contracts & ASSAY_CONTRACT_NO_LSE) != 0 && !lse_left_out(*few)) continue;
      if (++judged > kJudgedWhole) break;
      if (!fine(f.expected, other.arithmetic, other.contracts)) continue;
      found += (found.empty() ? "; within its bounds if " : ", or if ") + other.words;
      last = other.field;
    }
  if (!found.empty())
    found +=
        ": so large is its error, whatever it comes from; declare that if it is what the kernel does, or "
        "else "
        "the kernel is wrong";
  f.expected.prepare(f.arithmetic);
  return found;
}

}  // namespace assay
