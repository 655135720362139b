#include "transport/net/ucx/worker.h"

#include <cstring>
#include <set>
#include <string_view>

#include "base/case_spec.h"
#include "base/errors.h"
#include "base/not_copied.h"
#include "base/now.h"

namespace linkgauge::ucx {
namespace {

constexpr std::int64_t kCloseNs = 200'000'000;
constexpr std::uint64_t kWholeTag = ~std::uint64_t{0};

Endpoint endpoint_of(nic::Peer peer) { return reinterpret_cast<Endpoint>(static_cast<std::uintptr_t>(peer)); }

void over(void* request, Status status, void* user_data) {
  auto* const tally = static_cast<nic::Tally*>(user_data);
  if (status != kOk && tally->failed == kOk) tally->failed = status;
  --tally->under_way;
  tally->free_request(request);
}

class Registered final : public nic::Memory {
 public:
  Registered(const RankWorker& worker, const nic::Region& region)
      : worker_(&worker), address_(reinterpret_cast<std::uint64_t>(region.data)) {
    MapParameters parameters;
    parameters.field_mask = MapParameters::kAddress | MapParameters::kLength | MapParameters::kMemoryType;
    parameters.address = region.data;
    parameters.length = region.bytes;
    parameters.memory_type = known_type(region.type);
    worker.library().run(worker.calls().ucp_mem_map, worker.context(), &parameters, &memory_);
  }
  ~Registered() override { (void)worker_->calls().ucp_mem_unmap(worker_->context(), memory_); }

  ucx::Memory get() const { return memory_; }
  std::uint64_t address() const override { return address_; }
  std::vector<std::byte> key() const override {
    void* packed = nullptr;
    std::size_t bytes = 0;
    worker_->library().run(worker_->calls().ucp_rkey_pack, worker_->context(), memory_, &packed, &bytes);
    std::vector<std::byte> key(bytes);
    std::memcpy(key.data(), packed, bytes);
    worker_->calls().ucp_rkey_buffer_release(packed);
    return key;
  }

 private:
  const RankWorker* worker_;
  std::uint64_t address_;
  ucx::Memory memory_ = nullptr;
};

class Reached final : public nic::Remote {
 public:
  Reached(const RankWorker& worker, Endpoint endpoint, std::uint64_t address, const std::byte* packed)
      : nic::Remote(address), calls_(&worker.calls()) {
    worker.library().run(calls_->ucp_ep_rkey_unpack, endpoint, packed, &key_);
  }
  ~Reached() override { calls_->ucp_rkey_destroy(key_); }
  RemoteKey key() const { return key_; }

 private:
  const Table* calls_;
  RemoteKey key_ = nullptr;
};

class UcxLink final : public nic::Link {
 public:
  UcxLink(RankWorker& worker, const Group& group, Endpoint endpoint, const nic::Region& region, const nic::Memory* own)
      : nic::Link(worker, group), worker_(&worker), calls_(&worker.calls()), endpoint_(endpoint) {
    tally()->free_request = calls_->ucp_request_free.function;
    plain_.op_attr_mask = RequestParameters::kCallback | RequestParameters::kUserData;
    plain_.callback.send = over;
    plain_.user_data = tally();
    const bool takes_memory = worker.library().at_least(kFirstMinorWithMemory);
    one_ = plain_;
    // Where the library looks for the kind of memory by itself it costs a look-up a message; of host memory it is told.
    if (region.type == nic::MemoryType::kHost) {
      one_.op_attr_mask |= RequestParameters::kMemoryType;
      one_.memory_type = kHostMemory;
    }
    if (own != nullptr && takes_memory) {
      one_.op_attr_mask |= RequestParameters::kMemory;
      one_.memory = static_cast<const Registered*>(own)->get();
    }
    several_ = one_;
    if (takes_memory) several_.op_attr_mask |= RequestParameters::kMultiSend;
    arriving_ = one_;
    arriving_.callback.receive = [](void* request, Status status, const void* /*tag_info*/, void* user_data) {
      over(request, status, user_data);
    };
    own_ = own;
  }

