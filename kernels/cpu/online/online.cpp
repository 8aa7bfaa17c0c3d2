// SPDX-License-Identifier: Apache-2.0
// prefill_online_cpu and paged_online_cpu: the fast kernels. This file cuts a batch into tasks (blocks of
// stacked rows of one KV head, or few-row requests streamed over partitions of their keys), hands them to the
// engine of the machine's instruction set, and merges partitions. Task shapes depend on one request alone and
// merging is in partition order, so neither batch nor thread count changes a bit of a row.
// To add an instruction set, add an Engine (engine.hpp); nothing here changes.
#include <omp.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <vector>

#include "kernels/common/instances.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/online/engine.hpp"

namespace assay_cpu {

bool uses_bf16_tiles(const assay_problem& p) {
  const Instance* instance = find_instance(&p, p.op, nullptr, 0);
  return instance != nullptr && instance->exact_in_bf16 && p.q_scale_kind != ASSAY_SCALE_CHANNEL &&
         p.k_scale_kind != ASSAY_SCALE_CHANNEL;
}

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.693147180559945309417;
constexpr double kLog2e = 1.44269504088896340736;

int64_t stacked_rows(const assay_problem& p, int request) {
  return static_cast<int64_t>(p.q_len[request]) * (p.heads_q / p.heads_kv);
}

// Partitions of a request's keys; 1 = no merging.
int32_t partitions(const assay_problem& p, int request) {
  if (stacked_rows(p, request) > kSplitRows) return 1;
  return std::max(1, (p.kv_len[request] + kPartitionKeys - 1) / kPartitionKeys);
}

// Partial results in the workspace: per split request [partition][heads_kv][rows][head_dim_v + 2] floats, the
// last two being m and l.
int64_t partial_floats(const assay_problem& p, int request) {
  const int32_t parts = partitions(p, request);
  return parts > 1 ? parts * p.heads_kv * stacked_rows(p, request) * (int64_t{p.head_dim_v} + 2) : 0;
}

int64_t partial_bytes(const assay_problem& p) {
  int64_t floats = 0;
  for (int r = 0; r < p.requests; ++r) floats += partial_floats(p, r);
  return (floats * static_cast<int64_t>(sizeof(float)) + 63) / 64 * 64;
}

constexpr int64_t kAlign = 64;

int64_t workspace_bytes(const assay_kernel*, const assay_problem* p) {
  Isa isa;
  if (!active_isa(&isa, nullptr, 0)) return 0;  // run reports it
  return partial_bytes(*p) + omp_get_max_threads() * engine_for(isa).scratch_bytes(p) + kAlign;
}

struct Task {
  int32_t request, kv_head;  // kv_head -1: all heads, streamed
  int32_t row_begin, rows;
  int32_t partition;  // -1: the whole request
  int64_t cost;
};

class Run {
 public:
  Run(const Operands& a, const Engine& engine, unsigned char* workspace)
      : a_(a), p_(a.p), engine_(engine), partial_(reinterpret_cast<float*>(workspace)) {
    int64_t floats = 0;
    for (int r = 0; r < p_.requests; ++r) {
      partial_start_.push_back(floats);
      floats += partial_floats(p_, r);
    }
    make_tasks();
  }

  void execute(int threads, unsigned char* scratch, int64_t scratch_bytes) {
    const int64_t tasks = static_cast<int64_t>(tasks_.size());
    const int64_t merges = static_cast<int64_t>(merge_requests_.size()) * p_.heads_q;
#pragma omp parallel num_threads(threads)
    {
      void* mine = scratch + omp_get_thread_num() * scratch_bytes;
#pragma omp for schedule(dynamic, 1)
      for (int64_t n = 0; n < tasks; ++n) attend(tasks_[n], mine);
#pragma omp for schedule(dynamic, 1)
      for (int64_t n = 0; n < merges; ++n)
        merge(merge_requests_[n / p_.heads_q], static_cast<int>(n % p_.heads_q), static_cast<float*>(mine));
    }
  }

