// SPDX-License-Identifier: Apache-2.0
// A kernel of plain fp32 in tiles of 32 keys, in one part or in three that are merged, and the mistakes in
// it: `is("name"_fault)` marks each where an author would have made it. Rows are worked on one by one and
// head by head, keys in their order; every index that a mistake makes stays within what exists, so results
// are wrong and nothing crashes. Deliberately another kernel than the model kernel beside it, whose switches
// the explanations were written with.
#include "kernels/faulty/unseen/kernel.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/formats.hpp"
#include "kernels/common/operands.hpp"
#include "kernels/faulty/unseen/faults.hpp"

namespace assay_unseen {
namespace {

using namespace assay_kernels;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLog2e = 1.44269504f;
constexpr int32_t kTile = 32;

float through(int32_t format, float value) {
  if (format == ASSAY_BF16) return float_from_bf16(bf16_from_float(value));
  return float_from_fp8(fp8_from_float(value, format), format);
}

// A row of one head, and what it is told about its request.
struct Row {
  int32_t request, number, head, kv_head;
  int64_t packed;
  int32_t rows, keys, context;  // of the request, as the kernel believes
  int64_t position() const { return int64_t{context} + number; }
};

// What has been seen so far of a row: O not normalised, the sum relative to the maximum.
struct State {
  float maximum = -kInfinity, sum = 0;
  std::vector<float> o;
};

class Kernel {
 public:
  Kernel(int fault, const Operands& a) : fault_(fault), a_(a), p_(a.p) {}

  void run() {
    if (is("bias_absolute"_fault) && p_.alibi == ASSAY_ALIBI_LINEAR) absolute_bias_ = true;
    for (int32_t r = 0; r < p_.requests; ++r)
      for (int32_t i = 0; i < p_.q_len[r]; ++i)
        for (int32_t h = 0; h < p_.heads_q; ++h) attend(row_of(r, i, h));
  }

 private:
  bool is(int fault) const { return fault == fault_; }
  int32_t real_keys(int32_t r) const { return p_.kv_len[r]; }
  int32_t real_context(int32_t r) const { return p_.kv_len[r] - p_.q_len[r]; }
  bool full() const { return p_.mask == ASSAY_MASK_FULL || p_.mask == ASSAY_MASK_CROSS; }
  bool prefill() const { return p_.op == ASSAY_OP_PREFILL; }

  // ---- lengths and starts

  int32_t keys_of(int32_t r) const {
    const int32_t own = real_keys(r), last = p_.requests - 1;
    if (is("shorter_of_pair"_fault)) return std::min(own, real_keys(std::min(r ^ 1, last)));
    if (is("lengths_reversed"_fault)) return std::min(own, real_keys(last - r));
    if (is("decode_before_append"_fault) && p_.q_len[r] == 1) return own - 1;
    if (is("keys_capped_256"_fault)) return std::min(own, 256);
    if (is("length_in_8_bits"_fault)) return own & 255;
    if (is("tail_zeros_to_8"_fault) && full()) return (own + 7) / 8 * 8;
    if (is("tail_from_next_request"_fault) && full() && prefill()) {
      const int64_t begin = a_.cu_kv[r * a_.cu_kv_stride];
      return static_cast<int32_t>(std::min<int64_t>(own + 3, p_.total_kv - begin));
    }
    return own;
  }
  Row row_of(int32_t r, int32_t i, int32_t h) const {
    Row row{r,
            i,
            h,
            h / a_.group,
            a_.cu_q[r * a_.cu_q_stride] + int64_t{i},
            p_.q_len[r],
            keys_of(r),
            real_context(r)};
    if (is("context_of_first"_fault)) row.context = real_context(0);
    if (is("heads_reversed"_fault)) row.kv_head = p_.heads_kv - 1 - row.kv_head;
    if (is("head_early_in_group"_fault)) row.kv_head = std::min(p_.heads_kv - 1, (h + 1) / a_.group);
    if (is("all_on_kv_head_0"_fault)) row.kv_head = 0;
    return row;
  }

  // ---- who sees what

