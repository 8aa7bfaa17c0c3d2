// SPDX-License-Identifier: Apache-2.0
// See disturber.hpp.
#include "harness/device/disturber.hpp"

#include <algorithm>
#include <cstring>

#include "harness/base/error.hpp"
#include "harness/device/exported.hpp"

namespace assay {
namespace {

const assay_disturber* exported_by(const Backend& backend) {
  const auto open = exported<assay_disturber_open_fn>(backend, "assay_disturber_open");
  const assay_disturber* table = open ? open(ASSAY_ABI_VERSION) : nullptr;
  return table != nullptr && table->struct_size >= sizeof *table ? table : nullptr;
}

// An installed library for the device, ready to work on it.
std::optional<Backend> installed_for(const Backend& backend, const assay_device& device) {
  const std::string_view arch = device.arch;
  const char* name = backend.table()->host_memory != 0 ? "cpu"
                     : arch.starts_with("sm_")         ? "cuda"
                     : arch.starts_with("gfx")         ? "hip"
                                                       : "";
  if (*name == '\0' || installed_path(name).empty()) return std::nullopt;
  Backend found = Backend::load(name);
  char error[512] = "";
  for (int32_t i = 0; i < found.table()->device_count(); ++i)
    if (found.table()->host_memory != 0 || std::strcmp(found.device(i).uuid, device.uuid) == 0)
      if (found.table()->use_device(i, error, sizeof error) == ASSAY_OK) return found;
  return std::nullopt;
}

void require(int status, const char* error) {
  if (status != ASSAY_OK) throw InfrastructureError(error);
}

}  // namespace

Disturber::Disturber(const assay_disturber& table) : table_(&table) {
  for (int32_t kind = 0; kind < ASSAY_DISTURBANCE_COUNT; ++kind)
    if (table.kinds >> kind & 1) kinds_.push_back(kind);
}

std::optional<Disturber> Disturber::open(const Backend& backend, const assay_device& device,
                                         std::string* why) {
  const assay_disturber* table = exported_by(backend);
  if (table == nullptr)
    if (const auto other = installed_for(backend, device)) table = exported_by(*other);
  if (table != nullptr)
    if (Disturber d(*table); !d.kinds_.empty()) return d;
  *why = fmt::format(
      "required: a disturbance beside the kernel, supported: libraries that export assay_disturber_open, or "
      "an installed backend for the same device, missing: both for {} on {}",
      backend.name(), device.arch);
  return std::nullopt;
}

void Disturber::begin(int32_t kind, uint64_t seed, double microseconds) const {
  char error[512] = "";
  const double us = std::clamp(microseconds, 0.0, ASSAY_DISTURB_LONGEST_US);
  require(table_->begin(kind, seed, us, error, sizeof error), error);
}

void Disturber::end() const {
  char error[512] = "";
  require(table_->end(error, sizeof error), error);
}

std::string_view disturbance_text(int32_t kind) {
  switch (kind) {
    case ASSAY_DISTURB_SKEW:
      return "while threads of a block were slowed down in turn";
    case ASSAY_DISTURB_MEMORY:
      return "while memory and caches were busy";
    case ASSAY_DISTURB_FEWER:
      return "with part of the multiprocessors taken";
    case ASSAY_DISTURB_STAGGER:
      return "with blocks that started late and in another order";
    case ASSAY_DISTURB_DELAY:
      return "with threads held up behind their barriers";
    default:
      return "undisturbed";
  }
}

}  // namespace assay
