// SPDX-License-Identifier: Apache-2.0
// See relations_graph.hpp. Contents of a shape are copied element by element into the captured buffers, so
// every operand keeps the strides it had at capture; what the shape leaves over is NaN in values and stale in
// tables.
#include "harness/check/relations_graph.hpp"

#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/check/relations_run.hpp"
#include "harness/problem/names.hpp"
#include "harness/problem/paged_cache.hpp"

namespace assay {
namespace {

bool same_lengths(const Problem& a, const Problem& b) {
  return std::equal(
      a.requests.begin(), a.requests.end(), b.requests.begin(), b.requests.end(),
      [](const Request& x, const Request& y) { return x.q_len == y.q_len && x.kv_len == y.kv_len; });
}

// Bytes that are NaN in every floating format; metadata keeps what was captured.
void spoil_values(Inputs& base) {
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    const assay_tensor& t = tensor_of(base.tensors, op);
    GuardedBuffer& buffer = base.buffers[i];
    const bool value = t.format >= ASSAY_FP32 && t.format <= ASSAY_INT8;
    if (value && !is_output(base.problem, op) && !buffer.empty())
      std::memset(buffer.payload(), 0xff, buffer.bytes());
  }
}

// Every element of `from` to the same index of `to`, which is no smaller. False when it is.
bool copy_elements(const assay_tensor& from, const assay_tensor& to) {
  if (from.data == nullptr) return to.data == nullptr || from.rank == 0;
  if (to.data == nullptr || from.rank != to.rank) return false;
  for (int i = 0; i < from.rank; ++i)
    if (from.shape[i] > to.shape[i]) return false;
  const size_t bytes = static_cast<size_t>(format_bytes(from.format));
  int64_t shape[ASSAY_MAX_RANK] = {1, 1, 1, 1, 1}, at[ASSAY_MAX_RANK] = {};
  int64_t count = 1;
  for (int i = 0; i < from.rank; ++i) count *= shape[i] = from.shape[i];
  for (int64_t n = 0; n < count; ++n) {
    int64_t source = 0, target = 0;
    for (int i = 0; i < from.rank; ++i) source += at[i] * from.stride[i], target += at[i] * to.stride[i];
    std::memcpy(static_cast<char*>(to.data) + static_cast<size_t>(target) * bytes,
                static_cast<const char*>(from.data) + static_cast<size_t>(source) * bytes, bytes);
    for (int i = from.rank - 1; i >= 0 && ++at[i] == shape[i]; --i) at[i] = 0;
  }
  return true;
}

// Puts the inputs of a shape into the captured buffers. The operand that does not fit, or empty.
std::string overlay(const Inputs& shape, Inputs& base) {
  spoil_values(base);
  for (int i = 0; i < kOperandCount; ++i) {
    const auto op = static_cast<Operand>(i);
    if (is_output(base.problem, op)) continue;
    if (!copy_elements(tensor_of(shape.tensors, op), tensor_of(base.tensors, op)))
      return std::string(operand_name(op));
  }
  return {};
}

// Of the `rows` that the shape has; what lies behind them is nobody's.
Outputs download(const DeviceCase& device_case, const Inputs& base, int64_t rows) {
  Outputs out;
  const auto fetch = [&](Operand op, std::vector<std::byte>& raw, assay_tensor& tensor) {
    raw = device_case.download(op);
    tensor = tensor_of(base.tensors, op);
    tensor.shape[0] = rows;
    if (tensor.data != nullptr)
      tensor.data = raw.data() +
                    (static_cast<const std::byte*>(tensor.data) - base.buffers[static_cast<int>(op)].raw());
  };
  fetch(Operand::kO, out.o_raw, out.o);
  fetch(Operand::kLse, out.lse_raw, out.lse);
  return out;
}

// What holds for both: the host planned for one shape, the lengths on the device are those of the other.
assay_arithmetic coarser(const assay_arithmetic& a, const assay_arithmetic& b) {
  assay_arithmetic c = a;
  if (std::memcmp(&a, &b, sizeof a) != 0) c.order_declared = 0;
  c.splits = std::max(a.splits, b.splits);
  c.row_sum_chain =
      a.row_sum_chain == 0 || b.row_sum_chain == 0 ? 0 : std::max(a.row_sum_chain, b.row_sum_chain);
  return c;
}

class Graph {
 public:
  explicit Graph(const Backend& backend, const assay_kernel& kernel) : backend_(backend), kernel_(kernel) {}
  ~Graph() {
    call_free_graph(backend_, graph);
    call_free_plan(kernel_, plan);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  assay_graph* graph = nullptr;
  assay_plan* plan = nullptr;

 private:
  const Backend& backend_;
  const assay_kernel& kernel_;
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
  if (p.op != ASSAY_OP_PAGED) return shapes;
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
  Inputs base = values.build(shapes[0].call.problem, shapes[0].call.from);
  const assay_problem* view = base.view->get();
  if (const CallResult r = call_supports(kernel, view, device); !r.ok()) {
    result.note = r.error;
    return {};
  }
  DeviceCase device_case(backend, base, call_workspace_bytes(kernel, view));
  Graph held(backend, kernel);
  if (const CallResult r = call_plan(kernel, view, device_case.tensors(), &held.plan); !r.ok())
    return "plan: " + r.error;
  if (const CallResult r = call_capture(backend, kernel, view, device_case.tensors(), held.plan, &held.graph);
      !r.ok())
    return "capture: " + r.error;
  assay_arithmetic captured = fallback;
  call_arithmetic(backend, kernel, view, captured);
  const bool repeats = (kernel.promises & ASSAY_PROMISE_REPEATABLE) != 0;
  const bool invariant = repeats && (kernel.promises & ASSAY_PROMISE_BATCH_INVARIANT) != 0;

  for (size_t i = 0; i < shapes.size(); ++i) {
    const DerivedCall& call = shapes[i].call;
    const auto wrong = [&](const std::string& reason) {
      return fmt::format("replayed for {}: {}", shapes[i].name, reason);
    };
    Inputs shape = values.build(call.problem, call.from);
    if (const std::string operand = overlay(shape, base); !operand.empty()) {
      result.note += fmt::format("{}{} does not fit the captured {}", result.note.empty() ? "" : "; ",
                                 shapes[i].name, operand);
      continue;
    }
    device_case.upload();  // outputs and workspace poisoned again
    if (const CallResult r = call_replay(backend, held.graph); !r.ok()) return wrong(r.error);
    if (const auto broken = device_case.broken_guards(); !broken.empty())
      return wrong("wrote outside its buffers: " + broken.front());
    if (const auto changed = device_case.changed_inputs(); !changed.empty())
      return wrong("changed its inputs: " + changed.front());
    const Outputs got = download(device_case, base, shape.problem.total_q());
    ++result.calls;
    result.checked = true;
    if (std::string reason = not_finite(shape.problem, got); !reason.empty()) return wrong(reason);

    RelationRun eager(values, call);
    if (eager.refusal(kernel, device).empty()) {
      if (std::string reason = eager.run(backend, kernel); !reason.empty())
        return wrong("an eager call: " + reason);
      if (same_bits(shape.problem, eager.out(), got)) {
        result.rows += shape.problem.total_q();
        continue;
      }
      result.same_bits = false;
      if (invariant || (repeats && i == 0))
        return wrong("equal bits are promised, but an eager call gives others: " +
                     first_difference(shape.problem, eager.out(), got));
    }
    assay_arithmetic arithmetic = captured;
    call_arithmetic(backend, kernel, shape.view->get(), arithmetic);
    const RowSelection selection = select_rows(shape.problem, row_key_budget);
    const HostOperands host{&shape.tensors, shape.q_scale_host, shape.k_scale_host, shape.v_scale_host};
    const BoundedAttention bounded =
        bounded_attention(shape.problem, host, selection.rows, coarser(captured, arithmetic));
    ErrorStats o, lse;
    compare_outputs(bounded, shape.problem, {&got.o, &got.lse}, o, lse);
    if (std::string reason = out_of_bounds(o, lse); !reason.empty()) return wrong(reason);
    result.max_ratio = std::max({result.max_ratio, o.max_ratio, lse.max_ratio});
    result.rows += static_cast<int64_t>(selection.rows.size());
  }
  return {};
}

}  // namespace assay
