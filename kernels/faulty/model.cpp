// SPDX-License-Identifier: Apache-2.0
// The model kernel: the stages in order, request by request and KV head by KV head. Rows that share a KV head
// go through its tiles together, in blocks, so a tile is loaded once.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "kernels/faulty/cache.hpp"
#include "kernels/faulty/call.hpp"
#include "kernels/faulty/lanes.hpp"
#include "kernels/faulty/mask.hpp"
#include "kernels/faulty/memory.hpp"
#include "kernels/faulty/merge.hpp"
#include "kernels/faulty/rounding.hpp"
#include "kernels/faulty/stream.hpp"

namespace assay_faulty {
namespace {

// Streams that meet a tile together: enough to pay for loading it, few enough to stay in a private cache.
constexpr int kBlockStreams = 64;

class Runner {
 public:
  explicit Runner(const Call& c)
      : c_(c),
        scratch_(c),
        q_stride_(c.p().head_dim_qk),
        o_stride_(padded(c.p().head_dim_v)),
        sums_stride_(2 * o_stride_) {
    o_.resize(o_stride_);
    partials_.stride = o_stride_;
    if (c.arithmetic.item_rows > 0) items_.emplace(c);
  }

  void request(int r) {
    if (!items_) take_parts(parts_of(c_, r));
    const assay_problem& p = c_.p();
    for (int32_t g = 0; g < p.heads_kv; ++g) {
      std::vector<int32_t> heads;
      for (int32_t h = 0; h < p.heads_q; ++h)
        if (kv_head_of(c_, h) == g) heads.push_back(h);
      if (heads.empty()) continue;
      const auto count = static_cast<int32_t>(heads.size());
      // Packed rows: new token, head of the KV head.
      const int32_t all = c_.q_len[r] * count, each = items_ ? c_.arithmetic.item_rows : std::max(1, all),
                    most = items_ ? kBlockStreams : std::max(1, kBlockStreams / count) * count;
      for (int32_t from = 0; from < all; from += each) {
        const int32_t end = std::min(all, from + each);
        if (items_) take_parts(items_->parts(r, g, from / each));
        for (int32_t at = from; at < end; at += most) block(r, g, heads, at, std::min(end, at + most));
      }
    }
  }

 private:
  void take_parts(std::vector<Part> parts) {
    parts_ = std::move(parts);
    partials_.parts = static_cast<int>(parts_.size());
  }

  void block(int r, int32_t g, const std::vector<int32_t>& heads, int32_t from, int32_t end) {
    prepare(r, g, heads, from, end);
    for (int s = 0; s < static_cast<int>(parts_.size()); ++s) part(r, g, s);
    const int32_t format = c_.sw.weighing_lse_format != ASSAY_FORMAT_NONE ? c_.sw.weighing_lse_format
                                                                          : c_.how.weights_lse_format;
    if (format != ASSAY_FORMAT_NONE) return weigh_again(r, g, format);
    for (size_t i = 0; i < streams_.size(); ++i) {
      // Backwards where a store runs into the next head, which must have been stored by then to suffer.
      const size_t n = c_.sw.o_width_of_qk ? streams_.size() - 1 - i : i;
      const float lse = merge_parts(c_, partials_, static_cast<int>(n), streams_[n], o_.data());
      leak_values(c_, r, g, streams_[n], o_.data());
      write_result(c_, r, streams_[n], o_.data(), lse);
    }
  }

  void prepare(int r, int32_t g, const std::vector<int32_t>& heads, int32_t from, int32_t end) {
    streams_.clear();
    const auto count = static_cast<int32_t>(heads.size());
    for (int32_t at = from; at < end; ++at) streams_.push_back({at / count, heads[at % count]});
    q_.resize(streams_.size() * q_stride_), q_exponent_.resize(q_.size());
    sums_.resize(streams_.size() * sums_stride_);
    partials_.o.resize(streams_.size() * parts_.size() * o_stride_);
    partials_.lse.resize(streams_.size() * parts_.size());
    const int smallest = format_of(c_.how.q_rounded() ? c_.how.q_format : c_.p().q_format).smallest_exponent;
    for (size_t n = 0; n < streams_.size(); ++n) {
      Stream& stream = streams_[n];
      stream.seen = visible_interval(c_, r, stream.row, stream.head);
      stream.dropped = picked_key(c_, c_.sw.key_dropped, r, stream.row, stream.seen);
      stream.doubled = picked_key(c_, c_.sw.key_doubled, r, stream.row, stream.seen);
      stream.unsummed = picked_key(c_, c_.sw.l_missing_key, r, stream.row, stream.seen);
      if (c_.how.bias_by_column)
        stream.shift = c_.ops.alibi_slopes[stream.head * c_.ops.alibi_stride] *
                       static_cast<float>(c_.kv_len[r] - c_.p().q_len[r] + stream.row);
      if (c_.sw.key_weight_error != 0)
        stream.misweighed = picked(Pick::kHashed, std::max(1, c_.kv_len[r] - c_.p().q_len[r]),
                                   mix(static_cast<uint32_t>(r), 31));
      stream.scale = score_scale(c_, r, stream.row, stream.head, g);
      load_q(c_, r, stream.row, stream.head, q_.data() + n * q_stride_);
      exponents_of(q_.data() + n * q_stride_, q_stride_, smallest, q_exponent_.data() + n * q_stride_);
    }
  }

