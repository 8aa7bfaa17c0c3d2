// SPDX-License-Identifier: Apache-2.0
// See suspects.hpp.
#include "harness/campaign/suspects.hpp"

#include <algorithm>
#include <set>

#include "harness/base/error.hpp"

namespace assay::campaign {

Suspects::Suspects(const SuspectOptions& options) : options_(options) {
  for (const std::string& path : options.catalogues) {
    catalogues_.push_back(load_catalogue(path));
    libraries_.push_back(path.empty() ? catalogues_.back().backend.path() : path);
  }
}

void Suspects::open_backends() {
  for (const std::string& name : options_.backends) {
    Opened& opened = backends_.emplace_back(Opened{Backend::load(name), {}, name});
    char error[512] = "";
    if (opened.backend.table()->use_device(0, error, sizeof error) != ASSAY_OK)
      throw InfrastructureError(fmt::format("backend {}: device 0: {}", name, error));
    opened.device = opened.backend.device(0);
  }
}

std::vector<Suspect> Suspects::of_line(Draws& d, const Problem& p) const {
  std::vector<Suspect> all;
  for (const Opened& opened : backends_)
    for (const assay_kernel* kernel : opened.backend.kernels())
      if (kernel->op == p.op) all.push_back({&opened.backend, kernel, &opened.device, &opened.library});
  if (!op_of(p).whole_context) return all;  // catalogues hold attention kernels
  for (size_t c = 0; c < catalogues_.size(); ++c) {
    const Catalogue& catalogue = catalogues_[c];
    const auto count = static_cast<int64_t>(catalogue.variants.size());
    std::set<int64_t> chosen;
    while (static_cast<int64_t>(chosen.size()) < std::min<int64_t>(options_.per_line, count))
      chosen.insert(d.below(count));
    for (const int64_t i : chosen)
      if (const assay_kernel* kernel = catalogue.variants[static_cast<size_t>(i)].kernel_for(p))
        all.push_back({&catalogue.backend, kernel, &catalogue.device, &libraries_[c]});
  }
  return all;
}

Suspect Suspects::any(Draws& d) const {
  const auto c = static_cast<size_t>(d.below(static_cast<int64_t>(catalogues_.size())));
  const Catalogue& from = catalogues_[c];
  const CatalogueEntry& entry =
      from.variants[static_cast<size_t>(d.below(static_cast<int64_t>(from.variants.size())))];
  const bool paged = entry.prefill == nullptr || (entry.paged != nullptr && d.chance(0.5));
  return {&from.backend, paged ? entry.paged : entry.prefill, &from.device, &libraries_[c]};
}

std::vector<Suspect> Suspects::named(const std::string& name, const Problem& p) const {
  std::vector<Suspect> all;
  const auto take = [&](const Backend& backend, const assay_device& device, const std::string& library) {
    if (const assay_kernel* kernel = backend.find(name); kernel != nullptr && kernel->op == p.op)
      all.push_back({&backend, kernel, &device, &library});
  };
  for (const Opened& opened : backends_) take(opened.backend, opened.device, opened.library);
  for (size_t c = 0; c < catalogues_.size(); ++c)
    take(catalogues_[c].backend, catalogues_[c].device, libraries_[c]);
  return all;
}

std::string family_of(const std::string& kernel) {
  const size_t end = kernel.find_last_not_of("0123456789");
  const bool numbered = end != std::string::npos && kernel[end] == '_' && kernel.size() - end > 4;
  return numbered ? kernel.substr(0, end) : kernel;
}

}  // namespace assay::campaign
