// SPDX-License-Identifier: Apache-2.0
// Copies into and out of shared memory, and what warps move between it and registers (see machine.hpp; PTX
// ISA, sections "cp.async", "cp.async.bulk.tensor", "ldmatrix", "stmatrix"; CUDA driver API,
// cuTensorMapEncodeTiled).
#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/emulator/check.hpp"
#include "kernels/emulator/sm90/gang.hpp"

namespace gpu::emulator {

bool encode_map(TensorMap* map, uint32_t element_bytes, uint32_t rank, void* data, const uint64_t* sizes,
                const uint64_t* strides, const uint32_t* boxes, const uint32_t* steps, uint32_t swizzle) {
  if (map == nullptr || rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(data) % 16 != 0 || swizzle > 3)
    return false;
  TensorMap m{};
  m.data = static_cast<unsigned char*>(data);
  m.rank = static_cast<uint8_t>(rank), m.element_bytes = static_cast<uint8_t>(element_bytes);
  m.swizzle = static_cast<uint8_t>(swizzle), m.magic = TensorMap::kMagic;
  for (uint32_t i = 0; i < 5; ++i) m.size[i] = 1, m.box[i] = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > uint64_t{1} << 32 || boxes[i] < 1 || boxes[i] > 256 || steps[i] != 1)
      return false;
    m.size[i] = sizes[i], m.box[i] = static_cast<uint16_t>(boxes[i]);
    if (i == 0) continue;
    if (strides[i - 1] % 16 != 0 || strides[i - 1] >= uint64_t{1} << 40) return false;
    m.stride[i - 1] = strides[i - 1];
  }
  const uint32_t row = boxes[0] * element_bytes;
  if (row % 16 != 0 || (swizzle > 0 && row > 16u << swizzle)) return false;
  *map = m;
  return true;
}

namespace machine {
namespace {

Lane& current() { return const_cast<Lane&>(running_block()->current()); }

uint32_t row_bytes(const TensorMap& m) { return uint32_t{m.box[0]} * m.element_bytes; }
uint32_t box_rows(const TensorMap& m) { return uint32_t{m.box[1]} * m.box[2] * m.box[3] * m.box[4]; }

const TensorMap& checked_map(const TensorMap& m, const Corner& at, Where where) {
  TensorMap copy;  // kernels' parameters are not shared memory: nothing to check
  std::memcpy(&copy, &m, sizeof copy);
  if (copy.magic != TensorMap::kMagic)
    running_block()->stop(Kind::kDescriptor, site_of(where), "no tensor map: nothing has encoded it");
  if (copy.rank != at.axes)
    running_block()->stop(
        Kind::kDescriptor, site_of(where),
        "a box of " + std::to_string(at.axes) + " axes of a tensor map of " + std::to_string(copy.rank));
  return m;
}

void require_box(BlockState& s, const TensorMap& m, uint32_t at, Where where) {
  require_shared(s, at, static_cast<size_t>(box_bytes(m)), where);
  const uint32_t alignment = m.swizzle == 0 ? 128 : 128u << m.swizzle;
  if (at % alignment != 0)
    running_block()->stop(Kind::kDescriptor, site_of(where),
                          "a box at byte " + std::to_string(at - kWindow) +
                              " of shared memory; with this swizzle it must begin at a multiple of " +
                              std::to_string(alignment));
  if (m.swizzle != 0 && row_bytes(m) != 16u << m.swizzle)
    refuse("a swizzled box whose rows are shorter than the swizzle", where);
}

// One 16-byte chunk of a box at a time: where it lies in shared memory and in the tensor, and how many of its
// bytes the tensor has (the first, `skip`, may lie before it).
template <class Each>
void for_chunks(const TensorMap& m, const Corner& corner, uint32_t memory, const Each& each) {
  const uint32_t row = row_bytes(m);
  for (uint32_t r = 0; r < box_rows(m); ++r) {
    bool inside = true;
    int64_t line = 0;  // bytes from the start of the tensor
    for (uint32_t axis = 1, rest = r; axis < corner.axes; rest /= m.box[axis], ++axis) {
      const int64_t at = int64_t{corner.at[axis]} + rest % m.box[axis];
      inside = inside && at >= 0 && at < static_cast<int64_t>(m.size[axis]);
      line += at * static_cast<int64_t>(m.stride[axis - 1]);
    }
    for (uint32_t c = 0; c < row; c += 16) {
      const int64_t x = int64_t{corner.at[0]} * m.element_bytes + c;  // byte of the row of the tensor
      const int64_t end = static_cast<int64_t>(m.size[0]) * m.element_bytes;
      const int64_t first = std::clamp<int64_t>(-x, 0, 16), last = std::clamp<int64_t>(end - x, 0, 16);
      unsigned char* const from = m.data + (inside ? line + x : 0);
      each(swizzled(memory + r * row + c, m.swizzle), from, inside ? first : 0,
           inside && last > first ? last : 0);
    }
  }
}

}  // namespace

unsigned char* memory_at(BlockState& s, uint32_t address) {
  return const_cast<unsigned char*>(s.block->arena()) + (address - kWindow);
}

void require_shared(BlockState& s, uint32_t address, size_t bytes, Where where) {
  const size_t offset = address - size_t{kWindow};
  if (address >= kWindow)
    for (const SharedArray& a : s.block->arrays())
      if (offset >= a.offset && offset + bytes <= a.offset + a.bytes) return;
  running_block()->stop(Kind::kOutOfBounds, site_of(where),
                        std::to_string(bytes) + " bytes at address " + std::to_string(address) +
                            " of shared memory, outside every array");
}

uint32_t shared_address(const void* p, Where where) {
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(p) - running_block()->arena());
  if (offset >= kArenaBytes)
    running_block()->stop(Kind::kOutOfBounds, site_of(where), "an address that is none of shared memory");
  return static_cast<uint32_t>(offset) + kWindow;
}

