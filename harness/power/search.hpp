// SPDX-License-Identifier: Apache-2.0
// What one process of a measurement does: for some families of one draw, the smallest size that each detector
// still rejects, on random inputs or on those with a known answer.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/power/curves.hpp"

namespace assay::power {

// A kernel of the catalogue that hangs is a bug of ours: parts at 1M keys say nothing for many minutes.
inline constexpr double kSilent = 24 * 3600;

// Faults of one kind.
struct Family {
  std::string name;
  std::vector<const CatalogueEntry*> sizes;  // largest first
  // Whether it lies in single keys: inputs with a known answer ask for every key then.
  bool in_keys = false;
};
// All families of the catalogue in its order, or those `wanted`. InputError for names that nobody has.
std::vector<Family> families_of(const Catalogue&, const std::vector<std::string>& wanted);

struct Part {
  const Format* format = nullptr;
  int64_t keys = 0;
  int draw = 0;
  uint64_t seed = 0;   // of the draw; the next one is that of its second look
  bool known = false;  // inputs with a known answer, of which every family has the same line
  std::vector<const Family*> families;
  // By family: what each detector saw with fewer keys, where that is known.
  std::map<std::string, std::array<Threshold, kDetectors>> before;
  // That build the case, and processes that ask it, of several sizes at a time.
  int threads = 1;

  std::string line() const;
  double cost() const;   // multiply-adds that its runs take at most, about
  double bytes() const;  // of memory, about
  // Where a search begins.
  std::optional<double> guess(const Family&, size_t detector) const;
};

// The smallest of `sizes` (largest first, kept by whoever asks) that is rejected, where whoever sees a fault
// sees a larger one: the largest is asked, then halves; with a guess that one, the next smaller and, where it
// does not hold, others further and further away.
class Halving {
 public:
  Halving(const std::vector<const CatalogueEntry*>& sizes, std::optional<double> guess);
  // The size that is asked now; none: found.
  std::optional<size_t> asks() const;
  void answer(bool rejects);  // of asks()
  Threshold found() const;    // once nothing is asked
  // So many sizes that are asked now or may be after it, the nearest first: what to ask at the same time.
  std::vector<size_t> may_ask(size_t count) const;

 private:
  bool far() const;
  const std::vector<const CatalogueEntry*>* sizes_;
  std::optional<double> guess_;
  size_t rejected_ = 0, accepted_;  // those before, those from here on
  bool begun_ = false, smaller_ = false;
  size_t step_ = 1;  // from the guess, where the other side is looked for
};

// What is done in one go, whatever the number of processes: families together where they are short.
std::vector<Part> parts_of(const Format&, int64_t keys, int draw, uint64_t seed, bool known,
                           const std::vector<const Family*>&);

// A row for each family, as they come. Of what the part does not look at they say kNotReached.
// InfrastructureError when a kernel fails.
void search(const Catalogue&, const Part&, const std::function<void(const CurveRow&)>& found);

}  // namespace assay::power
