// SPDX-License-Identifier: Apache-2.0
// Products of a warpgroup (PTX ISA, sections "wgmma.mma_async", "Matrix descriptor", "wgmma.fence"). Each
// warp computes its own 16 rows of D, when it waits for them: what operands then hold counts. Sums are formed
// as measured on an H200 (results/h200/README.md): for 16-bit formats 16 products and the accumulator aligned
// to the largest exponent, cut to 25 fraction bits, added exactly, the sum cut to 23; for e4m3 32 products
// and 13 bits; of int8 exactly, in int32 (accumulators of whole numbers are kept in floats, by their bits).
#include <bit>
#include <cstring>
#include <limits>
#include <string>

#include "kernels/emulator/block_sums.hpp"
#include "kernels/emulator/sm90/gang.hpp"

namespace gpu::emulator::machine {
namespace {

constexpr int kRows = 16, kMostColumns = 256, kMostDepth = 32;
constexpr uint32_t kSpan = 128;  // bytes of a row of an operand: its swizzle

struct Issue {  // what a lane hands over
  float* sums;
  const uint32_t* registers;
  uint64_t a, b;
};
static_assert(sizeof(Issue) <= kSlotBytes);
// Of the call in progress: set by every lane before it hands over its part, so by the last one, too.
struct Call {
  Product shape;
  Where where;
  int left;
} call;

Lane& current() { return const_cast<Lane&>(running_block()->current()); }
int bytes_of(Format f) { return f == Format::kE4m3 || f == Format::kInt8 ? 1 : 2; }
int depth_of(Format f) { return 32 / bytes_of(f); }

// An operand in shared memory: where its lines (rows of A, columns of B) lie.
struct Descriptor {
  uint32_t start, leading, stride;
  bool by_rows;  // MN-major
  int lines;
  // 16 bytes: K-major: line i, part c of 2; MN-major: k = i, lines 8 c to 8 c + 7.
  uint32_t chunk(int i, int c) const {
    const uint32_t at =
        by_rows ? start + static_cast<uint32_t>(i / 8) * stride + static_cast<uint32_t>(i % 8) * kSpan +
                      static_cast<uint32_t>(c / 8) * leading + static_cast<uint32_t>(c % 8) * 16
                : start + static_cast<uint32_t>(i / 8) * stride + static_cast<uint32_t>(i % 8) * kSpan +
                      static_cast<uint32_t>(c) * 16;
    return swizzled(at, 3);
  }
  int outer() const { return by_rows ? 16 : lines; }
  int inner() const { return by_rows ? lines / 8 : 2; }
};

Descriptor decode(uint64_t d, bool by_rows, int lines, Format format, Where where) {
  const auto wrong = [&](const std::string& why) {
    running_block()->stop(Kind::kDescriptor, site_of(where), why);
  };
  const auto field = [&](int shift) { return static_cast<uint32_t>(d >> shift & 0x3FFF) << 4; };
  const Descriptor r{field(0), field(16), field(32), by_rows, lines};
  if (d >> 62 != 1) refuse("an operand without 128-byte swizzle", where);
  if ((d >> 49 & 7) != 0) refuse("a descriptor with a base offset", where);
  if (by_rows && bytes_of(format) == 1) wrong("an 8-bit operand that is not K-major");
  const uint32_t in = r.start % 1024;
  if (by_rows ? in != 0 : in % 32 != 0 || in >= kSpan)
    wrong("an operand that begins at byte " + std::to_string(in) + " of eight rows of 128 bytes; " +
          (by_rows ? "0" : "0, 32, 64 and 96") + " are possible");
  for (int i = 0; i < r.outer(); ++i)
    for (int c = 0; c < r.inner(); ++c) {
      const uint32_t at = r.chunk(i, c);
      bool inside = false;
      for (const SharedArray& a : running_block()->arrays())
        inside = inside || (at >= kWindow + a.offset && at + 16 <= kWindow + a.offset + a.bytes);
      if (!inside)
        wrong("an operand that reaches byte " + std::to_string(static_cast<int64_t>(at) - kWindow) +
              " of shared memory, outside every array");
    }
  return r;
}

void read_of(BlockState& s, unsigned warp, const Descriptor& d, uint32_t group, Where where) {
  const Site site = site_of(where);
  for (int i = 0; i < d.outer(); ++i)
    for (int c = 0; c < d.inner(); ++c)
      order::product_reads(s, warp, d.chunk(i, c) - kWindow, 16, group, 3, site);
}

// ---- arithmetic
struct Side {  // an operand, by k
  float value[kMostDepth][kMostColumns];
  int exponent[kMostDepth][kMostColumns];
  bool finite[kMostColumns];  // of a line
};
Side side_a, side_b;

float float_of(uint32_t code, Format f) {
  switch (f) {
    case Format::kBf16:
      return assay_kernels::float_from_bf16(static_cast<uint16_t>(code));
    case Format::kFp16:
      return assay_kernels::float_from_fp16(static_cast<uint16_t>(code));
    case Format::kInt8:
      return static_cast<float>(static_cast<int8_t>(code));
    default:
      return assay_kernels::float_from_fp8(static_cast<uint8_t>(code), ASSAY_FP8_E4M3);
  }
}
int smallest_of(Format f) { return f == Format::kBf16 ? -126 : f == Format::kFp16 ? -14 : -6; }

void put(Side& side, int k, int line, uint32_t code, Format f) {
  const Number n = number(float_of(code, f), smallest_of(f));
  side.value[k][line] = static_cast<float>(n.value);
  side.exponent[k][line] = n.exponent;
  side.finite[line] = side.finite[line] && std::isfinite(n.value);
}
void clear(Side& side, int lines) { std::fill(side.finite, side.finite + lines, true); }

// Lines first .. first + count of an operand in shared memory.
void load(Side& side, BlockState& s, const Descriptor& d, int first, int count, Format f) {
  clear(side, count);
  const int bytes = bytes_of(f), each = 16 / bytes;
  for (int i = 0; i < d.outer(); ++i)
    for (int c = 0; c < d.inner(); ++c) {
      if (d.by_rows ? 8 * c + 8 <= first || 8 * c >= first + count : i < first || i >= first + count)
        continue;
      unsigned char chunk[16];
      std::memcpy(chunk, memory_at(s, d.chunk(i, c)), 16);
      for (int e = 0; e < each; ++e) {
        uint32_t code = chunk[e * bytes];
        if (bytes == 2) code |= static_cast<uint32_t>(chunk[2 * e + 1]) << 8;
        if (d.by_rows)
          put(side, i, 8 * c + e - first, code, f);
        else
          put(side, c * each + e, i - first, code, f);
      }
    }
}
// A from registers: rows lane / 4 and + 8; words of four bytes at 4 (lane % 4) and 16 bytes further.
void load_registers(Side& side, const Operation& op) {
  clear(side, kRows);
  const Format f = op.shape.format;
  const int bytes = bytes_of(f), each = 4 / bytes;
  for (int l = 0; l < 32; ++l)
    for (int w = 0; w < 4; ++w)
      for (int e = 0; e < each; ++e)
        put(side, (w / 2 * 16 + l % 4 * 4) / bytes + e, l / 4 + w % 2 * 8,
            op.registers[l][w] >> (8 * bytes * e) & (bytes == 1 ? 255u : 65535u), f);
}

float cut_to(double x, int kept) {
  if (kept == 23) return cut_to_float(x);
  const double cut = std::bit_cast<double>(std::bit_cast<uint64_t>(x) & ~((uint64_t{1} << (52 - kept)) - 1));
  return static_cast<float>(cut);
}

void add_row(int row, int columns, int depth, int fraction, int kept, float* d) {
  int top[kMostColumns];
  double scale[kMostColumns], sum[kMostColumns];
  for (int j = 0; j < columns; ++j) top[j] = number(d[j], -126).exponent;
  for (int k = 0; k < depth; ++k) {
    const int a = side_a.exponent[k][row];
    for (int j = 0; j < columns; ++j) {
      const int e = a + side_b.exponent[k][j];
      top[j] = e > top[j] ? e : top[j];
    }
  }
  for (int j = 0; j < columns; ++j) {
    if (top[j] <= kNone / 2) top[j] = 0;
    scale[j] = power(fraction - top[j]);
    sum[j] = std::trunc(static_cast<double>(d[j]) * scale[j]);
  }
  for (int k = 0; k < depth; ++k) {
    const double a = side_a.value[k][row];
    for (int j = 0; j < columns; ++j)
      sum[j] +=
          static_cast<double>(static_cast<int32_t>(a * static_cast<double>(side_b.value[k][j]) * scale[j]));
  }
  for (int j = 0; j < columns; ++j) d[j] = cut_to(sum[j] * power(top[j] - fraction), kept);
}

// Whole numbers, which wrap.
void add_whole_row(int row, int columns, int depth, float* d) {
  for (int j = 0; j < columns; ++j) {
    double sum = std::bit_cast<int32_t>(d[j]);
    for (int k = 0; k < depth; ++k)
      sum += static_cast<double>(side_a.value[k][row]) * static_cast<double>(side_b.value[k][j]);
    d[j] = std::bit_cast<float>(static_cast<int32_t>(static_cast<int64_t>(sum)));
  }
}

void compute(BlockState& s, unsigned warp, const Operation& op, Accumulator& sums) {
  const Product& p = op.shape;
  const int columns = p.columns, depth = depth_of(p.format);
  if (op.registers[0] != nullptr)
    load_registers(side_a, op);
  else
    load(side_a, s, decode(op.a, p.a_by_rows, 64, p.format, op.where), static_cast<int>(warp % 4) * 16, kRows,
         p.format);
  load(side_b, s, decode(op.b, p.b_by_rows, columns, p.format, op.where), 0, columns, p.format);
  if (!p.add) std::fill(sums.values.begin(), sums.values.end(), 0.0f);
  for (int row = 0; row < kRows; ++row) {
    float* const d = &sums.values[static_cast<size_t>(row * columns)];
    if (p.format == Format::kInt8) {
      add_whole_row(row, columns, depth, d);
      continue;
    }
    // Infinities and NaNs go the way of ordinary arithmetic.
    double plain[kMostColumns];
    bool special[kMostColumns];
    bool any = false;
    for (int j = 0; j < columns; ++j) {
      special[j] = !side_a.finite[row] || !side_b.finite[j] || !std::isfinite(d[j]);
      any = any || special[j];
    }
    if (any)
      for (int j = 0; j < columns; ++j) {
        plain[j] = d[j];
        for (int k = 0; k < depth && special[j]; ++k)
          plain[j] += static_cast<double>(side_a.value[k][row]) * side_b.value[k][j];
        if (special[j]) d[j] = 0;
      }
    if (p.format == Format::kE4m3)
      add_row(row, columns, depth, 13, 13, d);
    else
      add_row(row, columns, depth, 25, 23, d);
    for (int j = 0; any && j < columns; ++j)
      if (special[j]) d[j] = static_cast<float>(plain[j]);
  }
}

// ---- accumulators: lane l holds rows l / 4 and + 8, columns 8 j + 2 (l % 4) + {0, 1} in sums[4 j + ..].
int place(int lane, int i, int columns) {
  return (lane / 4 + i % 4 / 2 * 8) * columns + i / 4 * 8 + 2 * (lane % 4) + i % 2;
}
void take_registers(Accumulator& a) {
  a.values.resize(static_cast<size_t>(kRows * a.columns));
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < a.columns / 2; ++i) {
      std::memcpy(&a.values[static_cast<size_t>(place(l, i, a.columns))], a.sums[l] + i, 4);
      constexpr float kUnknown = std::numeric_limits<float>::quiet_NaN();  // as a whole number, 2^31 - 2^22
      std::memcpy(a.sums[l] + i, &kUnknown, 4);
    }
}
void give_registers(const Accumulator& a) {
  for (int l = 0; l < 32; ++l)
    for (int i = 0; i < a.columns / 2; ++i)
      std::memcpy(a.sums[l] + i, &a.values[static_cast<size_t>(place(l, i, a.columns))], 4);
}

// ---- the rule of the fence: registers that ordinary instructions have touched since the warp's last one
bool touched(BlockState& s, const WarpState& w, const Lane& lane, const void* at, size_t bytes) {
  if constexpr (kChecked) {
    const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(at) - s.block->stack_of(lane));
    if (offset >= kStackBytes) return false;
    const uint32_t* const stamps = s.stamps.get() + lane.linear * (kStackBytes / 4);
    for (size_t i = offset / 4; i < (offset + bytes) / 4; ++i)
      if (stamps[i] == w.fence) return true;
  }
  return false;
}

