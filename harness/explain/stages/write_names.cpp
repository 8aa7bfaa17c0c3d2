// SPDX-License-Identifier: Apache-2.0
// What is true of a cache as a write left it, whatever wrote it so: sentences that are said beside the cause
// that explains it. See write_look.hpp.
#include <set>

#include "harness/explain/stages/write_look.hpp"

namespace assay {

std::vector<std::string> write_names(const StageCase& c) {
  if (c.kernel().op != ASSAY_OP_CACHE_WRITE || !c.given().has(Operand::kSlotMapping)) return {};
  const WriteLook w(c);
  if (!w.can()) return {};
  std::vector<std::string> names;
  const ChangedBeside changed = changed_beside(w);
  if (!changed.slots.empty()) names.emplace_back("beside_rows");
  if (!changed.of_context.empty()) names.emplace_back("context_overwritten");

  bool all_kept = true, heads_lost = w.heads() > 1;
  bool any = false;
  for (const bool v : w.sides())
    for (int64_t n = 0; n < w.rows(); ++n) {
      if (w.slot(n) < 0) continue;
      std::set<int32_t> heads;
      bool kept = true;
      for (int32_t h = 0; h < w.heads(); ++h)
        for (int32_t d = 0; d < w.dims(v); ++d) {
          if (!w.right(v, n, h, d)) heads.insert(h);
          kept = kept && w.kept(v, n, h, d);
        }
      if (heads.empty()) continue;
      any = true, all_kept = all_kept && kept;
      // A head of the row that no head's place holds, where some other does hold one.
      for (const int32_t h : heads) {
        bool found = false, another = false;
        for (int32_t at = 0; at < w.heads(); ++at) found = found || w.holds_head(v, n, h, at);
        for (int32_t from = 0; from < w.heads(); ++from) another = another || w.holds_head(v, n, from, h);
        heads_lost = heads_lost && !found && another;
      }
    }
  if (any && all_kept)
    for (const char* name : {"row_missing", "output.unwritten"}) names.emplace_back(name);
  if (any && heads_lost) names.emplace_back("heads_missing");
  return names;
}

}  // namespace assay