 private:
  void make_tasks() {
    for (int r = 0; r < p_.requests; ++r) {
      const int64_t rows = stacked_rows(p_, r);
      if (rows == 0) continue;
      const int32_t parts = partitions(p_, r);
      if (parts > 1) merge_requests_.push_back(r);
      for (int32_t part = 0; part < parts; ++part) {
        const int32_t id = parts > 1 ? part : -1;
        const int64_t keys = parts > 1 ? kPartitionKeys : p_.kv_len[r];
        if (rows <= kStreamRows) {
          tasks_.push_back({r, -1, 0, static_cast<int32_t>(rows), id, rows * keys * p_.heads_kv});
          continue;
        }
        for (int64_t begin = 0; begin < rows; begin += kBlockRows)
          for (int head = 0; head < p_.heads_kv; ++head) {
            const int32_t count = static_cast<int32_t>(std::min<int64_t>(kBlockRows, rows - begin));
            const KeyInterval last =
                key_interval(p_, r, static_cast<int32_t>((begin + count - 1) / a_.group));
            const KeyInterval first = key_interval(p_, r, static_cast<int32_t>(begin / a_.group));
            const int64_t span = parts > 1 ? keys : std::max(0, last.end - first.begin);
            tasks_.push_back({r, head, static_cast<int32_t>(begin), count, id, count * span});
          }
      }
    }
    // Longest first, so that the last tasks to finish are short. Order changes no result.
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& x, const Task& y) { return x.cost > y.cost; });
  }

  float* partial(int request, int32_t partition, int kv_head, int64_t row) const {
    const int64_t rows = stacked_rows(p_, request), width = int64_t{p_.head_dim_v} + 2;
    return partial_ + partial_start_[request] +
           ((int64_t{partition} * p_.heads_kv + kv_head) * rows + row) * width;
  }

  void attend(const Task& task, void* scratch) const {
    int32_t begin = 0, end = p_.kv_len[task.request];
    if (task.partition >= 0) {
      begin = task.partition * kPartitionKeys;
      end = std::min(end, begin + kPartitionKeys);
    }
    const bool streamed = task.kv_head < 0;
    const BlockResult result =
        streamed ? engine_.stream(a_, {task.request, task.rows, begin, end}, scratch)
                 : engine_.attend_block(
                       a_, {task.request, task.kv_head, task.row_begin, task.rows, begin, end}, scratch);
    const int heads = streamed ? p_.heads_kv : 1, first = streamed ? 0 : task.kv_head;
    for (int h = 0; h < heads; ++h)
      for (int r = 0; r < task.rows; ++r) {
        const int64_t n = int64_t{h} * task.rows + r;
        const float* o = result.o + n * result.o_stride;
        if (task.partition < 0) {
          finish(task.request, first + h, task.row_begin + r, o, result.m[n], result.l[n]);
          continue;
        }
        float* to = partial(task.request, task.partition, first + h, task.row_begin + r);
        std::copy(o, o + p_.head_dim_v, to);
        to[p_.head_dim_v] = result.m[n], to[p_.head_dim_v + 1] = result.l[n];
      }
  }

  // Partitions of every row of one query head, in order.
  void merge(int request, int head, float* sum) const {
    const int kv_head = head / a_.group, dims = p_.head_dim_v;
    const int32_t parts = partitions(p_, request);
    for (int32_t i = 0; i < p_.q_len[request]; ++i) {
      const int64_t row = int64_t{i} * a_.group + head % a_.group;
      float m = -kInfinity, l = 0;
      for (int32_t part = 0; part < parts; ++part)
        m = std::max(m, partial(request, part, kv_head, row)[dims]);
      std::fill(sum, sum + dims, 0.0f);
      for (int32_t part = 0; part < parts && m > -kInfinity; ++part) {
        const float* from = partial(request, part, kv_head, row);
        if (from[dims] == -kInfinity) continue;  // saw nothing
        const float weight = static_cast<float>(std::exp2(static_cast<double>(from[dims]) - m));
        for (int d = 0; d < dims; ++d) sum[d] += weight * from[d];
        l += weight * from[dims + 1];
      }
      finish(request, kv_head, row, sum, m, l);
    }
  }

  // Sink, division, scales of V, output format, LSE.
  void finish(int request, int kv_head, int64_t stacked_row, const float* o, float m, float l) const {
    const int head = kv_head * a_.group + static_cast<int>(stacked_row % a_.group);
    const int64_t row = a_.cu_q[request * a_.cu_q_stride] + stacked_row / a_.group;
    // Everything in double: once per row.
    double shift = m, sum = l;  // LSE = shift + log2(sum)
    double divisor = l;         // sum in units of 2^m, what O is divided by
    if (p_.has_sinks) {
      const double sink = a_.sinks[head * a_.sinks_stride] * kLog2e;
      shift = std::max<double>(m, sink);
      if (shift > -kInfinity) {
        sum = l * (m == -kInfinity ? 0.0 : std::exp2(m - shift)) + std::exp2(sink - shift);
        divisor = m == -kInfinity ? 1.0 : l + std::exp2(sink - m);
      }
    }
    const bool empty = sum == 0.0;
    if (empty) divisor = 1.0;
    const float constant = a_.v_scale.kind == ASSAY_SCALE_TOKEN_HEAD
                               ? 1.0f
                               : kv_scale(a_.v_scale, request, KeyPlace{0, 0}, kv_head);
    float scale[kMaxHeadDim];
    for (int d = 0; d < p_.head_dim_v; ++d) scale[d] = constant * channel_scale(a_.v_scale, kv_head, d);
    engine_.store_row(o, static_cast<float>(divisor), scale, p_.head_dim_v,
                      a_.o + (row * a_.o_stride[0] + head * a_.o_stride[1]) * element_bytes(p_.o_format),
                      a_.o_stride[2], p_.o_format);
    a_.lse[row * a_.lse_stride[0] + head * a_.lse_stride[1]] =
        empty ? -kInfinity : static_cast<float>(shift * kLn2 + std::log(sum));
  }

  const Operands& a_;
  const assay_problem& p_;
  const Engine& engine_;
  float* partial_;
  std::vector<int64_t> partial_start_;
  std::vector<Task> tasks_;
  std::vector<int32_t> merge_requests_;
};

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  return find_instance(p, self->op, why, size) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

