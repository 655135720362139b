#include "transport/ucx_worker.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "errors.h"
#include "group/progress.h"
#include "measure/clock.h"
#include "transport/agreement.h"
#include "waiting.h"

namespace linkgauge::ucx {
namespace {

constexpr std::int64_t kCloseNs = 200'000'000;

void over(void* request, Status status, void* user_data) {
  auto* const tally = static_cast<Tally*>(user_data);
  if (status != kOk && tally->failed == kOk) tally->failed = status;
  --tally->under_way;
  tally->free_request(request);
}

}  // namespace

RankWorker::RankWorker(const Library& library) : library_(&library) {
  Parameters parameters;
  parameters.field_mask = Parameters::kFeatures;
  parameters.features = kFeatureTag | kFeatureRma;
  library.check(calls().ucp_init_version(kApiMajor, kApiMinor, &parameters, nullptr, &context_), "ucp_init");
  try {
    ContextFacts facts;
    facts.field_mask = ContextFacts::kMemoryTypes;
    library.check(calls().ucp_context_query(context_, &facts), "ucp_context_query");
    memory_types_ = facts.memory_types;
    WorkerParameters worker;
    worker.field_mask = WorkerParameters::kThreadMode | WorkerParameters::kFlags;
    worker.thread_mode = WorkerParameters::kThreadSerialized;
    worker.flags = WorkerParameters::kIgnoreRequestLeak;  // where a rank failed, what it had posted stays
    library.check(calls().ucp_worker_create(context_, &worker, &worker_), "ucp_worker_create");
    void* address = nullptr;
    std::size_t bytes = 0;
    library.check(calls().ucp_worker_get_address(worker_, &address, &bytes), "ucp_worker_get_address");
    address_.assign(static_cast<const char*>(address), bytes);
    calls().ucp_worker_release_address(worker_, address);
  } catch (...) {
    release();
    throw;
  }
}

RankWorker::~RankWorker() { release(); }

// A connection is closed as its peer expects it where that is still there to answer; destroying the worker ends the
// rest.
void RankWorker::release() noexcept {
  const std::int64_t until = now_ns() + (broken_ ? 0 : kCloseNs);
  const RequestParameters flushed{};
  std::vector<StatusPointer> closing;
  for (const auto& [address, endpoint] : endpoints_) {
    if (broken_) break;
    StatusPointer const request = calls().ucp_ep_close_nbx(endpoint, &flushed);
    if (request != nullptr && !is_error(request)) closing.push_back(request);
  }
  endpoints_.clear();
  for (StatusPointer const request : closing) {
    while (calls().ucp_request_check_status(request) > 0 && now_ns() < until) (void)progress();
    calls().ucp_request_free(request);
  }
  retired_.clear();
  if (worker_ != nullptr) calls().ucp_worker_destroy(worker_);
  if (context_ != nullptr) calls().ucp_cleanup(context_);
  worker_ = nullptr;
  context_ = nullptr;
}

RankWorker::Meeting RankWorker::meet(Group& group, const std::vector<int>& peers) {
  retired_.clear();
  std::vector<std::byte> mine(sizeof turn_ + address_.size());
  std::memcpy(mine.data(), &turn_, sizeof turn_);
  std::memcpy(mine.data() + sizeof turn_, address_.data(), address_.size());
  const Progress progress = ProgressOfAnyThread{[] {}, [this] { (void)this->progress(); }};
  const auto all = group.exchange(mine, progress);
  Meeting met;
  for (const std::vector<std::byte>& theirs : all) {
    std::uint32_t turn = 0;
    std::memcpy(&turn, theirs.data(), sizeof turn);
    met.turn = std::max(met.turn, turn);
  }
  turn_ = ++met.turn;
  std::string reason;
  for (const int peer : peers) {
    const std::vector<std::byte>& theirs = all[static_cast<std::size_t>(peer)];
    const std::string address(reinterpret_cast<const char*>(theirs.data()) + sizeof turn_,
                              theirs.size() - sizeof turn_);
    auto known = endpoints_.find(address);
    if (known == endpoints_.end()) {
      EndpointParameters parameters;
      parameters.field_mask = EndpointParameters::kRemoteAddress;
      parameters.address = address.data();
      Endpoint endpoint = nullptr;
      const Status status = calls().ucp_ep_create(worker_, &parameters, &endpoint);
      if (status != kOk) {
        reason = "UCX has no way to rank " + std::to_string(peer) + " (" + calls().ucs_status_string(status) +
                 "); UCX_TLS and UCX_NET_DEVICES, where they are set, must leave one";
        continue;
      }
      known = endpoints_.emplace(address, endpoint).first;
    }
    met.endpoints[peer] = known->second;
  }
  agree_or_throw(group, reason, progress);
  return met;
}

Tally* RankWorker::tally() {
  if (free_tallies_.empty()) free_tallies_.push_back(&tallies_.emplace_back());
  Tally* const taken = free_tallies_.back();
  free_tallies_.pop_back();
  *taken = {.free_request = calls().ucp_request_free};
  return taken;
}

void RankWorker::give_back(Tally* tally) {
  if (tally->under_way == 0) free_tallies_.push_back(tally);
}

RequestParameters RankWorker::request_for(Tally* tally) {
  RequestParameters parameters;
  parameters.op_attr_mask = RequestParameters::kCallback | RequestParameters::kUserData;
  parameters.callback.send = over;
  parameters.user_data = tally;
  return parameters;
}

RequestParameters RankWorker::receive_for(Tally* tally) {
  RequestParameters parameters = request_for(tally);
  parameters.callback.receive = [](void* request, Status status, const void* /*tag_info*/, void* user_data) {
    over(request, status, user_data);
  };
  return parameters;
}

void RankWorker::wait(const Group& group, const Tally& tally, const char* call) {
  drive_until(group, [&] { return tally.under_way == 0; });
  if (tally.failed != kOk) [[unlikely]] {
    library_->fail(tally.failed, call);
  }
}

std::string RankWorker::ways(Endpoint endpoint) const {
  constexpr unsigned kMost = 64;
  if (calls().ucp_ep_query == nullptr) return "";
  std::vector<Way> found(kMost);
  EndpointFacts facts;
  facts.field_mask = EndpointFacts::kTransports;
  facts.transports = {found.data(), kMost, sizeof(Way)};
  if (calls().ucp_ep_query(endpoint, &facts) != kOk) return "";
  std::set<std::string> names;
  for (const Way& way : found) {  // UCX 1.13 knows the call and not the field, and fills none
    if (way.transport != nullptr && way.device != nullptr) names.insert(std::string(way.transport) + "/" + way.device);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::shared_ptr<RankWorker> worker_of(const RankContext& context, std::shared_ptr<void>& own) {
  std::shared_ptr<void>& kept = context.lasting == nullptr ? own : (*context.lasting)["ucx"];
  if (kept && static_cast<RankWorker*>(kept.get())->broken()) kept.reset();
  if (!kept) kept = std::make_shared<RankWorker>(Library::load(context.libraries.folders));
  return std::static_pointer_cast<RankWorker>(kept);
}

}  // namespace linkgauge::ucx
