// SPDX-License-Identifier: Apache-2.0
// See rank_connection.hpp.
#include "harness/run/testing/rank_connection.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "harness/abi/assay_kernel.h"
#include "harness/run/rank_exchange.hpp"

namespace {

using assay::SharedMemory;

std::unique_ptr<SharedMemory> memory;  // of all ranks
assay_group mine, theirs;              // exchanges of `theirs`, counted where the parent looks

// Behind the exchanges: whether they are ready.
std::atomic<int>& ready() {
  return *reinterpret_cast<std::atomic<int>*>(memory->data() + assay::exchange_bytes(assay::kMostRanks));
}
void count() { __atomic_fetch_add(mine.entered, 1, __ATOMIC_RELAXED); }

}  // namespace

const assay_group* rank_testing::connect(const assay_group* given) {
  if (given->all_gather != nullptr) return given;
  mine = *given;
  count();
  memory = std::make_unique<SharedMemory>(reinterpret_cast<const char*>(given->id));
  if (given->rank == 0) prepare_exchange(*memory, given->ranks), ready() = 1;
  while (ready() == 0) usleep(1000);
  theirs = exchange_of(*memory, given->rank, given->ranks);
  theirs.barrier(&theirs, nullptr, nullptr, 0);
  mine.all_gather = [](const assay_group*, const void* send, void* receive, int64_t bytes, void* stream,
                       char* error, size_t size) {
    return count(), theirs.all_gather(&theirs, send, receive, bytes, stream, error, size);
  };
  mine.reduce_scatter = [](const assay_group*, const float* send, float* receive, int64_t values,
                           void* stream, char* error, size_t size) {
    return count(), theirs.reduce_scatter(&theirs, send, receive, values, stream, error, size);
  };
  return &mine;
}

void rank_testing::meet() { theirs.barrier(&theirs, nullptr, nullptr, 0); }

extern "C" __attribute__((visibility("default"))) int assay_backend_group_id(unsigned char id[128],
                                                                             char* error, size_t size) {
  if (std::getenv("ASSAY_TEST_NO_CONNECTION") != nullptr) {
    std::snprintf(error, size, "required a connection, supported none here, missing libconnection.so");
    return ASSAY_UNSUPPORTED;
  }
  static SharedMemory made(assay::exchange_bytes(assay::kMostRanks) + 4096);
  std::snprintf(reinterpret_cast<char*>(id), 128, "%s", made.path().c_str());
  return ASSAY_OK;
}
