// SPDX-License-Identifier: Apache-2.0
// See stage_case.hpp. Outputs are held in buffers with what stood there before; what the stage left is a
// snapshot over them, so that expectations of ops judge it as they judge a kernel of that op.
#include "harness/explain/stages/stage_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/check/expectations/expectation.hpp"
#include "harness/check/graph/replays.hpp"
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int64_t kSlack = 1 << 14;  // zeros behind copies, into which a misreading may reach

int64_t first_byte(const assay_tensor& t) {  // of the extent, before data
  int64_t first = 0;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.stride[axis] < 0) first += (t.shape[axis] - 1) * t.stride[axis];
  return -first * format_bytes(t.format);
}

}  // namespace

std::vector<int32_t> Reading::ints(Operand o) const {
  const assay_tensor& t = tensor_of(tensors, o);
  std::vector<int32_t> all;
  const int64_t rows = t.rank > 1 ? t.shape[0] : 1, columns = t.shape[t.rank > 1 ? 1 : 0];
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      all.push_back(static_cast<const int32_t*>(
          t.data)[t.rank > 1 ? i * t.stride[0] + j * t.stride[1] : j * t.stride[0]]);
  return all;
}

void Reading::put(Operand o, const std::vector<int32_t>& list) {
  assay_tensor& t = tensor_of(tensors, o);
  lists->emplace_back((list.size() + 64) * sizeof(int32_t));
  std::memcpy(lists->back().data(), list.data(), list.size() * sizeof(int32_t));
  t.data = lists->back().data();
  t.stride[t.rank > 1 ? 1 : 0] = 1;
  if (t.rank > 1) t.stride[0] = t.shape[1];
}

void Reading::put_bytes(Operand o, const Bytes& bytes) {
  assay_tensor& t = tensor_of(tensors, o);
  lists->emplace_back(bytes.copy);
  lists->back().resize(bytes.copy.size() + kSlack);
  t.data = lists->back().data() + first_byte(t);
}

int32_t Reading::rows_of(int32_t request) const {
  const assay_tensor& t = tensors.cu_q;
  if (t.data == nullptr || t.rank != 1 || t.shape[0] < request + 2) return problem.q_len[request];
  const auto* starts = static_cast<const int32_t*>(t.data);
  return starts[(request + 1) * t.stride[0]] - starts[request * t.stride[0]];
}

struct StageCase::Left {
  std::list<std::vector<std::byte>> inputs;
  std::vector<int32_t> q_len, kv_len;
  GuardedBuffer buffers[kOperandCount];  // of what is written, as it was before
  Snapshot after;
  std::vector<std::byte> written[kOperandCount];
  int64_t offset[kOperandCount] = {};  // of data in `written`, bytes
};

StageCase::~StageCase() = default;

bool StageCase::attends() const { return kernel_->op == ASSAY_OP_PREFILL || kernel_->op == ASSAY_OP_PAGED; }

