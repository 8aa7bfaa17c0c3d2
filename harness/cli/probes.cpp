// SPDX-License-Identifier: Apache-2.0
// See probes.hpp.
#include "harness/cli/probes.hpp"

#include <fmt/format.h>

namespace assay {
namespace {

struct Feature {
  const char* name;
  bool prefill, paged;  // where it exists
  const char* fields;   // take the place of the plain case's fields of the same name
};

constexpr Feature kFeatures[] = {
    {"plain bf16", true, true, ""},
    {"fp16", true, true, "q=fp16"},
    {"fp32", true, true, "q=fp32"},
    {"output fp32", true, true, "out=fp32"},
    {"kv fp8_e4m3", true, true, "kv=fp8_e4m3"},
    {"kv fp8_e5m2", true, true, "kv=fp8_e5m2"},
    {"kv fp8_e4m3fnuz", true, true, "kv=fp8_e4m3fnuz"},
    {"kv fp8_e5m2fnuz", true, true, "kv=fp8_e5m2fnuz"},
    {"kv int8", true, true, "kv=int8"},
    {"kv int8 / bf16", true, true, "kv=int8:token_head/bf16"},
    {"q, kv fp8_e4m3", true, true, "q=fp8_e4m3 kv=fp8_e4m3"},
    {"q, kv int8", true, true, "q=int8:token_head kv=int8:token_head/int8:channel"},
    {"scale host", true, true, "kv=fp8_e4m3:host"},
    {"scale head", true, true, "kv=fp8_e4m3:head"},
    {"scale request_head", true, true, "kv=fp8_e4m3:request_head"},
    {"scale token_head", true, true, "kv=int8:token_head"},
    {"scale channel", true, true, "kv=int8:channel"},
    {"mask full", true, true, "mask=full"},
    {"mask cross", true, true, "mask=cross"},
    {"mask tree", true, true, "mask=tree"},
    {"window left", true, true, "window=7"},
    {"window both", true, true, "mask=full window=7/3"},
    {"chunk", true, true, "chunk=16"},
    {"soft cap", true, true, "cap=30"},
    {"alibi linear", true, true, "alibi=linear"},
    {"alibi sqrt", true, true, "alibi=sqrt"},
    {"sinks", true, true, "sinks=on"},
    {"one kv head", true, true, "h=4/1"},
    {"no grouping", true, true, "h=4/4"},
    {"head dim 80", true, true, "d=80"},
    {"head dim 256", true, true, "d=256"},
    {"head dims 192/128", true, true, "d=192/128"},
    {"page 1", false, true, "page=1"},
    {"page 256", false, true, "page=256"},
    {"page 528", false, true, "page=528"},
    {"layout hnd", false, true, "layout=hnd"},
    {"layout x", false, true, "layout=x"},
    {"layout shuffled", false, true, "layout=shuffled"},
    {"layout mla", false, true, "h=4/1 d=576/512 layout=mla"},
    {"storage stacked", false, true, "storage=stacked"},
    {"storage interleaved", false, true, "storage=interleaved"},
    {"table csr", false, true, "table=csr"},
    {"table token", false, true, "table=token"},
    {"swa index", false, true, "window=7 index=swa"},
    {"strided q", true, true, "strides=q"},
    {"strided kv", true, true, "strides=kv"},
    {"strided out", true, true, "strides=out"},
    {"strided table", false, true, "strides=table"},
    {"strided scales", true, true, "kv=int8:token_head strides=scales"},
    {"several new tokens", false, true, "batch=2q4s40"},
    {"more rows than keys", true, true, "batch=1q9s5"},
    {"empty requests", true, true, "batch=1q0s0_1q2s9_1q3s0"},
};

}  // namespace

std::vector<Probe> support_probes(std::string_view op) {
  std::vector<Probe> probes;
  const bool paged = op == "paged";
  for (const Feature& f : kFeatures) {
    if (paged ? !f.paged : !f.prefill) continue;
    const std::string fields = std::string(" ") + f.fields;
    std::string line = std::string(op) + fields;
    for (const char* plain : {"h=4/2", "d=64"})
      if (fields.find(std::string(" ") + plain[0] + "=") == std::string::npos)
        line += std::string(" ") + plain;
    if (fields.find(" batch=") == std::string::npos) line += paged ? " batch=2q1s33" : " batch=2q17s33";
    probes.push_back({f.name, line});
  }
  return probes;
}

}  // namespace assay
