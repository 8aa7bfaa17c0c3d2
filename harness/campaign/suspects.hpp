// SPDX-License-Identifier: Apache-2.0
// Whose verdicts a campaign asks for: every kernel of the named backends, and of each catalogue of legal
// kernels (harness/abi/assay_fault.h) a few, drawn anew for every line. All of them are taken to be right, so
// whatever is said against one is a false alarm until somebody finds the kernel guilty.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "harness/campaign/draws.hpp"
#include "harness/mutants/catalogue.hpp"

namespace assay::campaign {

struct SuspectOptions {
  std::vector<std::string> backends{"cpu"};  // names or paths
  std::vector<std::string> catalogues;       // paths
  int per_line = 4;                          // kernels of each catalogue for one line
};

struct Suspect {
  const Backend* backend;
  const assay_kernel* kernel;
  const assay_device* device;
  const std::string* library;  // as a --backend option takes it
};

class Suspects {
 public:
  // Catalogues are opened at once, backends by open_backends(): a library that looks for its device must do
  // so in the process that uses it. InfrastructureError as load_catalogue() and Backend::load().
  explicit Suspects(const SuspectOptions&);
  void open_backends();

  std::vector<Suspect> of_line(Draws&, const Problem&) const;
  // One kernel of a catalogue, for whatever op it has.
  Suspect any(Draws&) const;
  // Kernels of this name for the op, of every library that is open.
  std::vector<Suspect> named(const std::string& kernel, const Problem&) const;

 private:
  struct Opened {
    Backend backend;
    assay_device device{};
    std::string library;
  };
  SuspectOptions options_;
  std::deque<Opened> backends_;  // suspects point into both
  std::deque<Catalogue> catalogues_;
  std::deque<std::string> libraries_;  // of the catalogues
};

// The name under which kernels are counted: numbered ones (paged_drawn_0123) together.
std::string family_of(const std::string& kernel);

}  // namespace assay::campaign