  bool window_sees(const Row& row, int32_t key) const {
    int32_t left = p_.window_left, right = p_.window_right;
    if (is("window_sides_exchanged"_fault)) std::swap(left, right);
    if (is("window_halved"_fault) && left > 0) left /= 2;
    if (is("window_right_one_more"_fault) && right >= 0) ++right;
    const int64_t at = row.position();
    bool inside_left = left < 0 || key >= at - left;
    if (left >= 0) {
      if (is("window_of_first_row"_fault)) inside_left = key >= row.context - left;
      if (is("window_up_to_page"_fault)) {
        const int64_t page = prefill() ? 16 : p_.page_size;
        inside_left = key >= (std::max<int64_t>(0, at - left) + page - 1) / page * page;
      }
      if (is("window_not_for_new_keys"_fault) && key >= row.context) inside_left = true;
      if (is("window_free_first_row"_fault) && row.number == 0) inside_left = true;
      if (is("window_keeps_first_four"_fault) && key < 4) inside_left = true;
      if (is("window_half_the_heads"_fault) && row.head >= p_.heads_q / 2) inside_left = true;
    }
    bool inside_right = right < 0 || key <= at + right;
    if (is("window_right_of_first_row"_fault) && right >= 0)
      inside_right = key <= row.context + right || key == at;
    return inside_left && inside_right;
  }
  bool chunk_sees(const Row& row, int32_t key) const {
    if (p_.chunk == 0) return true;
    int64_t at = row.position();
    if (key > at) return false;
    int32_t chunk = p_.chunk;
    if (is("chunk_one_less"_fault) && chunk > 1) --chunk;
    if (is("chunk_by_row"_fault)) return key / chunk >= row.number / chunk;
    int64_t begin = at < 0 ? 0 : at / chunk * chunk;
    if (is("chunk_border_shared"_fault)) --begin;
    return key >= begin;
  }
  bool causal_sees(const Row& row, int32_t key) const {
    if (p_.mask != ASSAY_MASK_CAUSAL) return true;
    int64_t limit = row.position();
    if (is("causal_block_16"_fault) && limit >= 0) limit |= 15;
    if (is("causal_pair_late"_fault)) limit = int64_t{row.context} + std::min(row.number | 1, row.rows - 1);
    if (is("causal_pair_early"_fault)) limit = int64_t{row.context} + (row.number & ~1);
    if (is("causal_odd_heads_free"_fault) && row.head % 2 == 1) return true;
    return key <= limit;
  }
  bool tree_sees(const Row& row, int32_t key) const {
    if (p_.mask != ASSAY_MASK_TREE) return true;
    const int32_t n = p_.q_len[row.request], keys = real_keys(row.request), draft = key - (keys - n);
    if (draft < 0) return true;
    const auto bit = [&](int32_t column) {
      return tree_visible(a_, row.request, n, keys, row.number, keys - n + column);
    };
    if (is("tree_self_hidden"_fault) && draft == row.number) return false;
    if (is("tree_bits_reversed"_fault)) return bit(std::min(draft ^ 7, n - 1));
    if (is("tree_last_row_free"_fault) && row.number == n - 1) return true;
    if (is("tree_16_columns"_fault) && draft >= 16) return false;
    if (is("tree_nearest_only"_fault) && draft < row.number)
      for (int32_t later = draft + 1; later < row.number; ++later)
        if (bit(later)) return false;
    return bit(draft);
  }
  bool sees(const Row& row, int32_t key) const {
    if (key >= row.keys) return false;
    if (is("full_hides_own"_fault) && full() && key == row.position()) return false;
    return causal_sees(row, key) && window_sees(row, key) && chunk_sees(row, key) && tree_sees(row, key);
  }

  // ---- addresses