void check_fence(BlockState& s, WarpState& w, Lane* lanes, const Issue (&issue)[32], bool sums, int columns) {
  const char* const what = sums ? "accumulators" : "A registers";
  Block& now = *running_block();
  if (!w.fenced) {
    now.note(Kind::kProductFence, site_of(call.where), "no wgmma.fence before the first product");
    w.fenced = true;
  }
  for (int l = 0; l < 32; ++l) {
    const void* const at = sums ? static_cast<const void*>(issue[l].sums) : issue[l].registers;
    if (!touched(s, w, lanes[l], at, sums ? static_cast<size_t>(columns) * 2 : 16)) continue;
    now.note(Kind::kProductFence, site_of(call.where),
             std::string(what) + " of lane " + std::to_string(l) + " of warp " +
                 std::to_string(lanes[l].warp) + " were touched since the last wgmma.fence");
    return;
  }
}

void enqueue(unsigned char* table) {
  BlockState& s = here();
  Block& now = *running_block();
  const unsigned warp = current().warp;
  WarpState& w = s.warps[warp];
  Lane* const lanes = &now.lanes()[warp * 32];
  Issue issue[32];
  for (int l = 0; l < 32; ++l) std::memcpy(&issue[l], table + l * kSlotBytes, sizeof(Issue));
  const Site site = site_of(call.where);
  for (int l = 1; l < 32; ++l)
    if (issue[l].a != issue[0].a || issue[l].b != issue[0].b)
      now.stop(Kind::kDescriptor, site, "descriptors that differ between lanes 0 and " + std::to_string(l));
  if ((warp / 4 + 1) * 4 > s.warps.size())
    now.stop(Kind::kDisagreement, site, "a product of a warpgroup that has no four warps");
  // All four warps issue the same products in the same order.
  std::vector<Signature>& list = s.signatures[warp / 4];
  const Signature own{issue[0].a, issue[0].b, call.where.file_name(), call.where.line(), w.group};
  const size_t number = w.operations_issued++;
  if (number >= list.size()) {
    list.push_back(own);
  } else {
    const Signature& other = list[number];
    if (other.a != own.a || other.b != own.b || other.line != own.line || other.group != own.group)
      now.stop(Kind::kDisagreement, site,
               "product " + std::to_string(number) + " of warp " + std::to_string(warp) +
                   " is not what another warp of its warpgroup does: " + base_name(other.file) + ":" +
                   std::to_string(other.line) +
                   (other.line == own.line ? ", with other operands or in another group" : ""));
  }
  Operation op{};
  op.shape = call.shape, op.a = issue[0].a, op.b = issue[0].b, op.where = call.where, op.group = w.group;
  for (int l = 0; l < 32; ++l) op.sums[l] = issue[l].sums, op.registers[l] = issue[l].registers;
  const bool held = issue[0].registers != nullptr;
  const int columns = call.shape.columns;
  Accumulator* sums = nullptr;
  for (Accumulator& a : w.accumulators) {
    if (a.sums[0] == op.sums[0] && a.columns == columns)
      sums = &a;
    else if (a.sums[0] < op.sums[0] + columns / 2 && op.sums[0] < a.sums[0] + a.columns / 2)
      now.stop(Kind::kRegisters, site,
               "accumulators that overlap those of a product of another shape in flight");
  }
  if (sums == nullptr) {
    check_fence(s, w, lanes, issue, true, columns);
    sums = &w.accumulators.emplace_back();
    std::memcpy(sums->sums, op.sums, sizeof op.sums);
    sums->columns = columns;
    take_registers(*sums);
  }
  if (held) check_fence(s, w, lanes, issue, false, columns);
  const Descriptor b = decode(op.b, op.shape.b_by_rows, columns, op.shape.format, op.where);
  if constexpr (kChecked) read_of(s, warp, b, w.group, op.where);
  if (!held) {
    const Descriptor a = decode(op.a, op.shape.a_by_rows, 64, op.shape.format, op.where);
    if constexpr (kChecked) read_of(s, warp, a, w.group, op.where);
  }
  w.operations.push_back(op);
}

