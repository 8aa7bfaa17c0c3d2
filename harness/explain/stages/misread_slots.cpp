// SPDX-License-Identifier: Apache-2.0
// Misreadings of where a key lies: slots by another rule than the table's, one of K and V from elsewhere, new
// keys at the rows of other requests. See misreadings.hpp.
#include <algorithm>
#include <cstring>

#include "harness/explain/stages/misreadings.hpp"
#include "reference/attention/operands.hpp"

namespace assay {

void Misreadings::slots_of_keys(const char* cause, const std::string& how, const SlotOfKey& rule) {
  add(cause, how, [=](Reading& r) {
    const std::vector<int32_t> lengths = r.ints(Operand::kKvLen);
    int32_t most = 1;
    for (const int32_t n : lengths) most = std::max(most, n);
    std::vector<int32_t> slots(lengths.size() * static_cast<size_t>(most), 0);
    for (size_t q = 0; q < lengths.size(); ++q)
      for (int32_t key = 0; key < lengths[q]; ++key) {
        const int64_t slot = rule(r, static_cast<int32_t>(q), key);
        if (slot < 0 || slot >= r.tensors.k.shape[0] * std::max(1, r.problem.page_size)) return false;
        slots[q * static_cast<size_t>(most) + static_cast<size_t>(key)] = static_cast<int32_t>(slot);
      }
    r.problem.table = ASSAY_TABLE_TOKEN;
    r.tensors.block_table.shape[0] = static_cast<int64_t>(lengths.size());
    r.tensors.block_table.shape[1] = most;
    r.put(Operand::kBlockTable, slots);
    r.tensors.encoder_len = r.tensors.slot_map = assay_tensor{};
    return true;
  });
}

// A request's entries from where another's begin, or from beside its own; behind the last one there is none,
// and the last is taken again.
void Misreadings::tables_of_lists() {
  const int32_t requests = p().requests;
  const auto from = [&](const char* cause, const std::string& how, auto begin) {
    add(cause, how, [=](Reading& r) {
      const std::vector<int32_t> old = r.ints(Operand::kIndices), starts = r.ints(Operand::kIndptr);
      if (old.empty() || starts.size() <= static_cast<size_t>(requests)) return false;
      std::vector<int32_t> now = old;
      for (int32_t q = 0; q < requests; ++q)
        for (int32_t at = starts[static_cast<size_t>(q)]; at < starts[static_cast<size_t>(q) + 1]; ++at) {
          const int64_t entry = int64_t{begin(starts, q)} + at - starts[static_cast<size_t>(q)];
          now[static_cast<size_t>(at)] =
              old[static_cast<size_t>(std::clamp<int64_t>(entry, 0, std::ssize(old) - 1))];
        }
      if (now == old) return false;
      r.put(Operand::kIndices, now);
      return true;
    });
  };
  using Starts = std::vector<int32_t>;
  for (const int32_t by : {1, -1})
    from("table_shifted",
         fmt::format("a request's entries from the {} its first", by > 0 ? "one behind" : "one before"),
         [=](const Starts& s, int32_t q) { return s[static_cast<size_t>(q)] + by; });
  if (requests < 2) return;
  for (const int32_t by : {1, -1})
    from("table_of_next", fmt::format("the entries of the request {}", by > 0 ? "behind" : "before"),
         [=](const Starts& s, int32_t q) {
           return s[static_cast<size_t>(std::clamp(q + by, 0, requests - 1))];
         });
  for (int32_t one = 0; one < std::min(8, requests); ++one)
    from("table_of_one", fmt::format("the entries of request {} for all", one),
         [=](const Starts& s, int32_t) { return s[static_cast<size_t>(one)]; });
}

// An encoder whose pages are shared with the keys behind it, a map of slots that is looked up by block.
void Misreadings::other_slots() {
  if (!case_.attends() || !has(Operand::kBlockTable) || !has(Operand::kKvLen) ||
      p().table != ASSAY_TABLE_BLOCK)
    return;
  const int32_t page = std::max(1, p().page_size);
  const auto entry = [](const Reading& r, int32_t request, int64_t at) {
    const assay_tensor& t = r.tensors.block_table;
    return at < t.shape[1]
               ? int64_t{static_cast<const int32_t*>(t.data)[request * t.stride[0] + at * t.stride[1]]}
               : -1;
  };
  const auto before = [](const Reading& r, int32_t request) {
    const assay_tensor& t = r.tensors.encoder_len;
    return t.data == nullptr ? 0 : static_cast<const int32_t*>(t.data)[request * t.stride[0]];
  };
  if (has(Operand::kEncoderLen) && !has(Operand::kSlotMap))
    slots_of_keys("encoder_rounded_down", "a request's keys follow the encoder's last token in its page",
                  [=](const Reading& r, int32_t request, int32_t key) {
                    const int64_t at = int64_t{before(r, request)} + key,
                                  block = entry(r, request, at / page);
                    return block < 0 ? -1 : block * page + at % page;
                  });
  // Not a table but its first entry, as where a request's pages lie behind each other.
  if (!has(Operand::kSlotMap))
    slots_of_keys("table_other", "pages follow the first of their request",
                  [=](const Reading& r, int32_t request, int32_t key) {
                    const int64_t first = (before(r, request) + page - 1) / page;
                    const int64_t block = entry(r, request, first) + key / page;
                    return std::min(block, r.tensors.k.shape[0] - 1) * page + key % page;
                  });
  if (!has(Operand::kSlotMap)) return;
  const auto mapped = [=](const Reading& r, int32_t request, int32_t key, bool by_block) -> int64_t {
    const int64_t first = (before(r, request) + page - 1) / page;
    const int64_t block = entry(r, request, first + key / page), at = by_block ? block : block * page;
    const assay_tensor& map = r.tensors.slot_map;
    if (block < 0 || at >= map.shape[0]) return -1;
    return static_cast<const int32_t*>(map.data)[at * map.stride[0]];
  };
  slots_of_keys("map_shifted", "the map of slots looked up by block, for a slot of the block that is meant",
                [=](const Reading& r, int32_t request, int32_t key) {
                  const int64_t slot = mapped(r, request, key, true);
                  return slot < 0 ? -1 : slot / page * page + key % page;
                });
  slots_of_keys("map_shifted", "the map of slots looked up by block, for a block",
                [=](const Reading& r, int32_t request, int32_t key) {
                  const int64_t slot = mapped(r, request, key, true);
                  return slot < 0 ? -1 : slot * page + key % page;
                });
  slots_of_keys("map_shifted", "the map of slots looked up by block, for its first slot",
                [=](const Reading& r, int32_t request, int32_t key) {
                  const int64_t slot = mapped(r, request, key, true);
                  return slot < 0 ? -1 : slot + key % page;
                });
  slots_of_keys("map_shifted", "the map followed for the first slot of every page alone",
                [=](const Reading& r, int32_t request, int32_t key) {
                  const int64_t slot = mapped(r, request, key, false);
                  return slot < 0 ? -1 : slot + key % page;
                });
  slots_of_keys("map_missing", "slots of the full pool themselves, as many as the cache has and again",
                [=](const Reading& r, int32_t request, int32_t key) {
                  const int64_t first = (before(r, request) + page - 1) / page;
                  const int64_t block = entry(r, request, first + key / page);
                  return block < 0 ? -1 : (block * page + key % page) % (r.tensors.k.shape[0] * page);
                });
}

namespace {

// One side of the cache laid out anew, decoded, in fp32: new keys of the requests that are due as they came,
// all others as they lie.
class SideAnew {
 public:
  SideAnew(const Problem& problem, const Reading& from, bool v, int64_t blocks)
      : p_(problem),
        host_{&from.tensors, from.problem.q_scale_host, from.problem.k_scale_host, from.problem.v_scale_host},
        reader_(problem, host_),
        first_(problem.cu_q()),
        v_(v),
        one_(static_cast<size_t>(dims())),
        numbers_(static_cast<size_t>(blocks * p_.page_size * p_.heads_kv * dims()), 0.0f) {}

