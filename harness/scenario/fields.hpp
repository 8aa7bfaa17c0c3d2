// SPDX-License-Identifier: Apache-2.0
// The table of scenario fields, the single source of the language: parsing, printing, `assay describe
// fields`, the README table and axis checks all walk it. The order of the table is the canonical order
// of a line. To add a field: a member in Scenario, one row in fields.cpp, a rule if it restricts others.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/scenario/scenario.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

// A set of ops, one bit per value of enum assay_op.
using OpSet = uint32_t;
constexpr OpSet op_bit(int32_t op) { return OpSet{1} << op; }
std::string names_of(OpSet);  // "paged, cache_gather"; "all"

struct Field {
  std::string_view name;
  std::string_view syntax;                // of the value
  std::string default_text;               // as printed, or a sentence where it depends on other fields
  std::string_view meaning;               // one sentence
  std::string accepted;                   // the values, for messages and documentation
  void (*parse)(Slice value, Scenario&);  // TextError; sets the field's members only
  void (*print)(const Scenario&, std::string& out);
  bool (*is_default)(const Scenario&);
  OpSet ops = 0;  // whose descriptions list it (harness/ops); filled in by fields()
};

// Fields 0 is the op, which stands first in a line without "op=".
std::span<const Field> fields();
const std::vector<std::string_view>& field_names();
// Index in fields(), or -1.
int field_index(std::string_view name);
// Index in fields(); TextError with a suggestion and the accepted names when there is none.
int require_field(Slice name);

// A set of fields, one bit per index.
using FieldSet = uint64_t;
inline FieldSet field_bit(int index) { return FieldSet{1} << index; }

// The fields that an op takes.
FieldSet fields_of(const Op&);

// Fills the members whose default depends on other fields (q=, kv=, out=, from=) unless the line gave them.
void resolve_defaults(Scenario&, FieldSet given);
// The field that the default of `field` looks at (kv and out follow q, q and from the op), or empty.
std::string_view default_source(std::string_view field);
// TextError when the field does not exist for the op (page= in a prefill line).
void require_applicable(const Field&, int32_t op, size_t offset);

// The table as Markdown, as it stands in the README of this folder.
std::string fields_markdown();

}  // namespace assay
