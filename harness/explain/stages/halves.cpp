// SPDX-License-Identifier: Apache-2.0
// See Halves in step_search.hpp.
#include "harness/check/expectations/step_keys.hpp"
#include "harness/explain/stages/step_search.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"

namespace assay {

Halves::Halves(const Backend& backend, const StageRun& whole, const Problem& p, const assay_arithmetic& a)
    : backend_(backend), whole_(whole), problem_(p), arithmetic_(a) {}

bool Halves::explain(StepExplanation& x, std::vector<std::string>& said) {
  // Of two sources the write can be looked at where their rows are one row of the cache; Q would have to be
  // joined.
  if (problem_.split_latent && problem_.layout != ASSAY_LAYOUT_MLA) return false;
  if (!problem_.no_write) {
    const StageRun write = as_write(whole_, problem_.key_rows());
    const StageCase c(backend_, write, &arithmetic_);
    const StageVerdict v = c.judge(c.given());
    said.push_back("the cache: " + (v.right ? "right" : v.reason));
    if (v.judged && !v.right) {
      x.blame = StepBlame::kEnd;
      explain_stage(c, v, x, replay_misreadings(c));
      return true;
    }
  }
  if (problem_.split_latent) return false;
  const StageRun attend = as_attend();
  const assay_arithmetic own = arithmetic_over_keys(arithmetic_);
  StageCase c(backend_, attend, &own);
  Reading given = c.given();
  c.read_new_keys(keys_of_step(whole_.replayed ? c.problem_of(given) : problem_, arithmetic_));
  const StageVerdict v = c.judge(c.given());
  said.push_back("O, given the cache as it was left: " + (v.right ? "right" : v.reason));
  if (!v.judged || v.right) return false;
  x.blame = StepBlame::kEnd;
  x.causes = part_patterns(c, v);
  for (StepRanked& r : chain_patterns(c, v)) x.causes.push_back(std::move(r));
  explain_stage(c, v, x, replay_misreadings(c));
  return true;
}

StageRun Halves::half(const StageRun& whole, const char* place, int32_t op) {
  StageRun run = whole;
  assay_kernel& k = *new assay_kernel{};  // looked at as long as the process lives
  k.struct_size = sizeof k, k.name = whole.kernel->name, k.op = op;
  k.contracts = op == ASSAY_OP_PAGED ? contracts_of(*whole.kernel) | ASSAY_CONTRACT_NO_LSE : 0;
  run.place = place, run.kernel = &k;
  run.problem.op = op;
  run.tensors.lse = assay_tensor{};
  return run;
}

StageRun Halves::as_write(const StageRun& whole, int64_t rows) {
  StageRun run = half(whole, "write", ASSAY_OP_CACHE_WRITE);
  run.problem.rows = rows;
  run.problem.mask = ASSAY_MASK_CAUSAL;
  return run;
}

StageRun Halves::as_attend() const {
  StageRun run = half(whole_, "attend", ASSAY_OP_PAGED);
  for (const Operand o : {Operand::kK, Operand::kV, Operand::kKScale, Operand::kVScale})
    run.before[static_cast<int>(o)] = run.after[static_cast<int>(o)];
  return run;
}

}  // namespace assay
