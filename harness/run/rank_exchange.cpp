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
#include <numeric>
#include <sstream>

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

// Files one behind the other: workers have a limit on the size of each, and passing it would end the process.
SharedMemory::SharedMemory(int64_t bytes) {
  constexpr int64_t kPiece = 128 << 20;
  std::vector<int64_t> sizes;
  try {
    for (int64_t at = 0; at == 0 || at < bytes; at += kPiece) {
      sizes.push_back(std::min(kPiece, std::max<int64_t>(bytes - at, 1)));
      fds_.push_back(memfd_create("assay-ranks", MFD_CLOEXEC));
      if (fds_.back() < 0) none("memfd_create");
      if (ftruncate(fds_.back(), sizes.back()) != 0) none("ftruncate");
    }
    map(sizes);
  } catch (...) {
    close_all();
    throw;
  }
}

SharedMemory::SharedMemory(const std::string& path) {
  std::vector<int64_t> sizes;
  try {
    std::stringstream files(path);
    for (std::string file; std::getline(files, file, ':');) {
      fds_.push_back(open(file.c_str(), O_RDWR | O_CLOEXEC));
      struct stat info {};
      if (fds_.back() < 0 || fstat(fds_.back(), &info) != 0) none("open");
      sizes.push_back(info.st_size);
    }
    map(sizes);
  } catch (...) {
    close_all();
    throw;
  }
}

SharedMemory::~SharedMemory() { close_all(); }

void SharedMemory::map(const std::vector<int64_t>& sizes) {
  bytes_ = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  // Room for all; then each file in its place.
  void* room = mmap(nullptr, static_cast<size_t>(bytes_), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) none("mmap");
  data_ = static_cast<unsigned char*>(room);
  unsigned char* at = data_;
  for (size_t i = 0; i < sizes.size(); at += sizes[i++])
    if (mmap(at, static_cast<size_t>(sizes[i]), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fds_[i], 0) ==
        MAP_FAILED)
      none("mmap");
}

void SharedMemory::close_all() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(bytes_));
  for (const int fd : fds_)
    if (fd >= 0) close(fd);
}

std::string SharedMemory::path() const {
  std::string all;
  for (const int fd : fds_) all += fmt::format("{}/proc/{}/fd/{}", all.empty() ? "" : ":", getpid(), fd);
  return all;
}

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
  static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t));  // the library's end knows a plain one
  g.entered = reinterpret_cast<int64_t*>(&head_of(memory.data()).entered[rank]);
  return g;
}

int64_t exchanges_entered(const SharedMemory& memory, int32_t rank) {
  return head_of(memory.data()).entered[rank];
}

}  // namespace assay
