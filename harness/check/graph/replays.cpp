// SPDX-License-Identifier: Apache-2.0
// See replays.hpp.
#include "harness/check/graph/replays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "harness/device/device_buffers.hpp"
#include "harness/input/contracts.hpp"
#include "harness/input/poison.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

// What holds values before a run: operands that are read, and a cache that is also written.
bool is_laid(const Problem& p, Operand op) { return !is_output(p, op) || holds_values(p, op); }

// Bytes that are NaN in every floating format, or what the contract of finite ones has in their place;
// metadata keeps what was captured.
void spoil_values(Inputs& base) {
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    const assay_tensor& t = tensor_of(base.tensors, op);
    GuardedBuffer& buffer = base.buffers[i];
    const bool value = t.format >= ASSAY_FP32 && t.format <= ASSAY_INT8;
    const bool cached = op == Operand::kK || op == Operand::kV;
    if (!value || !is_laid(base.problem, op) || buffer.empty()) continue;
    if (cached && (base.contracts & ASSAY_CONTRACT_FINITE_UNUSED) != 0)
      poison_all(base, op, Poison::kHigh);
    else
      std::memset(buffer.payload(), 0xff, buffer.bytes());
  }
}

// Calls visit(a, b, bytes) for the elements of equal index of two views, as long as it says true.
template <class Visit>
bool each_pair(const assay_tensor& a, const assay_tensor& b, const Visit& visit) {
  const int64_t bytes = format_bytes(a.format);
  int64_t shape[ASSAY_MAX_RANK] = {1, 1, 1, 1, 1}, at[ASSAY_MAX_RANK] = {};
  int64_t count = 1;
  for (int i = 0; i < a.rank; ++i) count *= shape[i] = a.shape[i];
  for (int64_t n = 0; n < count; ++n) {
    int64_t first = 0, second = 0;
    for (int i = 0; i < a.rank; ++i) first += at[i] * a.stride[i], second += at[i] * b.stride[i];
    if (!visit(static_cast<char*>(a.data) + first * bytes, static_cast<char*>(b.data) + second * bytes,
               static_cast<size_t>(bytes)))
      return false;
    for (int i = a.rank - 1; i >= 0 && ++at[i] == shape[i]; --i) at[i] = 0;
  }
  return true;
}

// Every element of `from` to the same index of `to`, which is no smaller. False when it is.
bool copy_elements(const assay_tensor& from, const assay_tensor& to) {
  if (from.data == nullptr) return to.data == nullptr || from.rank == 0;
  if (to.data == nullptr || from.rank != to.rank) return false;
  for (int i = 0; i < from.rank; ++i)
    if (from.shape[i] > to.shape[i]) return false;
  return each_pair(from, to, [](const char* source, char* target, size_t bytes) {
    std::memcpy(target, source, bytes);
    return true;
  });
}

// Buffers as the inputs of a smaller batch that lies in them: its lengths and shapes, their strides.
Inputs seen_as(const Inputs& base, const Problem& batch, bool captured) {
  Inputs seen;
  seen.problem = batch;
  seen.tensors = base.tensors;
  seen.q_scale_host = base.q_scale_host;
  seen.k_scale_host = base.k_scale_host;
  seen.v_scale_host = base.v_scale_host;
  seen.contracts = base.contracts;
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    seen.buffers[i] = base.buffers[i];  // shared, not copied
    if (tensor_of(seen.tensors, operand).data != nullptr)
      std::copy_n(operand_layout(batch, operand).shape, ASSAY_MAX_RANK,
                  tensor_of(seen.tensors, operand).shape);
  }
  if ((seen.contracts & ASSAY_CONTRACT_LSE_HEADS_FIRST) != 0 && captured)
    seen.tensors.lse.stride[1] = batch.rows();
  return seen;
}

std::string text(const Objection& wrong) { return wrong.check + ": " + wrong.reason; }

void note(const RunOutputs& out, RelationResult& result) {
  result.max_ratio = std::max({result.max_ratio, out.values.max_ratio, out.marks.max_ratio});
}

}  // namespace

