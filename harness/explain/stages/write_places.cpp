// SPDX-License-Identifier: Apache-2.0
// Whose vectors lie where a cache write put them: heads in each other's place, dimensions in another order,
// elements at the address of another layout or as if strides were dense. See write_look.hpp.
#include <algorithm>
#include <map>
#include <set>

#include "harness/explain/stages/write_look.hpp"
#include "harness/problem/names.hpp"

namespace assay {
namespace {

constexpr size_t kSampledVectors = 16, kNamedDims = 4;

// Vectors of a row, side and head that are wrong anywhere.
struct WriteVector {
  bool v;
  int64_t row;
  int32_t head;
  auto operator<=>(const WriteVector&) const = default;
};

class WritePlaces {
 public:
  WritePlaces(const WriteLook& w, const WriteElements& all) : w_(w), all_(all) {
    for (const WriteElement& e : all.wrong) ++wrong_[{e.v, e.row, e.head}];
  }
  std::vector<StepRanked> all() {
    heads();
    dims();
    addresses();
    return std::move(list_);
  }

 private:
  // Whether any head of the row has what this one should.
  bool lies_nowhere(const WriteVector& of) const {
    for (int32_t at = 0; at < w_.heads(); ++at)
      if (w_.holds_head(of.v, of.row, of.head, at)) return false;
    return true;
  }
  void heads() {
    int64_t fits = 0;
    bool lost = true;
    std::set<bool> sides;
    std::string how;
    for (const auto& [at, count] : wrong_)
      for (int32_t from = 0; from < w_.heads(); ++from) {
        if (from == at.head || !w_.holds_head(at.v, at.row, from, at.head)) continue;
        fits += count, sides.insert(at.v);
        lost = lost && lies_nowhere(at);
        if (how.empty()) how = fmt::format("head {} holds head {}", at.head, from);
        break;
      }
    how = (sides.size() > 1 ? "K and V: " : sides.count(true) > 0 ? "V: " : "K: ") + how;
    // Of a head that is written in another's place and none in its own the plainest is that it is missing.
    if (lost && sides.size() > 1)
      put_write(list_, "heads_missing", how + ", and its own lies nowhere", all_.share(fits));
    put_write(list_, sides.size() > 1 ? "heads.kv_mapping" : "heads.one_side", how, all_.share(fits));
  }

  // Of every dimension the one that all vectors hold there.
  void dims() {
    int64_t fits = 0;
    std::string how;
    size_t named = 0;
    for (const bool v : w_.sides()) {
      std::vector<WriteVector> sample;
      for (const auto& [at, count] : wrong_)
        if (at.v == v && sample.size() < kSampledVectors) sample.push_back(at);
      if (sample.empty()) continue;
      std::vector<int32_t> from(static_cast<size_t>(w_.dims(v)), -1);
      for (int32_t d = 0; d < w_.dims(v); ++d) {
        for (int32_t n = 0; n < w_.dims(v) && from[static_cast<size_t>(d)] < 0; ++n) {
          const int32_t candidate = (d + n) % w_.dims(v);  // its own first
          const bool all = std::all_of(sample.begin(), sample.end(), [&](const WriteVector& at) {
            return w_.holds_of(v, at.row, at.head, candidate, w_.slot(at.row), v, at.head, d);
          });
          if (all) from[static_cast<size_t>(d)] = candidate;
        }
        const int32_t is = from[static_cast<size_t>(d)];
        if (is >= 0 && is != d && named < kNamedDims)
          how += fmt::format("{}{} in {}", named++ > 0 ? ", " : "", is, d);
      }
      for (const WriteElement& e : all_.wrong) {
        const int32_t is = e.v == v ? from[static_cast<size_t>(e.d)] : -1;
        fits += is >= 0 && is != e.d && w_.holds_of(v, e.row, e.head, is, w_.slot(e.row), v, e.head, e.d);
      }
    }
    put_write(list_, "dims_order", "dimensions " + how + (named == kNamedDims ? ", ..." : ""),
              all_.share(fits));
  }

  // Elements of the memory of the cache, by what a kernel takes the order of its axes for.
  void addresses() {
    const int64_t page = w_.page(), heads = w_.heads();
    // Where heads stand before slots it is slots and dimensions that are exchanged, within each.
    const bool by_heads = w_.layout() != ASSAY_LAYOUT_NHD && w_.layout() != ASSAY_LAYOUT_MLA;
    // Runs of dimensions as long as those of numbers of another width.
    for (const int64_t run : {4, 8, 16, 32}) {
      int64_t fits = 0;
      for (const WriteElement& e : all_.wrong) {
        const assay_tensor& t = w_.cache(e.v);
        if (run == 16 / format_bytes(t.format)) continue;  // its own
        const int64_t slot = w_.slot(e.row), at = slot % page;
        const int64_t to = slot / page * t.stride[0] + e.head * page * w_.dims(e.v) + e.d / run * page * run +
                           at * run + e.d % run;
        if (to == w_.element(e.v, slot, e.head, e.d)) continue;
        fits += w_.is_code(e.v, w_.at_memory(e.v, to), w_.quotient(e.v, e.row, slot, e.head, e.d));
      }
      put_write(list_, by_heads ? "dims_order" : "memory.layout",
                fmt::format("rows lie in runs of {} dimensions", run), all_.share(fits));
    }
    for (const bool dense : {false, true})
      for (int order = 0; order < 4; ++order) {
        const char* orders[] = {"slot, head, dimension", "head, slot, dimension",
                                "head, runs of dimensions, slot", "head, dimension, slot"};
        const bool same_order = (w_.layout() == ASSAY_LAYOUT_NHD && order == 0) ||
                                (w_.layout() == ASSAY_LAYOUT_HND && order == 1);
        if (dense && !same_order) continue;
        int64_t fits = 0;
        for (const WriteElement& e : all_.wrong) {
          const assay_tensor& t = w_.cache(e.v);
          const int64_t dims = w_.dims(e.v), slot = w_.slot(e.row), at = slot % page,
                        run = std::max<int64_t>(1, 16 / format_bytes(t.format));
          const int64_t base = slot / page * (dense ? page * heads * dims : t.stride[0]);
          const int64_t places[] = {(at * heads + e.head) * dims + e.d, (e.head * page + at) * dims + e.d,
                                    e.head * page * dims + e.d / run * page * run + at * run + e.d % run,
                                    (e.head * dims + e.d) * page + at};
          const int64_t to = base + places[order];
          if (to == w_.element(e.v, slot, e.head, e.d)) continue;
          fits += w_.is_code(e.v, w_.at_memory(e.v, to), w_.quotient(e.v, e.row, slot, e.head, e.d));
        }
        put_write(list_,
                  same_order              ? "memory.stride_ignored"
                  : by_heads && order > 0 ? "dims_order"
                                          : "memory.layout",
                  same_order ? "rows lie where they would if the cache were dense"
                             : fmt::format("rows lie in the order {}", orders[order]),
                  all_.share(fits));
      }
  }

  const WriteLook& w_;
  const WriteElements& all_;
  std::map<WriteVector, int64_t> wrong_;
  std::vector<StepRanked> list_;
};

}  // namespace

std::vector<StepRanked> write_places(const WriteLook& w, const WriteElements& all) {
  return WritePlaces(w, all).all();
}

}  // namespace assay
