// SPDX-License-Identifier: Apache-2.0
// See contracts.hpp.
#include "harness/input/contracts.hpp"

#include <algorithm>
#include <numbers>

#include "harness/base/error.hpp"

namespace assay {
namespace {

struct ContractName {
  uint32_t bit;
  const char* name;
};
constexpr ContractName kNames[] = {
    {ASSAY_CONTRACT_FINITE_UNUSED, "finite_unused"},
    {ASSAY_CONTRACT_NO_LSE, "no_lse"},
    {ASSAY_CONTRACT_LSE_BASE_2, "lse_base_2"},
    {ASSAY_CONTRACT_LSE_HEADS_FIRST, "lse_heads_first"},
    {ASSAY_CONTRACT_NO_EMPTY_REQUESTS, "no_empty_requests"},
    {ASSAY_CONTRACT_ROWS_BEHIND_LOST, "rows_behind_lost"},
    {ASSAY_CONTRACT_GRAPH_DECODES, "graph_decodes"},
    {ASSAY_CONTRACT_SLOTS_IN_ORDER, "slots_in_order"},
};
constexpr uint32_t kLseBits =
    ASSAY_CONTRACT_NO_LSE | ASSAY_CONTRACT_LSE_BASE_2 | ASSAY_CONTRACT_LSE_HEADS_FIRST;

void place_lse(Inputs& inputs) {
  const TensorLayout layout = operand_layout(inputs.problem, Operand::kLse);
  if (layout.rank == 0) return;
  assay_tensor& lse = inputs.tensors.lse;
  lse = assay_tensor{};
  if ((inputs.contracts & ASSAY_CONTRACT_NO_LSE) != 0) return;
  lse.data = inputs.buffers[Operand::kLse].payload() + layout.offset * format_bytes(layout.format);
  lse.format = layout.format;
  lse.rank = layout.rank;
  lse.role = static_cast<int32_t>(role_of(inputs.problem, Operand::kLse));
  std::copy_n(layout.shape, ASSAY_MAX_RANK, lse.shape);
  std::copy_n(layout.stride, ASSAY_MAX_RANK, lse.stride);
  if ((inputs.contracts & ASSAY_CONTRACT_LSE_HEADS_FIRST) != 0)
    lse.stride[0] = 1, lse.stride[1] = inputs.problem.rows();
}

}  // namespace

std::string contracts_text(uint32_t contracts) {
  std::string text;
  for (const auto& [bit, name] : kNames)
    if ((contracts & bit) != 0) text += (text.empty() ? "" : " ") + std::string(name);
  return text;
}

std::string impossible_contracts(uint32_t contracts, int32_t op) {
  uint32_t unknown = contracts;
  for (const ContractName& known : kNames) unknown &= ~known.bit;
  if (unknown != 0) return fmt::format("bits {:#x} that enum assay_contract does not have", unknown);
  if ((contracts & kLseBits) != 0 && !op_of(op).whole_context)
    return fmt::format("{}, which op {} has no LSE for", contracts_text(contracts & kLseBits),
                       op_of(op).name);
  if ((contracts & ASSAY_CONTRACT_NO_LSE) != 0 && (contracts & kLseBits) != ASSAY_CONTRACT_NO_LSE)
    return contracts_text(contracts & kLseBits) + ", which exclude each other";
  if ((contracts & ASSAY_CONTRACT_ROWS_BEHIND_LOST) != 0 && find_operand(op_of(op), Operand::kO) == nullptr)
    return fmt::format("rows_behind_lost, which op {} has no O for", op_of(op).name);
  if ((contracts & ASSAY_CONTRACT_GRAPH_DECODES) != 0 && !takes(op_of(op), "threshold"))
    return fmt::format("graph_decodes, and op {} knows no decodes", op_of(op).name);
  if ((contracts & ASSAY_CONTRACT_SLOTS_IN_ORDER) != 0 && !takes(op_of(op), "slots"))
    return fmt::format("slots_in_order, and op {} has no slots in another order", op_of(op).name);
  return {};
}

std::string outside_graph_contracts(const Problem& p, uint32_t contracts) {
  if (op_of(p).attends_rows && p.prefix_tokens > 0)
    return "required a graph of requests with a prefix in common, supported requests of their own: whether "
           "a cascade pays is decided for the batch as it is";
  if (p.mask == ASSAY_MASK_CROSS && find_operand(op_of(p), Operand::kSlotMapping) != nullptr && !p.no_write)
    return "required a graph of a step that writes the keys of encoders, supported write=off: they are "
           "written once, before the steps that are replayed";
  if ((contracts & ASSAY_CONTRACT_GRAPH_DECODES) == 0) return {};
  for (size_t r = 0; r < p.requests.size(); ++r)
    if (p.requests[r].q_len > p.threshold)
      return fmt::format(
          "required a graph of request {} with {} rows, supported graphs of decodes of at most {} (contract "
          "graph_decodes)",
          r, p.requests[r].q_len, p.threshold);
  return {};
}

std::string outside_contracts(const Problem& p, uint32_t contracts) {
  if ((contracts & ASSAY_CONTRACT_NO_EMPTY_REQUESTS) != 0)
    for (size_t r = 0; r < p.requests.size(); ++r)
      if (p.requests[r].q_len == 0 || (op_of(p).attends_rows && p.requests[r].kv_len == 0))
        return fmt::format(
            "required request {} of {} rows and {} keys, supported requests that have both, missing empty "
            "requests (contract no_empty_requests)",
            r, p.requests[r].q_len, p.requests[r].kv_len);
  if ((contracts & ASSAY_CONTRACT_SLOTS_IN_ORDER) != 0 && p.drawn_slots)
    return "required tokens of a page in any of its slots, supported their order, missing a look at each "
           "token's "
           "slot (contract slots_in_order)";
  return {};
}

void meet_contracts(Inputs& inputs, uint32_t contracts) {
  if (inputs.contracts == contracts) return;
  const bool unused = ((inputs.contracts ^ contracts) & ASSAY_CONTRACT_FINITE_UNUSED) != 0;
  inputs.contracts = contracts;
  place_lse(inputs);
  if (unused) repoison(inputs, inputs.poison);
}

double lse_unit(uint32_t contracts) {
  return (contracts & ASSAY_CONTRACT_LSE_BASE_2) != 0 ? std::numbers::ln2 : 1.0;
}

}  // namespace assay