StageCase::StageCase(const Backend& backend, const StageRun& run, const assay_arithmetic* declared)
    : backend_(backend), run_(run), kernel_(run.kernel), place_(run.place), left_(std::make_unique<Left>()) {
  Left& left = *left_;
  left.q_len = run.q_len, left.kv_len = run.kv_len;
  given_.problem = run.problem, given_.tensors = run.tensors;
  given_.problem.q_len = left.q_len.data(), given_.problem.kv_len = left.kv_len.data();
  given_.tensors.workspace = assay_tensor{};
  arithmetic_ = default_arithmetic();
  if (declared != nullptr)
    arithmetic_ = *declared;
  else
    call_arithmetic(backend, *kernel_, &given_.problem, arithmetic_);

  Problem roles;
  roles.op = kernel_->op, roles.no_write = given_.problem.no_write != 0;
  roles.q_scale = given_.problem.q_scale_kind, roles.k_scale = given_.problem.k_scale_kind;
  roles.v_scale = given_.problem.v_scale_kind, roles.source_format = given_.problem.source_format;
  Inputs shell;  // a case of the outputs alone, whose device holds what was left
  shell.problem = roles;
  for (int i = 0; i < kOperandCount; ++i) {
    const auto o = static_cast<Operand>(i);
    assay_tensor& t = tensor_of(given_.tensors, o);
    if (run.before[i].copy.empty()) {
      if (t.data != nullptr && o != Operand::kWorkspace) {  // there is nothing in it
        left.inputs.emplace_back(static_cast<size_t>(kSlack));
        t.data = left.inputs.back().data();
      }
      continue;
    }
    if (!is_output(roles, o)) {
      std::vector<std::byte>& bytes = left.inputs.emplace_back(run.before[i].copy);
      bytes.resize(bytes.size() + kSlack);
      t.data = bytes.data() + first_byte(t);
      continue;
    }
    left.written[i] = run.after[i].copy, left.offset[i] = first_byte(t);
    // Outputs that overlap (K and V of one allocation) share a buffer.
    for (int j = 0; j < i && left.buffers[i].empty(); ++j) {
      if (left.buffers[j].empty() || !is_output(roles, static_cast<Operand>(j))) continue;
      const Bytes &a = run.before[j], &b = run.before[i];
      if (b.address >= a.end() || a.address >= b.end()) continue;
      const std::byte *first = std::min(a.address, b.address), *last = std::max(a.end(), b.end());
      GuardedBuffer both(last - first);
      const auto lay = [&](const Bytes& from, const Bytes& other) {
        std::memcpy(both.payload() + (other.address - first), other.copy.data(), other.copy.size());
        std::memcpy(both.payload() + (from.address - first), from.copy.data(), from.copy.size());
      };
      lay(run.after[j], run.after[i]);
      left.buffers[i] = left.buffers[j] = both;
      tensor_of(given_.tensors, static_cast<Operand>(j)).data =
          both.payload() + (a.address - first) + left.offset[j];
      t.data = both.payload() + (b.address - first) + left.offset[i];
    }
    if (!left.buffers[i].empty()) continue;
    GuardedBuffer own(static_cast<int64_t>(run.after[i].copy.size()));
    std::memcpy(own.payload(), run.after[i].copy.data(), run.after[i].copy.size());
    left.buffers[i] = own;
    t.data = own.payload() + left.offset[i];
  }
  for (int i = 0; i < kOperandCount; ++i) {
    if (left.buffers[i].empty()) continue;
    const auto o = static_cast<Operand>(i);
    tensor_of(shell.tensors, o) = tensor_of(given_.tensors, o);
    bool shared = false;
    for (int j = 0; j < i; ++j)
      if (left.buffers[j].raw() == left.buffers[i].raw()) shared = true;
    if (shared)
      shell.buffers.bind(o, left.buffers[i]);
    else
      shell.buffers.add(o, left.buffers[i]);
  }
  left.after = Snapshot(shell, DeviceCase(backend, shell, WorkspaceSize{}));
  for (int i = 0; i < kOperandCount; ++i) {  // and now what stood there before
    if (left.buffers[i].empty()) continue;
    const assay_tensor& t = tensor_of(given_.tensors, static_cast<Operand>(i));
    std::byte* to = static_cast<std::byte*>(t.data) - left.offset[i];
    std::memcpy(to, run.before[i].copy.data(), run.before[i].copy.size());
  }
  if (run.replayed) take_replay();
}

void StageCase::take_replay() {
  Reading now = given_;
  try {
    const Problem p = problem_of(now);
    const std::vector<int32_t> q = p.q_lens(), kv = p.kv_lens();
    assay_problem view = given_.problem;
    view.q_len = q.data(), view.kv_len = kv.data();
    view.max_q_len = p.max_q_len(), view.max_kv_len = p.max_kv_len();
    view.total_q = p.total_q(), view.total_kv = p.total_kv();
    assay_arithmetic own = arithmetic_;
    call_arithmetic(backend_, *kernel_, &view, own);
    arithmetic_ = coarser(arithmetic_, own);
  } catch (const CheckError&) {
    // What it was given contradicts itself: it will not be judged.
  }
}