  KeyPlace place(int32_t r, int32_t key) const {
    const int32_t own = real_keys(r);
    if (prefill()) {
      KeyPlace at = place_key(a_, r, key);
      if (is("keys_start_late"_fault) && r > 0) at.block = std::min(at.block + 1, p_.total_kv - 1);
      return at;
    }
    const int32_t page = p_.page_size, logical = key / page, slot = key % page;
    if (is("table_tail_of_previous"_fault) && r > 0 && logical >= 2 &&
        real_keys(r - 1) >= (logical + 1) * page)
      return place_key(a_, r - 1, key);
    if (is("first_page_shared"_fault) && logical == 0 && slot < real_keys(0)) return place_key(a_, 0, key);
    if (is("last_page_repeats"_fault) && logical > 0 && logical == (own - 1) / page)
      return place_key(a_, r, key - page);
    return place_key(a_, r, key);
  }
  int32_t key_for_k(const Row& row, int32_t key) const {
    const int32_t own = real_keys(row.request);
    if (is("k_slots_exchanged"_fault) && (key ^ 1) < own) return key ^ 1;
    if (is("k_tile_stale"_fault) && key / kTile % 2 == 1) return key - kTile;
    return key;
  }
  int32_t key_for_v(const Row& row, int32_t key) const {
    const int32_t own = real_keys(row.request), page = prefill() ? 16 : p_.page_size;
    if (is("v_pages_reversed"_fault)) {
      const int32_t pages = (own + page - 1) / page;
      return std::min(own - 1, (pages - 1 - key / page) * page + key % page);
    }
    if (is("v_slots_4x4"_fault) && (key | 15) < own) return (key & ~15) | (key & 3) << 2 | (key >> 2 & 3);
    if (is("v_tile_ahead"_fault) && key + kTile < own) return key + kTile;
    return key;
  }

  // ---- operands in fp32

  void load_q(const Row& row, std::vector<float>& q) const {
    int64_t packed = row.packed;
    if (is("q_start_padded_4"_fault)) {
      packed = row.number;
      for (int32_t r = 0; r < row.request; ++r) packed += (p_.q_len[r] + 3) / 4 * 4;
      packed %= p_.total_q;
    }
    if (is("q_fourth_row_stale"_fault) && row.number % 4 == 3) --packed;
    const int32_t dims = p_.head_dim_qk;
    q.resize(dims);
    for (int32_t d = 0; d < dims; ++d) {
      int32_t from = d;
      if (is("q_dims_interleaved"_fault)) from = d < dims / 2 ? 2 * d : 2 * (d - dims / 2) + 1;
      q[d] = load_element(a_.q, packed * a_.q_stride[0] + row.head * a_.q_stride[1] + from * a_.q_stride[2],
                          p_.q_format) *
             channel_scale(a_.q_scale, row.head, d);
    }
  }
  float q_scale(const Row& row) const {
    const int64_t packed = is("q_scale_of_first_row"_fault) ? row.packed - row.number : row.packed;
    return q_row_scale(a_.q_scale, row.request, packed, row.head, row.kv_head);
  }
  float k_scale(const Row& row, KeyPlace at, int32_t d) const {
    if (is("k_channel_halved"_fault)) d /= 2;
    if (is("k_scale_of_page_start"_fault)) at.slot = 0;
    const ScaleView& view = is("kv_scales_exchanged"_fault) ? a_.v_scale : a_.k_scale;
    const float scale = kv_scale(view, row.request, at, row.kv_head) * channel_scale(view, row.kv_head, d);
    return is("k_scale_twice"_fault) ? scale * scale : scale;
  }
  float v_scale(const Row& row, KeyPlace at, int32_t d) const {
    const int32_t head = is("v_scale_head_modulo"_fault) ? row.head % p_.heads_kv : row.kv_head;
    const ScaleView& view = is("kv_scales_exchanged"_fault) ? a_.k_scale : a_.v_scale;
    const float scale = kv_scale(view, row.request, at, head) * channel_scale(view, head, d);
    return is("v_scale_twice"_fault) ? scale * scale : scale;
  }
  float load_k(const Row& row, int32_t key, KeyPlace at, int32_t d) const {
    const int32_t dims = p_.head_dim_qk;
    int32_t from = d;
    if (is("k_swizzle_odd_keys"_fault) && key % 2 == 1 && (d ^ 4) < dims) from = d ^ 4;
    if (is("k_upper_half_is_lower"_fault) && d >= dims / 2) from = d - dims / 2;
    float value = load_element(
        a_.k.data, token_offset(a_.k, at) + row.kv_head * a_.k.head_stride + dim_offset(a_.k, from),
        p_.k_format);
    if (is("int8_k_unsigned"_fault) && p_.k_format == ASSAY_INT8 && value < 0) value += 256;
    if (is("k_through_fp8"_fault)) value = through(ASSAY_FP8_E4M3, value);
    return value * k_scale(row, at, d);
  }
  float load_v(const Row& row, KeyPlace at, int32_t d) const {
    int32_t head = row.kv_head;
    if (is("v_of_next_head"_fault)) head = (head + 1) % p_.heads_kv;
    if (is("v_rotated_odd_heads"_fault) && row.head % 2 == 1) d = (d + 8) % p_.head_dim_v;
    float value = load_element(
        a_.v.data, token_offset(a_.v, at) + head * a_.v.head_stride + dim_offset(a_.v, d), p_.v_format);
    if (is("v_through_fp8"_fault)) value = through(ASSAY_FP8_E4M3, value);
    return value * v_scale(row, at, d);
  }

