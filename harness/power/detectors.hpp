// SPDX-License-Identifier: Apache-2.0
// Who may see a fault: the tiers of the bounds, the statistics, inputs with a known answer, and the rules of
// other projects. All of them look at the same run of a kernel. A new detector is a name in names() and its
// mark in PowerCase::look().
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "harness/mutants/peer_rules.hpp"

namespace assay::power {

// The tiers add up: kTierR is what all three reject of O. kOurs is whatever rejects among those before it,
// which is what a run of the case says; incidence inputs are a case of their own.
enum Detector : size_t { kTierD, kTierP, kTierR, kLse, kAggregates, kOurs, kIncidence, kFirstPeer };
inline constexpr size_t kDetectors = kFirstPeer + kPeerCount;
const std::array<std::string, kDetectors>& detector_names();  // "D", ..., "incidence", "vLLM", ...

enum class Mark { kNotAsked, kAccepts, kRejects };
using Marks = std::array<Mark, kDetectors>;

// A format is one kind of case at any number of keys.
struct Format {
  std::string name;    // "bf16"
  std::string fields;  // of the scenario line, but for heads
  int64_t heads = 8;
  int64_t group = 8;                       // of them that read one KV head
  int64_t requests = 1;                    // more than one: of one row each
  int64_t long_heads = 8, long_group = 8;  // beyond kManyKeys keys
};
// Cases of more keys than these have one row of fewer heads: what a row shows does not depend on its
// neighbours, and a case of a million keys has to be searched within minutes.
inline constexpr int64_t kManyKeys = 1 << 16;
const std::vector<Format>& formats();
const Format& format_named(const std::string&);  // InputError

// What the inputs of a draw are: random, or with a known answer that asks for every key or for as many as
// kSomeRows rows of a head do.
enum class Asks { kRandom, kEveryKey, kSomeKeys };
inline constexpr int64_t kSomeRows = 64;
std::string line_of(const Format&, int64_t keys, uint64_t seed, Asks);

}  // namespace assay::power