void fence_all(unsigned char*) {
  WarpState& w = here().warp_of(current());
  w.fence = ++gang.fences, w.fenced = true;
}
void commit_all(unsigned char*) { ++here().warp_of(current()).group; }
void wait_all(unsigned char*) {
  BlockState& s = here();
  const unsigned warp = current().warp;
  WarpState& w = s.warps[warp];
  const int64_t done = int64_t{w.group} - 1 - call.left;
  if (done <= 0) return;
  while (!w.operations.empty() && w.operations.front().group <= done) {
    const Operation& op = w.operations.front();
    for (Accumulator& a : w.accumulators)
      if (a.sums[0] == op.sums[0]) compute(s, warp, op, a);
    w.operations.pop_front();
  }
  std::erase_if(w.accumulators, [&](const Accumulator& a) {
    for (const Operation& op : w.operations)
      if (op.sums[0] == a.sums[0]) return false;
    give_registers(a);
    return true;
  });
  if constexpr (kChecked) order::products_done(s, warp, static_cast<uint32_t>(done));
}

void together(void (*complete)(unsigned char*), Where where) {
  char nothing = 0;
  running_block()->together(&nothing, 1, complete, where);
}

}  // namespace

void mma_fence(Where where) { together(fence_all, where); }
void mma_commit(Where where) { together(commit_all, where); }
void mma_wait(int left, Where where) {
  call.left = left;
  together(wait_all, where);
}

