// SPDX-License-Identifier: Apache-2.0
// How other projects decide that an attention kernel is right, each rule stated once with where it stands.
// They are run as written, on their inputs and on ours, to measure what inputs and bounds are worth. To add a
// rule: a row of the table in peer_rules.cpp; to add a peer: an enumerator, a row of peers() and a suite in
// scenarios/peers/.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "harness/mutants/peer_baseline.hpp"

namespace assay {

enum class Peer { kVllm, kFa2, kFa3, kFlashInfer, kSglang, kAiter, kFlashMla };
inline constexpr int kPeerCount = 7;

struct PeerInfo {
  Peer peer;
  std::string_view name;   // "vLLM"
  char letter;             // in the score table
  std::string_view suite;  // scenarios/peers/NAME.suite
};
std::span<const PeerInfo> peers();
const PeerInfo& info_of(Peer);

struct PeerRule {
  Peer peer;
  std::string_view cases;   // what of an operator the test covers
  std::string_view rule;    // in numbers
  std::string_view source;  // test files of the project
  bool (*applies)(const Problem&);
  // Empty: accepted. Otherwise what exceeded what.
  std::string (*rejects)(const PeerCase&, const PeerOutputs& got);
};
std::span<const PeerRule> peer_rules();
// The first rule of the peer that covers the problem; nullptr when its tests have nothing of the kind.
const PeerRule* rule_for(Peer, const Problem&);

}  // namespace assay
