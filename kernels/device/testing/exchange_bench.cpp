// SPDX-License-Identifier: Apache-2.0
// How long the exchanges of a decode on ranks take by themselves, a GPU each: those of group.cpp as a step
// calls them, captured, one behind the other.
//   exchange_bench RANKS [ROWS HEADS DIM]     ASSAY_EXCHANGE=peers: not through NCCL
// A line an exchange: its name, bytes that a rank gets, microseconds on rank 0 (median of 40 replays).
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <vector>

#include "harness/abi/assay_kernel.h"
#include "kernels/common/group.hpp"
#include "kernels/dialect/gpu.h"

namespace {

struct Shared {
  volatile int ready;
  unsigned char id[128];
  int64_t entered[8];
};

void done(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  _exit(1);
}
void said(int status, const char* text) {
  if (status == ASSAY_OK) return;
  std::fprintf(stderr, "%s\n", text);
  _exit(1);
}

double time_of(const std::function<void(cudaStream_t)>& exchange) {
  constexpr int kEach = 20, kReplays = 40;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  done(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  done(cudaEventCreate(&begin), "event"), done(cudaEventCreate(&end), "event");
  exchange(stream);
  done(cudaStreamSynchronize(stream), "first exchange");
  cudaGraph_t graph;
  cudaGraphExec_t captured;
  done(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  for (int i = 0; i < kEach; ++i) exchange(stream);
  done(cudaStreamEndCapture(stream, &graph), "capture");
  done(cudaGraphInstantiate(&captured, graph, 0), "graph");
  std::vector<double> all;
  for (int i = 0; i < kReplays; ++i) {
    done(cudaGraphLaunch(captured, stream), "replay");  // ranks have met where it ends
    done(cudaEventRecord(begin, stream), "event"), done(cudaGraphLaunch(captured, stream), "replay");
    done(cudaEventRecord(end, stream), "event"), done(cudaStreamSynchronize(stream), "replay");
    float ms = 0;
    done(cudaEventElapsedTime(&ms, begin, end), "time");
    all.push_back(1e3 * static_cast<double>(ms) / kEach);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

int run(Shared& shared, int rank, int ranks, int64_t rows, int64_t heads, int64_t dim) {
  char text[600] = "";
  done(cudaSetDevice(rank), "device");
  if (rank == 0) {
    said(assay_backend_group_id(shared.id, text, sizeof text), text);
    shared.ready = 1;
  }
  while (shared.ready == 0) usleep(1000);
  assay_group given{};
  given.struct_size = sizeof given, given.rank = rank, given.ranks = ranks;
  given.entered = &shared.entered[rank];
  std::copy_n(shared.id, sizeof given.id, given.id);
  said(assay_backend_join(&given, text, sizeof text), text);
  const assay_group* g = assay_kernels::joined_group();

  const int64_t own = rows * heads / ranks;  // rows and heads of a rank
  void *from = nullptr, *to = nullptr;
  const auto room = static_cast<size_t>(rows * heads * (dim + 1)) * 4 * static_cast<size_t>(ranks);
  done(cudaMalloc(&from, room), "memory"), done(cudaMalloc(&to, room), "memory");
  done(cudaMemset(from, 0, room), "memory");
  const auto gather = [&](int64_t bytes) {
    return [=](cudaStream_t s) {
      char why[300] = "";
      said(g->all_gather(g, from, to, bytes, s, why, sizeof why), why);
    };
  };
  const auto sum = [=](cudaStream_t s) {
    char why[300] = "";
    said(g->reduce_scatter(g, static_cast<const float*>(from), static_cast<float*>(to), own * dim, s, why,
                           sizeof why),
         why);
  };
  const auto show = [&](const char* name, int64_t bytes, const std::function<void(cudaStream_t)>& f) {
    const double us = time_of(f);
    if (rank == 0) std::printf("%-28s %9lld bytes %8.2f us\n", name, static_cast<long long>(bytes), us);
    std::fflush(stdout);
  };
  show("gather_q, bf16", own * dim * 2 * ranks, gather(own * dim * 2));
  show("gather_lse", own * 4 * ranks * ranks, gather(own * 4 * ranks));
  show("scatter", own * dim * 4, sum);
  show("all three", 0, [&](cudaStream_t s) { gather(own * dim * 2)(s), gather(own * 4 * ranks)(s), sum(s); });

  // What a step asks of a group with wide exchanges in place of these and of the kernels between them.
  const auto dense = [](void* data, int32_t format, std::initializer_list<int64_t> shape) {
    assay_tensor t{};
    t.data = data, t.format = format;
    for (const int64_t extent : shape) t.shape[t.rank++] = extent;
    int64_t packed = 1;
    for (int axis = t.rank - 1; axis >= 0; packed *= t.shape[axis--]) t.stride[axis] = packed;
    return t;
  };
  const int64_t own_heads = heads / ranks;
  assay_tensors q{}, parts{};
  q.source = dense(from, ASSAY_BF16, {own_heads, rows, dim}), q.source.stride[0] = dim;
  q.source.stride[1] = own_heads * dim, q.o = dense(to, ASSAY_BF16, {ranks, own_heads, rows, dim});
  parts.partial_o = dense(from, ASSAY_FP32, {ranks, own_heads, rows, dim});
  parts.partial_lse = dense(static_cast<float*>(from) + rows * heads * dim, ASSAY_FP32, {ranks, own, 1});
  parts.o = dense(to, ASSAY_FP32, {own_heads, rows, dim});
  parts.lse = dense(static_cast<float*>(to) + own * dim, ASSAY_FP32, {own});
  if (!assay_kernels::gathers_rows(q.source) || !assay_kernels::sums_parts(parts.partial_o)) return 0;
  const auto stage = [](const assay_kernel& kernel, const assay_tensors& t) {
    return [&](cudaStream_t s) {
      char why[300] = "";
      said(kernel.run(&kernel, nullptr, &t, nullptr, s, why, sizeof why), why);
    };
  };
  const auto gather_rows = stage(assay_kernels::kAllGather, q),
             sum_parts = stage(assay_kernels::kReduceScatter, parts);
  show("gather_q as it lies", own * dim * 2 * ranks, gather_rows);
  show("scatter, corrected", own * (dim + 1) * 4, sum_parts);
  show("both", 0, [&](cudaStream_t s) { gather_rows(s), sum_parts(s); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 2;
  const auto number = [&](int at, int otherwise) { return argc > at ? std::atoi(argv[at]) : otherwise; };
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || ranks < 1 || ranks > 8) return 2;
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork());
    if (children.back() == 0)
      _exit(run(*static_cast<Shared*>(memory), rank, ranks, number(2, 8), number(3, 32), number(4, 128)));
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}
