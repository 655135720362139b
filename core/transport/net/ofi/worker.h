// One rank's end of libfabric: an endpoint of the provider that libfabric names first, which reaches all others.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "transport/net/ofi/api.h"
#include "transport/net/worker.h"

namespace linkgauge::ofi {

// What the library is given for an operation; its first part is the library's while that is under way.
struct Operation {
  std::array<void*, 8> of_the_library = {};  // fi_context2
  nic::Tally* tally = nullptr;
  Operation* next_free = nullptr;
};

// An object of libfabric that is closed when it goes.
template <typename Kind>
struct Closed {
  void operator()(Kind* object) const { (void)object->object.calls->close(&object->object); }
};
template <typename Kind>
using Owned = std::unique_ptr<Kind, Closed<Kind>>;

class RankWorker final : public nic::Worker {
 public:
  // An endpoint as the environment's FI_ variables say. Throws Unsupported where no provider will do, or
  // RuntimeCallError. `gpus`: one that takes device memory, where there is one.
  RankWorker(const Library& library, bool gpus);
  // Ends what is under way without asking any peer, which may be gone.
  ~RankWorker() override;

  const char* name() const override { return "ofi"; }
  std::string version() const override { return library_->version(); }
  unsigned progress() override;
  std::unique_ptr<nic::Memory> registered(const nic::Region& region) override;
  std::unique_ptr<nic::Remote> reach(nic::Peer peer, std::uint64_t address, const Bytes& key) override;
  std::unique_ptr<nic::Link> link(const Group& group, nic::Peer peer, const nic::Region& region,
                                  const nic::Memory* own) override;
  // Some providers write what arrives by a thread of their own: the endpoint is closed.
  void abandon() override;
  bool registers(const nic::Region& region) const override;
  std::string ways(nic::Peer /*peer*/) const override { return way_; }
  [[noreturn]] void fail(int code, const char* call) const override;

  const Library& library() const { return *library_; }
  Endpoint* get() const { return endpoint_.get(); }
  bool takes_device_memory() const { return takes_device_memory_; }
  std::size_t largest_message() const { return info_->ep_attr->max_msg_size; }

  Operation* begin(nic::Tally* tally);
  void end(Operation* operation);

 private:
  friend class Registered;
  std::string connect(const std::string& address, nic::Peer* peer) override;
  unsigned take_error();

  const Library* library_;
  Library::Infos info_;
  bool takes_device_memory_ = false;
  std::string way_;  // provider and device: "tcp;ofi_rxm/eth0"
  std::deque<Operation> operations_;
  Operation* free_ = nullptr;
  std::uint64_t next_key_ = 1;
  // Closed in the reverse order.
  Owned<Fabric> fabric_;
  Owned<Domain> domain_;
  Owned<Addresses> addresses_;
  Owned<Queue> queue_;
  Owned<Endpoint> endpoint_;
};

}  // namespace linkgauge::ofi
