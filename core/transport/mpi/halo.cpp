#include "transport/mpi/halo.h"

#include <cstdint>
#include <vector>

#include "base/errors.h"
#include "mpi/library.h"
#include "traffic/distribution.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"

namespace linkgauge {
namespace {

class HaloDatatypes final : public BufferedOperation {
 public:
  HaloDatatypes(Transport& transport, const RankContext& context, const CaseSpec& spec)
      : BufferedOperation(transport, context, spec, {.halo_field = true}), mpi_(context.mpi) {}

  // Messages between two ranks are told apart by their order, which is one on both. Only whole rounds are waited for,
  // so that what is waited for is posted on the other side.
  void post() override {
    const std::uint64_t communicator = context().communicator;
    for (int round = 0; round < traffic().window; ++round) {
      if (receives_->count() + static_cast<int>(received_.size()) > receives_->capacity() ||
          sends_->count() + static_cast<int>(sent_.size()) > sends_->capacity()) {
        complete();
      }
      for (const Message& one : received_) {
        receives_->irecv_one(target()->at(one.start), one.type, one.peer, tag_, communicator);
      }
      for (const Message& one : sent_) {
        sends_->isend_one(source()->at(one.start), one.type, one.peer, tag_, communicator);
      }
    }
  }
  void complete() override {
    receives_->wait_all();
    sends_->wait_all();
  }

 private:
  struct Message {
    int peer;
    std::size_t start;
    std::uint64_t type;
  };

  void connect() override {
    constexpr int kMostRequests = 4096;
    const HaloField field = halo_field(traffic(), ranks(), rank());
    const auto add = [&](std::vector<Message>& to, const std::vector<HaloRegionMessage>& messages) {
      for (const HaloRegionMessage& one : messages) {
        if (one.peer >= 0) to.push_back({one.peer, one.own.start, mpi_->region_type(one.own)});
      }
    };
    add(received_, field.received);
    add(sent_, field.sent);
    receives_ = mpi_->requests(kMostRequests, RequestKind::kReceives);
    sends_ = mpi_->requests(kMostRequests);
    tag_ = fresh_tags(context(), progress());
  }

  void disconnect() noexcept override {
    receives_.reset();
    sends_.reset();
    for (std::vector<Message>* messages : {&received_, &sent_}) {
      for (const Message& one : *messages) {
        try {
          mpi_->type_free(one.type);
        } catch (const Error&) {  // the library is failing already; what failed first has been reported
        }
      }
      messages->clear();
    }
  }

  MpiLibrary* mpi_;
  std::vector<Message> received_;
  std::vector<Message> sent_;
  std::unique_ptr<MpiRequests> receives_;
  std::unique_ptr<MpiRequests> sends_;
  int tag_ = 0;
};

}  // namespace

std::string why_no_halo_datatypes(const Traffic& traffic, int ranks) {
  if (!why_not_distributed(traffic.pattern, traffic.distribution, ranks).empty()) return "";  // which is said elsewhere
  return why_no_halo_field(traffic, ranks);
}

std::unique_ptr<Operation> make_halo_datatypes(Transport& transport, const RankContext& context, const CaseSpec& spec) {
  return std::make_unique<HaloDatatypes>(transport, context, spec);
}

}  // namespace linkgauge
