// SPDX-License-Identifier: Apache-2.0
// See detectors.hpp. Eight heads of 64 (MLA: 16 of 576) over one KV head and four rows; half of them where
// the context is long, and where the heads are, and one beyond kManyKeys. A serving batch has the elements
// that statistics live on, up to what half a million keys are; int8 caches are decoded, which is what the one
// other project's rule for them (AITER's) is of.
#include "harness/power/detectors.hpp"

#include <algorithm>

#include "harness/base/error.hpp"

namespace assay::power {

const std::array<std::string, kDetectors>& detector_names() {
  static const std::array<std::string, kDetectors> all = [] {
    std::array<std::string, kDetectors> names{"D", "P", "R", "LSE", "aggregates", "ours", "incidence"};
    for (const PeerInfo& peer : peers())
      names[kFirstPeer + static_cast<size_t>(peer.peer)] = std::string(peer.name);
    return names;
  }();
  return all;
}

const std::vector<Format>& formats() {
  static const std::vector<Format> all = {
      {"bf16", "d=64 page=64"},
      {"fp16", "d=64 q=fp16 kv=fp16 out=fp16 page=64"},
      {"fp8", "d=64 kv=fp8_e4m3:head page=64"},
      {"int8_channel", "d=64 kv=int8:channel page=64", 8, 8, 2},
      {"int8_token", "d=64 kv=int8:token_head page=64", 8, 8, 2},
      {"mla", "d=576/512 layout=mla page=64", 16, 16, 1, 4, 4},
      {"serving", "d=128 page=64", 32, 4, 8, 8, 4},
  };
  return all;
}

const Format& format_named(const std::string& name) {
  std::string known;
  for (const Format& f : formats()) {
    if (f.name == name) return f;
    known += (known.empty() ? "" : ", ") + f.name;
  }
  throw InputError(fmt::format("there is no format {}; there are: {}", name, known));
}

std::string line_of(const Format& f, int64_t keys, uint64_t seed, Asks asks) {
  const bool many = keys > kManyKeys;
  const int64_t group = many ? f.long_group : f.group;
  // Which of several KV heads is read a known answer says no more about.
  const int64_t heads = !many ? f.heads : asks == Asks::kRandom ? f.long_heads : group;
  int64_t rows = many ? 1 : (f.name == "mla" ? 2 : 4) / (keys > (1 << 14) ? 2 : 1);
  int64_t requests = std::clamp<int64_t>((int64_t{1} << 19) / keys, 1, f.requests);
  if (f.requests > 1) rows = 1;
  if (asks != Asks::kRandom) {
    // A row and head of incidence inputs asks for up to 4,096 keys; those in front of every row need one
    // each.
    rows = std::max<int64_t>(1, (keys + 2048 * group - 1) / (2048 * group));
    if (asks == Asks::kSomeKeys) rows = std::min(rows, std::max<int64_t>(1, kSomeRows / heads));
    requests = 1;
  }
  return fmt::format("paged h={}/{} {} batch={}q{}s{}{} seed={}", heads, heads / group, f.fields, requests,
                     std::min(rows, keys), keys, asks == Asks::kRandom ? "" : " input=incidence", seed);
}

}  // namespace assay::power
