// SPDX-License-Identifier: Apache-2.0
// What a run was asked to do. `identity_of` is the part that decides which rows come out and what they
// mean: a results folder may only be continued, and shards only be merged, when it is equal. The rest
// (time limit, memory limit, name of the program) may change between attempts.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/measure/measure.hpp"

namespace assay {

// Part i of n, i from 1.
struct Shard {
  int32_t index = 1, count = 1;
  bool operator==(const Shard&) const = default;
};
Shard parse_shard(const std::string& text);  // "2/8"; InputError
// Which part a case belongs to: a hash of its canonical line, so that it depends neither on the order of
// the suite nor on the other cases, and all kernels of a case share one reference.
bool in_shard(std::string_view scenario_line, const Shard&);

// One row: a case, the kernel and the backend's label it is run with.
struct RowChoice {
  std::string scenario, kernel, backend;
  std::string key() const { return scenario + "|" + kernel + "|" + backend; }
};

struct RunOptions {
  std::string program = "assay";          // as typed: what repeat commands begin with
  std::vector<std::string> suites;        // names, paths or lines, as typed
  std::vector<std::string> backends;      // names or paths, as typed; empty: all installed
  std::vector<std::string> devices;       // numbers, or "all"; empty: device 0 of each backend
  std::vector<std::string> calibrations;  // files of `assay calibrate`; each is used for devices like its own
  std::vector<std::string> kernels;       // globs, any may match; empty: all
  std::string filter;            // regular expression (pattern.hpp) on the canonical line; empty: all
  std::string set;               // fields set in every case (re_aim.hpp); empty: none
  std::optional<uint64_t> seed;  // in place of every line's own
  std::vector<RowChoice> only;   // these rows and no others (assay rerun); empty: all
  double largest =
      0;  // most multiply-adds of a case (harness/ops/work.hpp), larger ones are left out; 0: all
  int64_t limit = -1;  // most cases, before sharding; -1: all
  Shard shard;
  bool graphs = false;              // also capture every kernel's call and check its replays
  int32_t walk = 0;                 // and replays of so many steps of a server; 0: none
  int64_t races = 0;                // also call every kernel so often beside disturbances
  bool until_wrong = false;         // a kernel with a failure meets none of the cases behind it
  bool timed = false;               // time kernels that passed
  bool stages = false;              // and, of kernels made of kernels, each stage in its place
  std::vector<std::string> caches;  // modes: "cold", "hot", "graph"; used when timed
  StoppingRule rule;                // when timed
  double rows_budget = 3e7;         // row x key x head products of reference per case; more: rows are sampled
  // Workers side by side where kernels run on the host, each with one thread, when nothing is timed. 1: one
  // at a time, with all threads.
  int32_t jobs = 1;
  double timeout_s = 60;             // of one stage of a small case; scaled up with the work
  int64_t worker_memory_bytes = -1;  // address space of a worker; -1: 80 % of the machine's memory
};

// FNV-1a, 64 bits: for shards and fingerprints (no adversary).
uint64_t fingerprint(std::string_view bytes, uint64_t so_far = 0xcbf29ce484222325ull);
std::string hex(uint64_t);

nlohmann::json options_json(const RunOptions&);
// Inverse of options_json. InputError naming the field when it is not such an object.
RunOptions options_from_json(const nlohmann::json&, const std::string& file);

}  // namespace assay