void multiply(const Product& shape, void* sums, const uint32_t* registers, uint64_t a, uint64_t b,
              Where where) {
  Issue issue{static_cast<float*>(sums), registers, a, b};
  call.shape = shape, call.where = where;
  running_block()->together(&issue, sizeof issue, enqueue, where);
}

// An ordinary access to this thread's own registers (its stack).
void registers_touched(size_t offset, size_t bytes, bool write, const Site& site) {
  BlockState& s = here();
  const Lane& lane = current();
  const WarpState& w = s.warp_of(lane);
  uint32_t* const stamps = s.stamps.get() + lane.linear * (kStackBytes / 4);
  for (size_t i = offset / 4; i <= (offset + bytes - 1) / 4; ++i) stamps[i] = w.fence;
  if (w.accumulators.empty()) return;
  const unsigned char* const at = s.block->stack_of(lane) + offset;
  const auto meets = [&](const void* begin, size_t size) {
    const auto* const first = static_cast<const unsigned char*>(begin);
    return at < first + size && first < at + bytes;
  };
  const char* const does = write ? "written" : "read";
  for (const Accumulator& a : w.accumulators)
    if (meets(a.sums[lane.lane], static_cast<size_t>(a.columns) * 2)) {
      for (const Operation& op : w.operations)
        if (op.sums[0] == a.sums[0])
          return running_block()->note(Kind::kRegisters, site,
                                       std::string("an accumulator is ") + does +
                                           " here, and the product at " + place_text(op.where) +
                                           " has not been waited for");
    }
  if (!write) return;
  for (const Operation& op : w.operations)
    if (op.registers[0] != nullptr && meets(op.registers[lane.lane], 16))
      return running_block()->note(Kind::kRegisters, site,
                                   "an A register is written here, and the product at " +
                                       place_text(op.where) + " has not been waited for");
}

