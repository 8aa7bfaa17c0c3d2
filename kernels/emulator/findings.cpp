// SPDX-License-Identifier: Apache-2.0
// See findings.hpp.
#include "kernels/emulator/findings.hpp"

#include "kernels/emulator/symbols.hpp"

namespace gpu::emulator {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::kDivergence:
      return "divergent collective";
    case Kind::kExitedLane:
      return "collective after a lane has left";
    case Kind::kBarrierMix:
      return "threads at different barriers";
    case Kind::kBadLane:
      return "value from a lane that does not exist";
    case Kind::kSharedOverflow:
      return "too much shared memory";
    case Kind::kLaunch:
      return "impossible launch";
    case Kind::kTrap:
      return "trap";
    case Kind::kDeadlock:
      return "deadlock";
    case Kind::kMisaligned:
      return "misaligned access";
    case Kind::kRace:
      return "race";
    case Kind::kOutOfBounds:
      return "out of bounds";
    case Kind::kUninitialised:
      return "uninitialised read";
    case Kind::kInputWritten:
      return "write to an input";
    case Kind::kBarrier:
      return "misused barrier";
    case Kind::kBytes:
      return "wrong transaction bytes";
    case Kind::kProxy:
      return "missing proxy fence";
    case Kind::kDescriptor:
      return "wrong descriptor or swizzle";
    case Kind::kRegisters:
      return "registers of a product in flight";
    case Kind::kProductFence:
      return "missing product fence";
    case Kind::kDisagreement:
      return "warps that disagree";
    case Kind::kInFlight:
      return "left in flight";
    case Kind::kNotModelled:
      return "not modelled";
  }
  return "?";
}

namespace {

bool same_place(const Site& a, const Site& b) {
  return a.pc == b.pc && a.line == b.line &&
         (a.file == b.file || (a.file != nullptr && b.file != nullptr && std::string_view(a.file) == b.file));
}

std::string triple(const uint32_t (&v)[3]) {
  return "(" + std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]) + ")";
}

}  // namespace

void Findings::clear() {
  const std::lock_guard lock(mutex_);
  list_.clear();
}

bool Findings::known(Kind kind, const Site& site) const {
  const std::lock_guard lock(mutex_);
  for (const Finding& f : list_)
    if (f.kind == kind && same_place(f.site, site)) return true;
  return false;
}

bool Findings::add(Finding finding) {
  if (known(finding.kind, finding.site)) return true;
  const std::lock_guard lock(mutex_);
  list_.push_back(std::move(finding));
  return list_.size() < kMostFindings;
}

bool Findings::empty() const {
  const std::lock_guard lock(mutex_);
  return list_.empty();
}

std::vector<Finding> Findings::list() const {
  const std::lock_guard lock(mutex_);
  return list_;
}

std::string text_of(const std::vector<Finding>& list, const void* kernel) {
  if (list.empty()) return "";
  const Finding& f = list.front();
  std::string text(name_of(f.kind));
  text += " in " + function_name(kernel);
  if (const std::string place = f.site.file != nullptr
                                    ? base_name(f.site.file) + ":" + std::to_string(f.site.line)
                                    : source_of(f.site.pc);
      !place.empty())
    text += " at " + place;
  if (!f.text.empty()) text += ": " + f.text;
  if (f.kind != Kind::kLaunch) text += "; block " + triple(f.block) + " thread " + triple(f.thread);
  if (list.size() > 1) {
    text += "; also";
    for (size_t i = 1; i < list.size(); ++i) {
      const Site& site = list[i].site;
      text += (i > 1 ? ", " : " ") + std::string(name_of(list[i].kind)) + " at " +
              (site.file != nullptr ? base_name(site.file) + ":" + std::to_string(site.line)
                                    : source_of(site.pc));
    }
  }
  return text;
}

}  // namespace gpu::emulator
