// SPDX-License-Identifier: Apache-2.0
// See program.hpp.
#include "harness/base/program.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "harness/base/error.hpp"

namespace assay {

std::filesystem::path program_path() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) throw InfrastructureError("cannot find the place of the program: " + error.message());
  return path;
}

pid_t start_program(const std::vector<std::string>& argv, const std::function<void()>& prepare) {
  std::vector<char*> words;
  for (const std::string& word : argv) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(kExecFailed);  // style: process end; the parent died in between
  if (prepare) prepare();
  execv(words[0], words.data());
  std::_Exit(kExecFailed);  // style: process end; it could not become the program
}

int exit_code_of(pid_t child) {
  int status = 0;
  if (child <= 0) return -1;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace assay
