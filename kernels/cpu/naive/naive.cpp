// SPDX-License-Identifier: Apache-2.0
// prefill_naive_cpu, paged_naive_cpu, decode_splitkv_cpu, persistent_prefill_cpu and persistent_paged_cpu:
// attention as plain.cpp writes it down, every feature, softmax in two passes over stored logits. They are
// what the fast kernels and other devices are compared with by eye, and the ones that serve when a new
// feature has no fast path yet. Here is what of a call is whose work: place_key differs, decode_splitkv sees
// the keys of one part at a time, and work of a schedule those of its own.
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <optional>
#include <vector>

#include "kernels/common/fill_struct.hpp"
#include "kernels/common/instances.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/common/persistent.hpp"
#include "kernels/cpu/kernels.hpp"
#include "kernels/cpu/naive/rows.hpp"

namespace assay_cpu {

using namespace assay_kernels;
namespace {

constexpr bool kPositions = true;  // looks at first_key and positions

int supports(const assay_kernel* self, const assay_problem* p, const assay_tensors*, const assay_device*,
             char* why, size_t size) {
  return find_instance(p, self->op, why, size, kPositions) != nullptr ? ASSAY_OK : ASSAY_UNSUPPORTED;
}

int arithmetic(const assay_kernel*, const assay_problem* p, assay_arithmetic* out) {
  assay_arithmetic m{};
  m.qk = {ASSAY_ACC_FMA, 1, 0, 23};
  m.pv = m.row_sum = {ASSAY_ACC_FMA, kLanes, 0, 23};
  m.splits = 1;
  // Two passes: one maximum for all keys, sink included, then all keys in their order.
  m.tile_keys = 1 << 30;
  m.order_declared = m.sink_first = 1;
  m.p_format = ASSAY_FP32;
  m.dequant_format = ASSAY_FORMAT_NONE;
  m.partial_format = m.partial_lse_format = ASSAY_FP32;
  // glibc's float functions; naive_test.cpp measures 0.50 and 1.30 units of 2^-23 over [2^-126, 87].
  m.exp_relative_error = 0x1p-23;
  m.tanh_relative_error = 2.5 * 0x1p-23;
  const bool folded = p->q_scale_kind == ASSAY_SCALE_CHANNEL || p->k_scale_kind == ASSAY_SCALE_CHANNEL;
  m.q_rounding = folded ? 2 * 0x1p-24 : 0;
  fill_struct(out, m);
  return ASSAY_OK;
}

// Lengths as they stand in memory, where stages of a step may have put them: the host's are bounds then.
void read_lengths(const assay_problem& p, const assay_tensors& t, std::vector<int32_t>& q_len,
                  std::vector<int32_t>& kv_len) {
  const auto at = [](const assay_tensor& list, int64_t i) {
    return static_cast<const int32_t*>(list.data)[i * list.stride[0]];
  };
  const bool paged = p.op != ASSAY_OP_PREFILL;
  for (int64_t r = 0; r < p.requests; ++r) {
    q_len.push_back(at(t.cu_q, r + 1) - at(t.cu_q, r));
    kv_len.push_back(paged ? at(t.kv_len, r) : at(t.cu_kv, r + 1) - at(t.cu_kv, r));
  }
}

// Says where the results of a packed row go, of the part with this number.
void results_at(const Operands& a, int64_t packed_row, int64_t part, RowOfHead& row) {
  row.o = a.o, row.o_format = a.p.o_format;
  row.o_first = part * a.o_part + packed_row * a.o_stride[0] + row.head * a.o_stride[1];
  row.o_dim = a.o_stride[2];
  row.lse = a.lse == nullptr
                ? nullptr
                : a.lse + part * a.lse_part + packed_row * a.lse_stride[0] + row.head * a.lse_stride[1];
}

// Rows of one request and KV head, which may stand beside each other: query row first_row + i / group with
// head kv_head * group + i % group for i of begin .. end - 1.
struct Piece {
  int32_t request, kv_head, first_row, begin, end;
  int64_t of;  // whatever the caller wants to know again
};

// Cuts `rows` rows into pieces; `piece` says what they share.
void add_pieces(std::vector<Piece>& pieces, Piece piece, int64_t rows, int32_t beside) {
  for (int64_t begin = 0; begin < rows; begin += beside) {
    piece.begin = static_cast<int32_t>(begin),
    piece.end = static_cast<int32_t>(std::min(rows, begin + beside));
    pieces.push_back(piece);
  }
}

// How many rows stand beside each other: all that may where that leaves each thread several pieces, since
// pieces take unequal times; fewer before a thread had nothing to do, and where their logits took more than
// 64 MiB a thread. No row's bits depend on it.
int32_t rows_beside(int64_t rows, int64_t keys) {
  constexpr int64_t kMostLogits = int64_t{16} << 20;
  const int64_t of_a_thread = rows / std::max(omp_get_max_threads(), 1);
  const int64_t many = of_a_thread >= 2 * kRowsBeside ? kRowsBeside : kRowsBeside / 2;
  const int64_t most = std::clamp<int64_t>(kMostLogits / std::max<int64_t>(keys, 1), kRowsBeside / 4, many);
  return static_cast<int32_t>(std::clamp<int64_t>(of_a_thread, 1, most));
}

// Attends for all pieces on the threads there are; a dynamic loop balances ragged batches. own(piece): the
// keys that count; target(piece, row): a RowOfHead with its results' place added.
template <class Own, class Target>
int run_pieces(const Operands& a, const std::vector<Piece>& pieces, int32_t beside, const Own& own,
               const Target& target) {
  Isa isa = Isa::kScalar;
  if (!active_isa(&isa, nullptr, 0)) isa = detected_isa();  // these kernels ask for no level
  const bool plain = isa == Isa::kScalar;
  const RowLoops& loops = isa == Isa::kAvx2 ? avx2_row_loops() : avx512_row_loops();
  bool out_of_memory = false;
#pragma omp parallel reduction(|| : out_of_memory)
  {
    std::optional<RowBuffers> buffers;
    try {
      buffers.emplace(a.p, beside);
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
#pragma omp for schedule(dynamic, 1)
    for (size_t n = 0; n < pieces.size(); ++n) {
      if (out_of_memory) continue;
      const Piece& piece = pieces[n];
      RowOfHead rows[kRowsBeside];
      for (int32_t i = piece.begin; i < piece.end; ++i) {
        RowOfHead& row = rows[i - piece.begin];
        row.row = piece.first_row + i / a.group, row.head = piece.kv_head * a.group + i % a.group;
        target(piece, row);
        if (plain) attend_plainly(a, piece.request, own(piece), row, *buffers);
      }
      if (!plain) attend_beside(a, piece.request, own(piece), rows, piece.end - piece.begin, loops, *buffers);
    }
  }
  return out_of_memory ? ASSAY_OUT_OF_MEMORY : ASSAY_OK;
}

// What work() answers, or that there was no memory for its lists; says so.
template <class Answer>
int with_memory(char* error, size_t size, const Answer& work) {
  int status = ASSAY_OUT_OF_MEMORY;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
  }
  if (status == ASSAY_OUT_OF_MEMORY && error != nullptr && size > 0)
    snprintf(error, size, "no memory for the row buffers");
  return status;
}

int run(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
        char* error, size_t size) {
  if (find_instance(p, self->op, error, size, kPositions) == nullptr) return ASSAY_UNSUPPORTED;
  Operands a;
  const bool lse_optional = (self->promises & ASSAY_PROMISE_LSE_OPTIONAL) != 0;
  if (!make_operands(p, t, &a, error, size, lse_optional)) return ASSAY_INVALID_ARGUMENT;
  return with_memory(error, size, [&] {
    std::vector<int32_t> q_len, kv_len;
    read_lengths(*p, *t, q_len, kv_len);
    a.p.q_len = q_len.data(), a.p.kv_len = kv_len.data();
    const bool split = self->op == ASSAY_OP_DECODE_SPLITKV;
    const int64_t parts = split ? p->states : 1;
    const int32_t beside = rows_beside(p->total_q * p->heads_q * parts, p->max_kv_len);
    std::vector<Piece> pieces;
    for (int32_t r = 0; r < p->requests; ++r)
      for (int32_t h = 0; h < p->heads_kv; ++h)
        for (int64_t part = 0; part < parts; ++part)
          add_pieces(pieces, {r, h, 0, 0, 0, part}, int64_t{q_len[r]} * a.group, beside);
    const auto own = [&](const Piece& piece) {
      const int32_t keys = kv_len[piece.request];
      return split ? part_interval(a.p, keys, static_cast<int32_t>(piece.of)) : KeyInterval{0, keys};
    };
    return run_pieces(a, pieces, beside, own, [&](const Piece& piece, RowOfHead& row) {
      const int64_t packed = a.cu_q[piece.request * a.cu_q_stride] + static_cast<int64_t>(row.row);
      results_at(a, packed, piece.of, row);
    });
  });
}

int run_schedule(const assay_kernel* self, const assay_problem* p, const assay_tensors* t, assay_plan*, void*,
                 char* error, size_t size) {
  if (persistent_supports(self, p, t, nullptr, error, size) != ASSAY_OK) return ASSAY_UNSUPPORTED;
  PersistentOperands b;
  if (!make_persistent_operands(p, t, &b, error, size)) return ASSAY_INVALID_ARGUMENT;
  return with_memory(error, size, [&] {
    Operands& a = b.a;
    std::vector<int32_t> q_len, kv_len;
    read_lengths(a.p, *t, q_len, kv_len);
    a.p.q_len = q_len.data(), a.p.kv_len = kv_len.data();
    const int64_t first = first_work(b.schedule, 0), end = first_work(b.schedule, p->workers);
    int64_t rows = 0;
    for (int64_t i = first; i < end; ++i) {
      const Work work = work_at(b.schedule, i);
      rows += int64_t{work.end_row - work.first_row} * a.group;
    }
    const int32_t beside = rows_beside(rows, p->max_kv_len);
    std::vector<Piece> pieces;
    for (int64_t i = first; i < end; ++i) {
      const Work work = work_at(b.schedule, i);
      const int32_t row = work.first_row - a.cu_q[work.request * a.cu_q_stride];
      add_pieces(pieces, {work.request, work.kv_head, row, 0, 0, i},
                 int64_t{work.end_row - work.first_row} * a.group, beside);
    }
    const auto own = [&](const Piece& piece) {
      const Work work = work_at(b.schedule, piece.of);
      return KeyInterval{work.first_key, work.end_key};
    };
    return run_pieces(a, pieces, beside, own, [&](const Piece& piece, RowOfHead& row) {
      const Work work = work_at(b.schedule, piece.of);
      if (work.partial < 0) {
        results_at(a, a.cu_q[work.request * a.cu_q_stride] + static_cast<int64_t>(row.row), 0, row);
        return;
      }
      const int64_t *o = b.tiles.o_stride, *lse = b.tiles.lse_stride;
      const int32_t in_tile = row.row - piece.first_row, j = row.head % a.group;
      row.o = reinterpret_cast<unsigned char*>(b.tiles.o), row.o_format = ASSAY_FP32;
      row.o_first = work.partial * o[0] + in_tile * o[1] + j * o[2], row.o_dim = o[3];
      row.lse = b.tiles.lse + work.partial * lse[0] + in_tile * lse[1] + j * lse[2];
    });
  });
}

constexpr assay_kernel make_kernel(int32_t op, const char* name, const char* description) {
  assay_kernel k{};
  k.struct_size = sizeof k, k.name = name, k.description = description, k.arch = "x86-64";
  k.op = op;
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_BATCH_INVARIANT | ASSAY_PROMISE_GRAPH;
  if (op == ASSAY_OP_PREFILL || op == ASSAY_OP_PAGED) k.promises |= ASSAY_PROMISE_LSE_OPTIONAL;
  k.supports = supports, k.arithmetic = arithmetic, k.run = run;
  return k;
}

// Which bits a request gets depends on where its batch was cut.
constexpr assay_kernel make_scheduled(int32_t op, const char* name, const char* description) {
  assay_kernel k = make_kernel(op, name, description);
  k.promises = ASSAY_PROMISE_REPEATABLE | ASSAY_PROMISE_GRAPH;
  k.supports = persistent_supports, k.run = run_schedule;
  return k;
}

}  // namespace

const assay_kernel kPersistentPrefill =
    make_scheduled(ASSAY_OP_PERSISTENT_PREFILL, "persistent_prefill_cpu",
                   "ragged prefill by a schedule, scalar fp32, one thread per row and head of a work");
const assay_kernel kPersistentPaged =
    make_scheduled(ASSAY_OP_PERSISTENT_PAGED, "persistent_paged_cpu",
                   "paged attention by a schedule, scalar fp32, one thread per row and head of a work");
const assay_kernel kPrefillNaive = make_kernel(
    ASSAY_OP_PREFILL, "prefill_naive_cpu", "ragged prefill, scalar fp32, two-pass softmax, every feature");
const assay_kernel kPagedNaive = make_kernel(ASSAY_OP_PAGED, "paged_naive_cpu",
                                             "paged attention, scalar fp32, two-pass softmax, every feature");
const assay_kernel kDecodeSplit =
    make_kernel(ASSAY_OP_DECODE_SPLITKV, "decode_splitkv_cpu",
                "partial results of decode, scalar fp32, one thread per part, row and head");

}  // namespace assay_cpu
