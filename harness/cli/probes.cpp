// SPDX-License-Identifier: Apache-2.0
// See probes.hpp.
#include "harness/cli/probes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <span>

#include "harness/base/error.hpp"
#include "harness/scenario/scenario.hpp"

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

// Of the data ops: the op, and fields that take the place of the plain line's.
struct BlockFeature {
  const char* name;
  const char* op;
  const char* fields;
};

constexpr BlockFeature kBlockFeatures[] = {
    {"two states", "merge_states", ""},
    {"64 states", "merge_states", "states=64"},
    {"partials bf16", "merge_states", "from=bf16"},
    {"partials fp16", "merge_states", "from=fp16"},
    {"output fp16", "merge_states", "out=fp16"},
    {"output fp32", "merge_states", "out=fp32"},
    {"sinks", "merge_states", "sinks=on"},
    {"head dim 80", "merge_states", "d=80"},
    {"strided", "merge_states", "strides=q+out"},
    {"plain bf16", "cache_write", ""},
    {"rows fp32", "cache_write", "from=fp32"},
    {"rows fp16", "cache_write", "from=fp16 kv=fp16"},
    {"kv fp8_e4m3", "cache_write", "kv=fp8_e4m3"},
    {"kv fp8_e5m2", "cache_write", "kv=fp8_e5m2"},
    {"kv fp8_e4m3fnuz", "cache_write", "kv=fp8_e4m3fnuz"},
    {"kv fp8_e5m2fnuz", "cache_write", "kv=fp8_e5m2fnuz"},
    {"kv int8 dynamic", "cache_write", "kv=int8:token_head"},
    {"scale head", "cache_write", "kv=fp8_e4m3:head"},
    {"scale channel", "cache_write", "kv=int8:channel"},
    {"scale host", "cache_write", "kv=fp8_e4m3:host"},
    {"padded rows", "cache_write", "pad=3"},
    {"layout hnd", "cache_write", "layout=hnd"},
    {"layout x", "cache_write", "layout=x"},
    {"layout shuffled", "cache_write", "layout=shuffled"},
    {"layout mla", "cache_write", "h=4/1 d=576/512 layout=mla"},
    {"storage stacked", "cache_write", "storage=stacked"},
    {"strided", "cache_write", "strides=q+kv"},
    {"plain bf16", "cache_gather", ""},
    {"output fp32", "cache_gather", "out=fp32"},
    {"kv fp8_e4m3", "cache_gather", "kv=fp8_e4m3"},
    {"kv fp8_e5m2fnuz", "cache_gather", "kv=fp8_e5m2fnuz"},
    {"kv int8 / bf16", "cache_gather", "kv=int8:token_head/bf16"},
    {"scale request_head", "cache_gather", "kv=fp8_e4m3:request_head"},
    {"scale channel", "cache_gather", "kv=int8:channel"},
    {"table csr", "cache_gather", "table=csr"},
    {"table token", "cache_gather", "table=token"},
    {"layout shuffled", "cache_gather", "layout=shuffled"},
    {"layout mla", "cache_gather", "h=4/1 d=576/512 layout=mla"},
    {"strided", "cache_gather", "strides=kv+out+table"},
    {"dynamic scales", "quantize_int8", ""},
    {"channel scales", "quantize_int8", "q=int8:channel"},
    {"source fp32", "quantize_int8", "from=fp32"},
    {"scales transposed", "quantize_int8", "strides=scales"},
    {"head dim 80", "quantize_int8", "d=80"},
    {"decodes", "step", "batch=2q1s33"},
    {"prefills", "step", "batch=2q9"},
    {"all three together", "step", "batch=2q1s33_1q5s40_1q6"},
    {"decodes of 4 rows", "step", "threshold=4 batch=2q4s40"},
    {"context in chunks", "step", "budget=16 batch=2q5s80"},
    {"padded rows", "step", "pad=3"},
    {"rows fp16", "step", "from=fp16"},
};

std::string_view name_in(std::string_view word) { return word.substr(0, word.find('=') + 1); }

// The op, `fields`, what of the shape they do not say, and a batch where they say none.
std::string line_of(std::string_view op, const std::string& fields, const Shape& shape, const char* batch) {
  std::string line = fmt::format("{}{}{}", op, fields.empty() ? "" : " ", fields);
  const std::string said = " " + fields;
  for (const std::string& word : shape)
    if (said.find(fmt::format(" {}", name_in(word))) == std::string::npos) line += " " + word;
  if (said.find(" batch=") == std::string::npos) line += batch;
  return line;
}