  // ---- scores

  float bias(const Row& row, int32_t key) const {
    const int64_t distance = row.position() - key;
    if (p_.alibi == ASSAY_ALIBI_NONE || distance < 0) return 0;
    const int32_t head = is("slope_of_kv_head"_fault) ? row.kv_head : row.head;
    const float slope = a_.alibi_slopes[head * a_.alibi_stride];
    if (absolute_bias_) return slope * static_cast<float>(key);
    const auto d = static_cast<float>(distance);
    const float bias = -slope * (p_.alibi == ASSAY_ALIBI_SQRT ? std::sqrt(d) : d);
    if (is("bias_in_log2"_fault)) return bias / kLog2e;
    return is("bias_times_scale"_fault) ? bias * p_.softmax_scale : bias;
  }
  // Of a key that lies behind the last one: zeros.
  bool padding(const Row& row, int32_t key) const {
    return is("tail_zeros_to_8"_fault) && key >= real_keys(row.request);
  }
  float score(const Row& row, const std::vector<float>& q, int32_t key) const {
    if (padding(row, key)) return 0;
    const KeyPlace at = place(row.request, key_for_k(row, key));
    float dot = 0;
    for (int32_t d = 0; d < p_.head_dim_qk; ++d) dot += q[d] * load_k(row, key, at, d);
    float scale = p_.softmax_scale;
    if (is("scale_of_padded_dim"_fault))
      scale = 1 / std::sqrt(static_cast<float>(std::bit_ceil(static_cast<uint32_t>(p_.head_dim_qk))));
    float s = dot * (scale * q_scale(row));
    if (is("bias_before_cap"_fault)) s += bias(row, key);
    if (p_.softcap > 0)
      s = is("cap_clamps"_fault) ? std::clamp(s, -p_.softcap, p_.softcap)
                                 : p_.softcap * std::tanh(s / p_.softcap);
    if (!is("bias_before_cap"_fault)) s += bias(row, key);
    if (is("log2e_twice"_fault)) s *= kLog2e;
    return is("scores_clipped"_fault) ? std::clamp(s, -1.5f, 1.5f) : s;
  }

  // ---- softmax

  float weight(float exponent) const {
    if (is("exp_linear"_fault)) {
      const float power = exponent * kLog2e, whole = std::floor(power);
      return std::ldexp(1 + (power - whole), static_cast<int>(whole));
    }
    const float w = std::exp(exponent);
    return is("small_weights_flushed"_fault) && w < 1.0f / 16 ? 0 : w;
  }
  void tile(const Row& row, const std::vector<float>& q, int32_t first, int32_t end, State& state) const {
    std::vector<int32_t> keys;
    const int32_t begin = is("tile_edge_doubled"_fault) && first > 0 ? first - 1 : first;
    for (int32_t key = begin; key < end; ++key)
      if (sees(row, key) && !(is("tile_edge_skipped"_fault) && first > 0 && key == first))
        keys.push_back(key);
    if (is("o_reset_at_second_tile"_fault) && first == kTile) std::fill(state.o.begin(), state.o.end(), 0.0f);
    if (keys.empty()) return;
    std::vector<float> scores;
    float maximum = state.maximum;
    for (int32_t key : keys) scores.push_back(score(row, q, key)), maximum = std::max(maximum, scores.back());
    float shrink = state.maximum == -kInfinity ? 0 : std::exp(state.maximum - maximum);
    if (is("small_moves_not_rescaled"_fault) && maximum - state.maximum < 1) shrink = 1;
    state.maximum = maximum;
    state.sum *= is("l_rescaled_twice"_fault) ? shrink * shrink : shrink;
    for (float& o : state.o) o *= is("o_rescaled_twice"_fault) ? shrink * shrink : shrink;
    for (size_t n = 0; n < keys.size(); ++n) {
      const float w = weight(scores[n] - maximum);
      state.sum += w;
      if (padding(row, keys[n])) continue;
      const float p = is("p_through_fp8"_fault) ? through(ASSAY_FP8_E4M3, w) : w;
      const KeyPlace at = place(row.request, key_for_v(row, keys[n]));
      for (int32_t d = 0; d < p_.head_dim_v; ++d) state.o[d] += p * load_v(row, at, d);
    }
    if (is("sum_counts_hidden"_fault))
      for (int32_t key = first; key < end; ++key)
        if (key < row.keys && !causal_sees(row, key)) state.sum += std::exp(score(row, q, key) - maximum);
    if (is("sum_in_bf16"_fault)) state.sum = through(ASSAY_BF16, state.sum);
  }
  // The tiles from `first` to before `end`.
  State part(const Row& row, int32_t first, int32_t end) const {
    State state;
    state.o.assign(p_.head_dim_v, 0.0f);
    std::vector<float> q;
    load_q(row, q);
    for (int32_t t = first; t < end; ++t) {
      State& to = state;
      if (!is("tiles_averaged"_fault)) {
        tile(row, q, t * kTile, std::min(row.keys, (t + 1) * kTile), to);
        continue;
      }
      State own;
      own.o.assign(p_.head_dim_v, 0.0f);
      tile(row, q, t * kTile, std::min(row.keys, (t + 1) * kTile), own);
      if (own.sum == 0) continue;
      // As if every tile had the same share of the whole.
      for (int32_t d = 0; d < p_.head_dim_v; ++d) state.o[d] += own.o[d] / own.sum;
      state.maximum = 0, state.sum += 1;
    }
    return state;
  }

