// SPDX-License-Identifier: Apache-2.0
// What connects ranks on GPUs, a process each (harness/abi/assay_group.h): NCCL, or RCCL, which has the same
// functions, looked for when a group is wanted. Nothing of it is needed to build, and nothing linked. A group
// without an id exchanges through the host's memory: what is computed can be checked where a machine has
// fewer devices than ranks, which NCCL refuses; it waits for the device, and cannot be captured. Where it is
// asked for, small messages of ranks that can write into each other's memory go that way (peers.hpp).
#include "kernels/common/group.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "harness/abi/assay_group.h"
#include "kernels/device/library.hpp"
#include "kernels/device/peers.hpp"
#include "kernels/device/status.hpp"

#if !defined(GPU_HIP) && __has_include(<nccl.h>)
#  include <nccl.h>
#endif

namespace assay_gpu {
namespace {

// Of nccl.h as far as it is used (NCCL documentation, "NCCL API"; values of its enumerations since 2.2).
struct UniqueId {
  char bytes[128];
};
static_assert(sizeof(UniqueId) == sizeof(assay_group::id));
using Communicator = struct NcclComm*;
constexpr int kNcclSuccess = 0, kNcclInt8 = 0, kNcclFloat = 7, kNcclSum = 0;

#if !defined(GPU_HIP) && __has_include(<nccl.h>)  // an installed header must agree
static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId) && ncclSuccess == kNcclSuccess);
static_assert(ncclInt8 == kNcclInt8 && ncclFloat == kNcclFloat && ncclSum == kNcclSum);
#endif

struct Nccl {
  int (*GetUniqueId)(UniqueId*);
  int (*CommInitRank)(Communicator*, int ranks, UniqueId, int rank);
  int (*AllGather)(const void*, void*, size_t sent, int type, Communicator, gpu::Stream);
  int (*ReduceScatter)(const void*, void*, size_t received, int type, int op, Communicator, gpu::Stream);
  int (*AllReduce)(const void*, void*, size_t count, int type, int op, Communicator, gpu::Stream);
  const char* (*GetErrorString)(int);
  const char* (*GetLastError)(Communicator);  // since 2.13, of this process
};

#if defined(GPU_HIP)
constexpr const char *kLibrary = "RCCL", *kFiles[] = {"librccl.so.1", "librccl.so"};
constexpr const char* kInstall = "install package rccl of ROCm";
#else
constexpr const char *kLibrary = "NCCL", *kFiles[] = {"libnccl.so.2", "libnccl.so"};
constexpr const char* kInstall =
    "install package libnccl2 of NVIDIA's repository, or `pip install nvidia-nccl-cu13`";
#endif

int say(int status, const std::string& text, char* error, size_t size) {
  return fail(status, error, size, text.c_str());
}

// The library's functions, or null with what to do; looked for once.
const Nccl* nccl(std::string* why) {
  static Nccl functions{};
  static std::string missing = [] {
    const char* named = std::getenv("ASSAY_NCCL");
    std::vector<const char*> files(std::begin(kFiles), std::end(kFiles));
    if (named != nullptr) files = {named};
    void* library = nullptr;
    std::string said;
    for (const char* file : files) {
      library = library != nullptr ? library : dlopen(file, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr && said.empty()) said = dlerror();
    }
    if (library == nullptr)
      return std::string("required ") + kLibrary + ", supported none here, missing " + files[0] + " (" +
             said + "): " + kInstall +
             ", and have its folder in LD_LIBRARY_PATH or its file in ASSAY_NCCL; or set ASSAY_RANKS=host to "
             "check ranks through the host's memory";
    std::string lacks;
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr && lacks.empty())
        lacks = std::string("required ") + kLibrary + ", supported 2.2 and later, missing " + name + " in " +
                (named != nullptr ? named : kFiles[0]);
    };
    get(functions.GetUniqueId, "ncclGetUniqueId"), get(functions.CommInitRank, "ncclCommInitRank");
    get(functions.AllGather, "ncclAllGather"), get(functions.ReduceScatter, "ncclReduceScatter");
    get(functions.AllReduce, "ncclAllReduce"), get(functions.GetErrorString, "ncclGetErrorString");
    functions.GetLastError =
        reinterpret_cast<decltype(functions.GetLastError)>(dlsym(library, "ncclGetLastError"));
    return lacks;
  }();
  if (!missing.empty()) *why = missing;
  return missing.empty() ? &functions : nullptr;
}

// The group of this process, as its kernels see it.
struct Connected {
  assay_group group;
  const Nccl* nccl = nullptr;
  Communicator communicator = nullptr;
  void* token = nullptr;  // a float that all ranks add up to meet
  const PeerExchanges* peers = nullptr;
  assay_group host;  // without an id: assay's exchanges
  std::vector<unsigned char> sent, received;
};
Connected& connected() {
  static Connected* const one = new Connected;  // kernels may be under way when the process ends
  return *one;
}