double StageCase::written(Operand o, int64_t at) const {
  const int i = static_cast<int>(o);
  const int32_t format = tensor_of(given_.tensors, o).format;
  const int64_t byte = left_->offset[i] + at * format_bytes(format);
  ASSAY_CHECK(byte >= 0 && byte + format_bytes(format) <= static_cast<int64_t>(left_->written[i].size()),
              "element {} of {} was not written", at, operand_name(o));
  return load(format, left_->written[i].data() + byte, 0);
}

Inputs StageCase::inputs_of(const Reading& r, const Problem& p) const {
  Inputs in;
  in.problem = p, in.tensors = r.tensors;
  in.q_scale_host = r.problem.q_scale_host, in.k_scale_host = r.problem.k_scale_host;
  in.v_scale_host = r.problem.v_scale_host;
  in.contracts = contracts_of(*kernel_);
  for (int i = 0; i < kOperandCount; ++i)
    if (!left_->buffers[i].empty()) in.buffers.bind(static_cast<Operand>(i), left_->buffers[i]);
  return in;
}

StageVerdict StageCase::judge(const Reading& reading) const {
  StageVerdict v;
  Reading r = reading;
  try {
    const Problem p = problem_of(r);
    if (attends()) return judge_attention(r, p);
    const bool out = std::find(r.nowhere.begin(), r.nowhere.end(), 1) != r.nowhere.end();
    if (!by_rows()) {
      ASSAY_CHECK(!out, "a table leads out of the cache");
      return judge_others(r, p);
    }
    StageVerdict rows = judge_replayed_rows(r, p);
    if (out || rows.numberless) return rows;
    v = judge_others(r, p);
    v.bad_rows = std::move(rows.bad_rows), v.open_rows = std::move(rows.open_rows);
    v.vague_rows = std::move(rows.vague_rows);
    return v;
  } catch (const CheckError& e) {
    v.reason = e.what();
  }
  return v;
}