  void lay(int32_t request, bool due) {
    const Request& r = p_.requests[static_cast<size_t>(request)];
    for (int32_t key = 0; key < r.kv_len; ++key) {
      const OperandReader::Place lies = reader_.place(request, key);
      const bool is_new = due && key >= r.context_len();
      const OperandReader::Place came{first_[static_cast<size_t>(request)] + key - r.context_len(),
                                      OperandReader::kDense};
      for (int32_t h = 0; h < p_.heads_kv; ++h) lay_head(request, is_new ? came : lies, lies, h);
      any_new_ = any_new_ || is_new;
    }
  }
  bool any_new() const { return any_new_; }
  const std::vector<float>& numbers() const { return numbers_; }

 private:
  int64_t dims() const { return v_ ? p_.head_dim_v : p_.head_dim_qk; }
  void lay_head(int32_t request, const OperandReader::Place& from, const OperandReader::Place& at,
                int64_t h) {
    v_ ? reader_.v_at(request, from, static_cast<int32_t>(h), one_.data())
       : reader_.k_at(request, from, static_cast<int32_t>(h), one_.data());
    const int64_t to = p_.layout == ASSAY_LAYOUT_HND ? (at.block * p_.heads_kv + h) * p_.page_size + at.slot
                                                     : (at.block * p_.page_size + at.slot) * p_.heads_kv + h;
    std::transform(one_.begin(), one_.end(), numbers_.begin() + to * dims(),
                   [](double x) { return static_cast<float>(x); });
  }

