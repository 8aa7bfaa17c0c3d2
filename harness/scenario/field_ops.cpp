// SPDX-License-Identifier: Apache-2.0
// A field by its name, which op takes which (the descriptions in harness/ops say it), and the field table as
// Markdown.
#include "harness/ops/op.hpp"
#include "harness/scenario/fields.hpp"
#include "harness/scenario/text.hpp"

namespace assay {

FieldSet fields_of(const Op& op) {
  static const std::vector<FieldSet> sets = [] {
    std::vector<FieldSet> all(kOpValues, 0);
    for (size_t i = 0; i < fields().size(); ++i)
      for (const Op* of : all_ops())
        if (fields()[i].ops & op_bit(of->id)) all[of->id] |= field_bit(static_cast<int>(i));
    return all;
  }();
  return sets[op.id];
}

std::string names_of(OpSet ops) {
  std::string text;
  bool all = true;
  for (const Op* op : all_ops()) {
    if ((ops & op_bit(op->id)) == 0) {
      all = false;
      continue;
    }
    if (!text.empty()) text += ", ";
    text += op->name;
  }
  return all ? "all" : text;
}

int require_field(Slice name) {
  const int index = field_index(name.text);
  if (index >= 0) return index;
  throw TextError(name.offset, fmt::format("unknown field \"{}\"{}; accepted fields: {}", name.text,
                                           did_you_mean(name.text, std::span(field_names()).subspan(1)),
                                           join(std::span(field_names()).subspan(1))));
}

void require_applicable(const Field& field, int32_t op, size_t offset) {
  if ((field.ops & op_bit(op)) == 0)
    throw TextError(offset,
                    fmt::format("field \"{}\" has no meaning for {}; leave it out, or start the line with {}",
                                field.name, op_of(op).name, names_of(field.ops)));
}

std::string fields_markdown() {
  std::string out = "| field | value | default | for | meaning | accepted |\n|---|---|---|---|---|---|\n";
  auto cell = [](std::string_view text) {
    std::string escaped;
    for (const char c : text) {
      if (c == '|') escaped += '\\';
      escaped += c;
    }
    return escaped;
  };
  for (const Field& f : fields())
    out += fmt::format("| `{}` | {} | {} | {} | {} | {} |\n", f.name, cell(f.syntax), cell(f.default_text),
                       names_of(f.ops), cell(f.meaning), cell(f.accepted));
  return out;
}

}  // namespace assay
