#include "transport/nccl/communicator.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/now.h"
#include "base/wire.h"
#include "transport/agreement.h"

namespace linkgauge {
namespace {

constexpr std::int64_t kReasonPatienceNs = 1'000'000'000;

// The last communicator of a case's own settings: between two H100 another takes 0.55 s, and the case 0.03 s.
struct OfSettings {
  std::string text;
  std::shared_ptr<CclCommunicator> communicator;
};

}  // namespace

std::shared_ptr<CclCommunicator> CclCommunicator::of(const ccl::Library& library, const RankContext& context,
                                                     const ccl::Configuration* settings) {
  const bool own = settings != nullptr && settings->of_communicator() != nullptr;
  std::shared_ptr<void>& last = context.kept("ccl of settings");
  const auto* known = static_cast<const OfSettings*>(last.get());
  if (own && known != nullptr && known->text == settings->text() && known->communicator->get() != nullptr)
    return known->communicator;
  last.reset();  // before the next is made: each has buffers of its own
  if (own) {
    auto made = std::make_shared<CclCommunicator>(library, context, settings);
    last = std::make_shared<OfSettings>(OfSettings{settings->text(), made});
    return made;
  }
  std::shared_ptr<void>& kept = context.kept("ccl");
  if (!kept || std::static_pointer_cast<CclCommunicator>(kept)->get() == nullptr)
    kept = std::make_shared<CclCommunicator>(library, context, nullptr);
  return std::static_pointer_cast<CclCommunicator>(kept);
}

CclCommunicator::CclCommunicator(const ccl::Library& library, const RankContext& context, const ccl::Configuration* own)
    : library_(&library), device_(context.device()) {
  std::vector<std::byte> id;
  std::string reason;
  if (context.rank() == 0) {
    const ccl::Result result = library.make_id(id);
    if (result != ccl::kSuccess)
      reason = std::string(library.blocks() ? "onecclGetUniqueId: " : "ncclGetUniqueId: ") +
               library.calls().ncclGetErrorString(result);
  }
  agree_or_throw(*context.group, reason);
  const int version = library.version_code();
  const std::vector<Bytes> all = context.group->exchange(WireWriter().value(version).rest(id).message(), {});
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    WireReader reader(all[rank]);
    const int other = reader.value<int>();
    const std::span<const std::byte> first_id = reader.rest();
    if (rank == 0) id.assign(first_id.begin(), first_id.end());
    if (other != version) {
      throw Unsupported("all ranks must load one version of " + std::string(library.name()) + ": rank " +
                        std::to_string(context.rank()) + " has " + library.version() + ", rank " +
                        std::to_string(rank) + " has " + ccl::version_text(other) +
                        "; fix: one installation on every node, or LD_LIBRARY_PATH to it");
    }
  }
  context.runtime->bind_thread(device_);
  if (own != nullptr) {
    init_by(*own, context, id);
  } else {
    library.check(library.init(&communicator_, context.size(), id, context.rank()), "ncclCommInitRank", nullptr,
                  device_);
  }
}

CclCommunicator::~CclCommunicator() {
  if (communicator_ != nullptr) library_->calls().ncclCommDestroy(communicator_);
}

// What the library refuses of them it refuses on every rank, before it meets another.
void CclCommunicator::init_by(const ccl::Configuration& own, const RankContext& context,
                              const std::vector<std::byte>& bytes) {
  ccl::Config config = *own.of_communicator();
  ccl::UniqueId id{};
  std::memcpy(&id, bytes.data(), sizeof id);
  const ccl::Result result =
      library_->calls().ncclCommInitRankConfig(&communicator_, context.size(), id, context.rank(), &config);
  if (result == ccl::kInvalidArgument)
    throw Unsupported("NCCL " + library_->version() + " refuses a communicator of " + own.text());
  library_->check(result, "ncclCommInitRankConfig", nullptr, device_);
}

void CclCommunicator::check(ccl::Result result, const char* call) {
  if (result == ccl::kSuccess) return;
  broken_ = true;
  library_->check(result, call, communicator_, device_);
}

StreamHandle CclCommunicator::stream(DeviceRuntime& runtime) {
  if (stream_.handle() == nullptr) stream_ = Stream(runtime, device_);
  return stream_.handle();
}

void CclCommunicator::wait_for(DeviceRuntime& runtime, StreamHandle stream, Group& group) {
  int polls = 0;
  while (!runtime.done(stream)) {
    if (++polls % kPollsPerAbortCheck != 0) continue;
    check_state(group);
    end_if_aborted(group);
  }
  // An operation that the library gave up ends the stream's work too. Asking costs some nanoseconds.
  check_state(group);
}

void CclCommunicator::check_state(Group& group) {
  ccl::Result state = ccl::kSuccess;
  run(library_->calls().ncclCommGetAsyncError, communicator_, &state);
  // The library may tell of another rank's failure before that rank has: its own reason is the one worth having.
  if (state == ccl::kRemoteError) await_reason(group);
  if (state != ccl::kInProgress) check(state, "an operation of NCCL");
}

void CclCommunicator::await_reason(Group& group) {
  const std::int64_t until_ns = now_ns() + kReasonPatienceNs;
  while (!group.aborted() && now_ns() < until_ns) std::this_thread::yield();
  end_if_aborted(group);
}

void CclCommunicator::end_if_aborted(Group& group) {
  if (!group.aborted()) return;
  mark_broken();
  group.throw_if_aborted();
}

void CclCommunicator::abort_if_broken(const Group& group) noexcept {
  if (communicator_ == nullptr || !(broken_ || group.aborted())) return;
  library_->calls().ncclCommAbort(communicator_);
  communicator_ = nullptr;
}

CclWindow::CclWindow(const RankContext& context, std::shared_ptr<CclCommunicator> communicator)
    : group_(context.group), communicator_(std::move(communicator)) {}

CclWindow::CclWindow(const RankContext& context, std::shared_ptr<CclCommunicator> communicator, const Buffer& buffer)
    : CclWindow(context, std::move(communicator)) {
  const ccl::Library& library = communicator_->library();
  communicator_->run(library.calls().ncclCommWindowRegister, communicator_->get(), buffer.data(), buffer.size(),
                     &window_, ccl::kWindowSymmetric);
  std::string reason;
  if (window_ == nullptr) {
    reason = "NCCL " + library.version() + " made no window: these devices or its settings have no symmetric memory";
  }
  agree_or_throw(*group_, reason);
}

CclWindow::~CclWindow() {
  communicator_->abort_if_broken(*group_);
  if (window_ != nullptr && communicator_->get() != nullptr)
    communicator_->library().calls().ncclCommWindowDeregister(communicator_->get(), window_);
}

void* CclWindow::at(int peer) {
  void* found = nullptr;
  communicator_->run(communicator_->library().calls().ncclGetPeerDevicePointer, window_, 0, peer, &found);
  if (found == nullptr) throw Unsupported("NCCL reaches no memory of rank " + std::to_string(peer) + " from here");
  return found;
}

}  // namespace linkgauge
