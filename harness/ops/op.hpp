// SPDX-License-Identifier: Apache-2.0
// What an op is, in one description: everything that asks "which op" outside of this folder reads it here,
// and everything that is done for every op walks all_ops(). What the mathematics of an op is stands at enum
// assay_op of the C header. A new op: see op_list.hpp and the checklist in CONTRIBUTING.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/ops/op_list.hpp"
#include "harness/ops/operand.hpp"
#include "harness/ops/problem_view.hpp"
#include "harness/ops/work.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {

// A tensor's format with its scale granularity: "bf16", "fp8_e4m3:head", "int8:token_head".
struct Quantization {
  int32_t format = ASSAY_BF16;
  int32_t scale = ASSAY_SCALE_NONE;  // quantised formats default to tensor
  bool operator==(const Quantization&) const = default;
};

// One operand as an op takes it. The order of a list means nothing.
struct OperandUse {
  Operand operand;
  Role role;
  TensorLayout (*layout)(const Problem&);  // rank 0: this problem does not use it
  // A scale that the op computes itself, where its kind is TOKEN_HEAD or with computed_scales: its role then.
  Role when_dynamic = Role::kNone;
};

// Lengths a request may have.
enum class RowRule : int32_t {
  kAny,
  kOneAtMost,    // rows of Q: none or one
  kWithinCache,  // no more rows than cached tokens
};

using RecipeSet = uint32_t;  // one bit per InputRecipe
constexpr RecipeSet recipe_bit(InputRecipe r) { return RecipeSet{1} << static_cast<int32_t>(r); }
template <class... Recipes>
constexpr RecipeSet recipe_set(Recipes... recipes) {
  return (recipe_bit(recipes) | ...);
}
inline constexpr RecipeSet kAllRecipes = ~RecipeSet{0};

// Which formats and scales an operand may have, and what to say of others.
struct QuantizationRule {
  bool (*fits)(const Quantization&) = nullptr;  // nullptr: all
  std::string_view message;                     // what is wrong and what to write
};

constexpr uint32_t mask_bit(int32_t mask) { return uint32_t{1} << mask; }

// Fields that every line may have (harness/scenario/fields.cpp); an op lists those it takes besides.
inline constexpr std::string_view kFieldsOfAll[] = {"op", "h", "d", "strides", "batch", "input", "seed"};

// A batch by its sums, all in double: those of hostile lines overflow int64.
struct BatchSize {
  double requests = 0, rows = 0, keys = 0, longest = 0;  // longest: the most keys of one request
  double tree_entries = 0;
};

struct Op {
  int32_t id;  // enum assay_op
  std::string_view name;
  std::string_view summary;  // one line

  // Rows of Q attend to keys: masks, biases and bounds of attention apply.
  bool attends_rows = false;
  // The result is that of every visible key: answers of recipes are known, relations hold, rows may be
  // sampled, wrong results can be explained. Only of ops that attend.
  bool whole_context = false;
  bool has_cache = false;           // K and V lie in pages
  bool shares_pages = false;        // requests may hold one prefix in common pages
  bool takes_exponentials = false;  // of ops that do not attend: weighs by exp(), where others scale or copy

  std::span<const OperandUse> operands;  // without the workspace

  // What a line may say.
  std::span<const std::string_view> fields;  // beyond kFieldsOfAll
  Quantization default_q;
  int32_t default_source = ASSAY_BF16;      // of from=
  int32_t default_out = ASSAY_FORMAT_NONE;  // of out=; NONE: q's, bf16 where q is quantised
  RowRule rows = RowRule::kAny;
  // Masks, one bit each (mask_bit), and whether rows may stand where a line says; otherwise they stand where
  // their new key does, of a tree by their depth.
  uint32_t masks = ~uint32_t{0};
  bool rows_anywhere = true;
  StridedOperands stridable = {true, true, true, true, true, true};
  RecipeSet recipes = kAllRecipes;
  std::string_view recipes_message;  // "takes input=...", behind the op's name, for those it does not
  QuantizationRule q_rule, kv_rule;
  // Of attention and not of this op, for the message that refuses them; empty: masks, biases and relations.
  std::string_view foreign_fields;

  void (*check)(const Problem&) = nullptr;  // further invariants: CheckError

  // What pad= adds to: rows of new tokens, or entries of the lists that the op writes. nullptr: total_q().
  int64_t (*entries)(const Problem&) = nullptr;
  // About the bytes of all operands but a page table, where shapes follow from more than rows, heads and
  // dimensions; `p` has no requests. nullptr: harness/scenario/extent.cpp knows each operand.
  double (*bytes)(const Problem& p, const BatchSize&) = nullptr;

  // Figures.
  Work (*work)(const Problem&) = nullptr;             // see work_of()
  double (*multiply_adds)(const Problem&) = nullptr;  // see multiply_adds(); nullptr: none that count
  std::string (*describe)(const Problem&) = nullptr;  // what it reads and writes, as lines for people

  // Small cases that between them reach everything the op does; tests of all ops take them.
  std::span<const std::string_view> examples;
};

// An op on lists: there are no values to draw, and its work is to touch every element once.
constexpr Op list_op(Op op) {
  op.recipes = recipe_set(InputRecipe::kNormal);
  op.recipes_message = "reads lengths and tables: input=normal";
  op.work = list_work;
  return op;
}

namespace ops {
#define ASSAY_DECLARE(NAME, ID) extern const Op NAME;
ASSAY_FOR_EACH_OP(ASSAY_DECLARE)
#undef ASSAY_DECLARE
}  // namespace ops

// CheckError for a value that is no op.
const Op& op_of(int32_t op);
inline const Op& op_of(const Problem& p) { return op_of(p.op); }
std::span<const Op* const> all_ops();  // in the order of the C header
std::span<const Name> op_names();      // the same as a table of names (harness/problem/names.hpp)
#define ASSAY_COUNT(NAME, ID) +1
inline constexpr int32_t kOpValues = 1 ASSAY_FOR_EACH_OP(ASSAY_COUNT);  // of enum assay_op, 0 unused
#undef ASSAY_COUNT

// Lengths that its requests may have under a mask: rows of cross attention are not among their keys.
RowRule row_rule(const Op&, int32_t mask);

bool takes(const Op&, std::string_view field);  // also those of all ops
bool takes(const Op&, InputRecipe);

// The op's operand in its list, or nullptr.
const OperandUse* find_operand(const Op&, Operand);
// Reads a tree without attending: every problem of it has one, and lines have no mask= to say so.
bool is_about_trees(const Op&);
Role role_of(const Problem&, Operand);
// Whether values stand in it before a run: what is read, and the cache of an op that attends and writes.
bool holds_values(const Problem&, Operand);
// The only buffers a kernel may write: out, in-out and the workspace.
bool is_output(const Problem&, Operand);
// Shape, strides and allocation; rank 0 when the problem does not use the operand. The workspace is unknown
// here: always rank 0.
TensorLayout operand_layout(const Problem&, Operand);

}  // namespace assay
