// SPDX-License-Identifier: Apache-2.0
// `assay explain` on lines that nobody chose, drawn over the whole language, of kernels that are wrong in
// planted ways: it may know a cause or none, but it ends in time, by itself, with one of the two exit codes
// of an answer. ASSAY_EXPLAIN_HUNT=N asks N lines of each library, ASSAY_EXPLAIN_HUNT_SEED=S draws others.
#include "harness/campaign/draw_line.hpp"
#include "harness/cli/testing/program.hpp"
#include "harness/device/backend.hpp"
#include "harness/scenario/scenario.hpp"

namespace assay {
namespace {

constexpr double kLargest = 2e4;  // of a line, as a campaign counts it
constexpr int64_t kMostKeys = 96;
constexpr const char* kSeconds = "90";

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class ExplainHunt : public Program {};

TEST_F(ExplainHunt, EndsWithAnAnswerOnAnyLine) {
  const uint64_t lines = number_of("ASSAY_EXPLAIN_HUNT", 3), seed = number_of("ASSAY_EXPLAIN_HUNT_SEED", 20);
  uint64_t asked = 0;
  for (const char* of : {"planted_server", "planted_engine", "step_faults", "planted_steps", "fake"}) {
    const std::string library = std::string(ASSAY_BINARY_DIR "/testing/libassay_") + of + ".so";
    const Backend backend = Backend::load(library);
    uint64_t found = 0;
    for (uint64_t n = 0; found < lines && n < 400 * lines; ++n) {
      const campaign::Line line = campaign::draw_line(seed, n, kLargest, {kMostKeys, {}});
      std::vector<const assay_kernel*> of_op;
      for (int32_t k = 0; k < backend.table()->kernel_count; ++k)
        if (backend.table()->kernels[k]->op == line.problem.op) of_op.push_back(backend.table()->kernels[k]);
      const bool asks = line.problem.op == ASSAY_OP_STEP || line.problem.op == ASSAY_OP_PAGED ||
                        line.problem.op == ASSAY_OP_PREFILL;
      if (of_op.empty() || !asks || line.problem.ranks > 1) continue;
      ++found, ++asked;
      const std::string kernel = of_op[(n * 2654435761u) % of_op.size()]->name;
      const std::string text = print(line.scenario);
      const Output out = run_shell(std::string("timeout --signal=KILL ") + kSeconds + " " +
                                   shell({"explain", text, "--kernel", kernel, "--backend", library}));
      EXPECT_TRUE(out.code == 0 || out.code == 1) << "explain '" << text << "' --kernel " << kernel << " of "
                                                  << of << " ends with " << out.code << "\n"
                                                  << out.out << out.err;
    }
  }
  EXPECT_GT(asked, 4 * lines);
}

}  // namespace
}  // namespace assay