  // ---- parts

  State merged(const Row& row) const {
    int32_t tiles = (row.keys + kTile - 1) / kTile;
    const uint32_t lot = static_cast<uint32_t>(row.packed * p_.heads_q + row.head) * 2654435761u >> 16;
    if (is("some_rows_miss_last_tile"_fault) && lot % 4 == 0 && tiles > 1) --tiles;
    const int32_t count = fault_ < 0 ? 1 : kFaults[fault_].parts;
    if (count == 1) return part(row, 0, tiles);
    std::vector<State> parts;
    for (int32_t s = 0; s < count; ++s) {
      parts.push_back(part(row, tiles * s / count, tiles * (s + 1) / count));
      if (is("merge_of_next_head"_fault) && s == 1) {
        Row other = row_of(row.request, row.number, (row.head + 1) % p_.heads_q);
        State next = part(other, tiles * s / count, tiles * (s + 1) / count);
        // Its weight stays: the same sum, other values.
        const float factor = next.sum > 0 ? parts[1].sum / next.sum : 0;
        for (int32_t d = 0; d < p_.head_dim_v; ++d) parts[1].o[d] = next.o[d] * factor;
      }
    }
    State whole;
    whole.o.assign(p_.head_dim_v, 0.0f);
    for (const State& s : parts) whole.maximum = std::max(whole.maximum, s.maximum);
    if (whole.maximum == -kInfinity) return whole;
    std::vector<float> shares;
    for (const State& s : parts)
      shares.push_back(s.maximum == -kInfinity ? 0 : std::exp(s.maximum - whole.maximum));
    if (is("merge_weights_exchanged"_fault)) {
      // Of normalised parts: weight is share x sum.
      const float w0 = shares[0] * parts[0].sum, w1 = shares[1] * parts[1].sum;
      if (parts[0].sum > 0 && parts[1].sum > 0) shares[0] = w1 / parts[0].sum, shares[1] = w0 / parts[1].sum;
    }
    for (int32_t s = 0; s < count; ++s) {
      float share = shares[s];
      whole.sum += share * (is("merge_by_max_only"_fault) ? (parts[s].sum > 0) : parts[s].sum);
      if (is("merge_by_max_only"_fault) && parts[s].sum > 0) share /= parts[s].sum;
      for (int32_t d = 0; d < p_.head_dim_v; ++d) whole.o[d] += share * parts[s].o[d];
    }
    if (is("lse_of_two_parts"_fault)) lse_sum_ = shares[0] * parts[0].sum + shares[1] * parts[1].sum;
    return whole;
  }

  // ---- results

