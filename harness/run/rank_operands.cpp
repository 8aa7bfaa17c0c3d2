// SPDX-License-Identifier: Apache-2.0
// See rank_operands.hpp.
#include "harness/run/rank_operands.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

constexpr int64_t kAlignment = 4096;
constexpr unsigned char kPoison = 0xff;  // NaN in every float

enum RankField : size_t {
  kFieldQ = 0,
  kFieldK = (offsetof(assay_tensors, k) - offsetof(assay_tensors, q)) / sizeof(assay_tensor),
  kFieldV = (offsetof(assay_tensors, v) - offsetof(assay_tensors, q)) / sizeof(assay_tensor),
  kFieldO = (offsetof(assay_tensors, o) - offsetof(assay_tensors, q)) / sizeof(assay_tensor),
  kFieldSlopes = (offsetof(assay_tensors, alibi_slopes) - offsetof(assay_tensors, q)) / sizeof(assay_tensor),
  kFieldSinks = (offsetof(assay_tensors, sinks) - offsetof(assay_tensors, q)) / sizeof(assay_tensor),
  kFieldSlots = (offsetof(assay_tensors, slot_mapping) - offsetof(assay_tensors, q)) / sizeof(assay_tensor),
  kFieldWorkspace = (offsetof(assay_tensors, workspace) - offsetof(assay_tensors, q)) / sizeof(assay_tensor)
};

