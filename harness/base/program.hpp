// SPDX-License-Identifier: Apache-2.0
// Where this program lies: beside it are its backends, its catalogues and, near it, its scripts. And how it
// starts others.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace assay {

// Throws InfrastructureError when /proc does not say.
std::filesystem::path program_path();
inline std::filesystem::path program_folder() { return program_path().parent_path(); }

// What a program that could not be started ends with.
inline constexpr int kExecFailed = 127;
// Starts argv[0] by fork and exec; it dies with this process. `prepare` runs in the child before exec, where
// only async-signal-safe calls may be made. -1 with errno when there can be no new process.
pid_t start_program(const std::vector<std::string>& argv, const std::function<void()>& prepare = {});
// Waits for its end: the exit code, or -1 where a signal ended it.
int exit_code_of(pid_t);

}  // namespace assay