int refuse(int status, char* error, size_t size, const char* text) {
  if (error != nullptr && size > 0) snprintf(error, size, "%s", text);
  return status;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  if (find_instance(p, self->op, error, size) == nullptr) return ASSAY_UNSUPPORTED;
  Isa isa;
  if (!active_isa(&isa, error, size)) return ASSAY_INVALID_ARGUMENT;
  Operands a;
  if (!make_operands(p, t, &a, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->total_q == 0) return ASSAY_OK;
  const Engine& engine = engine_for(isa);
  // The workspace may have been sized for another number of threads: use as many as fit.
  const uintptr_t address = reinterpret_cast<uintptr_t>(t->workspace.data);
  unsigned char* base = reinterpret_cast<unsigned char*>((address + kAlign - 1) / kAlign * kAlign);
  const int64_t scratch = engine.scratch_bytes(p), partial = partial_bytes(*p);
  const int64_t room = t->workspace.shape[0] - kAlign - partial;
  if (t->workspace.data == nullptr || room < scratch)
    return refuse(ASSAY_INVALID_ARGUMENT, error, size,
                  "operand workspace is smaller than workspace_bytes asks for");
  const int threads = static_cast<int>(std::min<int64_t>(omp_get_max_threads(), room / scratch));
  try {
    Run(a, engine, base).execute(threads, base + partial, scratch);
  } catch (const std::bad_alloc&) {
    return refuse(ASSAY_OUT_OF_MEMORY, error, size, "no memory for the list of tasks");
  }
  return ASSAY_OK;
}

constexpr assay_kernel make_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "x86-64";
  k.op = op, k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT;
  k.supports = supports, k.arithmetic = online_arithmetic, k.workspace_bytes = workspace_bytes;
  k.run = run;
  return k;
}

}  // namespace

const assay_kernel kPrefillOnline =
    make_kernel(ASSAY_OP_PREFILL, "prefill_online_cpu",
                "ragged prefill, online softmax, packed tiles on SSE, AVX2, AVX-512 or AMX");
const assay_kernel kPagedOnline =
    make_kernel(ASSAY_OP_PAGED, "paged_online_cpu",
                "paged attention, online softmax, streamed decode and packed tiles, SSE to AMX");

}  // namespace assay_cpu
