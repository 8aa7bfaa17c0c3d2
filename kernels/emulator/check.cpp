// SPDX-License-Identifier: Apache-2.0
// See check.hpp. What is known about memory is kept in cells, one per scalar stored there: who wrote it last
// and who has read it since. Operands that are only read need none: no write to them is allowed, so there is
// nothing to race with. One launch runs at a time, on one thread.
#include "kernels/emulator/check.hpp"

#include <link.h>

#include <algorithm>
#include <cstring>

#include "kernels/emulator/check_state.hpp"
#include "kernels/emulator/host.hpp"
#include "kernels/emulator/sm90/gang.hpp"

namespace gpu::emulator::check {

State state;

namespace {

int find_image(dl_phdr_info* info, size_t, void*) {
  const auto here = reinterpret_cast<uintptr_t>(&state);
  Image image{UINTPTR_MAX, 0};
  bool inside = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const uintptr_t begin = info->dlpi_addr + header.p_vaddr, end = begin + header.p_memsz;
    inside = inside || (here >= begin && here < end);
    image.begin = std::min(image.begin, begin), image.end = std::max(image.end, end);
  }
  if (!inside) return 0;
  state.image = image;
  return 1;
}

std::string threads_text(const Record& r) {
  if (r.thread == kSeveralBlocks) return "threads of several blocks";
  std::string text;
  if (r.thread == kSeveralWarps)
    text = "several threads";
  else if (r.thread >= kSeveralOfWarp)
    text = "several threads of warp " + std::to_string(r.thread - kSeveralOfWarp);
  else
    text = "thread " + std::to_string(r.thread);
  if (r.block == state.block->serial()) return text;
  const dim3& g = state.launch->grid;
  const uint32_t n = r.block - state.launch->first_serial;
  return text + " of block (" + std::to_string(n % g.x) + "," + std::to_string(n / g.x % g.y) + "," +
         std::to_string(n / g.x / g.y) + ")";
}

// Whether nothing orders the recorded access before one of the present thread.
bool unordered(const Record& r) {
  const Block& b = *state.block;
  if (r.block == 0) return false;
  if constexpr (kHopper) {  // a launch that began early has waited for the one before it, or not
    if (state.launch->shape.early && r.block >= state.launch->previous_serial &&
        r.block < state.launch->first_serial)
      return !b.state->threads[b.current().linear].waited_previous;
  }
  if (r.block < state.launch->first_serial) return false;  // an earlier launch
  if (r.block != b.serial() || r.thread == kSeveralBlocks) return true;
  if (r.epoch != b.epoch()) return false;
  const Lane& me = b.current();
  if (r.thread == kSeveralWarps) return true;
  if (r.thread == me.linear) return false;
  const uint32_t warp = r.thread >= kSeveralOfWarp ? r.thread - kSeveralOfWarp : r.thread / kWarp;
  return warp != me.warp || r.warp_epoch == me.warp_epoch;
}

Record mine() {
  const Block& b = *state.block;
  return {b.serial(), b.epoch(), static_cast<uint16_t>(b.current().linear), b.current().warp_epoch};
}

// The record of readers with the present thread among them.
Record joined(const Record& r) {
  const Record me = mine();
  if (r.block < state.launch->first_serial) return me;
  if (r.block != me.block || r.thread == kSeveralBlocks) return {me.block, me.epoch, kSeveralBlocks, 0};
  if (r.epoch != me.epoch || r.thread == me.thread) return me;
  const uint32_t warp = state.block->current().warp;
  if (r.thread == kSeveralWarps) return r;
  const uint32_t other = r.thread >= kSeveralOfWarp ? r.thread - kSeveralOfWarp : r.thread / kWarp;
  if (other != warp) return {me.block, me.epoch, kSeveralWarps, 0};
  if (r.warp_epoch != me.warp_epoch) return me;  // whoever read before the warp barrier is ordered by it
  return {me.block, me.epoch, static_cast<uint16_t>(kSeveralOfWarp + warp), me.warp_epoch};
}

struct Place {
  const char* name;
  size_t offset;  // bytes
};
std::string place_text(const Place& p) { return std::string(p.name) + " byte " + std::to_string(p.offset); }

// One cell; `written`: this call (for shared memory this block) has written it.
void visit(Cell& c, Access access, bool written, const Site& site, const Place& place) {
  const bool atomic = access == Access::kAtomic;
  if (access == Access::kObserve) {
    if (unordered(c.write) && !c.atomic_write)
      state.block->note(Kind::kRace, site,
                        place_text(place) + " is observed here and written by " + threads_text(c.write) +
                            " in the ordinary way, and nothing orders the two");
    else if (c.write.block != 0)  // as if an earlier launch had written it
      c.write = {state.launch->first_serial - 1, 0, 0, 0}, c.read = {}, c.atomic_write = 1;
    return;
  }
  if (access != Access::kWrite && !written) {
    state.block->note(Kind::kUninitialised, site, place_text(place) + " was never written");
    return;
  }
  if (unordered(c.write) && !(atomic && c.atomic_write))
    state.block->note(Kind::kRace, site,
                      place_text(place) + (access == Access::kRead ? " is read" : " is written") +
                          " here and written by " + threads_text(c.write) + ", and nothing orders the two");
  if (access == Access::kRead) {
    c.atomic_read = 0;
    c.read = joined(c.read);
    return;
  }
  if (unordered(c.read) && !(atomic && c.atomic_read))
    state.block->note(Kind::kRace, site,
                      place_text(place) + " is written here and read by " + threads_text(c.read) +
                          ", and nothing orders the two");
  c.write = mine();
  c.atomic_write = atomic;
  if (atomic) {
    if (!unordered(c.read)) c.atomic_read = 1;
    c.read = joined(c.read);
  }
}

[[noreturn]] void outside_shared(size_t offset, size_t bytes, const Site& site) {
  const SharedArray* nearest = nullptr;
  for (const SharedArray& a : state.block->arrays())
    if (offset >= a.offset) nearest = &a;
  std::string text = std::to_string(bytes) + " bytes of shared memory outside every array";
  if (nearest != nullptr)
    text = std::to_string(bytes) + " bytes at byte " + std::to_string(offset - nearest->offset) + " of " +
           nearest->name + ", which has " + std::to_string(nearest->bytes);
  state.block->stop(Kind::kOutOfBounds, site, text);
}

// Cells first .. last, the slow way.
void visit_shared(const SharedArray& a, size_t first, size_t last, Access access, const Site& site) {
  const uint32_t serial = state.block->serial();
  for (size_t cell = first; cell <= last; ++cell) {
    Cell& c = state.shared->first[a.first_cell + cell];
    // What another block left there is gone, and so is what is known about it.
    if (c.write.block != serial) c.write = {};
    if (c.read.block != serial) c.read = {};
    visit(c, access, c.write.block != 0, site, {a.name, cell << a.shift()});
  }
}

void shared_access(size_t offset, size_t bytes, Access access, const Site& site) {
  for (const SharedArray& a : state.block->arrays()) {
    const size_t from = offset - a.offset;  // huge when it lies before
    if (from > a.bytes || from + bytes > a.bytes) continue;
    size_t cell = from >> a.shift();
    const size_t last = (from + bytes - 1) >> a.shift();
    if (access == Access::kRead)
      while (cell <= last && known_read(state.shared->first[a.first_cell + cell], *state.block)) ++cell;
    if (cell <= last) visit_shared(a, cell, last, access, site);
    return;
  }
  outside_shared(offset, bytes, site);
}

[[noreturn]] void outside(uintptr_t at, size_t bytes, Access access, const Site& site) {
  std::string text = std::to_string(bytes) + " bytes " + (access == Access::kRead ? "read" : "written");
  const Area *before = nullptr, *after = nullptr;
  for (const Area& a : state.areas) {
    if (reinterpret_cast<uintptr_t>(a.region.begin) <= at)
      before = &a;
    else if (after == nullptr)
      after = &a;
  }
  const size_t past = before == nullptr
                          ? SIZE_MAX
                          : at - reinterpret_cast<uintptr_t>(before->region.begin + before->region.bytes);
  const size_t short_of = after == nullptr ? SIZE_MAX : reinterpret_cast<uintptr_t>(after->region.begin) - at;
  if (before != nullptr && past > SIZE_MAX / 2)  // begins inside, ends outside
    text += " over the end of " + before->region.name;
  else if (before != nullptr && past <= short_of)
    text += " " + std::to_string(past) + " bytes past the end of " + before->region.name;
  else if (after != nullptr)
    text += " " + std::to_string(short_of) + " bytes before the start of " + after->region.name;
  state.block->stop(Kind::kOutOfBounds, site, text);
}

const Area* find(uintptr_t at, size_t bytes) {
  if (state.last != nullptr && state.last->holds(at, bytes)) return state.last;
  const auto next = std::upper_bound(
      state.areas.begin(), state.areas.end(), at,
      [](uintptr_t a, const Area& b) { return a < reinterpret_cast<uintptr_t>(b.region.begin); });
  if (next == state.areas.begin() || !std::prev(next)->holds(at, bytes)) return nullptr;
  return state.last = &*std::prev(next);
}

void global_access(uintptr_t at, size_t bytes, Access access, const Site& site) {
  if (const Area* const area = find(at, bytes); area != nullptr) {
    const Region& r = area->region;
    if (r.role == Role::kInput) {
      if (access != Access::kRead)
        state.block->stop(Kind::kInputWritten, site,
                          r.name + " byte " + std::to_string(at - reinterpret_cast<uintptr_t>(r.begin)));
      return;
    }
    const size_t offset = at - reinterpret_cast<uintptr_t>(r.begin);
    for (size_t cell = offset / r.scalar; cell * r.scalar < offset + bytes; ++cell) {
      Cell& c = area->cells->first[cell];
      visit(c, access, r.role == Role::kUpdated || c.write.block != 0, site,
            {r.name.c_str(), cell * r.scalar});
    }
    return;
  }
  const bool argument = is_argument(at, bytes);
  const bool constant = at >= state.image.begin && at + bytes <= state.image.end;
  if ((argument || constant) && access == Access::kRead) return;
  if (argument || constant)
    state.block->stop(Kind::kInputWritten, site, argument ? "an argument of the kernel" : "a constant");
  outside(at, bytes, access, site);
}

}  // namespace

