#include "transport/nixl/agent.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/errors.h"
#include "base/now.h"

namespace linkgauge::nixl {
namespace {

constexpr std::int64_t kPeerTellsNs = 1'000'000'000;

// Of all nodes and processes, and of those that this one had before.
std::string fresh_name() {
  static std::atomic<unsigned> made{0};
  std::array<char, 256> host{};
  (void)gethostname(host.data(), host.size() - 1);
  return std::string("linkgauge-") + host.data() + "-" + std::to_string(getpid()) + "-" + std::to_string(++made);
}

}  // namespace

RankAgent::RankAgent(const Library& library) : library_(&library), name_(fresh_name()) {
  const AgentSettings settings;
  library.run(calls().nixl_capi_create_configured_agent, name_.c_str(), &settings, &agent_);
  try {
    MemoryTypes types = nullptr;
    Parameters parameters = nullptr;
    library.run(calls().nixl_capi_get_plugin_params, agent_, kBackend, &types, &parameters);
    const Status status = calls().nixl_capi_create_backend(agent_, kBackend, parameters, &backend_);
    (void)calls().nixl_capi_destroy_mem_list(types);
    (void)calls().nixl_capi_destroy_params(parameters);
    library.check(status, "nixl_capi_create_backend");
    library.run(calls().nixl_capi_create_opt_args, &options_);
    library.run(calls().nixl_capi_opt_args_add_backend, options_, backend_);
    // Pages that lie beside each other stay descriptors of their own.
    library.run(calls().nixl_capi_opt_args_set_skip_desc_merge, options_, true);
    library.run(calls().nixl_capi_create_notif_map, &arrived_);
  } catch (...) {
    release();
    throw;
  }
}

RankAgent::~RankAgent() { release(); }

void RankAgent::release() noexcept {
  if (arrived_ != nullptr) (void)calls().nixl_capi_destroy_notif_map(arrived_);
  if (options_ != nullptr) (void)calls().nixl_capi_destroy_opt_args(options_);
  if (backend_ != nullptr) (void)calls().nixl_capi_destroy_backend(backend_);
  if (agent_ != nullptr) (void)calls().nixl_capi_destroy_agent(agent_);
  arrived_ = options_ = backend_ = agent_ = nullptr;
}

std::string RankAgent::metadata() const {
  void* data = nullptr;
  std::size_t bytes = 0;
  library_->run(calls().nixl_capi_get_local_md, agent_, &data, &bytes);
  std::string metadata(static_cast<const char*>(data), bytes);
  std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): NIXL's own allocation
  return metadata;
}

void RankAgent::know(const std::string& agent, const std::string& metadata) {
  const auto known = known_.find(agent);
  if (known != known_.end() && known->second == metadata) return;
  // NIXL refuses memory that it knows by another key, so what it knew of the agent goes first, its connection with it.
  if (known != known_.end()) {
    known_.erase(known);
    library_->run(calls().nixl_capi_invalidate_remote_md, agent_, agent.c_str());
  }
  char* said = nullptr;
  library_->run(calls().nixl_capi_load_remote_md, agent_, metadata.data(), metadata.size(), &said);
  std::free(said);  // NOLINT(cppcoreguidelines-no-malloc): NIXL's own allocation
  known_[agent] = metadata;
}

const RankAgent::Heard& RankAgent::begin(std::uint32_t turn, std::size_t flows) {
  last_turn_ = turn;
  return heard_[turn] = Heard(flows, 0);
}

void RankAgent::notify(const Group& group, const std::string& agent, const Notice& notice) const {
  check_transfer(group, calls().nixl_capi_gen_notif(agent_, agent.c_str(), &notice, sizeof notice, options_),
                 "nixl_capi_gen_notif");
}

bool RankAgent::progress() {
  library_->run(calls().nixl_capi_get_notifs, agent_, arrived_, options_);
  std::size_t agents = 0;
  library_->run(calls().nixl_capi_notif_map_size, arrived_, &agents);
  if (agents == 0) return false;
  for (std::size_t at = 0; at < agents; ++at) {
    const char* from = nullptr;
    std::size_t notices = 0;
    library_->run(calls().nixl_capi_notif_map_get_agent_at, arrived_, at, &from);
    library_->run(calls().nixl_capi_notif_map_get_notifs_size, arrived_, from, &notices);
    for (std::size_t number = 0; number < notices; ++number) {
      const void* data = nullptr;
      std::size_t bytes = 0;
      library_->run(calls().nixl_capi_notif_map_get_notif, arrived_, from, number, &data, &bytes);
      take_in({static_cast<const char*>(data), bytes});
    }
  }
  library_->run(calls().nixl_capi_notif_map_clear, arrived_);
  return true;
}

void RankAgent::take_in(std::string_view notice) {
  Notice said;
  if (notice.size() != sizeof said) return;
  std::memcpy(&said, notice.data(), sizeof said);
  const auto turn = heard_.find(said.turn);
  if (turn == heard_.end() || said.place >= turn->second.size()) return;
  std::uint64_t& known = turn->second[said.place];
  known = std::max(known, said.messages);
}

void RankAgent::fail_transfer(const Group& group, Status status, const char* call) const {
  for (const std::int64_t until = now_ns() + kPeerTellsNs; now_ns() < until;) {
    group.throw_if_aborted();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  library_->fail(status, call);
}

std::shared_ptr<RankAgent> agent_of(const RankContext& context, std::shared_ptr<void>& own) {
  std::shared_ptr<void>& kept = context.lasting == nullptr ? own : (*context.lasting)["nixl"];
  if (kept && static_cast<RankAgent*>(kept.get())->broken()) kept.reset();
  if (!kept) kept = std::make_shared<RankAgent>(Library::load(context.libraries.folders));
  return std::static_pointer_cast<RankAgent>(kept);
}

}  // namespace linkgauge::nixl