  void add_sink(const Row& row, State& state) const {
    float sink;
    if (p_.has_sinks) {
      const int32_t head = is("sink_of_kv_head"_fault) ? row.kv_head : row.head;
      sink = a_.sinks[head * a_.sinks_stride];
      if (is("sink_in_log2"_fault)) sink /= kLog2e;
      if (is("sink_capped"_fault) && p_.softcap > 0) sink = p_.softcap * std::tanh(sink / p_.softcap);
    } else if (is("denominator_plus_one"_fault)) {
      sink = 0;
    } else {
      return;
    }
    const float maximum = std::max(state.maximum, sink);
    const float shrink = state.maximum == -kInfinity ? 0 : std::exp(state.maximum - maximum);
    for (float& o : state.o) o *= shrink;
    state.sum = state.sum * shrink + std::exp(sink - maximum), state.maximum = maximum;
  }
  void attend(const Row& row) {
    if (is("odd_last_row_unwritten"_fault) && row.rows % 2 == 1 && row.number == row.rows - 1) return;
    lse_sum_ = -1;
    State state = merged(row);
    add_sink(row, state);
    if (is("hidden_rows_average"_fault) && state.sum == 0 && row.keys > 0) {
      state.maximum = 0, state.sum = static_cast<float>(row.keys);
      for (int32_t key = 0; key < row.keys; ++key)
        for (int32_t d = 0; d < p_.head_dim_v; ++d) state.o[d] += load_v(row, place(row.request, key), d);
    }
    if (is("short_requests_skipped"_fault) && real_keys(row.request) < 4) state.sum = 0;
    const bool empty = state.sum == 0;
    std::vector<float> o(p_.head_dim_v, 0.0f);
    if (!empty)
      for (int32_t d = 0; d < p_.head_dim_v; ++d) o[d] = state.o[d] / state.sum;
    if (is("lanes_of_previous_head"_fault) && row.head > 0)
      std::copy_n(previous_.begin() + 8, std::min(8, p_.head_dim_v - 8), o.begin() + 8);
    previous_ = o;
    float lse = -kInfinity;
    if (!empty) {
      const float sum = lse_sum_ >= 0 ? lse_sum_ : state.sum;
      lse = state.maximum + std::log(sum);
      // exp(maximum) * sum is the sum that ln(1 + sum) is about.
      if (is("lse_log1p"_fault)) lse = std::log1p(std::exp(lse));
    }
    store(row, o, lse);
  }
  void store(const Row& row, std::vector<float>& o, float lse) {
    const int32_t in_group = row.head % a_.group, leader = row.head - in_group;
    const int32_t head = is("o_group_reversed"_fault) ? leader + a_.group - 1 - in_group : row.head;
    for (int32_t d = 0; d < p_.head_dim_v; ++d) {
      float value = o[d];
      if (is("o_pairs_exchanged"_fault) && (d ^ 1) < p_.head_dim_v) value = o[d ^ 1];
      if (is("o_clamped"_fault)) value = std::clamp(value, -0.25f, 0.25f);
      store_element(a_.o, row.packed * a_.o_stride[0] + head * a_.o_stride[1] + d * a_.o_stride[2],
                    p_.o_format, value);
    }
    if (is("lse_of_group_leader"_fault)) {
      if (in_group == 0) leader_lse_ = lse;
      lse = leader_lse_;
    }
    int64_t lse_row = row.packed, lse_head = row.head;
    if (is("lse_heads_first"_fault)) {
      const int64_t flat = row.head * p_.total_q + row.packed;
      lse_row = flat / p_.heads_q, lse_head = flat % p_.heads_q;
    }
    a_.lse[lse_row * a_.lse_stride[0] + lse_head * a_.lse_stride[1]] = lse;
  }

  const int fault_;
  const Operands& a_;
  const assay_problem& p_;
  bool absolute_bias_ = false;
  mutable float lse_sum_ = -1;  // the sum that the LSE is taken of; negative: the row's own
  float leader_lse_ = 0;
  std::vector<float> previous_;  // O of the head before
};

}  // namespace

int run_kernel(int fault, const assay_problem* p, const assay_tensors* t, char* error, size_t size) {
  Operands a;
  if (!make_operands(p, t, &a, error, size)) return ASSAY_INVALID_ARGUMENT;
  Kernel(fault, a).run();
  return ASSAY_OK;
}

}  // namespace assay_unseen