assay_arithmetic coarser(const assay_arithmetic& a, const assay_arithmetic& b) {
  assay_arithmetic c = a, same = b;
  c.splits = std::max(a.splits, b.splits);
  c.row_sum_chain =
      a.row_sum_chain == 0 || b.row_sum_chain == 0 ? 0 : std::max(a.row_sum_chain, b.row_sum_chain);
  // Shares of a list are what the lengths on the device make them; how many parts that is, both may say.
  const bool listed = a.shares > 0 && b.shares > 0;
  c.partial_roundings = std::max(a.partial_roundings, b.partial_roundings);
  if (listed)
    same.splits = a.splits, same.row_sum_chain = a.row_sum_chain,
    same.partial_roundings = a.partial_roundings;
  if (std::memcmp(&a, &same, sizeof a) != 0) {
    c.order_declared = 0;
    c.chained_requests = 0;  // chunks may be cut otherwise
    if (c.item_rows > 0) c.splits_vary = 1;
    c.item_rows = c.shares = c.share_tiles = c.share_turns = 0;
  }
  c.exp_relative_error = std::max(a.exp_relative_error, b.exp_relative_error);
  c.scaling_relative_error = std::max(a.scaling_relative_error, b.scaling_relative_error);
  return c;
}

Replays::Replays(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                 const InputValues& values, double row_key_budget, const DerivedCall& largest)
    : backend_(backend),
      kernel_(kernel),
      device_(device),
      values_(values),
      budget_(row_key_budget),
      base_(values.build(largest.problem, largest.from)) {
  meet_contracts(base_, contracts_of(kernel));
  buffers_ = std::make_shared<DeviceBuffers>(backend, base_.buffers.set());
}

std::string Replays::capture(const DerivedCall& batch, const assay_arithmetic& fallback,
                             std::string* refused) {
  auto made = std::make_unique<Captured>();
  made->inputs = seen_as(base_, batch.problem, true);
  made->inputs.view = std::make_unique<ProblemView>(made->inputs.problem, base_.q_scale_host,
                                                    base_.k_scale_host, base_.v_scale_host);
  Inputs own = values_.build(batch.problem, batch.from);
  meet_contracts(own, contracts_of(kernel_));
  if (const std::string operand = lay(own); !operand.empty())
    return "the batch does not fit the buffers: " + operand;
  if (const CallResult r = Session::supports(kernel_, made->inputs, device_); !r.ok())
    return *refused = r.error.empty() ? "refused without a reason" : r.error, *refused;
  made->session = std::make_unique<Session>(backend_, kernel_, made->inputs, buffers_);
  made->session->upload_inputs();
  for (const auto& [name, step] :
       {std::pair{"plan", &Session::plan}, std::pair{"capture", &Session::capture}})
    if (const CallResult r = (*made->session.*step)(); !r.ok()) {
      if (r.refused()) *refused = r.error;
      return fmt::format("{}: {}", name, r.error);
    }
  made->arithmetic = fallback;
  call_arithmetic(backend_, kernel_, made->inputs.view->get(), made->arithmetic);
  captures_.push_back(std::move(made));
  return {};
}

std::string Replays::lay(const Inputs& batch) {
  spoil_values(base_);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    if (!is_laid(base_.problem, op)) continue;
    if (!copy_elements(tensor_of(batch.tensors, op), tensor_of(base_.tensors, op)))
      return std::string(operand_name(op));
  }
  return {};
}

void Replays::poison_outputs(Poison poison) {
  for (int i = 0; i < kOperandCount; ++i)
    if (!is_laid(base_.problem, static_cast<Operand>(i)) && !base_.buffers[i].empty())
      poison_all(base_, static_cast<Operand>(i), poison);
}