StageVerdict StageCase::judge_attention(Reading& r, const Problem& p) const {
  StageVerdict v;
  std::vector<RowId> rows;
  const std::vector<int32_t> first = p.cu_q();
  for (size_t i = 0; i < p.requests.size(); ++i)
    for (int32_t n = 0; n < p.requests[i].q_len; ++n) rows.push_back({static_cast<int32_t>(i), n});
  const assay_tensor &o = r.tensors.o, &lse = r.tensors.lse;
  const HostOperands host{&r.tensors, r.problem.q_scale_host, r.problem.k_scale_host, r.problem.v_scale_host,
                          r.dense.empty() ? nullptr : &r.dense};
  v.open_rows.assign(static_cast<size_t>(std::max<int64_t>(p.total_q(), o.shape[0])), 0);
  std::erase_if(rows, [&](const RowId& id) {
    const bool nowhere = !r.nowhere.empty() && r.nowhere[static_cast<size_t>(id.request)] != 0;
    if (nowhere) v.open_rows[static_cast<size_t>(first[static_cast<size_t>(id.request)] + id.row)] = 1;
    return nowhere;
  });
  const BoundedAttention b = bounded_attention(p, host, rows, arithmetic_);
  const double unit = lse_unit(contracts_of(*kernel_));
  const bool marks = lse.data != nullptr && (contracts_of(*kernel_) & ASSAY_CONTRACT_NO_LSE) == 0;
  int64_t unknown = 0, numbers = 0;  // that no bound is known for, and that are numbers all the same
  double worst = -1;
  std::string first_wrong;
  v.bad_rows.assign(static_cast<size_t>(std::max<int64_t>(p.total_q(), o.shape[0])), 0);
  v.vague_rows = v.zero_rows = v.bad_rows;
  double largest = 0;  // of what was written
  for (const RowId& id : rows)
    for (int64_t at = 0; at < int64_t{p.heads_q} * p.head_dim_v; ++at) {
      const int64_t row = first[static_cast<size_t>(id.request)] + id.row;
      const double got = written(
          Operand::kO, row * o.stride[0] + at / p.head_dim_v * o.stride[1] + at % p.head_dim_v * o.stride[2]);
      if (std::isfinite(got)) largest = std::max(largest, std::fabs(got));
    }
  for (size_t n = 0; n < rows.size(); ++n) {
    const int64_t row = first[static_cast<size_t>(rows[n].request)] + rows[n].row;
    const auto at_row = static_cast<std::ptrdiff_t>(n) * p.heads_q * p.head_dim_v;
    const auto zero = [&](const std::vector<double>& of) {
      return std::all_of(of.begin() + at_row, of.begin() + at_row + int64_t{p.heads_q} * p.head_dim_v,
                         [](double x) { return x == 0; });
    };
    v.zero_rows[static_cast<size_t>(row)] = zero(b.o_low) && zero(b.o_high);
    for (int32_t h = 0; h < p.heads_q; ++h) {
      const size_t slot = n * static_cast<size_t>(p.heads_q) + static_cast<size_t>(h);
      for (int32_t d = -1; d < p.head_dim_v; ++d) {
        const size_t at = slot * static_cast<size_t>(p.head_dim_v) + static_cast<size_t>(std::max(d, 0));
        double low, high, got;
        if (d < 0) {
          if (!marks) continue;
          low = b.lse_low[slot] / unit, high = b.lse_high[slot] / unit;
          if (unit != 1 && std::isfinite(low) && std::isfinite(high)) {
            const double more = 0x1p-23 * std::max(std::fabs(low), std::fabs(high));
            low -= more, high += more;
          }
          got = written(Operand::kLse, row * lse.stride[0] + h * lse.stride[1]);
        } else {
          low = b.o_low[at], high = b.o_high[at];
          got = written(Operand::kO, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]);
          if (high - low > largest) v.vague_rows[static_cast<size_t>(row)] = 1;
        }
        ++v.checked;
        if (std::isnan(low) || std::isnan(high)) {
          ++unknown, numbers += std::isfinite(got);
          continue;
        }
        if (within(got, low, high, d < 0 ? int32_t{ASSAY_FP32} : o.format)) continue;
        ++v.bad, v.bad_rows[static_cast<size_t>(row)] = 1;
        const double off = std::isfinite(got) ? std::fabs(got - (low + high) / 2) : 1e300;
        if (off <= worst) continue;
        worst = off;
        first_wrong = fmt::format("{} at request {} row {} head {}{}: got {:.6g}, accepted {:.6g} .. {:.6g}",
                                  d < 0 ? "LSE" : "O", rows[n].request, rows[n].row, h,
                                  d < 0 ? "" : fmt::format(" dim {}", d), got, low, high);
      }
    }
  }
  // Rows that no request has stay as they were.
  for (int64_t row = p.total_q(); row < o.shape[0]; ++row)
    for (int32_t h = 0; h < p.heads_q; ++h) {
      const int64_t at = row * o.stride[0] + h * o.stride[1];
      const auto* before = static_cast<const std::byte*>(o.data) + at * format_bytes(o.format);
      const auto* after = left_->written[static_cast<int>(Operand::kO)].data() +
                          left_->offset[static_cast<int>(Operand::kO)] + at * format_bytes(o.format);
      if (std::memcmp(before, after, static_cast<size_t>(format_bytes(o.format))) == 0) continue;
      v.bad += p.head_dim_v, v.bad_rows[static_cast<size_t>(row)] = 1;
      if (first_wrong.empty()) first_wrong = fmt::format("row {} belongs to no request and was written", row);
    }
  v.judged = unknown == 0, v.numberless = unknown > 0 && numbers == 0;
  v.right = v.judged && v.bad == 0;
  if (unknown > 0)
    v.reason = fmt::format("{} of {} elements depend on memory that holds no number", unknown, v.checked);
  else if (v.bad > 0)
    v.reason = fmt::format("wrong in {} of {} elements, worst {}", v.bad, v.checked, first_wrong);
  return v;
}

