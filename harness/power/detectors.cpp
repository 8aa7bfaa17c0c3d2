// SPDX-License-Identifier: Apache-2.0
// See detectors.hpp. Eight heads of 64 (MLA: 16 of 576) over one KV head and four rows; two where the
// context is long or the heads are. A serving batch has the elements that statistics live on; int8 caches are
// decoded, which is what the one other project's rule for them (AITER's) is of.
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
      {"bf16", "h=8/1 d=64 page=64", 1 << 20},
      {"fp16", "h=8/1 d=64 q=fp16 kv=fp16 out=fp16 page=64", 1 << 20},
      {"fp8", "h=8/1 d=64 kv=fp8_e4m3:head page=64", 1 << 20},
      {"int8_channel", "h=8/1 d=64 kv=int8:channel page=64", 1 << 20, 8, 2},
      {"int8_token", "h=8/1 d=64 kv=int8:token_head page=64", 1 << 20, 8, 2},
      {"mla", "h=16/1 d=576/512 layout=mla page=64", 1 << 14, 16},
      {"serving", "h=32/8 d=128 page=64", 1 << 17, 32, 8},
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

std::string line_of(const Format& f, int64_t keys, uint64_t seed, bool incidence) {
  int64_t rows = f.name == "mla" || keys > (1 << 14) ? 2 : 4;
  // A row and head of incidence inputs asks for up to 4,096 keys; those in front of every row need one each.
  if (incidence) rows = std::max<int64_t>(1, (keys + 2048 * f.heads - 1) / (2048 * f.heads));
  const int64_t requests = incidence ? 1 : f.requests;
  return fmt::format("paged {} batch={}q{}s{}{} seed={}", f.fields, requests,
                     requests > 1 ? 1 : std::min(rows, keys), keys, incidence ? " input=incidence" : "",
                     seed);
}

}  // namespace assay::power
