// SPDX-License-Identifier: Apache-2.0
// See rank_exchange.hpp. An exchange goes piece by piece: all write theirs, all wait, all read, all wait.
#include "harness/run/rank_exchange.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "harness/abi/assay_kernel.h"
#include "harness/base/error.hpp"

namespace assay {
namespace {

constexpr int64_t kSlotBytes = 256 << 10;  // of a rank

struct Head {
  pthread_barrier_t all;
  std::atomic<int64_t> entered[kMostRanks];
};
constexpr int64_t kHeadBytes = (sizeof(Head) + 4095) / 4096 * 4096;

Head& head_of(unsigned char* memory) { return *reinterpret_cast<Head*>(memory); }

struct End {
  unsigned char* memory;
  explicit End(const assay_group* g) : memory(static_cast<unsigned char*>(g->context)) {
    ++head_of(memory).entered[g->rank];
  }
  unsigned char* slot(int64_t rank) const { return memory + kHeadBytes + rank * kSlotBytes; }
  void wait() const { pthread_barrier_wait(&head_of(memory).all); }
};

int all_gather(const assay_group* g, const void* send, void* receive, int64_t bytes, void*, char*, size_t) {
  const End end(g);
  for (int64_t at = 0; at < bytes; at += kSlotBytes) {
    const auto piece = static_cast<size_t>(std::min(kSlotBytes, bytes - at));
    std::memcpy(end.slot(g->rank), static_cast<const unsigned char*>(send) + at, piece);
    end.wait();
    for (int64_t from = 0; from < g->ranks; ++from)
      std::memcpy(static_cast<unsigned char*>(receive) + from * bytes + at, end.slot(from), piece);
    end.wait();
  }
  return ASSAY_OK;
}

int reduce_scatter(const assay_group* g, const float* send, float* receive, int64_t count, void*, char*,
                   size_t) {
  const End end(g);
  const int64_t most = kSlotBytes / static_cast<int64_t>(sizeof(float)) / g->ranks;
  for (int64_t at = 0; at < count; at += most) {
    const int64_t piece = std::min(most, count - at);
    auto* own = reinterpret_cast<float*>(end.slot(g->rank));
    for (int64_t to = 0; to < g->ranks; ++to) std::copy_n(send + to * count + at, piece, own + to * piece);
    end.wait();
    for (int64_t i = 0; i < piece; ++i) {
      float sum = 0;
      for (int64_t from = 0; from < g->ranks; ++from)
        sum += reinterpret_cast<const float*>(end.slot(from))[g->rank * piece + i];
      receive[at + i] = sum;
    }
    end.wait();
  }
  return ASSAY_OK;
}

int barrier(const assay_group* g, void*, char*, size_t) {
  End(g).wait();
  return ASSAY_OK;
}

[[noreturn]] void none(const char* what) {
  throw InfrastructureError(fmt::format("no memory to share with ranks: {}: {}", what, std::strerror(errno)));
}

}  // namespace

SharedMemory::SharedMemory(int64_t bytes) : bytes_(bytes) {
  // Workers have a limit on the size of files, which this is one of; passing it would end the process.
  constexpr int64_t kLargest = 256 << 20;
  if (bytes > kLargest)
    throw InfrastructureError(fmt::format("a rank's operands have {} MiB; {} are the most that is shared",
                                          bytes >> 20, kLargest >> 20));
  fd_ = memfd_create("assay-ranks", MFD_CLOEXEC);
  if (fd_ < 0) none("memfd_create");
  if (ftruncate(fd_, bytes) != 0) none("ftruncate");
  void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) none("mmap");
  data_ = static_cast<unsigned char*>(at);
}

SharedMemory::SharedMemory(const std::string& path) {
  fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat info {};
  if (fd_ < 0 || fstat(fd_, &info) != 0) none("open");
  bytes_ = info.st_size;
  void* at = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (at == MAP_FAILED) none("mmap");
  data_ = static_cast<unsigned char*>(at);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  if (fd_ >= 0) close(fd_);
}

std::string SharedMemory::path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_); }

int64_t exchange_bytes(int32_t ranks) { return kHeadBytes + ranks * kSlotBytes; }

void prepare_exchange(const SharedMemory& memory, int32_t ranks) {
  Head* head = new (memory.data()) Head{};
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&head->all, &shared, static_cast<unsigned>(ranks));
  pthread_barrierattr_destroy(&shared);
}

assay_group exchange_of(const SharedMemory& memory, int32_t rank, int32_t ranks) {
  assay_group g{};
  g.struct_size = sizeof g, g.rank = rank, g.ranks = ranks, g.context = memory.data();
  g.all_gather = all_gather, g.reduce_scatter = reduce_scatter, g.barrier = barrier;
  return g;
}

int64_t exchanges_entered(const SharedMemory& memory, int32_t rank) {
  return head_of(memory.data()).entered[rank];
}

}  // namespace assay
