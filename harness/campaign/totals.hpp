// SPDX-License-Identifier: Apache-2.0
// What a campaign counted. A chunk of lines is one line of the file of totals, appended when the chunk is
// done, so an interrupted campaign goes on where it was and shards add up. The rate that follows is bounded
// from above, since "0 alarms" says little without the number of cases.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/base/journal.hpp"
#include "harness/campaign/messages.hpp"

namespace assay::campaign {

struct Counts {
  int64_t passed = 0, alarms = 0, untrusted = 0, unsupported = 0;
  // Of those that passed: bounds past what is useful (Verdict::useless), and O's largest error over its
  // bound, with and without the rounding of the output itself (ErrorStats).
  int64_t useless = 0;
  double largest = 0, unrounded = 0;
  int64_t judged() const { return passed + alarms; }  // verdicts; untrusted ones prove nothing either way
  void add(const Counts&);
  bool operator==(const Counts&) const = default;
};

struct Totals {
  int64_t lines = 0;                         // drawn
  int64_t alarm_lines = 0;                   // with at least one alarm
  int64_t unbuilt = 0;                       // of them, whose inputs the recipe cannot make
  double seconds = 0;                        // of processes
  std::map<std::string, Counts> kernels;     // by family_of()
  std::map<std::string, int64_t> untrusted;  // by reason
  std::vector<Alarm> alarms;
  void add(const Totals&);
  Counts sum() const;
};

// Largest probability of an alarm under which `alarms` or fewer in `cases` still happen with probability
// 1 - confidence (Clopper and Pearson, Biometrika 26, 1934, one-sided). 1 for no cases.
double rate_bound(int64_t alarms, int64_t cases, double confidence = 0.95);

// What makes two files parts of one campaign, and chunks of a file comparable.
struct Identity {
  uint64_t seed = 0;
  double largest = 0;
  uint64_t lines_per_chunk = 0;
  int per_line = 0;
  std::vector<std::string> backends, catalogues;
  std::string shard, commit;
  std::string set;        // fields that every line has
  int64_t most_keys = 0;  // of a request; 0: the campaigns of before do not say

  bool operator==(const Identity&) const = default;
};

class TotalsFile {
 public:
  // A new file (InputError when there is one), or with `resume` what is there: a last line that was cut off
  // is dropped. InputError when it is another campaign's, or no file of totals.
  TotalsFile(const std::string& path, const Identity&, bool resume);
  const Totals& sum() const { return sum_; }
  bool has(uint64_t chunk) const { return chunks_.contains(chunk); }
  void append(uint64_t chunk, const Totals&);  // on the disk when this returns

 private:
  std::unique_ptr<LineFile> file_;
  Totals sum_;
  std::set<uint64_t> chunks_;
};

// The sum of several files, of different shards or seeds. InputError.
Totals read_totals(const std::string& path, Identity* identity = nullptr);

}  // namespace assay::campaign

namespace assay {

template <>
struct JsonFields<campaign::Identity> {
  using T = campaign::Identity;
  static constexpr std::string_view name = "campaign";
  static constexpr auto list =
      std::tuple(JsonField("seed", &T::seed), JsonField("largest", &T::largest),
                 JsonField("lines_per_chunk", &T::lines_per_chunk), JsonField("per_line", &T::per_line),
                 JsonField("backends", &T::backends), JsonField("catalogues", &T::catalogues),
                 JsonField("shard", &T::shard), JsonField("commit", &T::commit), JsonSince("set", &T::set),
                 JsonSince("most_keys", &T::most_keys));
};

}  // namespace assay
