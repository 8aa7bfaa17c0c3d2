// SPDX-License-Identifier: Apache-2.0
// What a reader of old results needs to know about where they came from. A value the machine does not
// give is null, with the reason beside it under "KEY_reason": absence would look like an oversight.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

nlohmann::json machine_facts();  // cpu, cores, memory_bytes, os, kernel, host
nlohmann::json clock_facts();    // governor, current and limit frequencies; null in most virtual machines
nlohmann::json build_facts();    // compiler, flags, build_type, commit and dirty when configured
// The sources' commit now, which differs from the build's when the tree moved on; null without git.
nlohmann::json source_facts();
int64_t total_memory_bytes();      // of the machine; 0 unknown
int64_t available_memory_bytes();  // that this process could have, what it holds included; 0 unknown
std::string now_utc();             // 2026-11-21T11:30:55Z
std::string file_fingerprint(const std::string& path);  // hex; "" when unreadable

}  // namespace assay
