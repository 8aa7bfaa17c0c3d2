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
#include "harness/input/contracts.hpp"
#include "harness/ops/op.hpp"
#include "reference/bounds/bounds.hpp"
#include "reference/formats/formats.hpp"

namespace assay {
namespace {

constexpr int32_t kMostTokens = 1 << 22;  // of a request that is looked at; more is no length
constexpr int64_t kSlack = 1 << 14;       // zeros behind copies, into which a misreading may reach

int64_t first_byte(const assay_tensor& t) {  // of the extent, before data
  int64_t first = 0;
  for (int axis = 0; axis < t.rank; ++axis)
    if (t.stride[axis] < 0) first += (t.shape[axis] - 1) * t.stride[axis];
  return -first * format_bytes(t.format);
}

int32_t int_at(const assay_tensor& t, int64_t i) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0]];
}

bool is_list(const assay_tensor& t, int64_t count) {
  return t.data != nullptr && t.rank == 1 && t.shape[0] >= count;
}

// Whether an operand's bytes were copied and lie where the view says.
template <class... Text>
void demand(bool fine, fmt::format_string<Text...> text, Text&&... values) {
  if (!fine) throw CheckError(fmt::format(text, std::forward<Text>(values)...));
}

// Lists of pages that an op on lists follows: no further than they go.
void check_listed(const Problem& p, const assay_tensors& t) {
  const bool rows = t.block_table.data != nullptr, csr = t.indices.data != nullptr;
  if (op_of(p).attends_rows || (!rows && !csr)) return;
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const auto r = static_cast<int64_t>(i);
    const int64_t before = t.encoder_len.data == nullptr ? 0 : int_at(t.encoder_len, r);
    const int64_t pages_before = (before + p.page_size - 1) / p.page_size;
    const auto pages = static_cast<int64_t>(p.pages[i].size());
    for (int64_t page = 0; page < pages; ++page) {
      int64_t listed = 0;
      if (p.table == ASSAY_TABLE_CSR) {
        const int64_t at = int_at(t.indptr, r) + page;
        demand(at >= 0 && at < t.indices.shape[0], "page {} of request {} lies outside of indices", page, i);
        listed = int_at(t.indices, at);
      } else {
        const int64_t column =
            p.table == ASSAY_TABLE_TOKEN ? before + page * p.page_size : pages_before + page;
        demand(r < t.block_table.shape[0] && column < t.block_table.shape[1],
               "entry {} of request {} lies outside of the table", column, i);
        listed = static_cast<const int32_t*>(
                     t.block_table.data)[r * t.block_table.stride[0] + column * t.block_table.stride[1]] /
                 (p.table == ASSAY_TABLE_TOKEN ? p.page_size : 1);
      }
      demand(t.slot_map.data == nullptr || (listed >= 0 && listed * p.page_size < t.slot_map.shape[0]),
             "page {} of request {} is {}, outside of the map", page, i, listed);
    }
  }
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

