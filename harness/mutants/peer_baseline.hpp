// SPDX-License-Identifier: Apache-2.0
// What a peer's test sees of a case: the outputs of the kernel under test on ordinary inputs (no poison:
// unused memory holds values like the rest, outputs start as zeros), the exact answer, and the answer of a
// low-precision PyTorch attention, which some peers take as their reference and others as their yardstick.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/mutants/catalogue.hpp"
#include "harness/problem/problem.hpp"

namespace assay {

struct PeerOutputs {
  std::vector<double> o;    // [T, heads_q, head_dim_v]
  std::vector<double> lse;  // [T, heads_q]
};

// What stands in the tensors of a case, on the host; a tensor without data gives nothing.
PeerOutputs outputs_of(const assay_tensor& o, const assay_tensor& lse);

class PeerCase {
 public:
  explicit PeerCase(const Problem&);
  ~PeerCase();
  const Problem& problem() const;
  const assay_problem* view() const;
  const Inputs& inputs() const;

  // In double, from the stored operands; O rounded to the output format as a peer's reference is.
  const PeerOutputs& exact() const;
  // S, P and O rounded to the 16-bit format of the case (bf16 for 8-bit operands, fp32 for fp32), K scaled
  // and rounded before the product: attention written with torch.einsum and torch.softmax in that format.
  const PeerOutputs& low_precision() const;

  struct Run {
    std::optional<PeerOutputs> outputs;
    std::string failed;  // status and text when the kernel failed
  };
  Run run(const Catalogue&, const assay_kernel&) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace assay