void begin_call(std::vector<Region> regions) {
  std::erase_if(regions, [](const Region& r) { return r.begin == nullptr || r.bytes == 0; });
  std::sort(regions.begin(), regions.end(),
            [](const Region& a, const Region& b) { return a.begin < b.begin; });
  end_call();
  for (Region& r : regions) {
    if (!state.areas.empty()) {
      Region& p = state.areas.back().region;
      if (r.begin < p.begin + p.bytes) {
        p.bytes = std::max(p.bytes, static_cast<size_t>(r.begin - p.begin) + r.bytes);
        p.scalar = std::min(p.scalar, r.scalar);
        if (r.role != p.role) p.role = Role::kUpdated;
        p.name += "+" + r.name;
        continue;
      }
    }
    state.areas.push_back({std::move(r), nullptr});
  }
  for (Area& a : state.areas)
    if (a.region.role != Role::kInput)
      a.cells = std::make_unique<Cells>((a.region.bytes + a.region.scalar - 1) / a.region.scalar + 1);
}

void end_call() {
  state.areas.clear();
  state.last = nullptr;
}

void begin_launch(Launch& launch) {
  state.launch = &launch;
  if (state.image.end == 0) dl_iterate_phdr(find_image, nullptr);
}
void end_launch() { state.launch = nullptr; }

void present(Block* block) {
  state.block = block;
  if (block != nullptr && !state.shared) state.shared = std::make_unique<Cells>(kArenaBytes);
}

void access(const void* pointer, size_t bytes, Access access, const Site& site) {
  if (state.block == nullptr || bytes == 0) return;  // host code of the same files
  const auto at = reinterpret_cast<uintptr_t>(pointer);
  const Block& b = *state.block;
  if (const size_t offset = at - reinterpret_cast<uintptr_t>(b.stack_of_current()); offset < kStackBytes) {
    if constexpr (kHopper) machine::registers_touched(offset, bytes, access != Access::kRead, site);
    return;
  }
  if (const size_t offset = at - reinterpret_cast<uintptr_t>(b.arena()); offset < kArenaBytes) {
    if constexpr (kHopper) return order::ordinary(offset, bytes, access, site);
    return shared_access(offset, bytes, access, site);
  }
  global_access(at, bytes, access, site);
}

}  // namespace gpu::emulator::check
