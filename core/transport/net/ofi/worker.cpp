#include "transport/net/ofi/worker.h"

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace linkgauge::ofi {

class Registered final : public nic::Memory {
 public:
  Registered(RankWorker& worker, const nic::Region& region) {
    const int mode = worker.info_->domain_attr->mr_mode;
    const iovec piece{region.data, region.bytes};
    RegistrationAsked asked;
    asked.mr_iov = &piece;
    asked.iov_count = 1;
    asked.access = kSend | kReceive | kRead | kWrite | kRemoteRead | kRemoteWrite;
    asked.requested_key = worker.next_key_++;  // the provider's own where it gives them
    if (region.type == nic::MemoryType::kCuda || region.type == nic::MemoryType::kCudaManaged) {
      asked.iface = kCudaMemory;
      asked.device = static_cast<std::uint64_t>(region.device);
    } else if (region.type != nic::MemoryType::kHost) {
      asked.iface = kRocmMemory;
    }
    Registration* made = nullptr;
    const auto status = worker.domain_->registration->regattr(&worker.domain_->object, &asked, 0, &made);
    // A provider may offer device memory (FI_HMEM) in a libfabric that was built without that device's runtime.
    if (status != 0 && region.type != nic::MemoryType::kHost) {
      throw Unsupported("libfabric's provider " + std::string(worker.info_->fabric_attr->prov_name) +
                        " registers no memory of this device (fi_mr_regattr says " + std::to_string(status) +
                        "): it takes a libfabric that was built for it");
    }
    worker.library().check(status, "fi_mr_regattr");
    registration_.reset(made);
    if ((mode & kMrEndpoint) != 0) {
      const ObjectCalls& calls = *made->object.calls;
      worker.library().check(calls.bind(&made->object, &worker.endpoint_->object, 0), "fi_mr_bind");
      worker.library().check(calls.control(&made->object, kEnable, nullptr), "fi_mr_enable");
    }
    address_ = (mode & kMrVirtualAddress) != 0 ? reinterpret_cast<std::uint64_t>(region.data) : 0;
  }

  void* descriptor() const { return registration_->descriptor; }
  std::uint64_t address() const override { return address_; }
  std::vector<std::byte> key() const override { return to_bytes(registration_->key); }

 private:
  Owned<Registration> registration_;
  std::uint64_t address_ = 0;
};

namespace {

class Reached final : public nic::Remote {
 public:
  Reached(std::uint64_t address, const Bytes& key) : nic::Remote(address), key_(from_bytes<std::uint64_t>(key)) {}
  std::uint64_t key() const { return key_; }

 private:
  std::uint64_t key_;
};

void* descriptor_of(const nic::Memory* memory) {
  return memory == nullptr ? nullptr : static_cast<const Registered*>(memory)->descriptor();
}

class OfiLink final : public nic::Link {
 public:
  OfiLink(RankWorker& worker, const Group& group, nic::Peer peer, const nic::Memory* own)
      : nic::Link(worker, group), worker_(&worker), peer_(peer), descriptor_(descriptor_of(own)) {}

  void send(const void* data, std::size_t bytes, std::uint64_t tag, bool /*alone*/) override {
    post("fi_tsend", [&](Endpoint* endpoint, void* context) {
      return endpoint->tagged->send(endpoint, data, bytes, bytes == 0 ? nullptr : descriptor_, peer_, tag, context);
    });
  }
  void receive(void* data, std::size_t bytes, std::uint64_t tag) override {
    post("fi_trecv", [&](Endpoint* endpoint, void* context) {
      return endpoint->tagged->recv(endpoint, data, bytes, bytes == 0 ? nullptr : descriptor_, kAnyAddress, tag, 0,
                                    context);
    });
  }
  // Over when the bytes are there, so that neither an order nor a flush needs a call of its own.
  void put(const void* data, std::size_t bytes, const nic::Memory* own, const nic::Remote& into,
           std::size_t offset) override {
    const iovec piece{const_cast<void*>(data), bytes};  // NOLINT(cppcoreguidelines-pro-type-const-cast): only read
    const RemotePiece there{into.at(offset), bytes, static_cast<const Reached&>(into).key()};
    void* descriptor = descriptor_of(own);
    MemoryMessage message{&piece, &descriptor, 1, peer_, &there, 1, nullptr, 0};
    post("fi_writemsg", [&](Endpoint* endpoint, void* context) {
      message.context = context;
      return endpoint->memory->writemsg(endpoint, &message, kDeliveryComplete | kCompletion);
    });
  }
  void get(void* data, std::size_t bytes, const nic::Memory* own, const nic::Remote& from,
           std::size_t offset) override {
    post("fi_read", [&](Endpoint* endpoint, void* context) {
      return endpoint->memory->read(endpoint, data, bytes, descriptor_of(own), peer_, from.at(offset),
                                    static_cast<const Reached&>(from).key(), context);
    });
  }
  void order() override { wait("a put"); }
  void flush() override {}

 private:
  // A queue that is full for now is driven until it is not.
  template <typename Call>
  void post(const char* name, const Call& call) {
    Endpoint* const endpoint = worker_->get();
    if (endpoint == nullptr) throw PeerError("the endpoint of libfabric was closed after a failure");
    Operation* const operation = worker_->begin(tally());
    ssize_t code = call(endpoint, operation);
    while (code == -EAGAIN) {
      if (worker_->progress() == 0) worker_->idle(group());
      code = call(endpoint, operation);
    }
    if (code != 0) [[unlikely]] {
      worker_->end(operation);
      worker_->library().fail(code, name);
    }
    ++tally()->under_way;
  }

  RankWorker* worker_;
  nic::Peer peer_;
  void* descriptor_;
};

}  // namespace

RankWorker::RankWorker(const Library& library, bool gpus) : library_(&library), info_(nullptr, {&library}) {
  if (gpus) info_ = library.provider(true);
  takes_device_memory_ = info_ != nullptr;
  if (!info_) info_ = library.provider(false);
  if (!info_) {
    throw Unsupported("libfabric " + library.version() + " at " + library.path() +
                      " has no provider for tagged messages, reads and writes; FI_PROVIDER, where it is set, must "
                      "leave one (fi_info -t FI_EP_RDM)");
  }
  way_ = std::string(info_->fabric_attr->prov_name) + "/" + info_->domain_attr->name;
  // Put's calls ask for delivery by themselves; a tagged message need not wait for it.
  info_->tx_attr->op_flags = 0;

  const auto take = [](auto& owner, auto* made) { owner.reset(made); };
  Fabric* fabric = nullptr;
  library.run(library.calls().fi_fabric, info_->fabric_attr, &fabric, nullptr);
  take(fabric_, fabric);
  Domain* domain = nullptr;
  library.check(fabric->calls->domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
  take(domain_, domain);
  AddressesAsked addresses_asked;
  addresses_asked.type = info_->domain_attr->av_type;
  Addresses* addresses = nullptr;
  library.check(domain->calls->av_open(domain, &addresses_asked, &addresses, nullptr), "fi_av_open");
  take(addresses_, addresses);
  QueueAsked queue_asked;
  queue_asked.format = kEntryContext;
  Queue* queue = nullptr;
  library.check(domain->calls->cq_open(domain, &queue_asked, &queue, nullptr), "fi_cq_open");
  take(queue_, queue);
  Endpoint* endpoint = nullptr;
  library.check(domain->calls->endpoint(domain, info_.get(), &endpoint, nullptr), "fi_endpoint");
  take(endpoint_, endpoint);
  const ObjectCalls& calls = *endpoint->object.calls;
  library.check(calls.bind(&endpoint->object, &addresses->object, 0), "fi_ep_bind");
  library.check(calls.bind(&endpoint->object, &queue->object, kSend | kReceive), "fi_ep_bind");
  library.check(calls.control(&endpoint->object, kEnable, nullptr), "fi_enable");

  std::string name(256, '\0');
  std::size_t bytes = name.size();
  library.check(endpoint->connection->getname(&endpoint->object, name.data(), &bytes), "fi_getname");
  name.resize(bytes);
  // Ranks of different providers cannot meet; what is before the first zero byte says which.
  set_address(std::string(info_->fabric_attr->prov_name) + '\0' + name);
}

RankWorker::~RankWorker() { forget_retired(); }

void RankWorker::abandon() {
  mark_broken();
  endpoint_.reset();
}

std::string RankWorker::connect(const std::string& address, nic::Peer* peer) {
  const std::size_t end = address.find('\0');
  const std::string provider = address.substr(0, end);
  if (provider != info_->fabric_attr->prov_name) {
    return "libfabric's provider there is " + provider + ", here " + info_->fabric_attr->prov_name +
           "; --env FI_PROVIDER=NAME names one for all";
  }
  std::uint64_t place = kAnyAddress;
  const int inserted = addresses_->calls->insert(addresses_.get(), address.data() + end + 1, 1, &place, 0, nullptr);
  if (inserted != 1) return "libfabric's " + provider + " does not take its address";
  *peer = place;
  return "";
}

Operation* RankWorker::begin(nic::Tally* tally) {
  if (free_ == nullptr) free_ = &operations_.emplace_back();
  Operation* const operation = free_;
  free_ = operation->next_free;
  operation->tally = tally;
  return operation;
}

void RankWorker::end(Operation* operation) {
  operation->next_free = free_;
  free_ = operation;
}

unsigned RankWorker::progress() {
  constexpr std::size_t kMost = 16;
  std::array<QueueEntry, kMost> entries{};
  const ssize_t count = queue_->calls->read(queue_.get(), entries.data(), entries.size());
  if (count == -EAGAIN) return 0;
  if (count == -kErrorAvailable) return take_error();
  library_->check(count, "fi_cq_read");
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    auto* const operation = static_cast<Operation*>(entries[i].context);
    if (operation == nullptr) continue;
    --operation->tally->under_way;
    end(operation);
  }
  return static_cast<unsigned>(count);
}

unsigned RankWorker::take_error() {
  QueueError error;
  if (queue_->calls->readerr(queue_.get(), &error, 0) != 1) return 0;
  auto* const operation = static_cast<Operation*>(error.context);
  if (operation == nullptr) return 0;
  nic::Tally& tally = *operation->tally;
  --tally.under_way;
  if (tally.failed == 0) tally.failed = error.err == 0 ? EIO : error.err;
  end(operation);
  return 1;
}

bool RankWorker::registers(const nic::Region& region) const {
  const int mode = info_->domain_attr->mr_mode;
  return (mode & kMrLocal) != 0 || ((mode & kMrDeviceMemory) != 0 && region.type != nic::MemoryType::kHost);
}

std::unique_ptr<nic::Memory> RankWorker::registered(const nic::Region& region) {
  return std::make_unique<Registered>(*this, region);
}

std::unique_ptr<nic::Remote> RankWorker::reach(nic::Peer /*peer*/, std::uint64_t address, const Bytes& key) {
  return std::make_unique<Reached>(address, key);
}

std::unique_ptr<nic::Link> RankWorker::link(const Group& group, nic::Peer peer, const nic::Region& /*region*/,
                                            const nic::Memory* own) {
  return std::make_unique<OfiLink>(*this, group, peer, own);
}

void RankWorker::fail(int code, const char* call) const {
  library_->fail(code, (std::string(call) + " of libfabric").c_str());
}

}  // namespace linkgauge::ofi
