// SPDX-License-Identifier: Apache-2.0
// See rank.hpp.
#include "harness/run/rank.hpp"

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "harness/base/error.hpp"
#include "harness/device/exported.hpp"
#include "harness/run/channel.hpp"
#include "harness/run/rank_exchange.hpp"
#include "harness/run/rank_session.hpp"

namespace assay {
namespace {

void require(int status, const char* error) {
  if (status != ASSAY_OK) throw InfrastructureError(error);
}

// What it is asked for, one order after the other. Exceptions end the rank.
class RankServer {
 public:
  RankServer(const Backend& backend, const assay_device& device) : backend_(backend), device_(device) {}

  nlohmann::json obey(const nlohmann::json& order) {
    const auto what = order.at("do").get<std::string>();
    if (what == "id") return make_id();
    if (what == "join") return said(join(order));
    if (what == "run") return said(run(order));
    if (session_ == nullptr) return said({ASSAY_FAILED, "nothing ran that could be timed"});
    try {
      return timed(what, order);
    } catch (const ModeRefused& refused) {
      return said({ASSAY_UNSUPPORTED, refused.text});
    } catch (const TimeImplausible& time) {
      return {{"status", ASSAY_FAILED}, {"text", time.text}, {"implausible", true}};
    } catch (const TimedCallFailed& failed) {
      return said({ASSAY_FAILED, failed.text});
    }
  }
  static nlohmann::json said(const CallResult& r) { return {{"status", r.status}, {"text", r.error}}; }

 private:
  nlohmann::json make_id() const {
    std::vector<unsigned char> id(sizeof assay_group{}.id);
    char error[512] = "";
    const int status = exported<assay_backend_group_id_fn>(backend_, "assay_backend_group_id")(
        id.data(), error, sizeof error);
    return {{"status", status}, {"text", error}, {"id", id}};
  }

  CallResult join(const nlohmann::json& order) {
    memory_ = std::make_unique<SharedMemory>(order.at("exchange").get<std::string>());
    host_ = exchange_of(*memory_, order.at("rank").get<int32_t>(), order.at("ranks").get<int32_t>());
    group_ = host_;
    if (const auto id = order.at("id").get<std::vector<unsigned char>>(); !id.empty()) {
      group_.all_gather = nullptr, group_.reduce_scatter = nullptr, group_.barrier = nullptr;
      group_.context = nullptr;
      std::copy_n(id.begin(), std::min(id.size(), sizeof group_.id), group_.id);
    }
    char error[512] = "";
    const int status =
        exported<assay_backend_join_fn>(backend_, "assay_backend_join")(&group_, error, sizeof error);
    return {status, status == ASSAY_OK ? "" : error};
  }

  CallResult run(const nlohmann::json& order) {
    const auto name = order.at("kernel").get<std::string>();
    const assay_kernel* kernel = backend_.find(name);
    if (kernel == nullptr) return {ASSAY_FAILED, fmt::format("{} has no kernel {}", backend_.name(), name)};
    session_.reset();  // its memory before another one's
    session_ =
        std::make_unique<RankSession>(backend_, device_, *kernel, order.at("operands").get<std::string>());
    return session_->run();
  }

  nlohmann::json timed(const std::string& what, const nlohmann::json& order) {
    if (what == "prepare") {
      if (clock_ == nullptr) clock_ = DeviceClock::open(backend_.name(), device_, &no_clock_);
      session_->prepare(order.at("mode").get<std::string>(), clock_.get());
      nlohmann::json answer = said({});
      answer["device"] = device_.name, answer["uuid"] = device_.uuid;
      return answer;
    }
    // All are awake: libraries that connect themselves let their ranks meet once more, on their devices, and
    // a rank that waits there for another process to wake up would seem slower than its device says.
    if (host_.barrier != nullptr) host_.barrier(&host_, nullptr, nullptr, 0);
    if (what == "show") return session_->show(), said({});
    const TimedSample s = session_->sample();
    nlohmann::json answer = said({});
    answer["us"] = s.us, answer["host_us"] = s.host_us, answer["dropped"] = s.dropped,
    answer["sm_mhz"] = s.sm_mhz;
    answer["knows_throttling"] = session_->knows_throttling();
    return answer;
  }

  const Backend& backend_;
  const assay_device& device_;
  std::unique_ptr<SharedMemory> memory_;  // of the exchanges
  assay_group host_{}, group_{};          // assay's end of it; the one that kernels get
  std::unique_ptr<RankSession> session_;
  std::unique_ptr<DeviceClock> clock_;
  std::string no_clock_;
};

}  // namespace

std::optional<RankArguments> rank_arguments(int argc, const char* const* argv) {
  if (argc != 4 || std::strcmp(argv[1], "rank") != 0) return std::nullopt;
  return RankArguments{argv[2], std::atoi(argv[3])};
}

int rank_main(const RankArguments& arguments, int fd) {
  Channel channel(fd);
  try {
    std::fenv_t modes;  // a library linked with -ffast-math turns subnormals off when it is loaded
    std::fegetenv(&modes);
    const Backend backend = Backend::load(arguments.backend);
    std::fesetenv(&modes);
    const assay_device device = backend.device(arguments.device);
    char error[512] = "";
    require(backend.table()->use_device(arguments.device, error, sizeof error), error);
    RankServer server(backend, device);
    nlohmann::json order;
    while (channel.hear_json(order)) channel.say_json(server.obey(order));
    return 0;
  } catch (const std::exception& e) {
    channel.say_json(RankServer::said({ASSAY_FAILED, e.what()}));
    return 1;
  }
}

}  // namespace assay
