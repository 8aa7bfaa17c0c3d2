// SPDX-License-Identifier: Apache-2.0
// See peers.hpp. CUDA's memory of other processes (cudaIpc*), which a device must be able to reach: NVLink,
// or PCIe with nothing between that forbids it. Whether it can is what opening it says. Not for HIP: memory
// that another device writes to while a kernel looks at it is of another kind there.
#include "kernels/device/peers.hpp"

#include <cstdlib>
#include <cstring>
#include <vector>

namespace assay_gpu {
namespace {

// What a rank says of its room.
struct Offer {
  cudaIpcMemHandle_t handle;
  int32_t usable;
};

// What a group is told, not what a rank can: all of its processes have the same environment.
bool are_asked() {
  const char* wanted = std::getenv("ASSAY_EXCHANGE");
  return wanted != nullptr && std::strcmp(wanted, "peers") == 0;
}

// Of every rank; false where one has none.
bool offer_room(int32_t ranks, unsigned char** room, const GatherOnHost& gather, std::vector<Offer>* all) {
  constexpr int64_t kWhole = 2 << 20;  // a handle opens all that the driver allocated at once
  const auto bytes = static_cast<size_t>((peer_room_bytes(ranks) + kWhole - 1) / kWhole * kWhole);
  Offer own{};
  own.usable = ranks <= kMostPeers && cudaMalloc(reinterpret_cast<void**>(room), bytes) == cudaSuccess &&
               cudaMemset(*room, 0, bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess &&
               cudaIpcGetMemHandle(&own.handle, *room) == cudaSuccess;
  all->resize(static_cast<size_t>(ranks));
  bool usable = gather(&own, all->data(), sizeof own);
  for (const Offer& offer : *all) usable = usable && offer.usable != 0;
  return usable;
}

bool opened_by_all(int32_t rank, const std::vector<Offer>& offers, Peers* a, const GatherOnHost& gather) {
  int32_t opened = 1;
  for (int32_t r = 0; r < a->ranks; ++r) {
    void* room = a->rooms[r];
    if (r != rank && cudaIpcOpenMemHandle(&room, offers[static_cast<size_t>(r)].handle,
                                          cudaIpcMemLazyEnablePeerAccess) != cudaSuccess)
      opened = 0;
    a->rooms[r] = static_cast<unsigned char*>(room);
  }
  opened =
      opened != 0 && cudaMalloc(reinterpret_cast<void**>(&a->turn), 2 * sizeof *a->turn) == cudaSuccess &&
      cudaMemset(a->turn, 0, 2 * sizeof *a->turn) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  std::vector<int32_t> all(static_cast<size_t>(a->ranks));
  bool every = gather(&opened, all.data(), sizeof opened);
  for (const int32_t one : all) every = every && one != 0;
  return every;
}

}  // namespace

const PeerExchanges* open_peers(int32_t rank, int32_t ranks, const GatherOnHost& gather) {
  if (!are_asked()) return nullptr;
  static PeerExchanges made{{}, launch_peer_gather, launch_peer_sum, launch_peer_parts};
  made.peers.rank = rank, made.peers.ranks = ranks;
  unsigned char* room = nullptr;
  std::vector<Offer> offers;
  bool usable = offer_room(ranks, &room, gather, &offers);
  if (usable) {
    made.peers.rooms[rank] = room;
    usable = opened_by_all(rank, offers, &made.peers, gather);
  }
  cudaGetLastError();  // what could not be opened is nobody else's error
  return usable ? &made : nullptr;
}

}  // namespace assay_gpu