// ---- cp.async
void copy(uint32_t to, const void* from, uint32_t bytes, bool valid, Where where) {
  BlockState& s = here();
  Lane& lane = current();
  ThreadState& t = s.of(lane);
  require_shared(s, to, bytes, where);
  if (to % bytes != 0 || (valid && reinterpret_cast<uintptr_t>(from) % bytes != 0))
    running_block()->stop(
        Kind::kMisaligned, site_of(where),
        std::to_string(bytes) + " bytes at an address that is no multiple of " + std::to_string(bytes));
  const uint32_t number = ++t.issued;
  if constexpr (kChecked) {
    if (valid) check::access(from, bytes, check::Access::kRead, site_of(where));
    order::copy_writes(s, to - kWindow, bytes, lane, number, site_of(where));
  }
  t.copies.push_back({to, number, bytes, from, valid, where});
}
void commit_copies() {
  ThreadState& t = here().of(current());
  t.groups.push_back(t.issued);
}
void perform_copies(Lane& lane, uint32_t up_to) {
  BlockState& s = *lane.block->state;
  ThreadState& t = s.of(lane);
  while (!t.copies.empty() && t.copies.front().number <= up_to) {
    const Copy& c = t.copies.front();
    if (c.valid)
      std::memcpy(memory_at(s, c.to), c.from, c.bytes);
    else
      std::memset(memory_at(s, c.to), 0, c.bytes);
    t.copies.pop_front();
  }
}
void wait_copies(int younger) {
  Lane& lane = current();
  ThreadState& t = here().of(lane);
  while (static_cast<int>(t.groups.size()) > younger) {
    const uint32_t number = t.groups.front();
    t.groups.pop_front();
    perform_copies(lane, number);
    if constexpr (kChecked) order::copies_done(lane, number);
  }
}
void arrive_when_copied(uint32_t bar, Where where) {
  BlockState& s = here();
  barrier(s, bar, where);
  Lane& lane = current();
  gang.jobs.push_back(
      std::make_unique<Job>(Job{Job::kArrival, &lane, &s, {}, {}, 0, bar, s.of(lane).issued, where}));
}

// ---- boxes
void load_box(uint32_t blocks, uint32_t to, const TensorMap& map, uint32_t bar, const Corner& at,
              Where where) {
  BlockState& mine = here();
  Lane& lane = current();
  Block& now = *running_block();
  const TensorMap& m = checked_map(map, at, where);
  if (blocks >> mine.cluster.size() != 0)
    now.stop(Kind::kBarrier, site_of(where), "a box for blocks that the cluster has not");
  for (unsigned r = 0; r < mine.cluster.size(); ++r) {
    if (blocks == 0 ? r != mine.rank : (blocks >> r & 1) == 0) continue;
    BlockState& s = *mine.cluster[r];
    if (s.left) now.stop(Kind::kBarrier, site_of(where), "a box for a block that has ended");
    require_box(s, m, to, where);
    BarrierState& b = barrier(s, bar, where);
    if constexpr (kChecked) {
      if (!order::fenced(lane, b.init_stamp))
        now.note(Kind::kProxy, site_of(where),
                 "no fence between the initialisation of the barrier " + barrier_text(b) +
                     " and the box that signals it");
      for_chunks(m, at, to, [&](uint32_t chunk, const unsigned char* from, int64_t first, int64_t last) {
        order::box_writes(s, chunk - kWindow, 16, lane, b, m.swizzle, site_of(where));
        if (last > first && r == mine.rank)
          check::access(from + first, static_cast<size_t>(last - first), check::Access::kRead,
                        site_of(where));
      });
    }
    b.boxes = b.phase + 1;
    Job job{Job::kLoad, &lane, &s, {}, at, to, bar, b.phase, where};
    std::memcpy(&job.map, &m, sizeof job.map);
    gang.jobs.push_back(std::make_unique<Job>(job));
  }
}

