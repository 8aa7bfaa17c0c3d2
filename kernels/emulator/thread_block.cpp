// SPDX-License-Identifier: Apache-2.0
// See thread_block.hpp.
#include "kernels/emulator/thread_block.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <new>
#include <string_view>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/disorder.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/sm90/gang.hpp"
#include "kernels/emulator/symbols.hpp"

namespace gpu::emulator {
namespace {

constexpr size_t kGuardBytes = 4096;
const char kDynamicTag = 0;

// Read at every coordinate and collective; a thread pointer plus a constant instead of a call to find it.
__attribute__((tls_model("initial-exec"))) thread_local Block* running = nullptr;

bool same(const Where& a, const Where& b) {
  return a.line() == b.line() &&
         (a.file_name() == b.file_name() || std::string_view(a.file_name()) == b.file_name());
}
// Values of collectives: nearly always a word, for which a call of memcpy would be most of the work.
void copy_value(void* to, const void* from, size_t bytes) {
  if (bytes == 4)
    std::memcpy(to, from, 4);
  else
    std::memcpy(to, from, bytes);
}
std::string text_of(const Where& w) { return base_name(w.file_name()) + ":" + std::to_string(w.line()); }
Site site_of(const Where& w) { return {w.file_name(), static_cast<int>(w.line()), nullptr}; }
uint64_t bit(uint32_t lane) { return uint64_t{1} << lane; }

unsigned char* reserve(size_t bytes) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<unsigned char*>(at);
}

}  // namespace

Block* running_block() { return running; }

Block::Block() : arena_(reserve(kArenaBytes)) {}
Block::~Block() {
  if (stacks_ != nullptr) munmap(stacks_, stacks_bytes_);
  munmap(arena_, kArenaBytes);
}

void Block::prepare(unsigned threads) {
  const size_t wanted = threads * kStackBytes;
  if (stacks_bytes_ < wanted) {
    if (stacks_ != nullptr) munmap(stacks_, stacks_bytes_);
    stacks_ = nullptr, stacks_bytes_ = 0;
    stacks_ = reserve(wanted);
    stacks_bytes_ = wanted;
    // A kernel with too large local arrays dies here instead of overwriting its neighbour's.
    for (size_t at = 0; at < wanted; at += kStackBytes) mprotect(stacks_ + at, kGuardBytes, PROT_NONE);
  }
  if (lanes_.size() == threads) return;
  lanes_ = std::vector<Lane>(threads);
  warps_ = std::vector<Warp>((threads + kWarp - 1) / kWarp);
  for (unsigned i = 0; i < threads; ++i) {
    Lane& l = lanes_[i];
    l.linear = i, l.warp = i / kWarp, l.lane = i % kWarp, l.block = this;
    warps_[l.warp].lanes |= bit(l.lane);
  }
}

void Block::begin(Launch& launch, const uint32_t (&index)[3], uint32_t serial, Context& home) {
  launch_ = &launch, home_ = &home;
  const dim3& shape = launch.block;
  const unsigned threads = shape.x * shape.y * shape.z;
  prepare(threads);
  std::memcpy(index_, index, sizeof index_);
  serial_ = serial, epoch_ = 0;
  live_ = threads, waiting_ = 0;
  arrays_.clear();
  arena_used_ = static_bytes_ = cells_used_ = 0;
  if (launch.dynamic_bytes > 0) add_array(&kDynamicTag, "dynamic shared memory", launch.dynamic_bytes, 1);
  for (Warp& w : warps_) w.live = w.ready = w.lanes, w.in_collective = w.at_barrier = 0;
  for (unsigned i = 0; i < threads; ++i) {
    Lane& l = lanes_[i];
    l.thread[0] = i % shape.x, l.thread[1] = i / shape.x % shape.y, l.thread[2] = i / (shape.x * shape.y);
    l.warp_epoch = 0;
    // Stacks a power of two apart would fall into the same sets of the cache.
    make_context(l.context, stacks_ + i * kStackBytes + kGuardBytes, kStackBytes - kGuardBytes - i % 32 * 192,
                 enter);
  }
  current_ = &lanes_[0];
  random_ = 0;
  if (kHopper || disorder.threads == 0) return;  // there turns are drawn anyway
  random_ = (disorder.threads ^ serial * 0x9E3779B97F4A7C15ull) | 1;
  late_ = static_cast<uint32_t>(drawn() % (2 * warps_.size()));  // of half of the blocks none
  current_ = next_drawn();
}

