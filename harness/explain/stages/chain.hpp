// SPDX-License-Identifier: Apache-2.0
// Rows of a whole step attended in a chain of parts, each hypothesis a departure from it: chain.cpp computes
// rows, chain_patterns.cpp says which departures there are, chain_parts.cpp those within a part.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/stages/explain_step.hpp"
#include "reference/attention/operands.hpp"
#include "reference/attention/visible_keys.hpp"

namespace assay {

// Of the square of a row, an error that is none; rounding of 16 bits is a hundredth of it.
inline constexpr double kSameChain = 1e-4;
// What a departure explains of the rows that it fits, and the least share of them that is said.
inline constexpr double kChainShare = 0.97, kChainLeast = 0.3;
inline constexpr double kUnseen = -std::numeric_limits<double>::infinity();

// Keys begin .. end - 1. K and V are those of the key `shift` on; from `stale_from` on of the one `stale_by`
// before.
struct ChainPart {
  int32_t begin = 0, end = 0;
  bool context = true;  // false: the last one, of the new keys or what stands behind a prefix
  int32_t shift = 0, stale_from = std::numeric_limits<int32_t>::max(), stale_by = 0;
};
// A key as a head of a row meets it.
struct ChainKey {
  RowId row;
  int32_t head, key;
  const ChainPart* part;
};
// A part's result, and two of them that are joined.
struct ChainAt {
  RowId row;
  int32_t head;
  const ChainPart* part;
};
struct ChainJoin {
  double a, b;    // LSE
  bool last;      // b is that of the last part
  size_t so_far;  // parts that a is joined of
};

// Whatever is null is as it should be.
struct Departure {
  Departure() = default;
  Departure(std::string cause_name, std::string in_words)
      : cause(std::move(cause_name)), how(std::move(in_words)) {}
  std::string cause, how;
  std::function<void(std::vector<ChainPart>&)> cut;
  std::function<bool(const ChainKey&)> sees;
  std::function<double(const ChainKey&, double dot)> score;  // dot: q k, unscaled
  std::function<double(const ChainKey&)> value;              // a factor of V
  std::function<int32_t(const ChainKey&)> kv_head;
  std::function<double(const ChainAt&, double own)> lse;
  std::function<void(const ChainJoin&, double& wa, double& wb, double& lse)> join;
  std::function<RowId(RowId)> query;
  bool empty_counts = false;
  int32_t sinks = 0;  // kSinkOnce and so on
};
inline constexpr int32_t kSinkAtEnd = 0, kSinkNever = 1, kSinkInEach = 2, kSinkInContext = 3, kSinkTwice = 4,
                         kSinkInEachOfContext = 5, kSinkInEachWithKeys = 6;

class StepChain {
 public:
  StepChain(const StageCase&, const StageVerdict& nothing);
  std::vector<StepRanked> all();

 private:
  struct State {
    std::vector<double> o;
    double lse = kUnseen;
  };
  struct Keys {  // of a request and KV head
    std::vector<double> k, v;
  };
  // What is cut, and where: at a prefix, at the context's end, in chunks of it.
  struct Cut {
    int32_t prefix = 0, chunk = 0;
    bool extends_alone = false;
    std::string words;
  };

  std::vector<Cut> cuts_of_rows() const;
  std::vector<ChainPart> parts_of(RowId) const;
  void try_out(const Departure&);
  // Rows that are right and would not be, by packed row.
  std::vector<uint8_t> spoilt_by(const Departure&) const;
  State whole(RowId, int32_t head, const Departure&) const;
  State attend(RowId, int32_t head, const ChainPart&, const Departure&) const;
  const Keys& keys(int32_t request, int32_t kv_head) const;
  const std::vector<double>& dots(RowId, int32_t head, int32_t kv_head) const;
  double own_score(const ChainKey&, double dot) const;
  bool own_sees(const Problem&, const ChainKey&) const;
  double got(RowId, int32_t head, int32_t d) const;

  void queries();
  void sinks();
  void lses();
  void masks(bool context);
  void scores(bool context);
  void coarse_distances();
  void caps();

  const StageCase& c_;
  Reading r_;
  Problem p_;
  HostOperands host_;
  std::vector<int32_t> first_;
  std::vector<RowId> rows_, every_;  // wrong ones that are looked at; all
  std::vector<RowId> fine_;          // right ones
  std::vector<uint8_t> bad_;         // by packed row
  std::vector<double> right_;        // of rows_, all heads and dimensions
  OperandReader operands_;
  Cut cut_;
  std::vector<StepRanked> list_;
  mutable std::map<std::pair<int32_t, int32_t>, Keys> keys_;
  mutable std::map<std::array<int32_t, 4>, std::vector<double>> dots_;
};

}  // namespace assay