void send(uint32_t to, uint32_t bar, uint32_t rank, const float* values, uint32_t bytes, Where where) {
  BlockState& s = block_of_cluster(rank, where);
  Lane& lane = current();
  require_shared(s, to, bytes, where);
  if (to % bytes != 0)
    running_block()->stop(
        Kind::kMisaligned, site_of(where),
        std::to_string(bytes) + " bytes at an address that is no multiple of " + std::to_string(bytes));
  BarrierState& b = barrier(s, bar, where);
  if constexpr (kChecked) order::box_writes(s, to - kWindow, bytes, lane, b, 0, site_of(where));
  Job job{Job::kSend, &lane, &s, {}, {}, to, bar, bytes, where};
  std::memcpy(job.values, values, bytes);
  gang.jobs.push_back(std::make_unique<Job>(job));
}

void store_box(const TensorMap& map, uint32_t from, const Corner& at, Where where) {
  BlockState& s = here();
  Lane& lane = current();
  const TensorMap& m = checked_map(map, at, where);
  require_box(s, m, from, where);
  WarpState& w = s.warp_of(lane);
  if (w.storer != nullptr && w.storer != &lane) refuse("bulk stores by several lanes of a warp", where);
  w.storer = &lane;
  const uint32_t number = ++w.store_number;
  if constexpr (kChecked)
    for_chunks(m, at, from, [&](uint32_t chunk, unsigned char* to, int64_t first, int64_t last) {
      order::store_reads(s, chunk - kWindow, 16, lane, number, m.swizzle, site_of(where));
      if (last > first)
        check::access(to + first, static_cast<size_t>(last - first), check::Access::kWrite, site_of(where));
    });
  Job job{Job::kStore, &lane, &s, {}, at, from, 0, number, where};
  std::memcpy(&job.map, &m, sizeof job.map);
  gang.jobs.push_back(std::make_unique<Job>(job));
}
void store_commit() {
  BlockState& s = here();
  Lane& lane = current();
  if (s.warp_of(lane).storer == &lane) s.of(lane).stores_committed = s.warp_of(lane).store_number;
}
void store_wait_read() {
  BlockState& s = here();
  Lane& lane = current();
  if (s.warp_of(lane).storer != &lane) return;
  const uint32_t number = s.of(lane).stores_committed;
  for (size_t i = 0; i < gang.jobs.size();) {
    const Job& j = *gang.jobs[i];
    if (j.what == Job::kStore && j.by == &lane && j.number <= number)
      do_job(i);
    else
      ++i;
  }
  if constexpr (kChecked) order::stores_read(lane, number);
}
void finish_stores(BlockState& s) {
  for (size_t i = 0; i < gang.jobs.size();) {
    const Job& j = *gang.jobs[i];
    if (j.what == Job::kStore && j.block == &s)
      do_job(i);
    else
      ++i;
  }
}
void fence_async() {
  if constexpr (kChecked) order::fence(current());
}

void perform(Job& job) {
  const ActAs lane(*job.by);
  BlockState& s = *job.block;
  switch (job.what) {
    case Job::kArrival: {
      perform_copies(*job.by, job.number);
      BarrierState& b = barrier(s, job.barrier, job.where);
      if constexpr (kChecked) order::gather_copies(b, *job.by, job.number);
      arrive(s, b, job.where);
      return;
    }
    case Job::kLoad: {
      for_chunks(job.map, job.at, job.memory,
                 [&](uint32_t chunk, const unsigned char* from, int64_t first, int64_t last) {
                   unsigned char* const to = memory_at(s, chunk);
                   std::memset(to, 0, 16);
                   if (last > first) std::memcpy(to + first, from + first, static_cast<size_t>(last - first));
                 });
      take_bytes(s, barrier(s, job.barrier, job.where), box_bytes(job.map), job.where);
      return;
    }
    case Job::kSend:
      if (s.left)
        running_block()->stop(
            Kind::kBarrier, site_of(job.where),
            "block " + std::to_string(s.rank) + " has ended before what is sent to it comes");
      std::memcpy(memory_at(s, job.memory), job.values, job.number);
      take_bytes(s, barrier(s, job.barrier, job.where), job.number, job.where);
      return;
    case Job::kStore:
      for_chunks(job.map, job.at, job.memory,
                 [&](uint32_t chunk, unsigned char* to, int64_t first, int64_t last) {
                   if (last > first)
                     std::memcpy(to + first, memory_at(s, chunk) + first, static_cast<size_t>(last - first));
                 });
      return;
  }
}

