// SPDX-License-Identifier: Apache-2.0
// See samples.hpp.
#include "harness/run/samples.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "harness/base/error.hpp"

namespace assay {
namespace {

struct Record {
  uint32_t row, flags;
  double us;
  float sm_mhz, at_s;
};
static_assert(sizeof(Record) == 24 && std::endian::native == std::endian::little);
constexpr uint32_t kLeftOut = 1;

}  // namespace

std::string sample_bytes(int64_t row, const Samples& samples) {
  std::string bytes(samples.size() * sizeof(Record), '\0');
  for (size_t i = 0; i < samples.size(); ++i) {
    const TimedSample& s = samples[i];
    const Record r{static_cast<uint32_t>(row), s.dropped ? kLeftOut : 0, s.us, static_cast<float>(s.sm_mhz),
                   static_cast<float>(s.at_s)};
    std::memcpy(bytes.data() + i * sizeof(Record), &r, sizeof r);
  }
  return bytes;
}

SamplesFile read_samples(const std::string& path, size_t rows) {
  SamplesFile file;
  file.of_row.resize(rows);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return file;
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError({path}, "cannot be opened; expected the samples of a results folder");
  uint32_t last = 0;
  int64_t index = 0;
  for (Record r{}; in.read(reinterpret_cast<char*>(&r), sizeof r); ++index) {
    if (r.row < last || r.flags > kLeftOut || !(r.us >= 0) || std::isinf(r.us))
      throw InputError({path}, fmt::format("record {} is out of order or impossible; expected the samples of "
                                           "the rows of rows.csv, in their order",
                                           index));
    if (r.row >= rows) break;  // of a row that was never finished
    last = r.row;
    TimedSample s(r.us);
    s.dropped = (r.flags & kLeftOut) != 0;
    s.sm_mhz = r.sm_mhz;
    s.at_s = r.at_s;
    file.of_row[r.row].push_back(s);
    file.valid_bytes += sizeof r;
  }
  return file;
}

void check_samples(const std::string& path, std::span<const Row> rows, const SamplesFile& file) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const int64_t expected = std::max<int64_t>(rows[i].samples, 0) + std::max<int64_t>(rows[i].throttled, 0);
    if (static_cast<int64_t>(file.of_row[i].size()) != expected)
      throw InputError({path},
                       fmt::format("holds {} timed calls of row {} of rows.csv, which says {}: records "
                                   "were lost or are of another run",
                                   file.of_row[i].size(), i, expected));
  }
}

nlohmann::json samples_json() {
  nlohmann::json dtype = nlohmann::json::array();
  for (const auto& [name, type] :
       {std::pair{"row", "<u4"}, {"flags", "<u4"}, {"us", "<f8"}, {"sm_mhz", "<f4"}, {"at_s", "<f4"}})
    dtype.push_back(nlohmann::json::array({name, type}));
  return {{"file", kSamplesName}, {"dtype", dtype}};
}

}  // namespace assay