void block_ended(BlockState& s) {
  Block& now = *running_block();
  finish_stores(s);
  for (size_t warp = 0; warp < s.warps.size(); ++warp) {
    const WarpState& w = s.warps[warp];
    if (!w.operations.empty())
      now.note(Kind::kInFlight, site_of(w.operations.front().where),
               "warp " + std::to_string(warp) + " ends with products that it has not waited for");
    const size_t first = warp / 4 * 4;
    if (w.operations_issued != s.warps[first].operations_issued)
      now.note(Kind::kDisagreement, {},
               "warp " + std::to_string(warp) + " did " + std::to_string(w.operations_issued) +
                   " products, warp " + std::to_string(first) + " of its warpgroup " +
                   std::to_string(s.warps[first].operations_issued));
    const WarpState& other = s.warps[first];
    if (w.registers != other.registers || w.register_calls != other.register_calls)
      now.note(Kind::kDisagreement, site_of((other.register_calls > 0 ? other : w).register_place),
               "warp " + std::to_string(warp) + " has " + std::to_string(w.registers) +
                   " registers a thread, warp " + std::to_string(first) + " of its warpgroup " +
                   std::to_string(other.registers));
  }
  for (const auto& job : gang.jobs)
    if (job->block == &s) {
      now.note(Kind::kInFlight, site_of(job->where),
               "the block ends while this copy into its shared memory is on its way");
      break;
    }
  for (const ThreadState& t : s.threads)
    if (!t.copies.empty()) {
      now.note(Kind::kInFlight, site_of(t.copies.front().where),
               "the block ends with a copy that nobody has waited for");
      break;
    }
  for (const BarrierState& b : s.barriers) {
    if (b.boxes > b.awaited)
      now.note(Kind::kInFlight, site_of(b.init),
               "nobody has waited for the boxes of phase " + std::to_string(b.boxes - 1) +
                   " of the barrier " + barrier_text(b));
    int64_t bytes = b.bytes;
    for (const auto& job : gang.jobs)
      if (job->what == Job::kLoad && job->block == &s && job->barrier == b.at) bytes -= box_bytes(job->map);
    if (bytes != 0)
      now.note(Kind::kBytes, site_of(b.init),
               "the barrier " + barrier_text(b) + " ends with " + std::to_string(bytes) + " bytes to come");
  }
}

}  // namespace gpu::emulator::machine
