// What the ranks of a case make with a collective library: a communicator, and windows of memory that all of them have.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/not_copied.h"
#include "transport/nccl/api.h"
#include "transport/nccl/config.h"
#include "transport/transport.h"

namespace linkgauge {

class CclCommunicator : NotCopied {
 public:
  // Collective. The one of these ranks, made where they have none that is whole and then kept from case to case; where
  // the case's settings, if it has any, say something of a communicator, one of these, kept while cases have the same.
  static std::shared_ptr<CclCommunicator> of(const ccl::Library& library, const RankContext& context,
                                             const ccl::Configuration* settings = nullptr);
  CclCommunicator(const ccl::Library& library, const RankContext& context, const ccl::Configuration* own);
  ~CclCommunicator();

  const ccl::Library& library() const { return *library_; }
  ccl::Communicator get() const { return communicator_; }  // nullptr once it was aborted
  // A failure breaks it, and is thrown with the library's own words.
  void check(ccl::Result result, const char* call);
  template <typename Call, typename... Given>
  void run(const Call& call, Given... given) {
    check(call(given...), call.name);
  }
  // What `body` sends and receives, as one group. One that is left open when a call fails would take in whatever this
  // thread calls next.
  template <typename Body>
  void grouped(const Body& body) {
    run(library_->calls().ncclGroupStart);
    try {
      body();
    } catch (const Error&) {
      (void)library_->calls().ncclGroupEnd();  // what failed first is the error
      throw;
    }
    run(library_->calls().ncclGroupEnd);
  }
  void send(const void* data, std::size_t bytes, int peer, ccl::Stream stream) {
    run(library_->calls().ncclSend, data, bytes, ccl::kBytes, peer, communicator_, stream);
  }
  void receive(void* data, std::size_t bytes, int peer, ccl::Stream stream) {
    run(library_->calls().ncclRecv, data, bytes, ccl::kBytes, peer, communicator_, stream);
  }
  void mark_broken() { broken_ = true; }
  // For operations that share it. Between two streams of one communicator NCCL adds an event and a wait to each call.
  StreamHandle stream(DeviceRuntime& runtime);
  // Until all in a stream is over. Throws what the library says of that, or what another rank failed with, if it fails.
  void wait_for(DeviceRuntime& runtime, StreamHandle stream, Group& group);
  // After a failure the library's own destroy may wait for ranks that are gone; abort does not, and ends the kernels
  // that still wait for them, without which no memory of the device can be freed.
  void abort_if_broken(const Group& group) noexcept;

 private:
  void check_state(Group& group);
  void await_reason(Group& group);
  void end_if_aborted(Group& group);
  void init_by(const ccl::Configuration& own, const RankContext& context, const std::vector<std::byte>& bytes);

  const ccl::Library* library_;
  ccl::Communicator communicator_ = nullptr;
  Stream stream_;
  int device_;
  bool broken_ = false;
};

// One buffer of each rank, all of one size and of the library's own memory, in a symmetric window.
class CclWindow : NotCopied {
 public:
  // Collective. Throws Unsupported on every rank where the library makes none.
  CclWindow(const RankContext& context, std::shared_ptr<CclCommunicator> communicator, const Buffer& buffer);
  ~CclWindow();

  // Where a kernel of this rank's device finds the buffer of rank `peer`. Throws Unsupported where it reaches none.
  void* at(int peer);

 private:
  CclWindow(const RankContext& context, std::shared_ptr<CclCommunicator> communicator);

  Group* group_;
  std::shared_ptr<CclCommunicator> communicator_;
  ccl::Window window_ = nullptr;
};

}  // namespace linkgauge
