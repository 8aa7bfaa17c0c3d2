// SPDX-License-Identifier: Apache-2.0
// Operating curves: for every family of faults, format, number of keys and draw, the smallest size that each
// detector still rejects. Parts of it are done by processes side by side, and what they find does not depend
// on how many there are; an interrupted measurement goes on where it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "harness/power/detectors.hpp"

namespace assay::power {

struct CurveOptions {
  std::vector<std::string> formats{"bf16", "fp16", "fp8", "int8_channel", "int8_token", "mla", "serving"};
  std::vector<int64_t> keys{128, 1024, 4096, 16384, 65536, 262144, 1048576};
  std::vector<std::string> faults;  // families; empty: all
  int draws = 10;                   // up to 4k keys, see draws_of()
  uint64_t seed = 1;
  int jobs = 1;     // processes
  int threads = 1;  // of each: build a case, and ask about several sizes at a time
  double seconds =
      0;  // for the whole; what would take longer is not begun, what still runs is ended. 0: no limit
  double memory = 0;  // bytes that all processes may take together, about; 0: no limit
};
// The draws that are made at this number of keys: half of them at 16k, 3/10 at 64k, 1/10 beyond; at least
// one.
int draws_of(const CurveOptions&, int64_t keys);

// What a detector says of a family in one draw.
struct Threshold {
  // Not asked: there is nothing to ask. Not reached: there was no time, or no memory.
  enum Kind { kNotAsked, kNever, kSize, kRejectsRight, kNotReached } kind = kNotAsked;
  double size = 0;  // kSize: the smallest that is rejected
  bool operator==(const Threshold&) const = default;
};

// One line of the record.
struct CurveRow {
  std::string format, fault;
  int64_t keys = 0;
  int draw = 0;
  std::array<Threshold, kDetectors> seen;
};

struct CurveProgress {
  std::string where;            // the line of the part that ended last
  int64_t done = 0, total = 0;  // parts
};

struct DrawKey {
  std::string format;
  int64_t keys = 0;
  int draw = 0;
  std::string fault;  // family
  auto operator<=>(const DrawKey&) const = default;
};
DrawKey key_of(const CurveRow&);

// Rows of every draw and family of which `done` lacks something, as they come: first of each point (one that
// has no row) a row of which nothing is reached, then, in place of the one before, what is known so far.
// False when `stop` was raised. Must run before this process uses OpenMP with more than one thread.
// InputError for names that nobody has; InfrastructureError when a kernel fails.
bool measure(const Catalogue&, const CurveOptions&, const std::vector<CurveRow>& done,
             const std::atomic<bool>* stop, const std::function<void(const CurveProgress&)>& on,
             const std::function<void(const std::vector<CurveRow>&)>& rows);
// By keys, format, draw, fault: the order of a record, however its rows came.
void sort_curves(std::vector<CurveRow>&, const Catalogue&);

// ---- the record: CSV, one line per row, behind a comment that says how it came about.

std::string csv_header();
std::string csv_line(const CurveRow&);
CurveRow row_of_line(const std::string& line);  // InputError
// InputError with the line for what is no such record.
std::vector<CurveRow> read_curves(const std::string& path);

// ---- what follows from the rows.

// Of a family, format and number of keys: the size from which on half and 95 % of the draws are rejected.
struct Power {
  std::string format, fault;
  int64_t keys = 0;
  int draws = 0;  // of which anything was reached
  struct Sizes {
    Threshold half, most;
  };
  std::array<Sizes, kDetectors> by;
};
std::vector<Power> powers_of(const std::vector<CurveRow>&);

// Our best, of a random draw or of incidence inputs, beside a peer's: where the peer sees smaller faults.
struct Behind {
  const Power* power;
  size_t peer;
  bool half;  // at half of the draws, else at 95 % alone
};
std::vector<Behind> behind_peers(const std::vector<Power>&);
// Draws in which a detector of ours rejected the kernel without a fault.
int false_alarms(const std::vector<CurveRow>&);

// Points that lack random inputs, and those that lack inputs with a known answer.
struct Holes {
  int random = 0, known = 0;
};
Holes holes_of(const std::vector<Power>&);

// The table: exponents of two, half of the draws / 95 %.
std::string power_text(const std::vector<Power>&, const Catalogue&);

}  // namespace assay::power