  void part(int r, int32_t g, int s) {
    for (size_t n = 0; n < streams_.size(); ++n)
      start_stream(c_, streams_[n], sums_.data() + n * sums_stride_);
    const Part& part = parts_[s];
    tiles(r, g, part);
    if (c_.sw.split_overlap_keys > 0 && part.count() > 0 && s + 1 < static_cast<int>(parts_.size()))
      overlap(r, g, part.end_tile);
    const bool only = parts_.size() == 1;
    for (size_t n = 0; n < streams_.size(); ++n) {
      float* o = sums_.data() + n * sums_stride_;
      float lse = finish_stream(c_, r, g, streams_[n], only, o);
      if (skipped_by_fault(part, streams_[n])) continue;
      if (spoilt_by_fault(r, s, streams_[n])) {
        lse = std::numeric_limits<float>::quiet_NaN();
        std::fill_n(o, o_stride_, lse);
      }
      const bool has_keys = lse != -std::numeric_limits<float>::infinity();
      streams_[n].parts_with_keys += has_keys ? 1 : 0;
      keep_part(c_, partials_, static_cast<int>(n), s, o, lse);
    }
  }

  void tiles(int r, int32_t g, const Part& part) {
    const int32_t count = part.count();
    for (int32_t i = 0; i < count; ++i)
      tile(r, g, part.first_tile + (c_.arithmetic.reverse ? count - 1 - i : i) * part.step);
  }

  // The first pass was for the LSE. Now weights are relative to it, and parts are added.
  void weigh_again(int r, int32_t g, int32_t format) {
    std::vector<float> lse(streams_.size()), all(streams_.size() * o_stride_, 0.0f);
    for (size_t n = 0; n < streams_.size(); ++n) {
      lse[n] = merge_parts(c_, partials_, static_cast<int>(n), streams_[n], o_.data());
      streams_[n].weighed = true, streams_[n].lse = static_cast<float>(rounded(lse[n], format));
    }
    for (const Part& part : parts_) {
      for (size_t n = 0; n < streams_.size(); ++n)
        start_stream(c_, streams_[n], sums_.data() + n * sums_stride_);
      tiles(r, g, part);
      for (size_t n = 0; n < streams_.size(); ++n) {
        float* o = sums_.data() + n * sums_stride_;
        finish_weighed(c_, r, g, o);
        if (parts_.size() > 1) round_all(o, c_.p().head_dim_v, c_.arithmetic.partial_format);
        for (int32_t d = 0; d < c_.p().head_dim_v; ++d) all[n * o_stride_ + d] += o[d];
      }
    }
    for (size_t n = 0; n < streams_.size(); ++n)
      write_result(c_, r, streams_[n], all.data() + n * o_stride_, lse[n]);
  }

  // A part whose partial result stays as another row, or nobody, left it.
  bool skipped_by_fault(const Part& part, const Stream& stream) const {
    if (c_.sw.splits_of_longest && part.beyond) return true;
    return c_.sw.merge_partial_stale && c_.p().window_left >= 0 && part.end_tile > part.first_tile &&
           part.end_tile * c_.arithmetic.tile_keys <= stream.seen.begin;
  }

  // A part that comes out as NaN although its row sees something.
  bool spoilt_by_fault(int r, int s, const Stream& stream) const {
    if (stream.seen.begin >= stream.seen.end) return false;
    const Part& part = parts_[s];
    const int32_t keys = c_.p().kv_len[r] - part.first_tile * c_.arithmetic.tile_keys;
    const int32_t least = c_.sw.split_short_nan < 0 ? c_.p().q_len[r] : c_.sw.split_short_nan;
    const bool last = s + 1 == static_cast<int>(parts_.size());
    if (last && keys > 0 && keys < least) return true;
    return c_.sw.masked_tile_nan && (part.first_tile + 1) * c_.arithmetic.tile_keys <= stream.seen.begin;
  }