int32_t Reading::rows_of(int32_t request) const {
  const assay_tensor& t = tensors.cu_q;
  if (!is_list(t, request + 2)) return problem.q_len[request];
  return int_at(t, request + 1) - int_at(t, request);
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
    : backend_(backend), kernel_(run.kernel), place_(run.place), left_(std::make_unique<Left>()) {
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
}

double StageCase::written(Operand o, int64_t at) const {
  const int i = static_cast<int>(o);
  const int32_t format = tensor_of(given_.tensors, o).format;
  const int64_t byte = left_->offset[i] + at * format_bytes(format);
  ASSAY_CHECK(byte >= 0 && byte + format_bytes(format) <= static_cast<int64_t>(left_->written[i].size()),
              "element {} of {} was not written", at, operand_name(o));
  return load(format, left_->written[i].data() + byte, 0);
}

Problem StageCase::problem_of(Reading& r) const {
  const assay_problem& v = r.problem;
  Problem p;
  p.op = v.op, p.mask = v.mask;
  p.heads_q = v.heads_q, p.heads_kv = v.heads_kv, p.head_dim_qk = v.head_dim_qk, p.head_dim_v = v.head_dim_v;
  p.window_left = v.window_left, p.window_right = v.window_right, p.chunk = v.chunk;
  p.softcap = v.softcap, p.softmax_scale = v.softmax_scale, p.alibi = v.alibi, p.sinks = v.has_sinks != 0;
  p.q_format = v.q_format, p.k_format = v.k_format, p.v_format = v.v_format, p.o_format = v.o_format;
  p.q_scale = v.q_scale_kind, p.k_scale = v.k_scale_kind, p.v_scale = v.v_scale_kind;
  p.layout = v.layout, p.page_size = std::max(1, v.page_size), p.table = v.table;
  p.source_format = v.source_format, p.states = v.states, p.part_tokens = v.part_tokens;
  p.ranks = v.ranks, p.interleave = v.interleave, p.threshold = v.threshold;
  p.token_budget = v.token_budget, p.prefix_tokens = v.prefix_tokens, p.workers = v.workers;
  p.tile_rows = v.tile_rows, p.tile_keys = v.tile_keys, p.flat_tree = v.flat_tree != 0;
  p.drafted = v.drafted, p.no_write = v.no_write != 0, p.full_pool = v.full_pool != 0;
  p.split_latent = v.op == ASSAY_OP_CACHE_WRITE && v.layout == ASSAY_LAYOUT_MLA && r.has(Operand::kDenseV);
  p.only_keys = r.only_keys;
  assay_tensors& t = r.tensors;
  if (v.op == ASSAY_OP_CACHE_WRITE) {
    p.requests.push_back({static_cast<int32_t>(v.rows), static_cast<int32_t>(v.rows), -1, 0});
    return p;
  }
  int64_t rows = 0;
  for (int32_t i = 0; i < v.requests; ++i) {
    int32_t q = v.q_len[i], kv = v.kv_len[i];
    if (is_list(t.cu_q, v.requests + 1)) q = int_at(t.cu_q, i + 1) - int_at(t.cu_q, i);
    if (v.op == ASSAY_OP_PREFILL || v.op == ASSAY_OP_PERSISTENT_PREFILL) {
      if (is_list(t.cu_kv, v.requests + 1)) kv = int_at(t.cu_kv, i + 1) - int_at(t.cu_kv, i);
    } else if (is_list(t.kv_len, v.requests)) {
      kv = int_at(t.kv_len, i);
    }
    if (v.op == ASSAY_OP_DECODE_METADATA && is_list(t.context_len, v.requests))
      kv = int_at(t.context_len, i) + q;
    demand(q >= 0 && kv >= 0 && q <= kMostTokens && kv <= kMostTokens, "request {} has {} rows and {} keys",
           i, q, kv);
    p.requests.push_back({q, kv, -1, 0});
    p.pages.emplace_back(static_cast<size_t>((kv + p.page_size - 1) / p.page_size), 0);
    rows += q;
  }
  for (const Operand o : {Operand::kQ, Operand::kO, Operand::kDenseK, Operand::kSource}) {
    const assay_tensor& of_rows = tensor_of(t, o);
    const bool its = o == Operand::kDenseK ? v.op == ASSAY_OP_CACHE_GATHER : true;
    if (of_rows.data != nullptr && of_rows.rank == 3 && its)
      demand(rows <= of_rows.shape[0], "{} has {} rows, the starts say {}", operand_name(o), of_rows.shape[0],
             rows);
  }
  if (v.encoder_len != nullptr) p.encoder_len.assign(v.encoder_len, v.encoder_len + v.requests);
  if (v.first_key != nullptr) p.first_key.assign(v.first_key, v.first_key + v.requests);
  if (v.positions != nullptr && t.positions.data != nullptr) {
    int64_t row = 0;
    for (const Request& request : p.requests) {
      std::vector<int32_t>& own = p.positions.emplace_back();
      for (int32_t n = 0; n < request.q_len; ++n) own.push_back(int_at(t.positions, row++));
    }
  }
  const bool trees = v.op == ASSAY_OP_TREE_TABLES || v.op == ASSAY_OP_SWA_TREE_TABLE;
  if ((p.mask == ASSAY_MASK_TREE || trees) && t.tree_mask.data != nullptr) {
    // Where the starts lead, as a mask without gaps.
    int64_t from = 0;
    for (size_t i = 0; i < p.requests.size(); ++i) {
      const Request& request = p.requests[i];
      const int64_t columns = p.flat_tree ? request.kv_len : p.drafts(request);
      if (t.tree_indptr.data != nullptr)
        from = static_cast<const int64_t*>(
            t.tree_indptr.data)[static_cast<int64_t>(i) * t.tree_indptr.stride[0]];
      for (int64_t n = 0; n < request.q_len * columns; ++n, ++from) {
        demand(from >= 0 && from < t.tree_mask.shape[0], "the tree of request {} lies outside its mask", i);
        p.tree_mask.push_back(static_cast<const uint8_t*>(t.tree_mask.data)[from * t.tree_mask.stride[0]]);
      }
      demand(p.first_draft(request) >= 0, "request {} has {} keys, and more drafts", i, request.kv_len);
    }
    if (trees) {
      r.lists->emplace_back(p.tree_mask.size() + 64);
      std::memcpy(r.lists->back().data(), p.tree_mask.data(), p.tree_mask.size());
      t.tree_mask.data = r.lists->back().data(), t.tree_mask.stride[0] = 1;
      t.tree_mask.shape[0] = static_cast<int64_t>(p.tree_mask.size());
      t.tree_indptr = assay_tensor{};
    }
  }
  if (t.k.data != nullptr) p.num_blocks = static_cast<int32_t>(t.k.shape[0]);
  const bool reads_pages = v.op == ASSAY_OP_PAGED || v.op == ASSAY_OP_DECODE_SPLITKV ||
                           v.op == ASSAY_OP_CACHE_GATHER || v.op == ASSAY_OP_PERSISTENT_PAGED;
  if (!reads_pages) {
    check_listed(p, t);
    if (v.op == ASSAY_OP_PREFILL && t.k.data != nullptr)
      demand(p.total_kv() <= t.k.shape[0], "there are {} keys, the starts say {}", t.k.shape[0],
             p.total_kv());
    return p;
  }
  if (p.table == ASSAY_TABLE_CSR) {  // as a table of rows, for the lengths there are
    int64_t columns = 1;
    for (const auto& pages : p.pages) columns = std::max(columns, static_cast<int64_t>(pages.size()));
    std::vector<int32_t> table(p.pages.size() * static_cast<size_t>(columns), 0);
    for (size_t i = 0; i < p.pages.size(); ++i)
      for (size_t page = 0; page < p.pages[i].size(); ++page) {
        const int64_t at = int_at(t.indptr, static_cast<int64_t>(i)) + static_cast<int64_t>(page);
        demand(at >= 0 && at < t.indices.shape[0], "page {} of request {} lies outside of indices", page, i);
        table[i * static_cast<size_t>(columns) + page] = int_at(t.indices, at);
      }
    t.block_table = t.indices;
    t.block_table.rank = 2, t.block_table.shape[0] = static_cast<int64_t>(p.pages.size());
    t.block_table.shape[1] = columns;
    r.put(Operand::kBlockTable, table);
    p.table = r.problem.table = ASSAY_TABLE_BLOCK;
    t.indptr = t.indices = t.last_page_len = assay_tensor{};
  }
  const assay_tensor& table = t.block_table;
  demand(table.data != nullptr && table.rank == 2, "there is no page table");
  for (size_t i = 0; i < p.requests.size(); ++i) {
    const int64_t wanted =
        p.table == ASSAY_TABLE_TOKEN ? p.requests[i].kv_len : static_cast<int64_t>(p.pages[i].size());
    demand(wanted == 0 || (static_cast<int64_t>(i) < table.shape[0] && wanted <= table.shape[1]),
           "the table of request {} has {} entries, its keys need {}", i, table.shape[1], wanted);
    for (int64_t j = 0; j < wanted; ++j) {
      const int32_t entry = static_cast<const int32_t*>(
          table.data)[static_cast<int64_t>(i) * table.stride[0] + j * table.stride[1]];
      const int64_t block = p.table == ASSAY_TABLE_TOKEN ? entry / p.page_size : entry;
      demand(entry >= 0 && block < t.k.shape[0],
             "entry {} of the table of request {} is {}, and there are {} "
             "blocks",
             j, i, entry, t.k.shape[0]);
    }
  }
  return p;
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
    return attends() ? judge_attention(r, p) : judge_others(r, p);
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
  const BoundedAttention b = bounded_attention(p, host, rows, arithmetic_);
  const double unit = lse_unit(contracts_of(*kernel_));
  const bool marks = lse.data != nullptr && (contracts_of(*kernel_) & ASSAY_CONTRACT_NO_LSE) == 0;
  int64_t unknown = 0;
  double worst = -1;
  std::string first_wrong;
  v.bad_rows.assign(static_cast<size_t>(std::max<int64_t>(p.total_q(), o.shape[0])), 0);
  for (size_t n = 0; n < rows.size(); ++n) {
    const int64_t row = first[static_cast<size_t>(rows[n].request)] + rows[n].row;
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
        }
        ++v.checked;
        if (std::isnan(low) || std::isnan(high)) {
          ++unknown;
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
  v.judged = unknown == 0;
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
  if (wrong && v.bad == 0) v.bad = 1;
  v.right = !wrong;
  v.reason = wrong.reason;
  if (const std::string unwritten = out.unwritten(); !unwritten.empty())
    v.right = false, v.bad = std::max<int64_t>(v.bad, 1), v.reason = unwritten;
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
  return e;
}

}  // namespace assay