  // A message queued with others says so (multi send), one that is waited for at once does not.
  void send(const void* data, std::size_t bytes, std::uint64_t tag, bool alone) override {
    const RequestParameters& parameters = bytes == 0 ? plain_ : alone ? one_ : several_;
    count(calls_->ucp_tag_send_nbx(endpoint_, data, bytes, tag, &parameters), "ucp_tag_send_nbx");
  }
  void receive(void* data, std::size_t bytes, std::uint64_t tag) override {
    count(calls_->ucp_tag_recv_nbx(worker_->get(), data, bytes, tag, kWholeTag, &arriving_), "ucp_tag_recv_nbx");
  }
  void put(const void* data, std::size_t bytes, const nic::Memory* own, const nic::Remote& into,
           std::size_t offset) override {
    count(calls_->ucp_put_nbx(endpoint_, data, bytes, into.at(offset), static_cast<const Reached&>(into).key(),
                              &of_memory(own)),
          "ucp_put_nbx");
  }
  void get(void* data, std::size_t bytes, const nic::Memory* own, const nic::Remote& from,
           std::size_t offset) override {
    count(calls_->ucp_get_nbx(endpoint_, data, bytes, from.at(offset), static_cast<const Reached&>(from).key(),
                              &of_memory(own)),
          "ucp_get_nbx");
  }
  void order() override { worker_->library().run(calls_->ucp_worker_fence, worker_->get()); }
  void flush() override { count(calls_->ucp_ep_flush_nbx(endpoint_, &plain_), "ucp_ep_flush_nbx"); }

 private:
  const RequestParameters& of_memory(const nic::Memory* own) const {
    return own != nullptr && own == own_ ? one_ : plain_;
  }
  void count(StatusPointer request, const char* call) {
    if (request == nullptr) return;
    if (is_error(request)) [[unlikely]] {
      worker_->library().fail(status_of(request), call);
    }
    ++tally()->under_way;
  }

  RankWorker* worker_;
  const Table* calls_;
  Endpoint endpoint_;
  const nic::Memory* own_ = nullptr;
  RequestParameters plain_;
  RequestParameters one_;
  RequestParameters several_;
  RequestParameters arriving_;
};

// What a context is made by: the environment's variables with a case's own in their place; nullptr where it has none.
class Configuration : NotCopied {
 public:
  Configuration(const Library& library, const std::string& settings) : calls_(&library.calls()) {
    if (settings.empty()) return;
    if (calls_->ucp_config_read == nullptr || calls_->ucp_config_modify == nullptr) {
      throw Unsupported("UCX " + library.version() + " takes no settings but the environment's");
    }
    library.run(calls_->ucp_config_read, nullptr, nullptr, &configuration_);
    for (const auto& [name, value] : settings_of(settings)) {
      const std::string own = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
      const Status status = calls_->ucp_config_modify(configuration_, own.c_str(), value.c_str());
      if (status == kOk) continue;
      release();
      throw Unsupported("UCX " + library.version() + " does not take " + name + "=" + value + ": " +
                        calls_->ucs_status_string(status));
    }
  }
  ~Configuration() { release(); }
  const void* get() const { return configuration_; }

