// SPDX-License-Identifier: Apache-2.0
// See order.hpp. The entities of a block, one behind the other: threads, their cp.async, the products of
// warps, their bulk stores, barriers (the boxes each waits for); blocks of a cluster follow each other.
#include "kernels/emulator/sm90/order.hpp"

#include <algorithm>
#include <string>

#include "kernels/emulator/sm90/gang.hpp"
#include "kernels/emulator/symbols.hpp"

namespace gpu::emulator::order {
namespace {

using machine::BarrierState;
using machine::BlockState;
using machine::ThreadState;
using machine::WarpState;

constexpr uint8_t kOrdinary = 1;  // Cell::flags: the last write was an ordinary one, or a cp.async
constexpr uint8_t kBox = 2;       // a box, of the swizzle in the bits above
constexpr unsigned kSwizzleShift = 2;
constexpr size_t kMostSites = 60000;

struct Numbers {
  uint32_t threads = 0, warps = 0, block = 0, all = 0;
} numbers;
std::vector<Site> sites;

uint32_t first_of(const BlockState& b) { return b.rank * numbers.block; }
uint32_t thread_of(const Lane& l) { return first_of(*l.block->state) + l.linear; }
uint32_t products_of(const BlockState& b, unsigned warp) { return first_of(b) + 2 * numbers.threads + warp; }
uint32_t stores_of(const BlockState& b, unsigned warp) { return products_of(b, warp) + numbers.warps; }
uint32_t barrier_of(const BlockState& b, const BarrierState& bar) {
  return first_of(b) + 2 * numbers.threads + 2 * numbers.warps +
         static_cast<uint32_t>(&bar - b.barriers.data());
}
View& view_of(const Lane& l) { return l.block->state->threads[l.linear].view; }

void raise(Clock& into, const Clock& from) {
  if (from.empty()) return;
  if (into.empty()) {
    into = from;
    return;
  }
  uint32_t* const a = into.data();
  const uint32_t* const b = from.data();
  const size_t count = into.size();
  for (size_t i = 0; i < count; ++i) a[i] = a[i] < b[i] ? b[i] : a[i];
}
void raise(uint32_t& at, uint32_t to) { at = std::max(at, to); }
void add_own(Clock& known, Clock& fenced, const Lane& l) {
  const View& v = view_of(l);
  const uint32_t own = thread_of(l);
  raise(known[own], v.tick), raise(known[own + numbers.threads], v.copied);
  raise(fenced[own], v.fenced_tick), raise(fenced[own + numbers.threads], v.fenced_copied);
}
void size_clocks(Clock& known, Clock& fenced) {
  if (known.empty()) known.assign(numbers.all, 0);
  if (fenced.empty()) fenced.assign(numbers.all, 0);
}

void merge(ClockRef& into, const ClockRef& from, WarpMemo::Merge& memo) {
  if (from == nullptr || into == from) return;
  if (into == nullptr) {
    into = from;
    return;
  }
  if (memo.into != into || memo.from != from) {
    memo.into = into, memo.from = from;
    auto sum = std::make_shared<Clock>(*into);
    raise(*sum, *from);
    memo.result = *sum == *into ? into : *sum == *from ? from : ClockRef(std::move(sum));
  }
  into = memo.result;
}

template <class Lanes>
void join_all(const Lanes& lanes) {
  Clock known, fenced;
  const Clock *last_known = nullptr, *last_fenced = nullptr;
  for (Lane* l : lanes) {
    const View& v = view_of(*l);
    if (v.known.get() != last_known && v.known) raise(known, *v.known);
    if (v.fenced.get() != last_fenced && v.fenced) raise(fenced, *v.fenced);
    last_known = v.known.get(), last_fenced = v.fenced.get();
  }
  size_clocks(known, fenced);
  for (Lane* l : lanes) add_own(known, fenced, *l);
  const auto all_known = std::make_shared<const Clock>(std::move(known));
  const auto all_fenced = std::make_shared<const Clock>(std::move(fenced));
  for (Lane* l : lanes) {
    View& v = view_of(*l);
    v.known = all_known, v.fenced = all_fenced, ++v.tick;
  }
}

// Whoever reads or writes: what it knows, and how it is remembered.
struct Actor {
  const Clock *known, *fenced;  // may be null
  const View* view;             // of the thread itself; null: nobody's
  uint32_t own;                 // that thread
  Stamp as;
  bool async;
  unsigned swizzle;
  bool knows(const Stamp& s) const {
    if (view != nullptr && s.who == own) return true;
    if (view != nullptr && s.who == own + numbers.threads && s.when <= view->copied) return true;
    return known != nullptr && !known->empty() && (*known)[s.who] >= s.when;
  }
  bool has_fenced(const Stamp& s) const {
    if (view != nullptr && s.who == own && s.when <= view->fenced_tick) return true;
    if (view != nullptr && s.who == own + numbers.threads && s.when <= view->fenced_copied) return true;
    return fenced != nullptr && !fenced->empty() && (*fenced)[s.who] >= s.when;
  }
};
Actor actor_of(Lane& l, Stamp as, bool async, unsigned swizzle) {
  const View& v = view_of(l);
  return {v.known.get(), v.fenced.get(), &v, thread_of(l), as, async, swizzle};
}

uint16_t number_of(const Site& site) {
  for (size_t i = sites.size(); i-- > 0;)
    if (sites[i].pc == site.pc && sites[i].line == site.line && sites[i].file == site.file)
      return static_cast<uint16_t>(i);
  if (sites.size() >= kMostSites) sites.clear();
  sites.push_back(site);
  return static_cast<uint16_t>(sites.size() - 1);
}
std::string site_text(const Site& s) {
  return s.file != nullptr ? base_name(s.file) + ":" + std::to_string(s.line) : source_of(s.pc);
}

std::string text_of(const BlockState& here, const Stamp& s) {
  uint32_t n = s.who % numbers.block;
  const uint32_t rank = s.who / numbers.block;
  std::string text;
  if (n < numbers.threads)
    text = "thread " + std::to_string(n);
  else if ((n -= numbers.threads) < numbers.threads)
    text = "cp.async of thread " + std::to_string(n);
  else if ((n -= numbers.threads) < numbers.warps)
    text = "products of warp " + std::to_string(n);
  else if ((n -= numbers.warps) < numbers.warps)
    text = "bulk stores of warp " + std::to_string(n);
  else {
    n -= numbers.warps;
    const BlockState& b = *here.cluster[rank];
    text = "boxes of phase " + std::to_string(s.when - 1);
    if (n < b.barriers.size()) text += " of the barrier " + machine::barrier_text(b.barriers[n]);
  }
  if (rank != here.rank) text += " of block " + std::to_string(rank) + " of the cluster";
  return text;
}

const SharedArray* array_at(const Block& b, size_t offset, size_t bytes) {
  for (const SharedArray& a : b.arrays())
    if (offset >= a.offset && offset + bytes <= a.offset + a.bytes) return &a;
  return nullptr;
}

struct Access {
  BlockState& block;
  const Actor& actor;
  bool write;
  const Site& site;
};

std::string place_text(const Access& a, size_t cell) {
  const size_t offset = cell * 4;
  const SharedArray* const array = array_at(*a.block.block, offset, 1);
  if (array == nullptr) return "shared memory";
  return std::string(array->name) + " byte " + std::to_string(offset - array->offset);
}

void note(const Access&, Kind kind, const Site& site, std::string text) {
  running_block()->note(kind, site, std::move(text));
}

void forget_readers(BlockMemory& m, Cell& c) {
  c.readers = 0;
  if (c.crowd != 0) {
    m.free_crowds.push_back(c.crowd);
    c.crowd = 0;
  }
}

void add_reader(BlockMemory& m, Cell& c, const Actor& a) {
  if (c.crowd != 0) {
    raise((*m.crowds[c.crowd - 1])[a.as.who], a.as.when);
    return;
  }
  int kept = 0;
  for (int i = 0; i < c.readers; ++i) {
    if (c.reader[i] == a.as.who) {
      c.read[i] = a.as.when;
      return;
    }
  }
  if (c.readers == Cell::kInline) {  // whom this one knows, who must wait for this one waits for, too
    for (int i = 0; i < c.readers; ++i) {
      if (a.knows({c.reader[i], c.read[i]})) continue;
      c.reader[kept] = c.reader[i], c.read[kept] = c.read[i], ++kept;
    }
    c.readers = static_cast<uint16_t>(kept);
  }
  if (c.readers < Cell::kInline) {
    c.reader[c.readers] = a.as.who, c.read[c.readers] = a.as.when, ++c.readers;
    return;
  }
  if (m.free_crowds.empty()) {
    m.crowds.push_back(std::make_unique<Clock>());
    m.free_crowds.push_back(static_cast<uint32_t>(m.crowds.size()));
  }
  c.crowd = m.free_crowds.back();
  m.free_crowds.pop_back();
  Clock& clock = *m.crowds[c.crowd - 1];
  clock.assign(numbers.all, 0);
  for (int i = 0; i < c.readers; ++i) raise(clock[c.reader[i]], c.read[i]);
  raise(clock[a.as.who], a.as.when);
}

void visit(const Access& a, size_t number, uint8_t mask) {
  BlockMemory& m = a.block.memory;
  Cell& c = m.cells[number];
  m.touched[number / BlockMemory::kChunk] = 1;
  const Actor& who = a.actor;
  const char* const does = a.write ? " is written" : " is read";
  if (c.writer == kNobody) {
    if (!a.write) {
      note(a, Kind::kUninitialised, a.site, place_text(a, number) + " was never written");
      return;
    }
  } else {
    const Stamp written{c.writer, c.written};
    const bool apart = a.write && !who.async && (c.flags & kOrdinary) != 0 && (c.mask & mask) == 0;
    if (!apart && !who.knows(written)) {
      note(a, Kind::kRace, a.site,
           place_text(a, number) + does + " here" + (who.async ? " asynchronously" : "") +
               " and written by " + text_of(a.block, written) + " at " + site_text(sites[c.site]) +
               ", and nothing orders the two");
    } else if (who.async && (c.flags & kOrdinary) != 0 && !who.has_fenced(written)) {
      note(a, Kind::kProxy, a.site,
           place_text(a, number) + does + " here asynchronously and was written by " +
               text_of(a.block, written) + " at " + site_text(sites[c.site]) +
               ", with no fence between the two proxies");
    } else if (!a.write && who.async && (c.flags & kBox) != 0 && (c.flags >> kSwizzleShift) != who.swizzle) {
      constexpr const char* kNames[] = {"none", "32 bytes", "64 bytes", "128 bytes"};
      note(a, Kind::kDescriptor, a.site,
           place_text(a, number) + " came with swizzle " + kNames[(c.flags >> kSwizzleShift) & 3] + " (" +
               site_text(sites[c.site]) + ") and is read here with " + kNames[who.swizzle & 3]);
    }
  }
  if (!a.write) {
    add_reader(m, c, who);
    return;
  }
  if (c.crowd != 0) {
    const Clock& clock = *m.crowds[c.crowd - 1];
    for (uint32_t i = 0; i < clock.size(); ++i) {
      if (clock[i] == 0 || who.knows({static_cast<uint16_t>(i), clock[i]})) continue;
      note(a, Kind::kRace, a.site,
           place_text(a, number) + " is overwritten here and read by " +
               text_of(a.block, {static_cast<uint16_t>(i), clock[i]}) + ", and nothing orders the two");
      break;
    }
  }
  for (int i = 0; c.crowd == 0 && i < c.readers; ++i) {
    const Stamp read{c.reader[i], c.read[i]};
    if (who.knows(read)) continue;
    note(a, Kind::kRace, a.site,
         place_text(a, number) + " is overwritten here" + (who.async ? " asynchronously" : "") +
             " and read by " + text_of(a.block, read) + ", and nothing orders the two");
    break;
  }
  forget_readers(m, c);
  const bool same = c.writer == who.as.who && c.written == who.as.when;
  c.mask = static_cast<uint8_t>(same ? c.mask | mask : mask);
  c.writer = who.as.who, c.written = who.as.when;
  c.site = number_of(a.site);
}

void visit_range(const Access& a, size_t offset, size_t bytes, uint8_t flags) {
  const size_t first = offset / 4, last = (offset + bytes - 1) / 4;
  for (size_t cell = first; cell <= last; ++cell) {
    uint8_t mask = 15;
    if (cell == first) mask = static_cast<uint8_t>(mask & (15 << (offset % 4)));
    if (cell == last) mask = static_cast<uint8_t>(mask & (15 >> (3 - (offset + bytes - 1) % 4)));
    visit(a, cell, mask);
    if (a.write) a.block.memory.cells[cell].flags = flags;
  }
}

}  // namespace

void begin_launch(unsigned threads, unsigned cluster) {
  numbers.threads = threads, numbers.warps = (threads + 31) / 32;
  numbers.block = 2 * threads + 2 * numbers.warps + machine::kMostBarriers;
  numbers.all = cluster * numbers.block;
  sites.clear();
}

void begin_block(BlockState& b) {
  BlockMemory& m = b.memory;
  constexpr size_t kCells = kArenaBytes / 4 + 1;
  if (m.cells.empty()) {
    m.cells.assign(kCells, Cell{});
    m.touched.assign(kCells / BlockMemory::kChunk + 1, 0);
  }
  for (size_t chunk = 0; chunk < m.touched.size(); ++chunk) {
    if (m.touched[chunk] == 0) continue;
    const auto first = m.cells.begin() + static_cast<ptrdiff_t>(chunk * BlockMemory::kChunk);
    std::fill_n(first, std::min(BlockMemory::kChunk, kCells - chunk * BlockMemory::kChunk), Cell{});
    m.touched[chunk] = 0;
  }
  m.crowds.clear(), m.free_crowds.clear();
}

void join(const std::vector<Lane*>& lanes) {
  if (!lanes.empty()) join_all(lanes);
}
void join_warp() {
  Block& b = *running_block();
  std::vector<Lane*> lanes;
  for (Lane& l : b.lanes())
    if (l.warp == b.current().warp) lanes.push_back(&l);
  join_all(lanes);
}
void join_block(Block& b) {
  std::vector<Lane*> lanes;
  for (Lane& l : b.lanes()) lanes.push_back(&l);
  join_all(lanes);
}

void gather(Gathering& g, Lane& l) {
  View& v = view_of(l);
  size_clocks(g.known, g.fenced);
  if (v.known) raise(g.known, *v.known);
  if (v.fenced) raise(g.fenced, *v.fenced);
  add_own(g.known, g.fenced, l);
  ++v.tick;
}
void gather_copies(BarrierState& bar, Lane& l, uint32_t number) {
  Gathering& g = bar.gathering;
  size_clocks(g.known, g.fenced);
  raise(g.known[thread_of(l) + numbers.threads], number);
}
void release(Gathering& g, Released& released) {
  size_clocks(g.known, g.fenced);
  if (released.known) raise(g.known, *released.known);
  if (released.fenced) raise(g.fenced, *released.fenced);
  released.known = std::make_shared<const Clock>(std::move(g.known));
  released.fenced = std::make_shared<const Clock>(std::move(g.fenced));
  g = {};
}
void release(BlockState& b, BarrierState& bar) {
  size_clocks(bar.gathering.known, bar.gathering.fenced);
  bar.gathering.known[barrier_of(b, bar)] = bar.phase;
  release(bar.gathering, bar.released);
}
void acquire(Lane& l, const Released& released) {
  View& v = view_of(l);
  WarpMemo& memo = l.block->state->warps[l.warp].memo;
  merge(v.known, released.known, memo.known);
  merge(v.fenced, released.fenced, memo.fenced);
}
void acquire(Lane& l, const BarrierState& bar) { acquire(l, bar.released); }
void acquire(const std::vector<Lane*>& lanes, Gathering& g) {
  if (g.known.empty()) return;
  const auto known = std::make_shared<const Clock>(std::move(g.known));
  const auto fenced = std::make_shared<const Clock>(std::move(g.fenced));
  g = {};
  for (Lane* l : lanes) {
    WarpMemo& memo = l->block->state->warps[l->warp].memo;
    merge(view_of(*l).known, known, memo.known);
    merge(view_of(*l).fenced, fenced, memo.fenced);
  }
}
void fence(Lane& l) {
  View& v = view_of(l);
  v.fenced = v.known, v.fenced_tick = v.tick, v.fenced_copied = v.copied;
  ++v.tick;
}
void copies_done(Lane& l, uint32_t number) { raise(view_of(l).copied, number); }
void stores_read(Lane& l, uint32_t number) {
  View& v = view_of(l);
  auto more = v.known ? std::make_shared<Clock>(*v.known) : std::make_shared<Clock>(numbers.all, 0);
  raise((*more)[stores_of(*l.block->state, l.warp)], number);
  v.known = std::move(more);
}
void products_done(BlockState& b, unsigned warp, uint32_t group) {
  const uint32_t entity = products_of(b, warp);
  ClockRef before, after;
  for (Lane& l : b.block->lanes()) {
    if (l.warp != warp) continue;
    View& v = view_of(l);
    if (after == nullptr || v.known != before) {
      before = v.known;
      auto more = v.known ? std::make_shared<Clock>(*v.known) : std::make_shared<Clock>(numbers.all, 0);
      raise((*more)[entity], group);
      after = std::move(more);
    }
    v.known = after;
  }
}
Stamp stamp(Lane& l) { return {static_cast<uint16_t>(thread_of(l)), view_of(l).tick}; }
bool ordered(Lane& l, const Stamp& s) { return actor_of(l, {}, false, 0).knows(s); }
bool fenced(Lane& l, const Stamp& s) { return actor_of(l, {}, true, 0).has_fenced(s); }

void ordinary(size_t offset, size_t bytes, check::Access access, const Site& site) {
  Block& block = *running_block();
  BlockState& b = *block.state;
  if (array_at(block, offset, bytes) == nullptr)
    block.stop(Kind::kOutOfBounds, site,
               std::to_string(bytes) + " bytes at byte " + std::to_string(offset) +
                   " of shared memory, outside every array");
  Lane& lane = const_cast<Lane&>(block.current());
  const bool write = access != check::Access::kRead;
  if (write)
    for (size_t at = offset / 8; at <= (offset + bytes - 1) / 8; ++at)
      if (b.barrier_at[at] >= 0)
        block.note(Kind::kBarrier, site,
                   "an ordinary write to the barrier " +
                       machine::barrier_text(b.barriers[static_cast<size_t>(b.barrier_at[at])]));
  const Actor actor = actor_of(lane, stamp(lane), false, 0);
  const Access a{b, actor, write, site};
  visit_range(a, offset, bytes, kOrdinary);
}

void box_writes(BlockState& b, size_t offset, size_t bytes, Lane& by, const BarrierState& bar,
                unsigned swizzle, const Site& site) {
  const Actor actor = actor_of(by, {static_cast<uint16_t>(barrier_of(b, bar)), bar.phase + 1}, true, swizzle);
  visit_range({b, actor, true, site}, offset, bytes, static_cast<uint8_t>(kBox | swizzle << kSwizzleShift));
}
void copy_writes(BlockState& b, size_t offset, size_t bytes, Lane& by, uint32_t number, const Site& site) {
  const Actor actor =
      actor_of(by, {static_cast<uint16_t>(thread_of(by) + numbers.threads), number}, false, 0);
  visit_range({b, actor, true, site}, offset, bytes, kOrdinary);
}
void store_reads(BlockState& b, size_t offset, size_t bytes, Lane& by, uint32_t number, unsigned swizzle,
                 const Site& site) {
  const Actor actor = actor_of(by, {static_cast<uint16_t>(stores_of(b, by.warp)), number}, true, swizzle);
  visit_range({b, actor, false, site}, offset, bytes, 0);
}

void product_reads(BlockState& b, unsigned warp, size_t offset, size_t bytes, uint32_t group,
                   unsigned swizzle, const Site& site) {
  WarpMemo& memo = b.warps[warp].memo;
  Lane* const lanes = &b.block->lanes()[warp * 32];
  bool same = !memo.all_known.empty();
  for (unsigned i = 0; i < 32 && same; ++i)
    same = memo.key[2 * i] == view_of(lanes[i]).known && memo.key[2 * i + 1] == view_of(lanes[i]).fenced;
  if (!same) {
    for (unsigned i = 0; i < 32; ++i)
      memo.key[2 * i] = view_of(lanes[i]).known, memo.key[2 * i + 1] = view_of(lanes[i]).fenced;
    const auto least = [&](Clock& all, const auto& part) {
      const Clock* last = nullptr;
      all.clear();
      for (int i = 0; i < 32; ++i) {
        const Clock* const c = part(view_of(lanes[i]));
        if (c == last && !all.empty()) continue;
        last = c;
        if (c == nullptr) {
          all.assign(numbers.all, 0);
          break;
        }
        if (all.empty())
          all = *c;
        else
          for (size_t k = 0; k < all.size(); ++k) all[k] = std::min(all[k], (*c)[k]);
      }
    };
    least(memo.all_known, [](const View& v) { return v.known.get(); });
    least(memo.all_fenced, [](const View& v) { return v.fenced.get(); });
  }
  const Actor actor{&memo.all_known,
                    &memo.all_fenced,
                    nullptr,
                    0,
                    {static_cast<uint16_t>(products_of(b, warp)), group},
                    true,
                    swizzle};
  visit_range({b, actor, false, site}, offset, bytes, 0);
}

}  // namespace gpu::emulator::order