bool attends(std::string_view op) { return op == "prefill" || op == "paged" || op == "step"; }

const char* plain_batch(std::string_view op) {
  return op == "paged" || op == "decode_splitkv" ? " batch=2q1s33"
         : op == "prefill"                       ? " batch=2q17s33"
                                                 : " batch=2q5s33";
}

constexpr const char* kHeads[] = {"4/2",  "8/2",  "32/8", "8/8",   "16/16", "8/1",   "4/1",
                                  "16/1", "64/8", "12/2", "128/8", "32/32", "128/1", "5/1"};
constexpr const char* kDims[] = {"64",  "128", "32",  "80",      "96",      "256", "40",
                                 "112", "160", "192", "192/128", "576/512", "512", "16"};
constexpr const char* kPages[] = {"16", "64", "32", "128", "256", "1", "8", "48", "528", "1k"};
constexpr const char* kFormats[] = {"",       "q=fp16", "q=fp32", "kv=fp8_e4m3", "q=fp8_e4m3 kv=fp8_e4m3",
                                    "kv=int8"};

// Of those, the ones a kernel may be made for alone; the others are only asked beside its own.
constexpr size_t kCandidateHeads = 10, kCandidateDims = 12, kCandidatePages = 6;

bool has_pages(std::string_view op) {
  return op == "paged" || op == "step" || op == "decode_splitkv" || op == "cache_write" ||
         op == "cache_gather";
}

// The latent layout is the only one of these dimensions.
bool latent(const std::string& dims) { return dims == "576/512"; }

}  // namespace

bool buildable(const std::string& line) {
  try {
    parse_scenario(line);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

std::string shape_text(const Shape& shape) { return fmt::format("{}", fmt::join(shape, " ")); }

std::vector<Shape> candidate_shapes(std::string_view op) {
  std::vector<Shape> all;
  const size_t pages = has_pages(op) ? kCandidatePages : 1;
  // Formats outermost: a kernel is asked for its shape in bf16 before it is asked for anything else.
  for (const char* format : kFormats)
    for (size_t page = 0; page < pages; ++page)
      for (const char* dims : std::span(kDims).first(kCandidateDims))
        for (const char* heads : std::span(kHeads).first(kCandidateHeads)) {
          if (*format != '\0' && !attends(op)) continue;
          const bool mla = latent(dims);
          const std::string_view h = heads;
          if (mla && (!h.ends_with("/1") || !has_pages(op))) continue;
          Shape shape{std::string("h=") + heads, std::string("d=") + dims};
          if (page > 0) shape.push_back(std::string("page=") + kPages[page]);
          if (mla) shape.push_back("layout=mla");
          if (*format != '\0') shape.push_back(format);
          all.push_back(std::move(shape));
        }
  // Kernels for several ranks take nothing else.
  if (op == "step") all.push_back({"h=4/2", "d=64", "ranks=2"});
  return all;
}

std::string shape_line(std::string_view op, const Shape& shape) {
  return line_of(op, "", shape, plain_batch(op));
}

std::vector<Probe> support_probes(std::string_view op, const Shape& shape) {
  std::vector<Probe> probes;
  // What a line of the op cannot say is no feature of its kernels; asked at one shape for all of them.
  const auto exists = [&](const Feature& f) {
    if (op != "step") return op == "paged" ? f.paged : op == "prefill" && f.prefill;
    return f.paged && buildable(line_of(op, f.fields, {"h=4/2", "d=64"}, plain_batch(op)));
  };
  for (const Feature& f : kFeatures)
    if (exists(f)) probes.push_back({f.name, line_of(op, f.fields, shape, plain_batch(op))});
  for (const BlockFeature& f : kBlockFeatures)
    if (op == f.op) probes.push_back({f.name, line_of(op, f.fields, shape, plain_batch(op))});
  return probes;
}

std::vector<ShapeAxis> shape_axes(std::string_view op, const Shape& shape) {
  std::vector<ShapeAxis> axes;
  const auto add = [&](const char* field, const auto& values) {
    ShapeAxis axis{field, {}};
    for (const char* value : values)
      axis.values.push_back({value, line_of(op, fmt::format("{}={}", field, value), shape, plain_batch(op))});
    axes.push_back(std::move(axis));
  };
  add("h", kHeads), add("d", kDims);
  if (has_pages(op)) add("page", kPages);
  return axes;
}

}  // namespace assay
