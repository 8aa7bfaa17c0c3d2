// SPDX-License-Identifier: Apache-2.0
// One draw of a case, on which kernels are run once and looked at by every detector: the bounds of the
// declared arithmetic and the answers that other projects compare with are computed once.
#pragma once

#include <memory>
#include <optional>

#include "harness/check/aggregates/aggregates.hpp"
#include "harness/check/session/session.hpp"
#include "harness/power/detectors.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay::power {

class PowerCase {
 public:
  // `right`: a kernel without a fault, whose declaration is that of all kernels that come. InputError for a
  // line that cannot be built.
  PowerCase(const Catalogue&, const CatalogueEntry& right, const std::string& line);
  ~PowerCase();
  const Problem& problem() const { return peers_.problem(); }
  bool takes(const CatalogueEntry& e) const { return assay::takes(catalogue_, e, problem(), peers_.view()); }

  // Everybody's mark but those of the statistics and of what follows from others (kOurs, kIncidence).
  // InfrastructureError when the kernel fails.
  Marks look(const CatalogueEntry&);
  // An alarm counts when `again`, the same case with other values, raises it too.
  Mark ask_statistics(const CatalogueEntry&, PowerCase& again);

 private:
  Snapshot run(const CatalogueEntry&);
  AggregateReport statistics(const Snapshot&) const;
  void look_at_elements(const PeerOutputs&, Marks&) const;

  const Catalogue& catalogue_;
  PeerCase peers_;
  assay_arithmetic arithmetic_;
  BoundedAttention bounded_;
  std::unique_ptr<DeviceCase> device_;
};

// What one run of such a case takes, in multiply-adds.
double run_cost(const Problem&);

// The same for inputs with a known answer, which needs no bounds.
class IncidenceCase {
 public:
  IncidenceCase(const Catalogue&, const CatalogueEntry& right, const std::string& line);
  ~IncidenceCase();
  const Problem& problem() const { return inputs_.problem; }
  bool takes(const CatalogueEntry& e) const {
    return assay::takes(catalogue_, e, problem(), inputs_.view->get());
  }
  bool rejects(const CatalogueEntry&);

 private:
  const Catalogue& catalogue_;
  Inputs inputs_;
  std::unique_ptr<DeviceCase> device_;
};

}  // namespace assay::power