 private:
  static constexpr std::string_view kPrefix = "UCX_";
  void release() noexcept {
    if (configuration_ != nullptr) calls_->ucp_config_release(configuration_);
    configuration_ = nullptr;
  }
  const Table* calls_;
  void* configuration_ = nullptr;
};

}  // namespace

int known_type(nic::MemoryType type) {
  static_assert(static_cast<int>(nic::MemoryType::kHost) == kHostMemory);
  static_assert(static_cast<int>(nic::MemoryType::kCuda) == kCudaMemory);
  static_assert(static_cast<int>(nic::MemoryType::kCudaManaged) == kCudaManagedMemory);
  static_assert(static_cast<int>(nic::MemoryType::kRocm) == kRocmMemory);
  static_assert(static_cast<int>(nic::MemoryType::kRocmManaged) == kRocmManagedMemory);
  return static_cast<int>(type);
}

RankWorker::RankWorker(const Library& library, const std::string& settings) : library_(&library) {
  Parameters parameters;
  parameters.field_mask = Parameters::kFeatures;
  parameters.features = kFeatureTag | kFeatureRma;
  {
    const Configuration configuration(library, settings);
    library.check(calls().ucp_init_version(kApiMajor, kApiMinor, &parameters, configuration.get(), &context_),
                  "ucp_init");
  }
  try {
    ContextFacts facts;
    facts.field_mask = ContextFacts::kMemoryTypes;
    library.run(calls().ucp_context_query, context_, &facts);
    memory_types_ = facts.memory_types;
    WorkerParameters worker;
    worker.field_mask = WorkerParameters::kThreadMode | WorkerParameters::kFlags;
    worker.thread_mode = WorkerParameters::kThreadSerialized;
    worker.flags = WorkerParameters::kIgnoreRequestLeak;  // where a rank failed, what it had posted stays
    library.run(calls().ucp_worker_create, context_, &worker, &worker_);
    void* address = nullptr;
    std::size_t bytes = 0;
    library.run(calls().ucp_worker_get_address, worker_, &address, &bytes);
    set_address({static_cast<const char*>(address), bytes});
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
  const std::int64_t until = now_ns() + (broken() ? 0 : kCloseNs);
  const RequestParameters flushed{};
  std::vector<StatusPointer> closing;
  for (Endpoint const endpoint : endpoints_) {
    if (broken()) break;
    StatusPointer const request = calls().ucp_ep_close_nbx(endpoint, &flushed);
    if (request != nullptr && !is_error(request)) closing.push_back(request);
  }
  endpoints_.clear();
  for (StatusPointer const request : closing) {
    while (calls().ucp_request_check_status(request) > 0 && now_ns() < until) {
      (void)calls().ucp_worker_progress(worker_);
    }
    calls().ucp_request_free(request);
  }
  forget_retired();
  if (worker_ != nullptr) calls().ucp_worker_destroy(worker_);
  if (context_ != nullptr) calls().ucp_cleanup(context_);
  worker_ = nullptr;
  context_ = nullptr;
}

std::string RankWorker::connect(const std::string& address, nic::Peer* peer) {
  EndpointParameters parameters;
  parameters.field_mask = EndpointParameters::kRemoteAddress;
  parameters.address = address.data();
  Endpoint endpoint = nullptr;
  const Status status = calls().ucp_ep_create(worker_, &parameters, &endpoint);
  if (status != kOk) {
    return std::string("UCX says ") + calls().ucs_status_string(status) +
           "; UCX_TLS and UCX_NET_DEVICES, where they are set, must leave one";
  }
  endpoints_.push_back(endpoint);
  *peer = static_cast<nic::Peer>(reinterpret_cast<std::uintptr_t>(endpoint));
  return "";
}

std::unique_ptr<nic::Memory> RankWorker::registered(const nic::Region& region) {
  return std::make_unique<Registered>(*this, region);
}

std::unique_ptr<nic::Remote> RankWorker::reach(nic::Peer peer, std::uint64_t address, const Bytes& key) {
  return std::make_unique<Reached>(*this, endpoint_of(peer), address, key.data());
}

std::unique_ptr<nic::Link> RankWorker::link(const Group& group, nic::Peer peer, const nic::Region& region,
                                            const nic::Memory* own) {
  return std::make_unique<UcxLink>(*this, group, endpoint_of(peer), region, own);
}

std::string RankWorker::ways(nic::Peer peer) const {
  constexpr unsigned kMost = 64;
  if (calls().ucp_ep_query == nullptr) return "";
  std::vector<Way> found(kMost);
  EndpointFacts facts;
  facts.field_mask = EndpointFacts::kTransports;
  facts.transports = {found.data(), kMost, sizeof(Way)};
  if (calls().ucp_ep_query(endpoint_of(peer), &facts) != kOk) return "";
  std::set<std::string> names;
  for (const Way& way : found) {  // UCX 1.13 knows the call and not the field, and fills none
    if (way.transport != nullptr && way.device != nullptr) names.insert(std::string(way.transport) + "/" + way.device);
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void RankWorker::fail(int code, const char* call) const {
  library_->fail(static_cast<Status>(code), (std::string(call) + " of UCX").c_str());
}

}  // namespace linkgauge::ucx