// ---- matrices of a warp. A lane reads or writes the row it names; the registers go across lanes.
namespace {

void distribute(unsigned char* table) {  // rows of 16 bytes -> registers, as ldmatrix
  uint16_t rows[32][8];
  for (int l = 0; l < 32; ++l) std::memcpy(rows[l], table + l * kSlotBytes, 16);
  for (int l = 0; l < 32; ++l) {
    uint16_t r[4][2];
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e) r[i][e] = rows[8 * i + l / 4][2 * (l % 4) + e];
    std::memcpy(table + l * kSlotBytes, r, 16);
  }
}
void distribute_transposed(unsigned char* table) {
  uint16_t rows[32][8];
  for (int l = 0; l < 32; ++l) std::memcpy(rows[l], table + l * kSlotBytes, 16);
  for (int l = 0; l < 32; ++l) {
    uint16_t r[4][2];
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e) r[i][e] = rows[8 * i + 2 * (l % 4) + e][l / 4];
    std::memcpy(table + l * kSlotBytes, r, 16);
  }
}
template <bool kTransposed>
void collect(unsigned char* table) {  // registers -> rows, as stmatrix
  uint16_t r[32][4][2];
  for (int l = 0; l < 32; ++l) std::memcpy(r[l], table + l * kSlotBytes, 16);
  uint16_t rows[32][8];
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < 4; ++i)
      for (int e = 0; e < 2; ++e) {
        if (kTransposed)
          rows[8 * i + 2 * (l % 4) + e][l / 4] = r[l][i][e];
        else
          rows[8 * i + l / 4][2 * (l % 4) + e] = r[l][i][e];
      }
  for (int l = 0; l < 32; ++l) std::memcpy(table + l * kSlotBytes, rows[l], 16);
}
void turn(unsigned char* table) {  // movmatrix
  uint16_t x[8][8];
  for (int l = 0; l < 32; ++l) std::memcpy(&x[l / 4][2 * (l % 4)], table + l * kSlotBytes, 4);
  for (int l = 0; l < 32; ++l) {
    const uint16_t r[2] = {x[2 * (l % 4)][l / 4], x[2 * (l % 4) + 1][l / 4]};
    std::memcpy(table + l * kSlotBytes, r, 4);
  }
}

void require_row(BlockState& s, uint32_t at, Where where) {
  require_shared(s, at, 16, where);
  if (at % 16 != 0)
    running_block()->stop(Kind::kMisaligned, site_of(where),
                          "a row of a matrix at an address that is no multiple of 16");
}

}  // namespace

void load_matrix(uint32_t (&r)[4], uint32_t from, bool transposed, Where where) {
  BlockState& s = here();
  require_row(s, from, where);
  if constexpr (kChecked) order::ordinary(from - kWindow, 16, check::Access::kRead, site_of(where));
  unsigned char row[16];
  std::memcpy(row, memory_at(s, from), 16);
  running_block()->together(row, 16, transposed ? distribute_transposed : distribute, where);
  std::memcpy(r, row, 16);
}
void store_matrix(uint32_t to, const uint32_t (&r)[4], bool transposed, Where where) {
  BlockState& s = here();
  require_row(s, to, where);
  unsigned char row[16];
  std::memcpy(row, r, 16);
  running_block()->together(row, 16, transposed ? collect<true> : collect<false>, where);
  if constexpr (kChecked) order::ordinary(to - kWindow, 16, check::Access::kWrite, site_of(where));
  std::memcpy(memory_at(s, to), row, 16);
}
uint32_t transpose(uint32_t x, Where where) {
  running_block()->together(&x, sizeof x, turn, where);
  return x;
}
void store_shared(uint32_t to, uint32_t x, Where where) {
  BlockState& s = here();
  require_shared(s, to, 4, where);
  if (to % 4 != 0)
    running_block()->stop(Kind::kMisaligned, site_of(where),
                          "4 bytes at an address that is no multiple of 4");
  if constexpr (kChecked) order::ordinary(to - kWindow, 4, check::Access::kWrite, site_of(where));
  std::memcpy(memory_at(s, to), &x, 4);
}

}  // namespace machine
}  // namespace gpu::emulator