std::string Replays::replay(Inputs& batch, const Question& question, RelationResult& result) {
  Captured& captured = *captures_.at(static_cast<size_t>(question.capture));
  Session& session = *captured.session;
  session.upload_inputs();
  // Workspace and outputs hold different poison, in turns: a NaN written over a NaN would not be seen, nor
  // the mean of partial results that nobody wrote.
  const bool even = replays_++ % 2 == 0;
  poison_outputs(even ? Poison::kNaN : Poison::kLow);
  session.poison_outputs();
  poison_outputs(even ? Poison::kHigh : Poison::kNaN);
  session.poison_outputs(false);
  if (const CallResult r = session.replay(batch.view->get()); !r.ok()) return r.error;
  if (const Objection damage = session.damage()) return damage.reason;
  ++result.calls;
  result.checked = true;

  const Inputs seen = seen_as(captured.inputs, batch.problem, false);
  const std::unique_ptr<Expectation> expected = make_expectation(seen, budget_);
  assay_arithmetic arithmetic = captured.arithmetic;
  call_arithmetic(backend_, kernel_, batch.view->get(), arithmetic);
  expected->prepare(coarser(captured.arithmetic, arithmetic));
  RunRecord eager;
  const bool comparable = takes(batch);
  if (comparable)
    if (std::string reason = call_eagerly(batch, arithmetic, eager); !reason.empty())
      return "an eager call: " + reason;
  RunOutputs got(seen, session.outputs(), comparable ? &eager : nullptr);
  expected->survey(got);
  if (const Objection wrong = objection_of(got, *expected)) return text(wrong);
  const bool equal = comparable && got.differs_in_bits().empty();
  const bool repeats = (promises_of(kernel_) & ASSAY_PROMISE_REPEATABLE) != 0;
  const bool invariant = repeats && (promises_of(kernel_) & ASSAY_PROMISE_BATCH_INVARIANT) != 0;
  if (comparable && !equal) result.same_bits = false;
  if (comparable && !equal && (invariant || (repeats && question.captured_shape)))
    return "equal bits are promised, but an eager call gives others: " + got.differs_in_bits();
  result.rows += batch.problem.total_q();
  if (!expected->has_dear_bounds()) return note(got, result), std::string();
  if (equal && !question.bounds) return {};
  RunOutputs bounded(seen, session.outputs());
  expected->ask(bounded);
  if (const Objection wrong = objection_of(bounded, *expected)) return text(wrong);
  note(bounded, result);
  return {};
}

// A call at the batch itself, in memory of its own.
std::string Replays::call_eagerly(Inputs& batch, const assay_arithmetic& arithmetic, RunRecord& record) {
  Session session(backend_, kernel_, batch);
  if (const CallResult r = session.plan(); !r.ok()) return "plan: " + r.error;
  if (const CallResult r = session.run(); !r.ok()) return "fails: " + r.error;
  if (const Objection damage = session.damage()) return damage.reason;
  const std::unique_ptr<Expectation> expected = make_expectation(batch, budget_);
  expected->prepare(arithmetic);
  RunOutputs out(batch, session.outputs());
  expected->survey(out);
  record = std::move(out.record());
  return objection_of(out, *expected).reason;
}

std::string replay_batch(Replays& replays, const InputValues& values, const assay_kernel& kernel,
                         const DerivedCall& batch, const Replays::Question& question, const std::string& name,
                         RelationResult& result) {
  const auto left_out = [&](const std::string& why) {
    result.note += fmt::format("{}{}{}", result.note.empty() ? "" : "; ", name, why);
    return std::string();
  };
  const uint32_t contracts = contracts_of(kernel);
  for (const std::string& outside :
       {outside_contracts(batch.problem, contracts), outside_graph_contracts(batch.problem, contracts)})
    if (!outside.empty()) return left_out(": " + outside);
  Inputs inputs = values.build(batch.problem, batch.from);
  meet_contracts(inputs, contracts);
  if (const std::string operand = replays.lay(inputs); !operand.empty())
    return left_out(" does not fit the captured " + operand);
  std::string reason = replays.replay(inputs, question, result);
  return reason.empty() ? reason : fmt::format("replayed for {}: {}", name, reason);
}

}  // namespace assay
