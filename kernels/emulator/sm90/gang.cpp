// SPDX-License-Identifier: Apache-2.0
// See gang.hpp: the blocks that run at the same time, and who goes on. A fiber runs until it waits; then
// lanes of its warp go first, then a warp drawn from all that can. Blocks start in order, as many at a time
// as the device has multiprocessors; clusters stay together.
#include "kernels/emulator/sm90/gang.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/disorder.hpp"
#include "kernels/emulator/symbols.hpp"

namespace gpu::emulator::machine {

Gang gang;

namespace {

constexpr uint32_t kMostPolls = 1u << 20;  // of memory, with nothing else happening: nobody will write it
constexpr uint32_t kPatientPolls = 2048;   // then what is on its way arrives

std::vector<std::unique_ptr<Block>> pool;
std::vector<order::BlockMemory> spare_memories;  // of blocks of earlier launches, the next ones'

// Does what is on its way while no block runs: what goes wrong then ends the launch from a fiber, too.
constexpr size_t kWorkerBytes = 256 << 10;
std::vector<unsigned char> worker_stack;
Context worker;
void work() {
  for (;;) {
    do_job(gang.draw(static_cast<uint32_t>(gang.jobs.size())));
    switch_context(worker, gang.home);
  }
}

void start(BlockState& s, int64_t number) {
  Launch& l = *gang.launch;
  const dim3& grid = l.grid;
  const uint32_t index[3] = {static_cast<uint32_t>(number % grid.x),
                             static_cast<uint32_t>(number / grid.x % grid.y),
                             static_cast<uint32_t>(number / grid.x / grid.y)};
  Block& block = *s.block;
  block.state = &s;
  block.begin(l, index, l.first_serial + static_cast<uint32_t>(number), gang.home);
  const size_t threads = block.lanes().size(), warps = block.warp_count();
  s.barriers.clear();
  s.barriers.reserve(kMostBarriers);
  s.barrier_at.assign(kArenaBytes / 8 + 1, -1);
  for (NamedBarrier& n : s.named) n = {};
  s.threads.assign(threads, ThreadState{});
  s.warps.assign(warps, WarpState{});
  s.signatures.assign((warps + 3) / 4, {});
  // __launch_bounds__(threads, 1): as many registers as fit, in units of 8 (PTX ISA, setmaxnreg). Only these
  // change hands: what the multiprocessor has beyond them is not the block's.
  const int entry = std::min<int>(255, 65536 / static_cast<int>(warps * 32)) / 8 * 8;
  for (WarpState& w : s.warps) w.registers = entry;
  s.free_registers = 0;
  s.wants_registers.clear(), s.meeting = {};
  s.left = false;
  for (WarpState& w : s.warps) w.fence = ++gang.fences;
  if constexpr (kChecked) {
    order::begin_block(s);
    if (!s.stamps) s.stamps.reset(static_cast<uint32_t*>(std::calloc(threads, kStackBytes)));
    if (!s.stamps) throw std::bad_alloc();
  }
}

std::string lanes_of(const Lane& first, const Lane& last) {
  std::string text = "warp " + std::to_string(first.warp);
  if (first.lane == last.lane) return text + " lane " + std::to_string(first.lane);
  return text + " lanes " + std::to_string(first.lane) + "-" + std::to_string(last.lane);
}

const BarrierState* barrier_of(const BlockState& s, const Waiting& w) {
  for (const BarrierState& b : s.barriers)
    if (b.at == w.which) return &b;
  return nullptr;
}

std::string waits_for(const BlockState& s, const Waiting& w) {
  switch (w.what) {
    case Waiting::kBarrier: {
      const BarrierState* const b = barrier_of(s, w);
      if (b == nullptr) return "a barrier";
      std::string text = "parity " + std::to_string(w.parity) + " of the barrier " + barrier_text(*b) +
                         ", whose phase " + std::to_string(b->phase) + " lacks " +
                         std::to_string(b->pending) + " of " + std::to_string(b->expected) + " arrivals";
      if (b->bytes != 0) text += " and " + std::to_string(b->bytes) + " bytes";
      return text;
    }
    case Waiting::kNamed:
      return "named barrier " + std::to_string(w.which) + ", where " +
             std::to_string(s.named[w.which].arrived) + " of " + std::to_string(s.named[w.which].threads) +
             " threads are";
    case Waiting::kCluster:
      return "the cluster";
    case Waiting::kRegisters:
      return "registers (" + std::to_string(w.which) + " a thread)";
    case Waiting::kMemory:
      return "memory that nobody writes";
    default:
      return "the block's barrier or lanes of its warp";
  }
}

bool same(const Waiting& a, const Waiting& b) {
  return a.what == b.what && a.which == b.which && a.parity == b.parity && a.where.line() == b.where.line();
}

}  // namespace

std::string place_text(const Where& w) { return base_name(w.file_name()) + ":" + std::to_string(w.line()); }

void something_happened() { gang.polls = 0; }

void do_job(size_t index) {
  const std::unique_ptr<Job> job = std::move(gang.jobs[index]);
  gang.jobs[index] = std::move(gang.jobs.back());
  gang.jobs.pop_back();
  something_happened();
  perform(*job);
}

namespace {

Lane* ready_lane() {
  uint32_t count = 0;
  for (const auto& s : gang.blocks)
    for (unsigned w = 0; w < s->block->warp_count() && !s->left; ++w) count += s->block->ready(w) != 0;
  if (count == 0) return nullptr;
  uint32_t chosen = gang.draw(count);
  for (const auto& s : gang.blocks)
    for (unsigned w = 0; w < s->block->warp_count() && !s->left; ++w)
      if (s->block->ready(w) != 0 && chosen-- == 0)
        return &s->block->lanes()[w * kWarp + static_cast<unsigned>(__builtin_ctzll(s->block->ready(w)))];
  return nullptr;
}

struct Stuck {
  Kind kind = Kind::kDeadlock;
  Site site;
  std::string text;
};

Stuck stuck() {
  // Barriers that lack nothing but bytes which nobody copies, or have too many: the cause of the rest.
  for (const auto& s : gang.blocks) {
    for (Lane& l : s->block->lanes()) {
      const Waiting& w = s->of(l).waiting;
      const BarrierState* const b = w.what == Waiting::kBarrier ? barrier_of(*s, w) : nullptr;
      if (b != nullptr && b->pending == 0 && b->bytes != 0)
        return {Kind::kBytes, site_of(w.where),
                lanes_of(l, l) + " waits for " + waits_for(*s, w) + ", and no copy is on its way to it"};
    }
  }
  std::string text;
  Site site;
  int told = 0;
  for (const auto& s : gang.blocks) {
    if (s->left) continue;
    std::vector<Lane>& lanes = s->block->lanes();
    for (size_t i = 0; i < lanes.size();) {
      const Waiting& w = s->of(lanes[i]).waiting;
      size_t end = i + 1;
      while (end < lanes.size() && lanes[end].warp == lanes[i].warp && same(s->of(lanes[end]).waiting, w))
        ++end;
      if (w.what != Waiting::kNothing) {
        if (told == 0) site = site_of(w.where);
        if (++told <= 6)
          text += (told > 1 ? "; " : "") + lanes_of(lanes[i], lanes[end - 1]) +
                  (gang.blocks.size() > 1 ? " of block " + std::to_string(s->block->index()[0]) : "") +
                  " waits at " + place_text(w.where) + " for " + waits_for(*s, w);
      }
      i = end;
    }
  }
  if (told > 6) text += "; and " + std::to_string(told - 6) + " more";
  if (told == 0) text = "threads wait at a barrier or for lanes of their warps, and nobody can go on";
  return {Kind::kDeadlock, site, text};
}

}  // namespace

Lane* next_lane() {
  for (;;) {
    if (!gang.jobs.empty() && ((gang.early && gang.draw(6) == 0) || gang.polls > kPatientPolls))
      do_job(gang.draw(static_cast<uint32_t>(gang.jobs.size())));
    Lane* const to = ready_lane();
    if (to != nullptr || gang.jobs.empty()) return to;
    do_job(gang.draw(static_cast<uint32_t>(gang.jobs.size())));
  }
}

void deadlock(Block& block) {
  const Stuck s = stuck();
  block.stop(s.kind, s.site, s.text);
}

void run(Launch& l) {
  const unsigned cluster = l.shape.cluster;
  const int64_t blocks = int64_t{l.grid.x} * l.grid.y * l.grid.z;
  const auto resident = static_cast<unsigned>(std::min<int64_t>(
      std::max<unsigned>(static_cast<unsigned>(kDevice.multiprocessors) / cluster, 1) * cluster, blocks));
  gang.launch = &l;
  gang.jobs.clear();
  gang.polls = 0;
  gang.random = 0x9E3779B97F4A7C15ull * (l.first_serial + 1) ^ disorder.threads;
  gang.draw(2);
  gang.early = gang.draw(2) == 0, gang.leader = gang.draw(32);
  if constexpr (kChecked) order::begin_launch(l.block.x * l.block.y * l.block.z, cluster);
  while (pool.size() < resident) pool.push_back(std::make_unique<Block>());
  for (const auto& s : gang.blocks) spare_memories.push_back(std::move(s->memory));
  gang.blocks.clear();
  worker_stack.resize(kWorkerBytes);
  make_context(worker, worker_stack.data(), kWorkerBytes, work);
  int64_t next = 0;
  for (unsigned i = 0; i < resident; ++i) {
    gang.blocks.push_back(std::make_unique<BlockState>());
    gang.blocks[i]->block = pool[i].get();
    gang.blocks[i]->rank = i % cluster;
    if (spare_memories.empty()) continue;
    gang.blocks[i]->memory = std::move(spare_memories.back());
    spare_memories.pop_back();
  }
  for (unsigned i = 0; i < resident; ++i)
    for (unsigned r = 0; r < cluster; ++r)
      gang.blocks[i]->cluster.push_back(gang.blocks[i / cluster * cluster + r].get());
  for (const auto& s : gang.blocks) start(*s, next++);
  for (;;) {
    Lane* const to = ready_lane();
    if (to == nullptr && !gang.jobs.empty()) {
      switch_context(gang.home, worker);
      if (l.stop) {
        Block::outside();
        break;
      }
      continue;
    }
    if (to == nullptr) {  // everybody has left, or everybody waits
      const auto waits = [](const auto& s) { return !s->left; };
      const auto one = std::find_if(gang.blocks.begin(), gang.blocks.end(), waits);
      if (one == gang.blocks.end()) break;
      const Stuck s = stuck();
      const uint32_t(&index)[3] = (*one)->block->index();
      l.findings.add({s.kind, s.site, s.text, {index[0], index[1], index[2]}, {}});
      break;
    }
    Block::go_on(*to, gang.home);
    if (l.stop) break;
    for (const auto& s : gang.blocks)
      if (!s->left && s->block->ended()) s->left = true;
    for (unsigned i = 0; i < resident && next < blocks; i += cluster) {
      bool free = true;
      for (unsigned r = 0; r < cluster; ++r) free = free && gang.blocks[i + r]->left;
      for (unsigned r = 0; r < cluster && free; ++r) start(*gang.blocks[i + r], next++);
    }
  }
  gang.jobs.clear();
  gang.launch = nullptr;
}

void thread_left(Block& block) {
  BlockState& s = *block.state;
  something_happened();
  if (block.live() == 0) block_ended(s);
}

// ---- small things of threads
void refuse(const char* what, Where where) {
  running_block()->stop(Kind::kNotModelled, site_of(where), what);
}

bool elect(Where where) {
  ballot(true, where);
  return static_cast<uint32_t>(lane()) == gang.leader;
}

void wait_previous() { here().of(running_block()->current()).waited_previous = true; }

void load_relaxed(const void* from, void* to, size_t bytes, Where where) {
  Block& block = *running_block();
  const Site site = site_of(where);
  if (reinterpret_cast<uintptr_t>(from) % bytes != 0)
    block.stop(Kind::kMisaligned, site, std::to_string(bytes) + " bytes from an address that is no multiple");
  ThreadState& t = here().of(block.current());
  t.waiting = {Waiting::kMemory, 0, 0, where};
  if (++gang.polls > kMostPolls) deadlock(block);
  block.yield();
  t.waiting = {};
  if constexpr (kChecked) check::access(from, bytes, check::Access::kObserve, site);
  std::memcpy(to, from, bytes);
}

void store_relaxed(void* to, const void* from, size_t bytes, Where where) {
  const Site site = site_of(where);
  if (reinterpret_cast<uintptr_t>(to) % bytes != 0)
    running_block()->stop(Kind::kMisaligned, site,
                          std::to_string(bytes) + " bytes to an address that is no multiple");
  if constexpr (kChecked) check::access(to, bytes, check::Access::kAtomic, site);
  something_happened();
  std::memcpy(to, from, bytes);
}

}  // namespace gpu::emulator::machine
