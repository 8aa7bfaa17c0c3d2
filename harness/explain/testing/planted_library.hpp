// SPDX-License-Identifier: Apache-2.0
// What libraries of planted steps are made of: the CPU's steps, their stages, and the two tables that a
// library hands out.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "harness/abi/assay_fault.h"

// The entries of kernels/cpu/backend.cpp, compiled into these libraries under another name.
extern "C" const assay_backend* assay_planted_steps_inner_open(uint32_t abi_version);

namespace planted_steps {

// The CPU's kernel of this name.
const assay_kernel& base_of(const char* name);
// The stages of `self` with `count` of them replaced.
std::vector<assay_stage> replaced(const assay_kernel* self, const assay_stage* stages, int32_t count);

struct PlantedLibrary {
  std::vector<assay_kernel> kernels;
  std::vector<assay_fault> faults;
  std::list<std::string> places;
  std::vector<const assay_kernel*> pointers;
  assay_backend table{};
  assay_fault_catalogue catalogue{};

  // A fault of kernels[kernel], all of which are there.
  void add(size_t kernel, const char* name, const char* summary, const char* causes, const char* line,
           std::string place);
  // Makes the tables: those of the CPU but for the kernels. Nothing is added afterwards.
  void publish(const char* name);
};
// Each library's own; it lives as long as the process.
const PlantedLibrary& planted_library();

}  // namespace planted_steps
