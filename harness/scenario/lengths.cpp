// SPDX-License-Identifier: Apache-2.0
// Turns a batch= specification into concrete requests; the distributions are stated in lengths.hpp.
// A new way to draw lengths: a Kind in batch.hpp, its parsing in batch.cpp, a case in draw_requests here.
#include "harness/scenario/lengths.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

#include "harness/base/random.hpp"
#include "harness/scenario/batch.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

std::mutex g_mutex;
std::vector<std::string> g_folders;

struct Parsed {
  uintmax_t size = 0;
  fs::file_time_type time;
  std::shared_ptr<const std::vector<TraceRequest>> trace;
};
std::map<std::string, Parsed> g_parsed;

std::vector<std::string> trace_folders() {
  std::vector<std::string> out{"."};
  if (const char* path = std::getenv("ASSAY_TRACE_PATH")) {
    std::string_view rest = path;
    while (!rest.empty()) {
      const size_t colon = std::min(rest.find(':'), rest.size());
      if (colon > 0) out.emplace_back(rest.substr(0, colon));
      rest.remove_prefix(std::min(colon + 1, rest.size()));
    }
  }
  const std::lock_guard lock(g_mutex);
  out.insert(out.end(), g_folders.begin(), g_folders.end());
  return out;
}

// Empty when no folder has it.
std::string search(const std::string& file, const std::vector<std::string>& folders) {
  std::error_code error;
  for (const std::string& folder : folders) {
    // An absolute name replaces the folder; "." is left out so that messages show the name as written.
    const fs::path path = folder == "." ? fs::path(file) : fs::path(folder) / file;
    if (fs::is_regular_file(path, error)) return path.string();
  }
  return {};
}

// What 53 random bits of one request are for. Four slots per request, then one pair per zipf attempt.
enum Slot : uint64_t { kSlotQ = 0, kSlotS = 1 };

int32_t draw_uniform(const CounterRng& rng, uint64_t index, const LengthRange& range) {
  const auto span = static_cast<uint64_t>(int64_t{range.high} - range.low + 1);
  return static_cast<int32_t>(range.low + static_cast<int64_t>(rng.below(index, span)));
}

// Integral of y^-a from 0.5 below to 0.5 above; see draw_zipf.
class PowerLaw {
 public:
  explicit PowerLaw(double a) : e_(1 - a) {}
  // Antiderivative of y^-a; near a = 1 the difference of two powers over e would cancel, so expm1.
  double area(double y) const {
    return std::abs(e_) < 1e-12 ? std::log(y) : std::expm1(e_ * std::log(y)) / e_;
  }
  double inverse(double area) const {
    return std::abs(e_) < 1e-12 ? std::exp(area) : std::exp(std::log1p(e_ * area) / e_);
  }

 private:
  double e_;
};

// Rejection from the continuous power law on [low - 1/2, high + 1/2]: y rounds to x with probability
// proportional to the area over [x - 1/2, x + 1/2], which is at least x^-a because y^-a is convex, so
// accepting with x^-a / area leaves exactly x^-a. Few rejections: 12 % at x = 1, a = 1.2, none further out.
int32_t draw_zipf(const CounterRng& rng, uint64_t request, const LengthRange& range, double a) {
  const PowerLaw law(a);
  const double low = law.area(range.low - 0.5), high = law.area(range.high + 0.5);
  for (uint64_t attempt = 0; attempt < 256; ++attempt) {
    const uint64_t index = (1ull << 40) + request * 512 + attempt * 2;
    const double y = law.inverse(low + rng.uniform(index) * (high - low));
    const double x = std::clamp(std::round(y), double(range.low), double(range.high));
    const double area = law.area(x + 0.5) - law.area(x - 0.5);
    if (rng.uniform(index + 1) * area <= std::pow(x, -a)) return static_cast<int32_t>(x);
  }
  return range.low;  // 256 rejections in a row: impossible for a <= 64, which check_spec demands
}

void check_range(const char* name, const LengthRange& range, int32_t least) {
  if (range.low < least || range.high < range.low)
    throw InputError(fmt::format("batch: bad range {}={}:{}; expected {} <= low <= high", name, range.low,
                                 range.high, least));
}