  // The first keys of the next part, seen by this one as well.
  void overlap(int r, int32_t g, int32_t next_tile) {
    const std::vector<Stream> before = streams_;
    const int32_t first = next_tile * c_.arithmetic.tile_keys, end = first + c_.sw.split_overlap_keys;
    for (Stream& stream : streams_)
      stream.seen = {std::max(stream.seen.begin, first), std::min(stream.seen.end, end)};
    tile(r, g, next_tile);
    for (size_t n = 0; n < streams_.size(); ++n) streams_[n].seen = before[n].seen;
  }

  void tile(int r, int32_t g, int32_t t) {
    const int32_t keys = c_.arithmetic.tile_keys, first = t * keys;
    if (const Pick pick = c_.sw.tile_dropped; pick != Pick::kNone) {
      const int32_t tiles = (c_.kv_len[r] + keys - 1) / keys;
      if (tiles > 2 && t == picked(pick, tiles, mix(static_cast<uint32_t>(r), 23))) return;
    }
    KeyInterval wanted{std::numeric_limits<int32_t>::max(), 0};
    for (const Stream& stream : streams_) {
      const int32_t begin = std::max(first, stream.seen.begin), end = std::min(first + keys, stream.seen.end);
      if (begin >= end) continue;
      wanted.begin = std::min(wanted.begin, begin), wanted.end = std::max(wanted.end, end);
    }
    if (wanted.begin >= wanted.end) return;
    if (takes_masked_lanes(c_)) wanted = {first, std::max(wanted.end, std::min(first + keys, c_.kv_len[r]))};
    load_tile(c_, r, g, t, wanted, scratch_);
    for (size_t n = 0; n < streams_.size(); ++n)
      visit_tile(c_, r, streams_[n], q_.data() + n * q_stride_, q_exponent_.data() + n * q_stride_,
                 sums_.data() + n * sums_stride_, scratch_);
  }

  const Call& c_;
  Scratch scratch_;
  int q_stride_, o_stride_, sums_stride_;
  std::optional<ItemParts> items_;
  std::vector<Part> parts_;
  std::vector<Stream> streams_;
  std::vector<float> q_, sums_, o_;
  std::vector<int16_t> q_exponent_;
  Partials partials_;
};

}  // namespace

Arithmetic arithmetic_of(const Row& row, const assay_problem& p) {
  Arithmetic a = row.arithmetic;
  if (row.switches.tile_of_batch && p.max_q_len > 16) a.tile_keys *= 2;
  return a;
}

int run_model(const Row& row, const assay_problem* p, const assay_tensors* t, State& state, char* error,
              size_t size) {
  Operands operands;
  if (!assay_kernels::make_operands(p, t, &operands, error, size)) return ASSAY_INVALID_ARGUMENT;
  if (p->head_dim_qk > assay_kernels::kMaxHeadDim || p->head_dim_v > assay_kernels::kMaxHeadDim) {
    snprintf(error, size, "head dimensions %d and %d, accepted are up to %d", p->head_dim_qk, p->head_dim_v,
             assay_kernels::kMaxHeadDim);
    return ASSAY_INVALID_ARGUMENT;
  }
  const Arithmetic arithmetic = arithmetic_of(row, *p);
  const Switches right{};
  const Switches& switches = row.only_where_reached && row.reached(p) == 0 ? right : row.switches;
  recall_first_call(switches, state, operands.p);
  Call c{operands, t, arithmetic, switches, resolve(arithmetic, operands.p), state, 0, {}, {}, {}, {}, 0};
  c.blocks = static_cast<int32_t>(p->op == ASSAY_OP_PAGED ? t->k.shape[0] : p->total_kv);
  read_metadata(c);
  Runner runner(c);
  for (int r = 0; r < p->requests; ++r) {
    if (fetch_faults(c, r)) {
      snprintf(error, size, "illegal access: request %d fetches a page behind its last one", r);
      return ASSAY_FAILED;
    }
    runner.request(r);
  }
  spoil_memory(c);
  remember_first_call(*p, *t, state);
  ++state.calls;
  return ASSAY_OK;
}

}  // namespace assay_faulty
