// SPDX-License-Identifier: Apache-2.0
// See block_graph.hpp.
#include "harness/check/block_graph.hpp"

#include <algorithm>
#include <cmath>

#include "harness/check/block_checks.hpp"
#include "harness/check/graph_case.hpp"

namespace assay {
namespace {

// The captured memory as the inputs of the shape that lies in it: its lengths, the strides of the capture.
Inputs seen_as(const Inputs& base, const Inputs& shape) {
  Inputs seen;
  seen.problem = shape.problem;
  seen.tensors = base.tensors;
  seen.q_scale_host = base.q_scale_host;
  seen.k_scale_host = base.k_scale_host;
  seen.v_scale_host = base.v_scale_host;
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    seen.buffers[i] = base.buffers[i];  // shared, not copied
    std::copy_n(tensor_of(shape.tensors, operand).shape, ASSAY_MAX_RANK,
                tensor_of(seen.tensors, operand).shape);
  }
  return seen;
}

// The coarser of what is declared for the captured shape and for the replayed one.
assay_arithmetic coarser(assay_arithmetic a, const assay_arithmetic& b) {
  a.exp_relative_error = std::max(a.exp_relative_error, b.exp_relative_error);
  a.scaling_relative_error = std::max(a.scaling_relative_error, b.scaling_relative_error);
  a.row_sum_chain =
      a.row_sum_chain == 0 || b.row_sum_chain == 0 ? 0 : std::max(a.row_sum_chain, b.row_sum_chain);
  return a;
}

}  // namespace

std::string check_block_graph(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                              const Problem& problem, const assay_arithmetic& fallback,
                              RelationResult& result) {
  const InputValues values(problem);
  const std::vector<GraphShape> shapes = graph_shapes(problem);
  GraphCase held(backend, kernel, values.build(shapes[0].call.problem, shapes[0].call.from));
  if (const CallResult r = call_supports(kernel, held.base().view->get(), &held.base().tensors, device);
      !r.ok()) {
    result.note = r.error;
    return {};
  }
  std::string failure = held.capture();
  if (result.note = held.refused(); !result.note.empty()) return {};
  if (!failure.empty()) return failure;
  assay_arithmetic captured = fallback;
  call_arithmetic(backend, kernel, held.base().view->get(), captured);

  for (const GraphShape& shape : shapes) {
    const auto wrong = [&](const std::string& reason) {
      return fmt::format("replayed for {}: {}", shape.name, reason);
    };
    const Inputs inputs = values.build(shape.call.problem, shape.call.from);
    if (const std::string operand = held.lay(inputs); !operand.empty()) {
      result.note += fmt::format("{}{} does not fit the captured {}", result.note.empty() ? "" : "; ",
                                 shape.name, operand);
      continue;
    }
    if (std::string reason = held.replay(); !reason.empty()) return wrong(reason);
    assay_arithmetic arithmetic = captured;
    call_arithmetic(backend, kernel, inputs.view->get(), arithmetic);
    const Inputs seen = seen_as(held.base(), inputs);
    BlockOutputs out(seen, held.device_case());
    double gate = 0;
    check_block(seen, coarser(captured, arithmetic), out, &gate);
    if (const BlockFinding found = finding_of(out, problem.op); !found.reason.empty())
      return wrong(found.check + ": " + found.reason);
    result.checked = true;
    ++result.calls;
    result.rows += inputs.problem.total_q();
    result.max_ratio = std::max({result.max_ratio, out.values.max_ratio, out.marks.max_ratio});
  }
  return {};
}

}  // namespace assay
