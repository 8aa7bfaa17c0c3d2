// SPDX-License-Identifier: Apache-2.0
// See graph.hpp. Inputs of other shapes are copied element by element into the captured buffers, so every
// operand keeps the strides it had at capture; what a shape leaves over is NaN in values and stale in tables.
#include "harness/check/graph/graph.hpp"

#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/check/expectations/expectation.hpp"
#include "harness/input/contracts.hpp"
#include "harness/input/poison.hpp"
#include "harness/ops/op.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

bool same_lengths(const Problem& a, const Problem& b) {
  return std::equal(
      a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
      [](const Request& x, const Request& y) { return x.q_len == y.q_len && x.kv_len == y.kv_len; });
}

// Bytes that are NaN in every floating format, or what the contract of finite ones has in their place;
// metadata keeps what was captured.
void spoil_values(Inputs& base) {
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    const assay_tensor& t = tensor_of(base.tensors, op);
    GuardedBuffer& buffer = base.buffers[i];
    const bool value = t.format >= ASSAY_FP32 && t.format <= ASSAY_INT8;
    const bool cached = op == Operand::kK || op == Operand::kV;
    if (!value || is_output(base.problem, op) || buffer.empty()) continue;
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

// The captured memory as the inputs of the shape that lies in it: its lengths, the strides of the capture.
Inputs seen_as(const Inputs& base, const Inputs& shape) {
  Inputs seen;
  seen.problem = shape.problem;
  seen.tensors = base.tensors;
  seen.q_scale_host = base.q_scale_host;
  seen.k_scale_host = base.k_scale_host;
  seen.v_scale_host = base.v_scale_host;
  seen.contracts = base.contracts;
  for (int i = 0; i < kOperandCount; ++i) {
    const auto operand = static_cast<Operand>(i);
    seen.buffers[i] = base.buffers[i];  // shared, not copied
    std::copy_n(tensor_of(shape.tensors, operand).shape, ASSAY_MAX_RANK,
                tensor_of(seen.tensors, operand).shape);
  }
  return seen;
}

// What holds for both: the host planned for one shape, the lengths on the device are those of the other.
assay_arithmetic coarser(const assay_arithmetic& a, const assay_arithmetic& b) {
  assay_arithmetic c = a;
  if (std::memcmp(&a, &b, sizeof a) != 0) c.order_declared = 0;
  c.splits = std::max(a.splits, b.splits);
  c.row_sum_chain =
      a.row_sum_chain == 0 || b.row_sum_chain == 0 ? 0 : std::max(a.row_sum_chain, b.row_sum_chain);
  c.exp_relative_error = std::max(a.exp_relative_error, b.exp_relative_error);
  c.scaling_relative_error = std::max(a.scaling_relative_error, b.scaling_relative_error);
  return c;
}

// Everything that one captured kernel is asked at its shapes.
class Replays {
 public:
  Replays(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
          const InputValues& values, double row_key_budget, const GraphShape& captured)
      : backend_(backend),
        kernel_(kernel),
        device_(device),
        values_(values),
        budget_(row_key_budget),
        base_(values.build(captured.call.problem, captured.call.from)) {}

  // Why the kernel does not take the captured shape, or empty.
  std::string refusal() {
    const CallResult r = Session::supports(kernel_, base_, device_);
    return r.ok() ? "" : r.error.empty() ? "refused without a reason" : r.error;
  }
  // *refused: what it says if it refuses only now.
  std::string capture(const assay_arithmetic& fallback, std::string* refused) {
    session_ = std::make_unique<Session>(backend_, kernel_, base_);
    for (const auto& [name, step] :
         {std::pair{"plan", &Session::plan}, std::pair{"capture", &Session::capture}})
      if (const CallResult r = (*session_.*step)(); !r.ok()) {
        if (r.refused()) *refused = r.error;
        return fmt::format("{}: {}", name, r.error);
      }
    captured_ = fallback;
    call_arithmetic(backend_, kernel_, base_.view->get(), captured_);
    return {};
  }
  // The operand of the shape that does not fit the captured memory, or empty.
  std::string lay(const Inputs& shape) {
    spoil_values(base_);
    for (int i = 0; i < kOperandCount; ++i) {
      const auto op = static_cast<Operand>(i);
      if (is_output(base_.problem, op)) continue;
      if (!copy_elements(tensor_of(shape.tensors, op), tensor_of(base_.tensors, op)))
        return std::string(operand_name(op));
    }
    return {};
  }
  // One replay for the shape that was laid.
  std::string replay(Inputs& shape, bool same_shape, RelationResult& result) {
    session_->upload_inputs();
    session_->poison_outputs();  // and the workspace
    if (const CallResult r = session_->replay(shape.view->get()); !r.ok()) return r.error;
    if (const Objection damage = session_->damage()) return damage.reason;
    ++result.calls;
    result.checked = true;

    const Inputs seen = seen_as(base_, shape);
    const std::unique_ptr<Expectation> expected = make_expectation(seen, budget_);
    assay_arithmetic arithmetic = captured_;
    call_arithmetic(backend_, kernel_, shape.view->get(), arithmetic);
    expected->prepare(coarser(captured_, arithmetic));
    RunRecord eager;
    const bool comparable = takes(shape);
    if (comparable)
      if (std::string reason = call_eagerly(shape, arithmetic, eager); !reason.empty())
        return "an eager call: " + reason;
    RunOutputs got(seen, session_->outputs(), comparable ? &eager : nullptr);
    expected->survey(got);
    if (const Objection wrong = objection_of(got, *expected)) return text(wrong);
    const bool equal = comparable && got.differs_in_bits().empty();
    const bool repeats = (promises_of(kernel_) & ASSAY_PROMISE_REPEATABLE) != 0;
    const bool invariant = repeats && (promises_of(kernel_) & ASSAY_PROMISE_BATCH_INVARIANT) != 0;
    if (comparable && !equal) result.same_bits = false;
    if (comparable && !equal && (invariant || (repeats && same_shape)))
      return "equal bits are promised, but an eager call gives others: " + got.differs_in_bits();
    result.rows += shape.problem.total_q();
    if (!expected->has_dear_bounds()) return note(got, result);
    if (equal) return {};
    RunOutputs bounded(seen, session_->outputs());
    expected->ask(bounded);
    if (const Objection wrong = objection_of(bounded, *expected)) return text(wrong);
    return note(bounded, result);
  }

 private:
  static std::string text(const Objection& wrong) { return wrong.check + ": " + wrong.reason; }
  static std::string note(const RunOutputs& out, RelationResult& result) {
    result.max_ratio = std::max({result.max_ratio, out.values.max_ratio, out.marks.max_ratio});
    return {};
  }
  bool takes(Inputs& shape) const { return Session::supports(kernel_, shape, device_).ok(); }

  // A call at the shape itself, in memory of its own.
  std::string call_eagerly(Inputs& shape, const assay_arithmetic& arithmetic, RunRecord& record) {
    Session session(backend_, kernel_, shape);
    if (const CallResult r = session.plan(); !r.ok()) return "plan: " + r.error;
    if (const CallResult r = session.run(); !r.ok()) return "fails: " + r.error;
    if (const Objection damage = session.damage()) return damage.reason;
    const std::unique_ptr<Expectation> expected = make_expectation(shape, budget_);
    expected->prepare(arithmetic);
    RunOutputs out(shape, session.outputs());
    expected->survey(out);
    record = std::move(out.record());
    return objection_of(out, *expected).reason;
  }

  const Backend& backend_;
  const assay_kernel& kernel_;
  const assay_device& device_;
  const InputValues& values_;
  double budget_;
  Inputs base_;  // of the captured shape
  std::unique_ptr<Session> session_;
  assay_arithmetic captured_{};
};

}  // namespace