int64_t up(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

unsigned char* bytes_of(const assay_tensor& t) { return static_cast<unsigned char*>(t.data); }

// The axis of a rank's heads, or -1 where it gets all of an operand.
int head_axis(size_t field) {
  if (field == kFieldQ || field == kFieldO) return 1;
  return field == kFieldSlopes || field == kFieldSinks ? 0 : -1;
}

assay_tensor heads_of(assay_tensor t, int axis, int32_t ranks, int32_t rank) {
  t.shape[axis] /= ranks;
  t.data = bytes_of(t) + rank * t.shape[axis] * t.stride[axis] * format_bytes(t.format);
  return t;
}

void make_dense(assay_tensor& t) {
  int64_t elements = 1;
  for (int axis = t.rank - 1; axis >= 0; --axis) t.stride[axis] = elements, elements *= t.shape[axis];
}

// f(bytes of an element in `a`, of the same in `b`)
template <class F>
void each_element(const assay_tensor& a, const assay_tensor& b, const F& f, int axis = 0, int64_t at_a = 0,
                  int64_t at_b = 0) {
  if (axis == a.rank) {
    const int64_t size = format_bytes(a.format);
    return f(bytes_of(a) + at_a * size, bytes_of(b) + at_b * size);
  }
  for (int64_t i = 0; i < a.shape[axis]; ++i)
    each_element(a, b, f, axis + 1, at_a + i * a.stride[axis], at_b + i * b.stride[axis]);
}

int32_t integer_at(const assay_tensor& t, int64_t i, int64_t j = 0) {
  return static_cast<const int32_t*>(t.data)[i * t.stride[0] + j * t.stride[1]];
}

// Slot page * page_size + offset that the tables give key `key` of a request.
int64_t slot_of(const assay_problem& p, const assay_tensors& t, int32_t request, int32_t key) {
  if (p.table == ASSAY_TABLE_TOKEN) return integer_at(t.block_table, request, key);
  const int32_t page = key / p.page_size;
  const int64_t block = p.table == ASSAY_TABLE_CSR
                            ? integer_at(t.indices, int64_t{integer_at(t.indptr, request)} + page)
                            : integer_at(t.block_table, request, page);
  return block * p.page_size + key % p.page_size;
}

// Element offsets of the values of a token, head after head, dimension after dimension.
template <class F>
void each_value(const assay_tensor& t, const assay_problem& p, bool is_v, int64_t slot, const F& f) {
  const int64_t block = slot / p.page_size, at = slot % p.page_size;
  const int64_t* s = t.stride;
  const int32_t dims = is_v ? p.head_dim_v : p.head_dim_qk;
  for (int32_t head = 0; head < p.heads_kv; ++head)
    for (int32_t dim = 0; dim < dims; ++dim) {
      int64_t place = 0;
      if (p.layout == ASSAY_LAYOUT_NHD) {
        place = at * s[1] + head * s[2] + dim * s[3];
      } else if (p.layout == ASSAY_LAYOUT_HND) {
        place = head * s[1] + at * s[2] + dim * s[3];
      } else if (!is_v) {
        const int64_t x = t.shape[4];
        place = head * s[1] + dim / x * s[2] + at * s[3] + dim % x * s[4];
      } else if (p.layout == ASSAY_LAYOUT_X) {
        place = head * s[1] + dim * s[2] + at * s[3];
      } else {
        const int64_t x = t.shape[4];
        place = head * s[1] + at / x * s[2] + dim * s[3] + at % x * s[4];
      }
      f((block * s[0] + place) * format_bytes(t.format));
    }
}

void copy_token(const assay_problem& p, bool is_v, const assay_tensor& from, int64_t from_slot,
                const assay_tensor& to, int64_t to_slot) {
  const auto size = static_cast<size_t>(format_bytes(from.format));
  const bool by_heads = p.layout == ASSAY_LAYOUT_NHD || p.layout == ASSAY_LAYOUT_HND;
  if (by_heads && from.stride[3] == 1 && to.stride[3] == 1) {
    const int slots = p.layout == ASSAY_LAYOUT_NHD ? 1 : 2, heads = 3 - slots;
    const auto row = [&](const assay_tensor& t, int64_t slot, int64_t head) {
      const int64_t block = slot / p.page_size, at = slot % p.page_size;
      return bytes_of(t) + (block * t.stride[0] + at * t.stride[slots] + head * t.stride[heads]) *
                               static_cast<int64_t>(size);
    };
    for (int32_t head = 0; head < p.heads_kv; ++head)
      std::memcpy(row(to, to_slot, head), row(from, from_slot, head),
                  size * static_cast<size_t>(is_v ? p.head_dim_v : p.head_dim_qk));
    return;
  }
  std::vector<int64_t> places;
  each_value(to, p, is_v, to_slot, [&](int64_t at) { places.push_back(at); });
  size_t next = 0;
  each_value(from, p, is_v, from_slot,
             [&](int64_t at) { std::memcpy(bytes_of(to) + places[next++], bytes_of(from) + at, size); });
}

// Pieces of gigabytes, one a thread: caches of long requests, once for every rank.
constexpr int64_t kPieceBytes = 4 << 20;
template <class F>
void each_piece(int64_t bytes, const F& f) {
#pragma omp parallel for schedule(dynamic) if (bytes > 8 * kPieceBytes)
  for (int64_t at = 0; at < bytes; at += kPieceBytes) f(at, std::min(kPieceBytes, bytes - at));
}

void copy_bytes(unsigned char* to, const unsigned char* from, int64_t bytes) {
  each_piece(bytes,
             [&](int64_t at, int64_t size) { std::memcpy(to + at, from + at, static_cast<size_t>(size)); });
}

// The first byte that differs, or `bytes`.
int64_t first_difference(const unsigned char* a, const unsigned char* b, int64_t bytes) {
  std::atomic<int64_t> first{bytes};
  each_piece(bytes, [&](int64_t at, int64_t size) {
    if (at > first || std::memcmp(a + at, b + at, static_cast<size_t>(size)) == 0) return;
    const int64_t here = std::mismatch(a + at, a + at + size, b + at).first - a;
    for (int64_t known = first; here < known && !first.compare_exchange_weak(known, here);) {
    }
  });
  return first;
}

// f(request, key, its index here) for every key of the rank's contexts, in any order and at once.
template <class F>
void each_context_key(const assay_problem& p, int32_t rank, const F& f) {
  constexpr int32_t kKeys = 4096;
  struct Span {
    int32_t request, first, last;
  };
  std::vector<Span> spans;
  for (int32_t r = 0; r < p.requests; ++r)
    for (int32_t at = 0, context = p.kv_len[r] - p.q_len[r]; at < context; at += kKeys)
      spans.push_back({r, at, std::min(at + kKeys, context)});
#pragma omp parallel for schedule(dynamic) if (spans.size() > 4)
  for (size_t i = 0; i < spans.size(); ++i)
    for (int32_t key = spans[i].first; key < spans[i].last; ++key)
      if (const KeyOwner owner = owner_of(key, p.ranks, p.interleave); owner.rank == rank)
        f(spans[i].request, key, owner.index);
}

// f(request, its index here, its row) for every new key of the rank.
template <class F>
void each_new_key(const assay_problem& p, int32_t rank, const F& f) {
  int64_t row = 0;
  for (int32_t r = 0; r < p.requests; ++r)
    for (int32_t key = p.kv_len[r] - p.q_len[r]; key < p.kv_len[r]; ++key, ++row)
      if (const KeyOwner owner = owner_of(key, p.ranks, p.interleave); owner.rank == rank)
        f(r, owner.index, row);
}

// Offsets of what a rank's memory holds; returns its size.
int64_t lay_out(const assay_problem& p, const assay_tensors& whole, int32_t rank, RankCall& call) {
  call.problem = p, call.tensors = whole;
  int64_t at = up(sizeof(RankCall));
  call.q_len = at, at = up(at + p.requests * int64_t{sizeof(int32_t)});
  call.kv_len = at, at = up(at + p.requests * int64_t{sizeof(int32_t)});
  for (size_t i = 0; i < kTensorFields; ++i) {
    assay_tensor& t = fields_of(call.tensors)[i];
    if (i == kFieldWorkspace) t = assay_tensor{};
    if (t.data == nullptr) continue;
    if (const int axis = head_axis(i); axis >= 0) t = heads_of(t, axis, p.ranks, rank), make_dense(t);
    t.data = reinterpret_cast<void*>(at);  // NOLINT: an offset until place()
    at = up(at + extent_bytes(t) + 1);
  }
  return at;
}

}  // namespace

