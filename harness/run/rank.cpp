// SPDX-License-Identifier: Apache-2.0
// See rank.hpp.
#include "harness/run/rank.hpp"

#include <dlfcn.h>

#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/device/backend.hpp"
#include "harness/run/channel.hpp"
#include "harness/run/rank_exchange.hpp"
#include "harness/run/rank_operands.hpp"

namespace assay {
namespace {

void require(int status, const char* error) {
  if (status != ASSAY_OK) throw InfrastructureError(error);
}

template <class Function>
Function exported(const Backend& backend, const char* name) {
  void* library = dlopen(backend.path().c_str(), RTLD_NOW | RTLD_NOLOAD);
  return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

// A group as long as the process: its memory and this rank's end.
struct Joined {
  SharedMemory memory;
  assay_group group;
};

void join(const Backend& backend, const nlohmann::json& order) {
  static std::unique_ptr<Joined> joined;
  const auto rank = order.at("rank").get<int32_t>(), ranks = order.at("ranks").get<int32_t>();
  joined.reset(new Joined{SharedMemory(order.at("exchange").get<std::string>()), {}});
  joined->group = exchange_of(joined->memory, rank, ranks);
  const auto id = order.at("id").get<std::vector<unsigned char>>();
  if (!id.empty()) {
    joined->group.all_gather = nullptr, joined->group.reduce_scatter = nullptr;
    joined->group.barrier = nullptr, joined->group.context = nullptr;
    std::copy_n(id.begin(), std::min(id.size(), sizeof joined->group.id), joined->group.id);
  }
  char error[512] = "";
  require(exported<assay_backend_join_fn>(backend, "assay_backend_join")(&joined->group, error, sizeof error),
          error);
}

// Operands of a call where the kernel reads them: as they are, or copied to the device and back.
class OnDevice {
 public:
  OnDevice(const Backend& backend, const assay_tensors& host) : table_(*backend.table()), host_(host) {
    tensors_ = host_;
    if (table_.host_memory != 0) return;
    for (size_t i = 0; i < kTensorFields; ++i) {
      assay_tensor& t = fields_of(tensors_)[i];
      if (t.data == nullptr) continue;
      char error[512] = "";
      void* to = nullptr;
      const int64_t bytes = extent_bytes(t);
      require(table_.allocate(std::max<int64_t>(bytes, 1), &to, error, sizeof error), error);
      owned_.push_back(to);
      require(table_.copy_to_device(to, t.data, bytes, error, sizeof error), error);
      t.data = to;
    }
  }
  ~OnDevice() {
    char error[512] = "";
    for (void* p : owned_) table_.release(p, error, sizeof error);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  // Memory that holds `byte` everywhere.
  void* filled(int64_t bytes, int byte) {
    char error[512] = "";
    void* to = nullptr;
    require(table_.allocate(bytes, &to, error, sizeof error), error);
    owned_.push_back(to);
    const std::vector<unsigned char> values(static_cast<size_t>(bytes), static_cast<unsigned char>(byte));
    require(table_.copy_to_device(to, values.data(), bytes, error, sizeof error), error);
    return to;
  }
  void bring_back() {
    char error[512] = "";
    for (size_t i = 0; i < kTensorFields && table_.host_memory == 0; ++i)
      if (const assay_tensor& t = fields_of(host_)[i];
          t.data != nullptr && (t.role == ASSAY_ROLE_OUT || t.role == ASSAY_ROLE_IN_OUT))
        require(
            table_.copy_to_host(t.data, fields_of(tensors_)[i].data, extent_bytes(t), error, sizeof error),
            error);
  }
  assay_tensors* tensors() { return &tensors_; }

 private:
  const assay_backend& table_;
  assay_tensors host_, tensors_{};
  std::vector<void*> owned_;
};

CallResult run(const Backend& backend, const assay_device& device, const nlohmann::json& order) {
  const auto name = order.at("kernel").get<std::string>();
  const assay_kernel* kernel = backend.find(name);
  if (kernel == nullptr) return {ASSAY_FAILED, fmt::format("{} has no kernel {}", backend.name(), name)};
  const SharedMemory memory(order.at("operands").get<std::string>());
  RankCall call = *reinterpret_cast<const RankCall*>(memory.data());
  place(call, memory.data());
  OnDevice operands(backend, call.tensors);
  const assay_problem* p = &call.problem;
  if (CallResult r = call_supports(*kernel, p, operands.tensors(), device); !r.ok()) return r;
  if (const WorkspaceSize size = call_workspace(*kernel, p); size.bytes > 0) {
    constexpr int kPoison = 0xff;
    assay_tensor& workspace = operands.tensors()->workspace;
    workspace.data = operands.filled(size.bytes, kPoison), workspace.format = ASSAY_UINT8;
    workspace.rank = 1, workspace.shape[0] = size.bytes, workspace.stride[0] = 1;
    workspace.role = ASSAY_ROLE_OUT;
  }
  assay_plan* plan = nullptr;
  if (CallResult r = call_plan(backend, *kernel, p, operands.tensors(), &plan); !r.ok()) return r;
  CallResult r = call_run(backend, *kernel, p, operands.tensors(), plan);
  call_free_plan(*kernel, plan);
  if (r.ok()) operands.bring_back();
  return r;
}

}  // namespace

std::optional<RankArguments> rank_arguments(int argc, const char* const* argv) {
  if (argc != 4 || std::strcmp(argv[1], "rank") != 0) return std::nullopt;
  return RankArguments{argv[2], std::atoi(argv[3])};
}

int rank_main(const RankArguments& arguments, int fd) {
  Channel channel(fd);
  const auto answer = [&](const CallResult& r) {
    channel.say_json({{"status", r.status}, {"text", r.error}});
  };
  try {
    std::fenv_t modes;  // a library linked with -ffast-math turns subnormals off when it is loaded
    std::fegetenv(&modes);
    const Backend backend = Backend::load(arguments.backend);
    std::fesetenv(&modes);
    const assay_device device = backend.device(arguments.device);
    char error[512] = "";
    require(backend.table()->use_device(arguments.device, error, sizeof error), error);
    nlohmann::json order;
    while (channel.hear_json(order)) {
      const auto what = order.at("do").get<std::string>();
      if (what == "id") {
        std::vector<unsigned char> id(sizeof assay_group{}.id);
        require(exported<assay_backend_group_id_fn>(backend, "assay_backend_group_id")(id.data(), error,
                                                                                       sizeof error),
                error);
        channel.say_json({{"status", ASSAY_OK}, {"text", ""}, {"id", id}});
      } else if (what == "join") {
        join(backend, order);
        answer({});
      } else {
        answer(run(backend, device, order));
      }
    }
    return 0;
  } catch (const std::exception& e) {
    answer({ASSAY_FAILED, e.what()});
    return 1;
  }
}

}  // namespace assay