std::vector<GraphShape> graph_shapes(const Problem& p) {
  const int count = static_cast<int>(p.requests.size());
  std::vector<int> same(count), reversed(count);
  for (int r = 0; r < count; ++r) same[r] = r, reversed[r] = count - 1 - r;
  std::vector<Request> backwards(p.requests.rbegin(), p.requests.rend()),
      halved = p.requests, empty = p.requests, single = p.requests;
  for (int r = 0; r < count; ++r) {
    const int32_t context = p.requests[r].context_len();
    if (context > 1) halved[r].kv_len -= context / 2;
    if (r < (count + 1) / 2) continue;
    empty[r].q_len = empty[r].kv_len = 0;
    if (p.requests[r].q_len > 0 && p.requests[r].kv_len > 0) single[r].q_len = single[r].kv_len = 1;
  }
  std::vector<GraphShape> shapes;
  const auto add = [&](const char* name, const std::vector<int>& origin,
                       const std::vector<Request>& requests) {
    GraphShape shape{name, reshaped(p, origin, requests)};
    for (const GraphShape& known : shapes)
      if (same_lengths(known.call.problem, shape.call.problem)) return;
    shapes.push_back(std::move(shape));
  };
  add("the captured shape", same, p.requests);
  add("requests in reverse", reversed, backwards);
  add("halved contexts", same, halved);
  add("padding of length 0", same, empty);
  add("padding of length 1", same, single);
  // The rows of a captured write and the entries of captured lists stay; those that a shape does not need are
  // padding, and a shape that needs more is none.
  if (takes(op_of(p), "pad")) {
    const auto entries = op_of(p).entries;
    const auto needed = [&](const Problem& q) { return entries == nullptr ? q.total_q() : entries(q); };
    const int64_t room = needed(p) + p.padded_rows;
    std::erase_if(shapes, [&](const GraphShape& s) { return needed(s.call.problem) > room; });
    for (GraphShape& s : shapes)
      s.call.problem.padded_rows = static_cast<int32_t>(room - needed(s.call.problem));
  }
  if (!op_of(p).has_cache) return shapes;
  int32_t blocks = 0;
  for (GraphShape& s : shapes)
    place_pages(s.call.problem), blocks = std::max(blocks, s.call.problem.num_blocks);
  for (GraphShape& s : shapes) s.call.problem.min_blocks = blocks, place_pages(s.call.problem);
  return shapes;
}

