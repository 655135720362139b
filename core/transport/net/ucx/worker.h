// One rank's end of UCX: its worker, with an endpoint for each other rank's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/net/ucx/api.h"
#include "transport/net/worker.h"

namespace linkgauge::ucx {

class RankWorker final : public nic::Worker {
 public:
  // Makes a context and a worker, as the environment's UCX_ variables say and, before these, `settings` ("NAME=VALUE
  // ..."). Throws Unsupported where UCX does not take one of them, or RuntimeCallError.
  RankWorker(const Library& library, const std::string& settings);
  // Ends what is under way without asking any peer, which may be gone.
  ~RankWorker() override;

  const char* name() const override { return "ucx"; }
  std::string version() const override { return library_->version(); }
  unsigned progress() override { return calls().ucp_worker_progress(worker_); }
  std::unique_ptr<nic::Memory> registered(const nic::Region& region) override;
  std::unique_ptr<nic::Remote> reach(nic::Peer peer, std::uint64_t address, const Bytes& key) override;
  std::unique_ptr<nic::Link> link(const Group& group, nic::Peer peer, const nic::Region& region,
                                  const nic::Memory* own) override;
  bool registers(const nic::Region& /*region*/) const override { return false; }
  std::string ways(nic::Peer peer) const override;
  [[noreturn]] void fail(int code, const char* call) const override;

  const Library& library() const { return *library_; }
  const Table& calls() const { return library_->calls(); }
  ucx::Worker get() const { return worker_; }
  Context context() const { return context_; }
  bool knows_memory(int type) const { return (memory_types_ >> type & 1) != 0; }

 private:
  std::string connect(const std::string& address, nic::Peer* peer) override;
  void release() noexcept;

  const Library* library_;
  Context context_ = nullptr;
  ucx::Worker worker_ = nullptr;
  std::uint64_t memory_types_ = 0;
  std::vector<Endpoint> endpoints_;
};

// The type of memory as UCX knows it.
int known_type(nic::MemoryType type);

}  // namespace linkgauge::ucx