KeyOwner owner_of(int32_t key, int32_t ranks, int32_t interleave) {
  const int32_t turn = key / interleave;
  return {turn % ranks, turn / ranks * interleave + key % interleave};
}

int64_t extent_bytes(const assay_tensor& t) {
  int64_t last = 0;
  for (int axis = 0; axis < t.rank; ++axis) {
    if (t.shape[axis] == 0) return 0;
    last += (t.shape[axis] - 1) * t.stride[axis];
  }
  return t.data == nullptr ? 0 : (last + 1) * format_bytes(t.format);
}

void place(RankCall& call, unsigned char* memory) {
  call.problem.q_len = reinterpret_cast<const int32_t*>(memory + call.q_len);
  call.problem.kv_len = reinterpret_cast<const int32_t*>(memory + call.kv_len);
  for (size_t i = 0; i < kTensorFields; ++i) {
    assay_tensor& t = fields_of(call.tensors)[i];
    if (t.data != nullptr) t.data = memory + reinterpret_cast<intptr_t>(t.data);
  }
}

std::vector<int64_t> written_blocks(const assay_problem& p, const assay_tensors& whole) {
  std::vector<int64_t> blocks;
  for (int64_t row = 0; row < p.total_q; ++row)
    if (const int64_t slot =
            static_cast<const int64_t*>(whole.slot_mapping.data)[row * whole.slot_mapping.stride[0]];
        slot >= 0)
      blocks.push_back(slot / p.page_size);
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

RankOperands::RankOperands(const assay_problem& p, const assay_tensors& whole, int32_t rank,
                           unsigned char unused)
    : rank_(rank), memory_([&] {
        RankCall call{};
        return lay_out(p, whole, rank, call);
      }()) {
  fill(p, whole, unused);
}

bool RankOperands::refill(const assay_problem& p, const assay_tensors& whole, unsigned char unused) {
  RankCall other{};
  const int64_t bytes = lay_out(p, whole, rank_, other);
  // The same places of the cache, too: what lay there before is kept apart.
  const auto extent = [](const RankCall& c, size_t field) {
    assay_tensors t = c.tensors;
    return extent_bytes(fields_of(t)[field]);
  };
  if (bytes != memory_.bytes() || extent(other, kFieldK) != extent(call(), kFieldK) ||
      extent(other, kFieldV) != extent(call(), kFieldV))
    return false;
  fill(p, whole, unused);
  return true;
}

void RankOperands::fill(const assay_problem& p, const assay_tensors& whole, unsigned char unused) {
  auto& call = *reinterpret_cast<RankCall*>(memory_.data());
  lay_out(p, whole, rank_, call);
  std::copy_n(p.q_len, p.requests, reinterpret_cast<int32_t*>(memory_.data() + call.q_len));
  std::copy_n(p.kv_len, p.requests, reinterpret_cast<int32_t*>(memory_.data() + call.kv_len));
  assay_tensors source = whole;
  for (size_t i = 0; i < kTensorFields; ++i) {
    const assay_tensor to = own(i);
    assay_tensor from = fields_of(source)[i];
    if (to.data == nullptr) continue;
    const int64_t bytes = extent_bytes(to);
    if (const int axis = head_axis(i); axis >= 0) from = heads_of(from, axis, p.ranks, rank_);
    if (i == kFieldO || i == kFieldK || i == kFieldV)
      each_piece(bytes, [&](int64_t at, int64_t size) {
        std::memset(bytes_of(to) + at, i == kFieldO ? kPoison : unused, static_cast<size_t>(size));
      });
    else if (head_axis(i) >= 0)
      each_element(to, from, [&](unsigned char* a, const unsigned char* b) {
        std::memcpy(a, b, static_cast<size_t>(format_bytes(to.format)));
      });
    else if (bytes > 0)
      copy_bytes(bytes_of(to), bytes_of(from), bytes);
  }
  const assay_tensor slots = own(kFieldSlots), k = own(kFieldK), v = own(kFieldV);
  if (slots.data != nullptr)
    for (int64_t row = 0; row < slots.shape[0]; ++row)
      static_cast<int64_t*>(slots.data)[row * slots.stride[0]] = -1;
  each_new_key(p, rank_, [&](int32_t r, int32_t index, int64_t row) {
    static_cast<int64_t*>(slots.data)[row * slots.stride[0]] = slot_of(p, whole, r, index);
  });
  each_context_key(p, rank_, [&](int32_t r, int32_t key, int32_t index) {
    const int64_t from = slot_of(p, whole, r, key), here = slot_of(p, whole, r, index);
    copy_token(p, false, whole.k, from, k, here);
    copy_token(p, true, whole.v, from, v, here);
  });
  for (const bool is_v : {false, true}) {
    const assay_tensor& cache = is_v ? v : k;
    const int64_t bytes = extent_bytes(cache);
    if (before_[is_v] == nullptr)
      before_[is_v].reset(new unsigned char[static_cast<size_t>(std::max<int64_t>(bytes, 1))]);
    copy_bytes(before_[is_v].get(), bytes_of(cache), bytes);
  }
}

assay_tensor RankOperands::own(size_t field) const {
  assay_tensors t = call().tensors;
  assay_tensor one = fields_of(t)[field];
  if (one.data != nullptr) one.data = memory_.data() + reinterpret_cast<intptr_t>(one.data);
  return one;
}

std::string RankOperands::put_back(const assay_problem& p, const assay_tensors& whole) {
  // What a rank did not write stays as the judge left it, who knows it again.
  const auto size = static_cast<size_t>(format_bytes(whole.o.format));
  if (const assay_tensor o = own(kFieldO); o.data != nullptr)
    each_element(o, heads_of(whole.o, 1, p.ranks, rank_), [&](const unsigned char* from, unsigned char* to) {
      if (!std::all_of(from, from + size, [](unsigned char b) { return b == kPoison; }))
        std::memcpy(to, from, size);
    });
  std::string why;
  for (const bool is_v : {false, true}) {
    const assay_tensor cache = own(is_v ? kFieldV : kFieldK), to = is_v ? whole.v : whole.k;
    const unsigned char* before = before_[is_v].get();
    const auto bytes = static_cast<int64_t>(format_bytes(cache.format));
    each_new_key(p, rank_, [&](int32_t r, int32_t index, int64_t row) {
      const int64_t here = slot_of(p, whole, r, index);
      bool written = false;
      each_value(cache, p, is_v, here, [&](int64_t at) {
        written = written || !std::equal(before + at, before + at + bytes, bytes_of(cache) + at);
      });
      if (written)
        copy_token(p, is_v, cache, here, to,
                   static_cast<const int64_t*>(whole.slot_mapping.data)[row * whole.slot_mapping.stride[0]]);
      each_value(cache, p, is_v, here,
                 [&](int64_t at) { std::copy_n(before + at, bytes, bytes_of(cache) + at); });
    });
    const int64_t all = extent_bytes(cache);
    if (const int64_t first = first_difference(bytes_of(cache), before, all); first < all)
      why = fmt::format("wrote byte {} of its cache of {}, where none of its new keys lies", first,
                        is_v ? "V" : "K");
  }
  return why;
}

}  // namespace assay