std::string check_graph(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                        const Problem& problem, const assay_arithmetic& fallback, double row_key_budget,
                        RelationResult& result) {
  const InputValues values(problem);
  const std::vector<GraphShape> shapes = graph_shapes(problem);
  Replays replays(backend, kernel, device, values, row_key_budget, shapes[0]);
  if (result.note = replays.refusal(); !result.note.empty()) return {};
  if (std::string reason = replays.capture(fallback, &result.note); !reason.empty())
    return result.note.empty() ? reason : std::string();
  for (const GraphShape& shape : shapes) {
    if (const std::string outside = outside_contracts(shape.call.problem, contracts_of(kernel));
        !outside.empty()) {
      result.note += fmt::format("{}{}: {}", result.note.empty() ? "" : "; ", shape.name, outside);
      continue;
    }
    Inputs inputs = values.build(shape.call.problem, shape.call.from);
    meet_contracts(inputs, contracts_of(kernel));
    if (const std::string operand = replays.lay(inputs); !operand.empty()) {
      result.note += fmt::format("{}{} does not fit the captured {}", result.note.empty() ? "" : "; ",
                                 shape.name, operand);
      continue;
    }
    if (std::string reason = replays.replay(inputs, &shape == &shapes[0], result); !reason.empty())
      return fmt::format("replayed for {}: {}", shape.name, reason);
  }
  return {};
}

}  // namespace assay
