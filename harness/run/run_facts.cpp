// SPDX-License-Identifier: Apache-2.0
// run_facts() of sweep.hpp: what run.json says about a run from its first moment.
#include "harness/report/row_json.hpp"
#include "harness/run/machine.hpp"
#include "harness/run/rank_group.hpp"
#include "harness/run/samples.hpp"
#include "harness/run/sweep.hpp"

namespace assay {

using nlohmann::json;

json run_facts(const Sweep& sweep, const RunOptions& options, const std::vector<std::string>& command,
               const std::string& start) {
  const json build = build_facts();
  json j;
  j["schema_version"] = kSchemaVersion;
  j["identity"] = sweep.identity();
  j["options"] = options_json(options);
  j["command"] = command;
  j["suite"] = options.suites;
  j["seed"] = options.seed ? json(*options.seed) : json(nullptr);
  if (!options.seed) j["seed_reason"] = "every line has its own";
  j["start"] = start;
  j["machine"] = machine_facts();
  j["clocks"] = {{"start", clock_facts()}};
  j["build"] = build;
  j["compiler"] = build["compiler"];
  j["commit"] = build["commit"];
  j["dirty"] = build["dirty"];
  j["source_now"] = source_facts();
  j["backends"] = sweep.backends_json();
  j["limits"] = sweep.first_limits();
  if (j["limits"].is_null()) j["limits_reason"] = options.timed ? "not measured yet" : "nothing was timed";
  json names = json::array();
  for (const json& b : j["backends"])
    for (const json& k : b["kernels"]) names.push_back(k["name"]);
  j["kernels"] = names;
  j["columns"] = columns_json();
  if (options.timed) j["samples"] = samples_json();
  if (ranks_take_turns()) j["ranks"] = "host";  // else a device each
  j["complete"] = false;
  j["end"] = nullptr;
  return j;
}

}  // namespace assay