int heard(int status, const char* what, char* error, size_t size) {
  if (status == kNcclSuccess) return ASSAY_OK;
  const Nccl& library = *connected().nccl;
  std::string text = std::string(kLibrary) + ": " + what + ": " + library.GetErrorString(status);
  const char* last = library.GetLastError != nullptr ? library.GetLastError(nullptr) : nullptr;
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return say(ASSAY_FAILED, text, error, size);
}
void count(const assay_group* g) { __atomic_fetch_add(g->entered, 1, __ATOMIC_RELAXED); }
gpu::Stream stream_of(void* stream) { return static_cast<gpu::Stream>(stream); }

// ---- over the library
int all_gather(const assay_group* g, const void* send, void* receive, int64_t bytes, void* stream,
               char* error, size_t size) {
  const Connected& c = connected();
  count(g);
  if (c.peers != nullptr && bytes <= kMostPeerBytes) {
    const PeerRows all = {static_cast<const unsigned char*>(send), 1, 1, bytes};
    return answer(c.peers->gather(c.peers->peers, all, receive, stream_of(stream)), "all-gather", error,
                  size);
  }
  return heard(c.nccl->AllGather(send, receive, static_cast<size_t>(bytes), kNcclInt8, c.communicator,
                                 stream_of(stream)),
               "all-gather", error, size);
}

int reduce_scatter(const assay_group* g, const float* send, float* receive, int64_t values, void* stream,
                   char* error, size_t size) {
  const Connected& c = connected();
  count(g);
  if (c.peers != nullptr && values * static_cast<int64_t>(sizeof(float)) <= kMostPeerBytes)
    return answer(c.peers->sum(c.peers->peers, send, receive, values, stream_of(stream)), "reduce-scatter",
                  error, size);
  return heard(c.nccl->ReduceScatter(send, receive, static_cast<size_t>(values), kNcclFloat, kNcclSum,
                                     c.communicator, stream_of(stream)),
               "reduce-scatter", error, size);
}

int barrier(const assay_group* g, void* stream, char* error, size_t size) {
  const Connected& c = connected();
  count(g);
  return heard(
      c.nccl->AllReduce(c.token, c.token, 1, kNcclFloat, kNcclSum, c.communicator, stream_of(stream)),
      "all-reduce", error, size);
}

// ---- over each other's memory alone
const assay_kernels::WideExchanges kOverPeers = {
    [](const assay_kernels::HeadRows& rows) {
      return rows.piece_bytes % 8 == 0 && rows.bytes() <= kMostPeerBytes;
    },
    [](const assay_kernels::RankParts& parts) {
      return parts.dims % 2 == 0 && PeerParts{parts.units, parts.dims}.bytes() <= kMostPeerBytes;
    },
    [](const assay_kernels::HeadRows& rows, void* receive, void* stream, char* error, size_t size) {
      const Connected& c = connected();
      count(&c.group);
      const PeerRows all = {static_cast<const unsigned char*>(rows.data),
                            rows.heads,
                            rows.rows,
                            rows.piece_bytes,
                            rows.head_stride,
                            rows.row_stride};
      return answer(c.peers->gather(c.peers->peers, all, receive, stream_of(stream)), "all-gather", error,
                    size);
    },
    [](const assay_kernels::RankParts& parts, void* stream, char* error, size_t size) {
      const Connected& c = connected();
      count(&c.group);
      const PeerParts all = {parts.units, parts.dims, parts.part, parts.lse, parts.out, parts.total};
      return answer(c.peers->parts(c.peers->peers, all, stream_of(stream)), "sum of parts", error, size);
    }};

// ---- through the host, whose exchanges count themselves
template <class Exchange>
int through_host(const void* send, int64_t sent, void* receive, int64_t received, void* stream, char* error,
                 size_t size, const Exchange& exchange) {
  Connected& c = connected();
  c.sent.resize(static_cast<size_t>(sent)), c.received.resize(static_cast<size_t>(received));
  const gpu::Stream s = stream_of(stream);
  gpu::Status bad = GPU_API(MemcpyAsync)(c.sent.data(), send, c.sent.size(), GPU_API(MemcpyDeviceToHost), s);
  if (bad == GPU_API(Success)) bad = GPU_API(StreamSynchronize)(s);
  if (bad != GPU_API(Success)) return answer(bad, "exchange through the host", error, size);
  if (const int status = exchange(c.host, c.sent.data(), c.received.data())) return status;
  bad = GPU_API(MemcpyAsync)(receive, c.received.data(), c.received.size(), GPU_API(MemcpyHostToDevice), s);
  if (bad == GPU_API(Success)) bad = GPU_API(StreamSynchronize)(s);
  return answer(bad, "exchange through the host", error, size);
}

