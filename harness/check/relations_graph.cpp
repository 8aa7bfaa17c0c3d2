// SPDX-License-Identifier: Apache-2.0
// See relations_graph.hpp. What is captured and replayed is in graph_case.cpp; here are the shapes, and what
// a replay of attention is compared with (building blocks: block_graph.cpp).
#include "harness/check/relations_graph.hpp"

#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/check/block_graph.hpp"
#include "harness/check/graph_case.hpp"
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

// Rows behind those of the shape belong to nobody: they must hold what was there before the replay.
std::string written_behind(const Inputs& base, const Outputs& got, int64_t rows) {
  const auto changed = [&](Operand operand, const assay_tensor& now) {
    assay_tensor before = tensor_of(base.tensors, operand), behind = now;
    const int64_t bytes = format_bytes(now.format) * now.stride[0] * rows;
    behind.shape[0] = before.shape[0] = before.shape[0] - rows;
    behind.data = static_cast<char*>(behind.data) + bytes;
    before.data = static_cast<char*>(before.data) + bytes;
    return !same_elements(before, behind);
  };
  for (const auto& [operand, now] : {std::pair{Operand::kO, got.o}, std::pair{Operand::kLse, got.lse}})
    if (now.data != nullptr && changed(operand, now))
      return fmt::format("wrote {} of rows behind the {} of its requests", operand_name(operand), rows);
  return {};
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
  // The rows of a captured write stay; those that a shape does not need go nowhere.
  if (p.op == ASSAY_OP_CACHE_WRITE)
    for (GraphShape& s : shapes)
      s.call.problem.padded_rows = static_cast<int32_t>(p.rows() - s.call.problem.total_q());
  if (!has_cache(p.op)) return shapes;
  int32_t blocks = 0;
  for (GraphShape& s : shapes)
    place_pages(s.call.problem), blocks = std::max(blocks, s.call.problem.num_blocks);
  for (GraphShape& s : shapes) s.call.problem.min_blocks = blocks, place_pages(s.call.problem);
  return shapes;
}

std::string check_graph(const Backend& backend, const assay_kernel& kernel, const assay_device& device,
                        const Problem& problem, const assay_arithmetic& fallback, double row_key_budget,
                        RelationResult& result) {
  if (!is_attention(problem.op)) return check_block_graph(backend, kernel, device, problem, fallback, result);
  const InputValues values(problem);
  const std::vector<GraphShape> shapes = graph_shapes(problem);
  GraphCase held(backend, kernel, values.build(shapes[0].call.problem, shapes[0].call.from));
  const assay_problem* view = held.base().view->get();
  if (const CallResult r = call_supports(kernel, view, &held.base().tensors, device); !r.ok()) {
    result.note = r.error;
    return {};
  }
  std::string failure = held.capture();
  if (result.note = held.refused(); !result.note.empty()) return {};
  if (!failure.empty()) return failure;
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
    if (const std::string operand = held.lay(shape); !operand.empty()) {
      result.note += fmt::format("{}{} does not fit the captured {}", result.note.empty() ? "" : "; ",
                                 shapes[i].name, operand);
      continue;
    }
    if (std::string reason = held.replay(); !reason.empty()) return wrong(reason);
    const int64_t rows = shape.problem.total_q();
    const Outputs got = download(held.device_case(), held.base(), rows);
    ++result.calls;
    result.checked = true;
    if (std::string reason = not_finite(shape.problem, got); !reason.empty()) return wrong(reason);
    if (std::string reason = written_behind(held.base(), got, rows); !reason.empty()) return wrong(reason);

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
