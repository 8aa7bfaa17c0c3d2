// SPDX-License-Identifier: Apache-2.0
// See catalogue.hpp.
#include "harness/mutants/catalogue.hpp"

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <set>

#include "harness/base/error.hpp"
#include "harness/base/program.hpp"
#include "harness/device/exported.hpp"
#include "harness/device/not_a_backend.hpp"
#include "harness/ops/op.hpp"
#include "reference/bounds/bounds.hpp"

namespace assay {
namespace {

namespace fs = std::filesystem;

struct Reader {
  const Backend& backend;
  std::set<const assay_kernel*> kernels;  // of the backend
  std::set<std::string> names;

  [[noreturn]] void fail(const std::string& what) const {
    throw NotABackend(fmt::format("catalogue {}: {}; see harness/abi/assay_fault.h", backend.path(), what));
  }

  std::string text(const char* value, const char* field, const std::string& of) const {
    if (value == nullptr || *value == '\0') fail(fmt::format("{} has no {}", of, field));
    return value;
  }

  void check_kernel(const assay_kernel* kernel, const Op& op, const std::string& of) const {
    if (kernel == nullptr) return;
    if (!kernels.contains(kernel)) fail(fmt::format("{}: a kernel is not among those of the backend", of));
    if (kernel->op != op.id) fail(fmt::format("{}: kernel {} is of the other op", of, kernel->name));
  }

  CatalogueEntry entry(const assay_fault& f, bool fault, int index) {
    const std::string place = fmt::format("{} {}", fault ? "fault" : "variant", index);
    constexpr size_t kOldest = offsetof(assay_fault, family);
    if (f.struct_size < kOldest)
      fail(fmt::format("{} has a table of {} bytes, {} expected", place, f.struct_size, kOldest));
    CatalogueEntry e;
    e.name = text(f.name, "name", place);
    const std::string of = fmt::format("{} ({})", place, e.name);
    e.summary = text(f.summary, "summary", of);
    e.equivalent = f.equivalent != 0;
    e.reached = f.reached;
    if (f.struct_size >= offsetof(assay_fault, size) + sizeof f.size && f.family != nullptr) {
      e.family = f.family;
      e.unit = text(f.unit, "unit", of);
      e.size = f.size;
    }
    e.prefill = f.prefill;
    e.paged = f.paged;
    if (fault) {
      e.stage = text(f.stage, "stage", of);
      e.museum = text(f.museum, "museum id", of);
      e.cause = text(f.cause, "cause", of);
    } else if (f.cause != nullptr) {
      fail(fmt::format("{} is a variant but names a cause", of));
    }
    if (!e.prefill && !e.paged) fail(fmt::format("{} has no kernel", of));
    check_kernel(e.prefill, ops::prefill, of);
    check_kernel(e.paged, ops::paged, of);
    if (!names.insert(e.name).second) fail(fmt::format("{}: the name occurs twice", of));
    return e;
  }

  std::vector<CatalogueEntry> entries(const assay_fault* list, int32_t count, bool fault) {
    if (count < 0 || (count > 0 && list == nullptr)) fail("a list is broken");
    std::vector<CatalogueEntry> all;
    for (int32_t i = 0; i < count; ++i) all.push_back(entry(*assay_fault_at(list, i), fault, i));
    return all;
  }
};

// 4-byte words of the declarations that agree: doubles count twice, which is what they weigh anyway.
int agreement(const assay_arithmetic& a, const assay_arithmetic& b) {
  static_assert(sizeof(assay_arithmetic) % 4 == 0);
  int equal = 0;
  for (size_t at = 0; at < sizeof(assay_arithmetic); at += 4)
    equal +=
        std::memcmp(reinterpret_cast<const char*>(&a) + at, reinterpret_cast<const char*>(&b) + at, 4) == 0;
  return equal;
}

assay_arithmetic declared(const Backend& backend, const assay_kernel& kernel, const assay_problem* problem) {
  assay_arithmetic a = default_arithmetic();
  call_arithmetic(backend, kernel, problem, a);
  return a;
}

}  // namespace

Catalogue load_catalogue(const std::string& path) {
  const std::string library = path.empty() ? (program_folder() / "faulty/libassay_faulty.so").string() : path;
  if (path.empty() && !fs::exists(library))
    throw InfrastructureError(
        fmt::format("catalogue: {} does not exist; build the target assay_faulty, or name a library with "
                    "--catalogue PATH",
                    library));
  Catalogue c{Backend::load(library)};
  const auto open = exported<assay_fault_catalogue_open_fn>(c.backend, "assay_fault_catalogue_open");
  if (open == nullptr)
    throw NotABackend(fmt::format(
        "catalogue {}: exports no assay_fault_catalogue_open; it is a backend without planted faults",
        c.backend.path()));
  const assay_fault_catalogue* table = open(ASSAY_ABI_VERSION);
  const std::vector<const assay_kernel*> listed = c.backend.kernels();
  Reader reader{c.backend, {listed.begin(), listed.end()}, {}};
  if (table == nullptr) reader.fail(fmt::format("does not serve interface version {}", ASSAY_ABI_VERSION));
  if (table->struct_size < sizeof(assay_fault_catalogue))
    reader.fail(fmt::format("its table has {} bytes, {} expected", table->struct_size,
                            sizeof(assay_fault_catalogue)));
  c.faults = reader.entries(table->faults, table->fault_count, true);
  c.variants = reader.entries(table->variants, table->variant_count, false);
  c.healthy = c.variants;
  char error[512] = "";
  if (c.backend.table()->use_device(0, error, sizeof(error)) != ASSAY_OK)
    throw InfrastructureError(fmt::format("catalogue {}: device 0: {}", c.backend.path(), error));
  c.device = c.backend.device(0);
  return c;
}

const assay_kernel* healthy_twin(const Catalogue& c, const assay_kernel& kernel, const Problem& p,
                                 const assay_problem* view) {
  const assay_arithmetic wanted = declared(c.backend, kernel, view);
  const assay_kernel* best = nullptr;
  int most = -1;
  for (const CatalogueEntry& v : c.healthy) {
    const assay_kernel* candidate = v.kernel_for(p);
    if (candidate == nullptr || !call_supports(*candidate, view, nullptr, c.device).ok()) continue;
    const int equal = agreement(wanted, declared(c.backend, *candidate, view));
    if (equal > most) most = equal, best = candidate;
  }
  return best;
}

bool takes(const Catalogue& c, const CatalogueEntry& e, const Problem& p, const assay_problem* view) {
  const assay_kernel* kernel = e.kernel_for(p);
  if (kernel == nullptr) return false;
  if (e.reached != nullptr && e.reached(view) == 0) return false;
  return call_supports(*kernel, view, nullptr, c.device).ok();
}

}  // namespace assay
