// SPDX-License-Identifier: Apache-2.0
// mbarriers, named barriers, clusters, the hand-over of registers (see machine.hpp; PTX ISA, sections
// "mbarrier", "barrier", "barrier.cluster", "setmaxnreg").
#include <algorithm>
#include <string>

#include "kernels/emulator/sm90/gang.hpp"

namespace gpu::emulator::machine {
namespace {

constexpr int64_t kMostBytes = (1 << 20) - 1;  // of the count of bytes, either way

Lane& current() { return const_cast<Lane&>(running_block()->current()); }

// Sleeps until somebody wakes this fiber.
void sleep(const Waiting& for_what) {
  ThreadState& t = here().of(current());
  t.waiting = for_what;
  running_block()->sleep();
  t.waiting = {};
}
void wake_all(std::vector<Lane*>& lanes) {
  for (Lane* l : lanes) Block::wake(*l);
  lanes.clear();
  something_happened();
}

void try_complete(BlockState& s, BarrierState& b, Where where) {
  if (b.pending != 0 || b.bytes != 0) return;
  for (const auto& job : gang.jobs)
    if (job->what == Job::kLoad && job->block == &s && job->barrier == b.at && job->number == b.phase &&
        job->by->block == s.block) {
      running_block()->note(Kind::kBytes, site_of(where),
                            "phase " + std::to_string(b.phase) + " of the barrier " + barrier_text(b) +
                                " ends while a box that signals it (" + place_text(job->where) +
                                ") is still on its way");
      break;
    }
  ++b.phase, b.pending = b.expected;
  if constexpr (kChecked) order::release(s, b);
  wake_all(b.waiting);
}

}  // namespace

std::string barrier_text(const BarrierState& b) {
  return "at byte " + std::to_string(b.at - kWindow) + " (initialised at " + place_text(b.init) + ")";
}

BarrierState& barrier(BlockState& s, uint32_t at, Where where) {
  Block& now = *running_block();
  if (at % 8 != 0)
    now.stop(Kind::kMisaligned, site_of(where), "a barrier at " + std::to_string(at) + ", no multiple of 8");
  require_shared(s, at, 8, where);
  const int16_t index = s.barrier_at[(at - kWindow) / 8];
  if (index < 0)
    now.stop(Kind::kBarrier, site_of(where),
             "there is no initialised barrier at byte " + std::to_string(at - kWindow) + " of shared memory");
  BarrierState& b = s.barriers[static_cast<size_t>(index)];
  if constexpr (kChecked)
    if (!order::ordered(current(), b.init_stamp))
      now.note(
          Kind::kRace, site_of(where),
          "nothing orders the initialisation of the barrier " + barrier_text(b) + " before its use here");
  return b;
}

void barrier_init(uint32_t at, uint32_t arrivals, Where where) {
  BlockState& s = here();
  Block& now = *running_block();
  if (at % 8 != 0)
    now.stop(Kind::kMisaligned, site_of(where), "a barrier at " + std::to_string(at) + ", no multiple of 8");
  require_shared(s, at, 8, where);
  if (arrivals < 1 || arrivals > (1 << 20) - 1)
    now.stop(Kind::kBarrier, site_of(where),
             std::to_string(arrivals) + " arrivals; 1 to 1048575 are possible");
  int16_t& index = s.barrier_at[(at - kWindow) / 8];
  if (index >= 0)
    now.stop(Kind::kBarrier, site_of(where),
             "there is a barrier already " + barrier_text(s.barriers[static_cast<size_t>(index)]));
  if (s.barriers.size() == kMostBarriers) refuse("more than 128 barriers in a block", where);
  index = static_cast<int16_t>(s.barriers.size());
  BarrierState& b = s.barriers.emplace_back();
  b.at = at, b.expected = b.pending = static_cast<int32_t>(arrivals), b.init = where, b.init_by = &current();
  if constexpr (kChecked) b.init_stamp = order::stamp(current());
}

void barrier_init_fence() {
  if constexpr (kChecked) order::fence(current());
}

void arrive(BlockState& s, BarrierState& b, Where where) {
  if (b.pending == 0)
    running_block()->stop(Kind::kBarrier, site_of(where),
                          "an arrival more than the " + std::to_string(b.expected) + " that phase " +
                              std::to_string(b.phase) + " of the barrier " + barrier_text(b) + " counts");
  --b.pending;
  something_happened();
  try_complete(s, b, where);
}

void take_bytes(BlockState& s, BarrierState& b, int64_t bytes, Where where) {
  b.bytes -= bytes;
  if (b.bytes < -kMostBytes)
    running_block()->stop(Kind::kBytes, site_of(where), "more bytes than a barrier counts");
  try_complete(s, b, where);
}

void barrier_arrive(uint32_t at, uint32_t expect_bytes, Where where) {
  BlockState& s = here();
  BarrierState& b = barrier(s, at, where);
  b.bytes += expect_bytes;
  if (b.bytes > kMostBytes)
    running_block()->stop(Kind::kBytes, site_of(where), "more bytes than a barrier counts");
  if constexpr (kChecked) order::gather(b.gathering, current());
  arrive(s, b, where);
}

BlockState& block_of_cluster(uint32_t rank, Where where) {
  BlockState& mine = here();
  if (rank >= mine.cluster.size())
    running_block()->stop(
        Kind::kBarrier, site_of(where),
        "block " + std::to_string(rank) + " of a cluster of " + std::to_string(mine.cluster.size()));
  BlockState& s = *mine.cluster[rank];
  if (s.left)
    running_block()->stop(Kind::kBarrier, site_of(where),
                          "block " + std::to_string(rank) + " of the cluster has ended");
  return s;
}

void barrier_arrive_at(uint32_t at, uint32_t rank, Where where) {
  BlockState& s = block_of_cluster(rank, where);
  BarrierState& b = barrier(s, at, where);
  if constexpr (kChecked) order::gather(b.gathering, current());
  arrive(s, b, where);
}

void barrier_wait(uint32_t at, uint32_t parity, Where where) {
  BlockState& s = here();
  Lane& lane = current();
  if (parity > 1) running_block()->stop(Kind::kBarrier, site_of(where), "parity " + std::to_string(parity));
  BarrierState* b = &barrier(s, at, where);
  while ((b->phase & 1) == parity) {
    b->waiting.push_back(&lane);
    sleep({Waiting::kBarrier, at, parity, where});
  }
  b->awaited = std::max(b->awaited, b->phase);
  if constexpr (kChecked) order::acquire(lane, *b);
}

void named_barrier(int id, int threads, bool waits, Where where) {
  BlockState& s = here();
  Block& now = *running_block();
  if (id < 0 || id > 15 || threads < 32 || threads % 32 != 0 || threads > static_cast<int>(s.threads.size()))
    now.stop(Kind::kBarrier, site_of(where),
             "named barrier " + std::to_string(id) + " of " + std::to_string(threads) +
                 " threads; 0 to 15, whole warps of the block are possible");
  NamedBarrier& n = s.named[id];
  if (n.arrived > 0 && n.threads != threads)
    now.stop(Kind::kBarrierMix, site_of(where),
             "named barrier " + std::to_string(id) + " of " + std::to_string(threads) +
                 " threads, where others wait for " + std::to_string(n.threads) + " (" + place_text(n.where) +
                 ")");
  n.threads = threads, n.where = where;
  ++n.arrived;
  something_happened();
  if (waits)
    n.waiting.push_back(&current());
  else if constexpr (kChecked)
    order::gather(n.gathering, current());
  if (n.arrived < threads) {
    if (waits) sleep({Waiting::kNamed, static_cast<uint32_t>(id), 0, where});
    return;
  }
  if constexpr (kChecked) {
    order::join(n.waiting);
    order::acquire(n.waiting, n.gathering);
  }
  n.arrived = 0;
  wake_all(n.waiting);
}

// ---- clusters
uint32_t cluster_rank() { return here().rank; }

void cluster_arrive(Where where) {
  ThreadState& t = here().of(current());
  if (t.at_cluster)
    running_block()->stop(
        Kind::kBarrier, site_of(where),
        "an arrival at the cluster's barrier by a thread that has not waited for its last one");
  ClusterBarrier& b = here().cluster[0]->meeting;
  t.at_cluster = true, t.cluster_phase = b.phase;
  if constexpr (kChecked) order::gather(b.gathering, current());
  size_t live = 0;
  for (const BlockState* s : here().cluster) live += s->block->live();
  if (++b.arrived < live) return;
  ++b.phase, b.arrived = 0;
  if constexpr (kChecked) order::release(b.gathering, b.released);
  wake_all(b.waiting);
}
void cluster_wait(Where where) {
  Lane& lane = current();
  ThreadState& t = here().of(lane);
  if (!t.at_cluster)
    running_block()->stop(Kind::kBarrier, site_of(where),
                          "a wait for the cluster's barrier by a thread that has not arrived");
  ClusterBarrier& b = here().cluster[0]->meeting;
  while (b.phase == t.cluster_phase) {
    b.waiting.push_back(&lane);
    sleep({Waiting::kCluster, 0, 0, where});
  }
  t.at_cluster = false;
  if constexpr (kChecked) order::acquire(lane, b.released);
}

// ---- registers
void set_registers(int count, bool up, Where where) {
  BlockState& s = here();
  Block& now = *running_block();
  if (count < 24 || count > 256 || count % 8 != 0)
    now.stop(Kind::kDisagreement, site_of(where),
             std::to_string(count) + " registers; multiples of 8 from 24 to 256 are possible");
  ballot(true, where);
  Lane& lane = current();
  if (lane.lane != 0) {
    ballot(true, where);
    return;
  }
  WarpState& w = s.warp_of(lane);
  const int more = (count - w.registers) * 32;
  if (up ? more < 0 : more > 0)
    now.stop(Kind::kDisagreement, site_of(where),
             std::string(up ? "up to " : "down to ") + std::to_string(count) + " registers from " +
                 std::to_string(w.registers));
  while (more > s.free_registers) {
    s.wants_registers.push_back(&lane);
    sleep({Waiting::kRegisters, static_cast<uint32_t>(count), 0, where});
  }
  s.free_registers -= more;
  w.registers = count, ++w.register_calls, w.register_place = where;
  if (more < 0) wake_all(s.wants_registers);
  ballot(true, where);
}

}  // namespace gpu::emulator::machine