int host_all_gather(const assay_group* g, const void* send, void* receive, int64_t bytes, void* stream,
                    char* error, size_t size) {
  return through_host(send, bytes, receive, bytes * g->ranks, stream, error, size,
                      [&](const assay_group& host, const void* from, void* to) {
                        return host.all_gather(&host, from, to, bytes, nullptr, error, size);
                      });
}

int host_reduce_scatter(const assay_group* g, const float* send, float* receive, int64_t values, void* stream,
                        char* error, size_t size) {
  const int64_t bytes = values * static_cast<int64_t>(sizeof(float));
  return through_host(send, bytes * g->ranks, receive, bytes, stream, error, size,
                      [&](const assay_group& host, const void* from, void* to) {
                        return host.reduce_scatter(&host, static_cast<const float*>(from),
                                                   static_cast<float*>(to), values, nullptr, error, size);
                      });
}

int host_barrier(const assay_group*, void* stream, char* error, size_t size) {
  if (const int bad = answer(GPU_API(StreamSynchronize)(stream_of(stream)), "barrier", error, size))
    return bad;
  const assay_group& host = connected().host;
  return host.barrier(&host, nullptr, error, size);
}

#if defined(GPU_HIP)
int find_peers(char*, size_t) { return ASSAY_OK; }
#else
// Through the library's all-gather, on memory of the device. A rank that cannot take part fails to join, and
// all end with it.
int find_peers(char* error, size_t size) {
  Connected& c = connected();
  bool failed = false;
  c.peers = open_peers(c.group.rank, c.group.ranks, [&](const void* send, void* receive, int64_t bytes) {
    const auto sent = static_cast<size_t>(bytes), received = sent * static_cast<size_t>(c.group.ranks);
    unsigned char* room = nullptr;
    count(&c.group);
    failed = cudaMalloc(reinterpret_cast<void**>(&room), sent + received) != cudaSuccess ||
             cudaMemcpy(room, send, sent, cudaMemcpyHostToDevice) != cudaSuccess ||
             c.nccl->AllGather(room, room + sent, sent, kNcclInt8, c.communicator, nullptr) != kNcclSuccess ||
             cudaStreamSynchronize(nullptr) != cudaSuccess ||
             cudaMemcpy(receive, room + sent, received, cudaMemcpyDeviceToHost) != cudaSuccess;
    cudaFree(room);
    return !failed;
  });
  return failed ? say(ASSAY_FAILED, "ranks could not tell each other where their memory is", error, size)
                : int{ASSAY_OK};
}
#endif

int join(const assay_group& given, char* error, size_t size) {
  Connected& c = connected();
  c.group = given;
  if (given.all_gather != nullptr) {
    c.host = given;
    c.group.all_gather = host_all_gather, c.group.reduce_scatter = host_reduce_scatter;
    c.group.barrier = host_barrier;
    return assay_kernels::join_group(&c.group, error, size);
  }
  std::string why;
  if (c.nccl = nccl(&why); c.nccl == nullptr) return say(ASSAY_UNSUPPORTED, why, error, size);
  if (given.entered == nullptr)
    return say(ASSAY_INVALID_ARGUMENT, "a group that counts nothing", error, size);
  gpu::Status bad = GPU_API(Malloc)(&c.token, sizeof(float));
  if (bad == GPU_API(Success)) bad = GPU_API(Memset)(c.token, 0, sizeof(float));
  if (bad != GPU_API(Success)) return answer(bad, "join", error, size);
  UniqueId id;
  __builtin_memcpy(id.bytes, given.id, sizeof id.bytes);
  count(&given);
  if (const int status = heard(c.nccl->CommInitRank(&c.communicator, given.ranks, id, given.rank),
                               "communicator", error, size))
    return status;
  if (const int status = find_peers(error, size)) return status;
  c.group.all_gather = all_gather, c.group.reduce_scatter = reduce_scatter, c.group.barrier = barrier;
  ranks_meet = [](void* stream, char* text, size_t room) {
    return barrier(&connected().group, stream, text, room);
  };
  return assay_kernels::join_group(&c.group, error, size, c.peers != nullptr ? &kOverPeers : nullptr);
}

}  // namespace

const assay_kernel* watched(const assay_kernel* kernel) { return kernel; }

}  // namespace assay_gpu

extern "C" __attribute__((visibility("default"))) int assay_backend_join(const assay_group* group,
                                                                         char* error, size_t size) {
  return assay_gpu::join(*group, error, size);
}

extern "C" __attribute__((visibility("default"))) int assay_backend_group_id(unsigned char id[128],
                                                                             char* error, size_t size) {
  using namespace assay_gpu;
  std::string why;
  connected().nccl = nccl(&why);
  if (connected().nccl == nullptr) return say(ASSAY_UNSUPPORTED, why, error, size);
  UniqueId made{};
  if (const int status = heard(connected().nccl->GetUniqueId(&made), "id of a group", error, size))
    return status;
  __builtin_memcpy(id, made.bytes, sizeof made.bytes);
  return ASSAY_OK;
}
