#include "mpi/node_link.h"

#include <utility>
#include <vector>

#include "base/not_copied.h"
#include "base/wire.h"

namespace linkgauge {
namespace {

struct Content {
  Bytes sent;
  Bytes received;
};

class MpiTransfer final : public NodeTransfer, NotCopied {
 public:
  MpiTransfer(MpiLibrary& mpi, std::uint64_t communicator, int tag)
      : communicator_(communicator), tag_(tag), requests_(mpi.requests(2)), content_(std::make_unique<Content>()) {}
  // No library takes a send back, and a receive only together with what may come: their memory stays.
  ~MpiTransfer() override {
    if (requests_->count() > 0) left().push_back(std::move(content_));
  }

  void begin(int to, std::span<const std::byte> sent, int from, std::size_t expected) override {
    content_->sent.assign(sent.begin(), sent.end());
    content_->received.resize(expected);
    requests_->irecv(content_->received.data(), expected, from, tag_, communicator_);
    requests_->isend(content_->sent.data(), sent.size(), to, tag_, communicator_);
  }
  bool done() override { return requests_->test_all(); }
  std::span<const std::byte> received() const override { return content_->received; }

 private:
  static std::vector<std::unique_ptr<Content>>& left() {
    static auto& left = *new std::vector<std::unique_ptr<Content>>();  // until the process ends
    return left;
  }

  std::uint64_t communicator_;
  int tag_;
  std::unique_ptr<MpiRequests> requests_;
  std::unique_ptr<Content> content_;
};

class MpiLink final : public NodeLink {
 public:
  // The communicator is never freed: the library may be finalized before this object goes.
  explicit MpiLink(std::shared_ptr<MpiLibrary> mpi)
      : mpi_(std::move(mpi)), communicator_(mpi_->comm_split(mpi_->world(), 0, mpi_->rank(mpi_->world()))) {}
  std::unique_ptr<NodeTransfer> transfer(int tag) override {
    return std::make_unique<MpiTransfer>(*mpi_, communicator_, tag);
  }

 private:
  std::shared_ptr<MpiLibrary> mpi_;
  std::uint64_t communicator_;
};

}  // namespace

std::shared_ptr<NodeLink> make_mpi_link(std::shared_ptr<MpiLibrary> mpi) {
  return std::make_shared<MpiLink>(std::move(mpi));
}

}  // namespace linkgauge