void Block::run(Launch& launch, const uint32_t (&index)[3], uint32_t serial) {
  begin(launch, index, serial, outside_);
  running = this;
  if constexpr (kChecked) check::present(this);
  switch_context(outside_, current_->context);
  if constexpr (kChecked) check::present(nullptr);
  running = nullptr;
}

// Makes a fiber the present one; the switch is the caller's.
void Block::activate(Lane& to) {
  to.block->current_ = &to;
  if (running == to.block) return;
  running = to.block;
  if constexpr (kChecked) check::present(running);
}

void Block::go_on(Lane& to, Context& home) {
  activate(to);
  switch_context(home, to.context);
  outside();
}
void Block::outside() {
  running = nullptr;
  if constexpr (kChecked) check::present(nullptr);
}

void Block::sleep() {
  warps_[current_->warp].ready &= ~bit(current_->lane);
  wait();
}
void Block::wake(Lane& lane) { lane.block->warps_[lane.warp].ready |= bit(lane.lane); }
void Block::yield() {
  if (Lane* const to = next_anywhere(); to != nullptr) switch_to(*to);
}

ActAs::ActAs(Lane& lane) : before_(running), own_(lane.block), own_lane_(own_->current_) {
  Block::activate(lane);
}
ActAs::~ActAs() {
  own_->current_ = own_lane_;
  running = before_;
  if constexpr (kChecked) check::present(before_);
}

void Block::enter() {
  Block& b = *running;
  b.launch_->entry(b.launch_->arguments);
  b.finish();
}

uint32_t Block::drawn() {
  random_ = random_ * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<uint32_t>(random_ >> 33);
}

// One warp runs as far as it can, then another one; the late one when nobody else can.
Lane* Block::next_drawn() {
  const auto count = static_cast<uint32_t>(warps_.size());
  const uint32_t first = drawn() % 4 == 0 ? drawn() % count : current_->warp, from = drawn() % kWarp;
  Lane* late = nullptr;
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t w = (first + i) % count;
    const uint64_t ready = warps_[w].ready, up = ready >> from << from;
    if (ready == 0) continue;
    Lane* const found = &lanes_[w * kWarp + __builtin_ctzll(up != 0 ? up : ready)];
    if (w != late_) return found;
    late = found;
  }
  return late;
}

// Whom to run next: higher lanes of the same warp, then lower ones, then other warps. Null: nobody can run.
Lane* Block::next() {
  if (random_ != 0) return next_drawn();
  const Warp& own = warps_[current_->warp];
  if (own.ready != 0) {
    const uint64_t up = own.ready & ~((bit(current_->lane) << 1) - 1);
    return &lanes_[current_->warp * kWarp + __builtin_ctzll(up != 0 ? up : own.ready)];
  }
  return next_anywhere();
}

Lane* Block::next_anywhere() {
  if constexpr (kHopper) return machine::next_lane();
  const auto count = static_cast<uint32_t>(warps_.size());
  for (uint32_t i = 1; i < count; ++i) {
    const uint32_t w = (current_->warp + i) % count;
    if (warps_[w].ready != 0) return &lanes_[w * kWarp + __builtin_ctzll(warps_[w].ready)];
  }
  return nullptr;
}

// Lets others run until this fiber may go on. It does so with current_ set back by whoever switched to it.
void Block::wait() {
  Lane* const to = next();
  if (to == nullptr) stuck();
  switch_to(*to);
}

void Block::switch_to(Lane& to) {
  Lane& from = *current_;
  if (&to == &from) return;
  activate(to);
  switch_context(from.context, to.context);
}

void Block::stuck() {
  if constexpr (kHopper) machine::deadlock(*this);
  stop(Kind::kDeadlock, {},
       std::to_string(waiting_) + " of " + std::to_string(live_) +
           " threads wait at a barrier, the others for lanes of their warps");
}

void Block::finish() {
  Warp& w = warps_[current_->warp];
  if (w.in_collective != 0)
    stop(Kind::kExitedLane, site_of(w.where),
         "lane " + std::to_string(current_->lane) + " leaves the kernel while " +
             lanes_text(w.in_collective) + " of its warp wait for it");
  w.live &= ~bit(current_->lane), w.ready &= ~bit(current_->lane);
  if (--live_ > 0 && waiting_ == live_) release_barrier();
  if constexpr (kHopper) machine::thread_left(*this);
  Context gone;  // of a fiber that never runs again
  if (live_ == 0) switch_context(gone, *home_);
  Lane* const to = next();
  if (to == nullptr) stuck();
  activate(*to);
  switch_context(gone, to->context);
}