void check_spec(const BatchSpec& spec) {
  if (spec.n < 1) throw InputError(fmt::format("batch: bad n={}; expected at least 1 request", spec.n));
  check_range("q", spec.q, 0);
  const bool zipf = spec.kind == BatchSpec::Kind::kZipf;
  check_range("s", spec.s, zipf ? 1 : 0);
  if (zipf && !(spec.exponent >= 0 && spec.exponent <= 16))
    throw InputError(fmt::format("batch: bad a={}; expected an exponent from 0 to 16", spec.exponent));
}

std::vector<Request> expand_groups(const BatchSpec& spec) {
  std::vector<Request> out;
  for (const BatchGroup& group : spec.groups) {
    const auto first = static_cast<int32_t>(out.size());
    const int32_t shared = std::min(group.shared, group.kv_len);
    for (int32_t i = 0; i < group.count; ++i) {
      Request request{group.q_len, group.kv_len, -1, 0};
      if (i > 0 && shared > 0) {
        request.shared_with = first;
        request.shared_tokens = shared;
      }
      out.push_back(request);
    }
  }
  return out;
}

std::vector<Request> draw_lengths(const BatchSpec& spec, uint64_t seed) {
  check_spec(spec);
  const CounterRng rng(seed, kStreamLengths);
  std::vector<Request> out(spec.n);
  for (int32_t i = 0; i < spec.n; ++i) {
    const uint64_t base = uint64_t(i) * 4;
    const int32_t q = draw_uniform(rng, base + kSlotQ, spec.q);
    const int32_t s = spec.kind == BatchSpec::Kind::kZipf ? draw_zipf(rng, i, spec.s, spec.exponent)
                                                          : draw_uniform(rng, base + kSlotS, spec.s);
    out[i].q_len = q;
    out[i].kv_len = std::max(q, s);
  }
  return out;
}

std::vector<Request> draw_trace(const BatchSpec& spec) {
  const auto trace = load_trace(spec.file);
  ReplayOptions options;
  options.step = spec.step;
  options.max_tokens = spec.tokens;
  options.max_requests = spec.seqs;
  options.rate = spec.rate;
  options.draft = spec.q.high - 1;
  try {
    return replay(*trace, options).requests;
  } catch (const InputError& e) {
    throw InputError({spec.file}, e.message());
  }
}

}  // namespace

void add_trace_folder(std::string folder) {
  const std::lock_guard lock(g_mutex);
  if (std::find(g_folders.begin(), g_folders.end(), folder) == g_folders.end())
    g_folders.push_back(std::move(folder));
}

std::string find_trace(const std::string& file) {
  const std::vector<std::string> folders = trace_folders();
  const std::string path = search(file, folders);
  if (!path.empty()) return path;
  std::error_code error;
  if (std::filesystem::exists(file, error))
    throw InputError({file}, std::filesystem::is_directory(file, error)
                                 ? "is a folder; a trace file is expected"
                                 : "is no plain file; a trace file is expected");
  throw InputError(
      {file}, fmt::format("no such trace file; looked in {} (folders of ASSAY_TRACE_PATH are searched too)",
                          fmt::join(folders, ", ")));
}

bool trace_available(const std::string& file) { return !search(file, trace_folders()).empty(); }

std::shared_ptr<const std::vector<TraceRequest>> load_trace(const std::string& file) {
  const std::string path = find_trace(file);
  std::error_code error;
  const std::string key = fs::absolute(path, error).string();
  const uintmax_t size = fs::file_size(path, error);
  const fs::file_time_type time = fs::last_write_time(path, error);
  const std::lock_guard lock(g_mutex);
  Parsed& entry = g_parsed[key];
  if (!entry.trace || entry.size != size || entry.time != time)
    entry = {size, time, std::make_shared<const std::vector<TraceRequest>>(read_trace(path))};
  return entry.trace;
}

std::vector<Request> draw_requests(const BatchSpec& spec, uint64_t seed) {
  switch (spec.kind) {
    case BatchSpec::Kind::kMix:
      return expand_groups(spec);
    case BatchSpec::Kind::kUniform:
    case BatchSpec::Kind::kZipf:
      return draw_lengths(spec, seed);
    case BatchSpec::Kind::kTrace:
      return draw_trace(spec);
  }
  throw CheckError("batch kind");
}

}  // namespace assay
