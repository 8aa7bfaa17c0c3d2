// SPDX-License-Identifier: Apache-2.0
// See merge.hpp.
#include "harness/run/merge.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>

#include "harness/base/error.hpp"
#include "harness/base/json_fields.hpp"
#include "harness/report/row_json.hpp"
#include "harness/report/row_reader.hpp"
#include "harness/report/tally.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/options.hpp"
#include "harness/run/results_folder.hpp"
#include "harness/run/samples.hpp"
#include "harness/run/sweep.hpp"

namespace assay {
namespace {

using nlohmann::json;

struct Part {
  std::string folder;
  json run;
  Shard shard;
  bool complete = false;
  std::vector<Row> rows;
  std::vector<Samples> samples;  // of each row
};

Part read_part(const std::string& folder, bool partial) {
  Part p;
  p.folder = folder;
  if (!std::filesystem::is_directory(folder)) throw InputError({folder}, "is not a results folder");
  p.run = read_run_json(folder);
  const std::string run_json = folder + "/run.json";
  const json identity = p.run.value("identity", json::object());
  std::string shard = "1/1";
  if (identity.contains("shard"))
    decode(identity["shard"], shard, {{run_json}, "run.json", "identity.shard"});
  p.shard = parse_shard(shard);
  p.complete = p.run.value("complete", false);
  if (!p.complete && !partial)
    throw InputError(
        {folder}, fmt::format("shard {}/{} did not run to its end; continue it with --resume first, or take "
                              "what is there (--partial)",
                              p.shard.index, p.shard.count));
  const RowsFile file = read_rows(folder + "/rows.csv");
  if (!file.truncated_tail.empty() && p.complete)
    throw InputError({folder + "/rows.csv"},
                     "ends in a half-written line though run.json says the run is complete");
  p.rows = file.rows;
  if (!p.complete) {  // how far it came, its rows say; of their samples the last may be cut off
    p.samples = read_samples(folder + "/" + kSamplesName, p.rows.size()).of_row;
    return p;
  }
  const auto expected = p.run.value("rows", int64_t{-1});
  if (expected != static_cast<int64_t>(p.rows.size()))
    throw InputError(
        {folder + "/rows.csv"},
        fmt::format("holds {} rows, run.json says {}: rows were lost or added", p.rows.size(), expected));
  if (p.run.value("rows_fingerprint", "") != rows_fingerprint(p.rows))
    throw InputError({folder + "/rows.csv"}, "holds other cases than run.json says: the file was edited");
  const std::string samples = folder + "/" + kSamplesName;
  SamplesFile calls = read_samples(samples, p.rows.size());
  if (p.run.contains("samples")) check_samples(samples, p.rows, calls);  // older folders have none
  p.samples = std::move(calls.of_row);
  return p;
}

void check_same_run(const std::vector<Part>& parts) {
  const json& first = parts[0].run["identity"];
  for (const Part& p : parts) {
    const std::string differs = identity_difference(first, p.run["identity"], identity_per_shard());
    if (!differs.empty())
      throw InputError({p.folder}, fmt::format("belongs to another run than {}: {} (there: {}, here: {})",
                                               parts[0].folder, differs, parts[0].folder, p.folder));
  }
}

// True where all are there and came to their end.
bool check_shards(const std::vector<Part>& parts, bool partial) {
  const int32_t count = parts[0].shard.count;
  std::map<int32_t, std::string> have;
  for (const Part& p : parts) {
    if (p.shard.count != count)
      throw InputError({p.folder}, fmt::format("is shard {}/{}, but {} is one of {}", p.shard.index,
                                               p.shard.count, parts[0].folder, count));
    const auto [at, fresh] = have.emplace(p.shard.index, p.folder);
    if (!fresh)
      throw InputError({p.folder},
                       fmt::format("is shard {}/{}, and so is {}", p.shard.index, count, at->second));
  }
  std::string missing;
  for (int32_t i = 1; i <= count; ++i)
    if (!have.contains(i)) missing += fmt::format("{}{}/{}", missing.empty() ? "" : ", ", i, count);
  if (!missing.empty() && !partial)
    throw InputError("missing shards: " + missing +
                     "; name their folders too, or take what is there (--partial)");
  return missing.empty() && std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.complete; });
}

void check_rows(const std::vector<Part>& parts) {
  std::unordered_map<std::string, const Part*> owner;
  for (const Part& p : parts)
    for (const Row& row : p.rows) {
      const auto [at, fresh] = owner.emplace(row.key(), &p);
      if (!fresh)
        throw InputError({p.folder + "/rows.csv"},
                         fmt::format("holds {} again; it is in {} already", row.key(), at->second->folder));
      if (!in_shard(row.scenario, p.shard))
        throw InputError({p.folder + "/rows.csv"}, fmt::format("holds {}, which is no case of shard {}/{}",
                                                               row.key(), p.shard.index, p.shard.count));
    }
}

}  // namespace

Merged merge(const std::vector<std::string>& folders, const std::string& out,
             const std::vector<std::string>& command, bool partial) {
  if (folders.empty()) throw InputError("no results folder given; name the folders of all shards");
  std::vector<Part> parts;
  for (const std::string& folder : folders) parts.push_back(read_part(folder, partial));
  check_same_run(parts);
  const bool complete = check_shards(parts, partial);
  check_rows(parts);
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.shard.index < b.shard.index; });

  json identity = parts[0].run["identity"];
  identity["shard"] = "1/1";
  ResultsFolder merged = ResultsFolder::create(out, identity);
  json shards = json::array();
  for (const Part& p : parts) {
    for (size_t i = 0; i < p.rows.size(); ++i) merged.append(p.rows[i], p.samples[i]);
    json facts = {{"folder", p.folder},
                  {"shard", fmt::format("{}/{}", p.shard.index, p.shard.count)},
                  {"complete", p.complete}};
    for (const char* key : {"machine", "start", "end", "limits", "command", "clocks", "backends"})
      facts[key] = p.run.value(key, json(nullptr));
    shards.push_back(facts);
  }
  json run = parts[0].run;
  run["identity"] = identity;
  run["command"] = command;
  run["shards"] = shards;
  run["end"] = now_utc();
  run["complete"] = complete;
  run["rows"] = merged.rows().size();
  run["rows_fingerprint"] = rows_fingerprint(merged.rows());
  json tally = json::object();
  const Tally counts = tally_of(merged.rows());
  for (const std::string_view outcome : kOutcomes) tally[std::string(outcome)] = counts.of(outcome);
  run["tally"] = tally;
  merged.write_run_json(run);
  merged.write_pages();
  return {merged.rows(), out};
}

}  // namespace assay