// Ends the launch.
void Block::leave() {
  launch_->stop = true;
  Context gone;
  switch_context(gone, *home_);
  __builtin_unreachable();
}

void Block::note(Kind kind, const Site& site, std::string text) {
  Finding f{kind, site, std::move(text), {}, {}};
  std::memcpy(f.block, index_, sizeof index_);
  std::memcpy(f.thread, current_->thread, sizeof f.thread);
  if (!launch_->findings.add(std::move(f))) leave();
}

void Block::stop(Kind kind, const Site& site, std::string text) {
  note(kind, site, std::move(text));
  leave();
}

uint32_t Block::coordinate(int which) const {
  const dim3 *block = &launch_->block, *grid = &launch_->grid;
  switch (which) {
    case 6:
      return block->x;
    case 7:
      return block->y;
    case 8:
      return block->z;
    case 9:
      return grid->x;
    case 10:
      return grid->y;
    case 11:
      return grid->z;
    default:
      return which < 3 ? current_->thread[which] : index_[which - 3];
  }
}

std::string Block::lanes_text(uint64_t lanes) const {
  std::string text = "lanes ";
  if ((lanes & (lanes - 1)) == 0) text = "lane ";
  bool first = true;
  for (uint32_t i = 0; i < kWarp; ++i) {
    if ((lanes & bit(i)) == 0) continue;
    uint32_t last = i;
    while (last + 1 < kWarp && (lanes & bit(last + 1)) != 0) ++last;
    text += (first ? "" : ", ") + std::to_string(i) + (last > i ? "-" + std::to_string(last) : "");
    first = false;
    i = last;
  }
  return text;
}

void Block::release_barrier() {
  for (Warp& w : warps_) w.ready |= w.at_barrier, w.at_barrier = 0;
  waiting_ = 0;
  ++epoch_;
  if constexpr (kHopper && kChecked) order::join_block(*this);
}

void Block::block_barrier(Where where) {
  Warp& w = warps_[current_->warp];
  if (w.in_collective != 0)
    stop(Kind::kDivergence, site_of(where),
         "lane " + std::to_string(current_->lane) + " is at a barrier while " + lanes_text(w.in_collective) +
             " of its warp are at the collective " + text_of(w.where));
  if (waiting_ > 0 && !same(barrier_, where))
    stop(Kind::kBarrierMix, site_of(where),
         std::to_string(waiting_) + " threads of the block wait at the barrier " + text_of(barrier_));
  barrier_ = where;
  w.at_barrier |= bit(current_->lane), w.ready &= ~bit(current_->lane);
  current_->warp_epoch = 0;
  if (++waiting_ == live_)
    release_barrier();
  else
    wait();
}

// Hands over a value; the table of the warp's values when every lane has done so. The last to come completes
// it.
const unsigned char* Block::meet(const void* value, size_t bytes, Where where,
                                 void (*complete)(unsigned char* table)) {
  Warp& w = warps_[current_->warp];
  const uint32_t lane = current_->lane;
  if (w.live != w.lanes)
    stop(Kind::kExitedLane, site_of(where),
         lanes_text(w.lanes & ~w.live) + " of the warp left the kernel before");
  if (w.at_barrier != 0)
    stop(Kind::kDivergence, site_of(where),
         "lane " + std::to_string(lane) + " is at a collective while " + lanes_text(w.at_barrier) +
             " of its warp wait at the barrier " + text_of(barrier_));
  if (w.in_collective != 0 && !same(w.where, where))
    stop(Kind::kDivergence, site_of(where),
         "lane " + std::to_string(lane) + " is here while " + lanes_text(w.in_collective) +
             " of its warp are at " + text_of(w.where));
  w.where = where;
  unsigned char* const table = w.slots[w.parity];
  copy_value(table + lane * kSlotBytes, value, bytes);
  w.in_collective |= bit(lane), w.ready &= ~bit(lane);
  if (w.in_collective == w.live) {
    if (complete != nullptr) complete(table);
    w.ready |= w.in_collective, w.in_collective = 0;
    w.parity ^= 1;
  } else {
    wait();
  }
  return table;
}