  const Problem& p_;
  HostOperands host_;
  OperandReader reader_;
  std::vector<int32_t> first_;
  bool v_, any_new_ = false;
  std::vector<double> one_;
  std::vector<float> numbers_;
};

void take_side(Reading& r, bool v, const std::vector<float>& numbers) {
  assay_tensor& side = v ? r.tensors.v : r.tensors.k;
  r.lists->emplace_back(numbers.size() * sizeof(float));
  std::memcpy(r.lists->back().data(), numbers.data(), numbers.size() * sizeof(float));
  side.data = r.lists->back().data(), side.format = ASSAY_FP32;
  side.stride[3] = 1;
  for (int axis = 3; axis-- > 0;) side.stride[axis] = side.stride[axis + 1] * side.shape[axis + 1];
  (v ? r.problem.v_format : r.problem.k_format) = ASSAY_FP32;
  (v ? r.problem.v_scale_kind : r.problem.k_scale_kind) = ASSAY_SCALE_NONE;
  (v ? r.tensors.v_scale : r.tensors.k_scale) = assay_tensor{};
}

}  // namespace

// New K as it came and V from the cache, or the other way round: in requests that are declared to read both
// from the cache, or both as they came.
void Misreadings::one_side_as_it_came() {
  constexpr int64_t kMostNumbers = 1 << 22;
  if (!case_.attends() || !has(Operand::kDenseK) || !has(Operand::kDenseV) || !has(Operand::kKvLen) ||
      (p().layout != ASSAY_LAYOUT_HND && p().layout != ASSAY_LAYOUT_NHD))
    return;
  for (const bool v : {true, false})
    for (const bool of_dense : {false, true})
      add(of_dense ? "cache_for_dense" : "dense_for_cache",
          fmt::format("{} of new keys as they came, {} from the cache", v ? "V" : "K", v ? "K" : "V"),
          [=, this](Reading& r) {
            Reading own = r;
            own.dense.clear();
            const Problem problem = case_.problem_of(own);
            const assay_tensor& side = v ? r.tensors.v : r.tensors.k;
            if (side.rank != 4 || side.shape[0] * problem.page_size * problem.heads_kv *
                                          (v ? problem.head_dim_v : problem.head_dim_qk) >
                                      kMostNumbers)
              return false;
            SideAnew anew(problem, own, v, side.shape[0]);
            r.dense.resize(problem.requests.size(), 0);
            for (size_t q = 0; q < problem.requests.size(); ++q) {
              const bool due = ((r.dense[q] & 1) != 0) == of_dense;
              if (due && of_dense) r.dense[q] = static_cast<uint8_t>(r.dense[q] & ~1);
              anew.lay(static_cast<int32_t>(q), due);
            }
            if (!anew.any_new()) return false;
            take_side(r, v, anew.numbers());
            return true;
          });
}

// New keys where those of one request of their sort stand, the first; of keys without scales also where they
// are declared to be read from the cache, which holds the same.
void Misreadings::dense_rows_of_first() {
  if (!has(Operand::kDenseK) || !has(Operand::kDenseV) || p().requests < 2) return;
  constexpr int kAny = ASSAY_REQUEST_DECODE | ASSAY_REQUEST_EXTEND | ASSAY_REQUEST_PREFILL;
  const std::pair<int, const char*> sorts[] = {{ASSAY_REQUEST_DECODE, "decode"},
                                               {ASSAY_REQUEST_EXTEND, "extend"},
                                               {ASSAY_REQUEST_PREFILL, "prefill"},
                                               {kAny, "request"}};
  for (const auto& [sort, word] : sorts) {
    int64_t first = -1, row = 0;
    std::vector<int64_t> from;
    bool other = false;
    for (int32_t r = 0; r < p().requests; ++r) {
      const bool its = (class_of(r) & sort) != 0;
      if (its && first < 0) first = row;
      for (int32_t i = 0, begin = static_cast<int32_t>(row); i < given_.rows_of(r); ++i, ++row) {
        from.push_back(its ? first + i : begin + i);
        other = other || from.back() != row;
      }
    }
    if (!other) continue;
    add("rows_shifted", fmt::format("K and V of the first {} for all", word), [=, this](Reading& r) {
      for (const Operand o : {Operand::kDenseK, Operand::kDenseV})
        reorder(r, o, 0, [&](int64_t i) { return i < static_cast<int64_t>(from.size()) ? from[i] : i; });
      if (case_.attends() && p().k_scale_kind == ASSAY_SCALE_NONE && p().v_scale_kind == ASSAY_SCALE_NONE) {
        r.dense.resize(static_cast<size_t>(r.problem.requests), 0);
        for (uint8_t& read : r.dense) read |= 1;
      }
      return true;
    });
  }
}

}  // namespace assay