StageVerdict StageCase::judge_others(Reading& r, const Problem& p) const {
  StageVerdict v;
  const Inputs in = inputs_of(r, p);
  const std::unique_ptr<Expectation> expected = make_expectation(in, 1e9);
  if (const std::string broken = expected->impossible(arithmetic_); !broken.empty()) throw CheckError(broken);
  expected->prepare(arithmetic_);
  RunOutputs out(in, left_->after);
  expected->ask(out);
  Objection wrong = objection_of(out, *expected);
  v.judged = true;
  v.bad = out.values.bad + out.marks.bad, v.checked = out.values.checked + out.marks.checked;
  if (wrong && v.bad == 0) v.uncounted = true, v.bad = std::max<int64_t>(v.checked, 1);
  v.right = !wrong;
  v.reason = wrong.reason;
  if (const std::string unwritten = out.unwritten(); !unwritten.empty())
    v.right = false, v.uncounted = true, v.bad = std::max<int64_t>({v.bad, v.checked, 1}),
    v.reason = unwritten;
  return v;
}

std::vector<StageCase::Entry> StageCase::wrong_entries() const {
  std::vector<Entry> wrong;
  Reading r = given_;
  const Problem p = problem_of(r);
  const Inputs in = inputs_of(r, p);
  for (const Wanted& w : wanted_lists(in)) {
    const assay_tensor& t = tensor_of(in.tensors, w.operand);
    for (int64_t i = 0; i < w.rows; ++i)
      for (int64_t j = 0; j < w.columns; ++j) {
        const int64_t wanted = w.values[static_cast<size_t>(i * w.columns + j)];
        if (wanted == Wanted::kAnything) continue;
        const bool table = t.rank > 1;
        const auto got = static_cast<int64_t>(
            written(w.operand, table ? i * t.stride[0] + j * t.stride[1] : j * t.stride[0]));
        if (got != wanted) wrong.push_back({w.operand, table ? i : -1, j, got, wanted});
      }
  }
  return wrong;
}

Evidence StageCase::evidence(const std::string& line) const {
  Evidence e;
  Reading r = given_;
  e.line = line, e.kernel_name = kernel_->name;
  e.problem = problem_of(r);
  e.nan = inputs_of(r, e.problem), e.low = inputs_of(r, e.problem);
  e.declared = arithmetic_, e.declares = true;
  e.promises = promises_of(*kernel_), e.contracts = 0;
  e.verdict.outcome = Outcome::kWrong;
  e.first_rows = e.problem.cu_q();
  std::vector<RowId> rows;
  for (size_t i = 0; i < e.problem.requests.size(); ++i)
    for (int32_t n = 0; n < e.problem.requests[i].q_len; ++n) rows.push_back({static_cast<int32_t>(i), n});
  e.bounded = bounded_attention(e.problem, e.operands(false), rows, arithmetic_);
  e.row_of.resize(static_cast<size_t>(e.problem.total_q()));
  for (size_t n = 0; n < rows.size(); ++n) e.row_of[n] = static_cast<int64_t>(n);
  CallResultCopy& call = e.calls[static_cast<int>(Call::kFirst)];
  call.made = true;
  const assay_tensor &o = r.tensors.o, &lse = r.tensors.lse;
  for (int64_t row = 0; row < e.problem.total_q(); ++row)
    for (int32_t h = 0; h < e.problem.heads_q; ++h) {
      for (int32_t d = 0; d < e.problem.head_dim_v; ++d)
        call.o.push_back(written(Operand::kO, row * o.stride[0] + h * o.stride[1] + d * o.stride[2]));
      // Where none was asked for, the right one stands in for it.
      const size_t slot =
          static_cast<size_t>(row) * static_cast<size_t>(e.problem.heads_q) + static_cast<size_t>(h);
      call.lse.push_back(lse.data != nullptr ? written(Operand::kLse, row * lse.stride[0] + h * lse.stride[1])
                                             : e.bounded.value.lse[slot]);
    }
  if (lse.data == nullptr) e.contracts = ASSAY_CONTRACT_NO_LSE;
  // Poison lies in all memory that nothing occupies. Where no NaN came out, other poison would change
  // nothing: said as a call under it, for without one any hypothesis that reads such memory would fit all
  // there is.
  if (std::all_of(call.o.begin(), call.o.end(), [](double x) { return std::isfinite(x); }))
    e.calls[static_cast<int>(Call::kLow)] = call;
  return e;
}

}  // namespace assay