void Block::exchange(void* value, size_t bytes, int from, Where where) {
  const unsigned char* const table = meet(value, bytes, where);
  if (from < 0 || from >= kWarp || (warps_[current_->warp].lanes & bit(static_cast<uint32_t>(from))) == 0)
    stop(Kind::kBadLane, site_of(where),
         "lane " + std::to_string(current_->lane) + " asks for lane " + std::to_string(from) +
             ", the warp has " + std::to_string(__builtin_popcountll(warps_[current_->warp].lanes)));
  copy_value(value, table + static_cast<size_t>(from) * kSlotBytes, bytes);
}

void Block::warp_barrier(Where where) {
  const char nothing = 0;
  void (*const joined)(unsigned char*) = kHopper && kChecked ? [](unsigned char*) { order::join_warp(); }
                                                             : static_cast<void (*)(unsigned char*)>(nullptr);
  meet(&nothing, 1, where, joined);
  ++current_->warp_epoch;
}

uint64_t Block::ballot(bool predicate, Where where) {
  const auto mine = static_cast<unsigned char>(predicate);
  const unsigned char* const table = meet(&mine, 1, where);
  uint64_t all = 0;
  for (uint32_t i = 0; i < kWarp; ++i)
    if ((warps_[current_->warp].lanes & bit(i)) != 0 && table[i * kSlotBytes] != 0) all |= bit(i);
  return all;
}

void Block::together(void* value, size_t bytes, void (*complete)(unsigned char* table), Where where) {
  if (const int lanes = __builtin_popcountll(warps_[current_->warp].lanes); lanes != kWarp)
    stop(Kind::kBadLane, site_of(where),
         "a matrix instruction needs " + std::to_string(kWarp) + " lanes, the warp has " +
             std::to_string(lanes));
  std::memcpy(value, meet(value, bytes, where, complete) + current_->lane * kSlotBytes, bytes);
}

void Block::add_array(const void* tag, const char* name, size_t bytes, size_t scalar) {
  const SharedArray& a =
      arrays_.emplace_back(SharedArray{tag, name, arena_used_, bytes, scalar, cells_used_});
  std::memset(arena_ + arena_used_, 0xff, bytes);
  arena_used_ += (bytes + 15) / 16 * 16 + kArrayGap;
  cells_used_ += (bytes >> a.shift()) + 1;
}

void* Block::shared_array(const void* tag, size_t bytes, size_t scalar, const char* name, Where where) {
  for (const SharedArray& a : arrays_)
    if (a.tag == tag) return arena_ + a.offset;
  const size_t rounded = (bytes + 15) / 16 * 16;
  if (static_bytes_ + rounded > kDevice.static_bytes)
    stop(Kind::kSharedOverflow, site_of(where),
         std::string(name) + " brings the static arrays to " + std::to_string(static_bytes_ + rounded) +
             " bytes, " + std::string(kDevice.name) + " has " + std::to_string(kDevice.static_bytes));
  if (static_bytes_ + rounded + launch_->dynamic_bytes > kDevice.shared_bytes)
    stop(Kind::kSharedOverflow, site_of(where),
         std::string(name) + " and the dynamic shared memory need " +
             std::to_string(static_bytes_ + rounded + launch_->dynamic_bytes) + " bytes, " +
             std::string(kDevice.name) + " has " + std::to_string(kDevice.shared_bytes));
  if (arrays_.size() >= kMostArrays)
    stop(Kind::kSharedOverflow, site_of(where), "more than " + std::to_string(kMostArrays) + " arrays");
  static_bytes_ += rounded;
  add_array(tag, name, bytes, scalar);
  return arena_ + arrays_.back().offset;
}

void* Block::dynamic_shared(Where where) {
  if (launch_->dynamic_bytes == 0)
    stop(Kind::kSharedOverflow, site_of(where), "launched without dynamic shared memory");
  return arena_;
}

// ---- what device.hpp declares
unsigned coordinate(int which) { return running->coordinate(which); }
int lane() { return running->lane(); }
void block_barrier(Where where) { running->block_barrier(where); }
void warp_barrier(Where where) { running->warp_barrier(where); }
void exchange(void* value, size_t bytes, int from, Where where) {
  running->exchange(value, bytes, from, where);
}
uint64_t ballot(bool predicate, Where where) { return running->ballot(predicate, where); }
void* shared_array(const void* tag, size_t bytes, size_t scalar, const char* name, Where where) {
  return running->shared_array(tag, bytes, scalar, name, where);
}
void* dynamic_shared_bytes(Where where) { return running->dynamic_shared(where); }
uint64_t nanoseconds() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}
void trap(Where where) { running->stop(Kind::kTrap, site_of(where), ""); }

}  // namespace gpu::emulator
