// The MPI library's own calls on the case's buffers: two-sided (the default), one-sided put or get in a window, and its
// collectives.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/not_copied.h"
#include "base/now.h"
#include "base/patterns.h"
#include "mpi/collective.h"
#include "mpi/library.h"
#include "transport/agreement.h"
#include "transport/buffered_operation.h"
#include "transport/mpi/halo.h"
#include "transport/one_sided.h"
#include "transport/options.h"
#include "transport/registry.h"

namespace linkgauge {
namespace {

enum class MpiVariant : std::uint8_t {
  kTwoSided,
  kPut,
  kGet,
  kComposed,
  kAlltoallv,
  kAlltoallvOwn,
  kNonblocking,
  kPersistent,
  kOverlapped,
  kNeighborhood,
  kDatatypes
};
struct MpiOptions {
  MpiVariant variant = MpiVariant::kTwoSided;

  bool one_sided() const { return variant == MpiVariant::kPut || variant == MpiVariant::kGet; }
  // Whether the case is one call of the library's.
  bool collective(Pattern pattern) const {
    if (pattern == Pattern::kHalo) return variant == MpiVariant::kNeighborhood;
    return traits_of(pattern).mpi_call && variant != MpiVariant::kComposed && !one_sided();
  }
  AlltoallCall alltoall() const {
    if (variant == MpiVariant::kAlltoallv) return AlltoallCall::kAlltoallv;
    return variant == MpiVariant::kAlltoallvOwn ? AlltoallCall::kAlltoallvOwn : AlltoallCall::kAlltoall;
  }
};
constexpr VariantWord<MpiOptions> kMpiWords[] = {
    {"two_sided", {MpiVariant::kTwoSided}},
    {"put", {MpiVariant::kPut}},
    {"get", {MpiVariant::kGet}},
    {"composed", {MpiVariant::kComposed}},
    {"alltoallv", {MpiVariant::kAlltoallv}},
    {"alltoallv_own", {MpiVariant::kAlltoallvOwn}},
    {"nonblocking", {MpiVariant::kNonblocking}},
    {"persistent", {MpiVariant::kPersistent}},
    {"overlapped", {MpiVariant::kOverlapped}},
    {"neighborhood", {MpiVariant::kNeighborhood}},
    {"datatypes", {MpiVariant::kDatatypes}},
};
constexpr Variants<MpiOptions> kMpiVariants{"mpi", kMpiWords};

// Why the case's pattern has no such variant, or "".
std::string why_not_variant(const RankContext& context, const CaseSpec& spec, const MpiOptions& options) {
  const std::string& variant = spec.mechanism.variant;
  const Pattern pattern = spec.traffic.pattern;
  switch (options.variant) {
    case MpiVariant::kTwoSided:
      return "";
    case MpiVariant::kComposed:
    case MpiVariant::kNonblocking:
    case MpiVariant::kPersistent:
    case MpiVariant::kOverlapped:
      return traits_of(pattern).mpi_call ? "" : variant + " is a variant of collectives; leave --variant out";
    case MpiVariant::kAlltoallv:
    case MpiVariant::kAlltoallvOwn:
      return pattern == Pattern::kAlltoall ? "" : variant + " is a variant of alltoall only";
    case MpiVariant::kNeighborhood:
      if (pattern != Pattern::kHalo) return variant + " is a variant of halo only";
      return spec.traffic.window == 1 ? "" : variant + " has one message to each neighbor; leave --window out";
    case MpiVariant::kDatatypes:
      return pattern == Pattern::kHalo ? "" : variant + " is a variant of halo only";
    case MpiVariant::kPut:
    case MpiVariant::kGet:
      break;
  }
  if (context.group->node_count() == 1) return "";
  return "mpi " + variant + " signals completion in shared memory, so its ranks must be on one node";
}

// Windows of isend and irecv. Remote completion is told by an empty message back, as in OSU's bandwidth test.
class TwoSidedChannel final : public Channel {
 public:
  TwoSidedChannel(const RankContext& context, const CaseSpec& spec, const Flow& flow, int tag)
      : mpi_(context.mpi),
        communicator_(context.communicator),
        source_(flow.source_buffer == nullptr ? nullptr : flow.source_buffer->at(0)),
        target_(flow.target_buffer == nullptr ? nullptr : flow.target_buffer->at(0)),
        peer_(flow.peer_of(context.rank())),
        alone_(flow.source == flow.target),
        sends_(flow.source == context.rank()),
        tag_(tag),
        places_(places(spec, flow.messages)),
        requests_(mpi_->requests(places_, sends_ ? RequestKind::kOthers : RequestKind::kReceives)) {}

  void put(std::size_t, std::size_t source_offset, std::size_t bytes) override {
    make_room();
    requests_->isend(source_ + source_offset, bytes, peer_, tag_, communicator_);
  }
  void get(std::size_t target_offset, std::size_t, std::size_t bytes) override {
    make_room();
    requests_->irecv(target_ + target_offset, bytes, peer_, tag_, communicator_);
  }
  void complete(Completion completion) override {
    wait();
    if (completion == Completion::kLocal || alone_) return;
    if (sends_) {
      mpi_->recv(&acknowledged_, 0, peer_, tag_ + 1, communicator_);
    } else {
      mpi_->send(&acknowledged_, 0, peer_, tag_ + 1, communicator_);
    }
  }
  void put_now(std::size_t, std::size_t source_offset, std::size_t bytes) override {
    mpi_->send(source_ + source_offset, bytes, peer_, tag_, communicator_);
  }
  void get_now(std::size_t target_offset, std::size_t, std::size_t bytes) override {
    mpi_->recv(target_ + target_offset, bytes, peer_, tag_, communicator_);
  }
  // The target's end waits for messages that are posted already, the source's may wait for the target's answer.
  bool completes_first() const override { return !sends_; }

 private:
  // Enough for a batch of operations; when more are queued, the earlier ones are waited for on the way. Both ends queue
  // in the same order, so that what is waited for is posted on the other side.
  static int places(const CaseSpec& spec, int messages) {
    constexpr std::int64_t kMost = 4096;
    const std::int64_t wanted =
        std::int64_t{2} * std::max(1, spec.traffic.window) * std::max(1, spec.timing.batch) * messages;
    return static_cast<int>(std::clamp<std::int64_t>(wanted, 2, kMost));
  }
  // Counted here, which saves two virtual calls a message.
  void make_room() {
    if (begun_ == places_) wait();
    ++begun_;
  }
  void wait() {
    requests_->wait_all();
    begun_ = 0;
  }

  MpiLibrary* mpi_;
  std::uint64_t communicator_;
  const std::byte* source_;
  std::byte* target_;
  int peer_;
  bool alone_;
  bool sends_;
  int tag_;
  char acknowledged_ = 0;
  int places_;
  int begun_ = 0;
  std::unique_ptr<MpiRequests> requests_;
};

// One window for all flows of an operation: each rank's target buffer (put) or source buffer (get).
class Window : NotCopied {
 public:
  Window(MpiLibrary& mpi, std::uint64_t communicator, const Buffer* buffer)
      : mpi_(&mpi),
        bits_(mpi.win_create(buffer == nullptr ? nullptr : buffer->data(), buffer == nullptr ? 0 : buffer->size(),
                             communicator)) {}
  ~Window() {
    try {
      mpi_->win_free(bits_);
    } catch (const Error&) {  // the library is failing already; what failed first has been reported
    }
  }
  std::uint64_t bits() const { return bits_; }

 private:
  MpiLibrary* mpi_;
  std::uint64_t bits_;
};

class WindowChannel final : public OneSidedChannel {
 public:
  WindowChannel(const RankContext& context, const FlowFlags& flags, Ends ends, const Flow& flow,
                std::shared_ptr<Window> window, Progress progress)
      : OneSidedChannel(context, flags, ends, std::move(progress)),
        mpi_(context.mpi),
        window_(std::move(window)),
        puts_(ends.sender_starts),
        peer_(ends.sender_starts ? flow.target : flow.source) {
    const Buffer* own = puts_ ? flow.source_buffer : flow.target_buffer;
    own_ = own == nullptr ? nullptr : own->at(0);
  }

 private:
  void start_copy(std::size_t target_offset, std::size_t source_offset, std::size_t bytes) override {
    if (puts_) {
      mpi_->put(own_ + source_offset, bytes, peer_, target_offset, window_->bits());
    } else {
      mpi_->get(own_ + target_offset, bytes, peer_, source_offset, window_->bits());
    }
  }
  void finish() override { mpi_->flush(peer_, window_->bits()); }
  void arrived() override { mpi_->win_sync(window_->bits()); }

  MpiLibrary* mpi_;
  std::shared_ptr<Window> window_;
  bool puts_;
  int peer_;
  std::byte* own_ = nullptr;
};

class MpiCollective final : public BufferedOperation {
 public:
  MpiCollective(Transport& transport, const RankContext& context, const CaseSpec& spec, const MpiOptions& options)
      : BufferedOperation(transport, context, spec, mpi_layout_rules(spec.traffic, options.alltoall())),
        options_(options),
        persistent_(options.variant == MpiVariant::kPersistent) {}

  // A collective that blocks is over when post() returns; one that does not is waited for before the next, since both
  // have one target buffer.
  void post() override {
    if (begun_ == nullptr) return call_->run(source_data_, target_data_);
    begun_->wait_all();
    if (persistent_) {
      begun_->start_all();
    } else {
      call_->run(source_data_, target_data_, begun_.get());
    }
    if (compute_ns_ == 0) return;
    const std::int64_t until = now_ns() + compute_ns_;
    while (now_ns() < until) {  // busy, and not in the library
    }
  }
  void complete() override {
    if (begun_ != nullptr) begun_->wait_all();
  }
  StepReport step_report(std::size_t /*iterations*/) const override {
    if (compute_ns_ == 0) return {};
    return {{{"alone", alone_ns_}, {"compute", compute_ns_}}, {}};
  }

 private:
  void connect() override {
    source_data_ = source() == nullptr ? nullptr : source()->data();
    target_data_ = target() == nullptr ? nullptr : target()->data();
    call_.emplace(*context().mpi, context().communicator, traffic(), ranks(), rank(), options_.alltoall());
    const bool overlapped = options_.variant == MpiVariant::kOverlapped;
    if (!persistent_ && !overlapped && options_.variant != MpiVariant::kNonblocking) return;
    begun_ = context().mpi->requests(1, persistent_ ? RequestKind::kPersistent : RequestKind::kOthers);
    if (persistent_) call_->run(source_data_, target_data_, begun_.get());
    if (overlapped) time_alone();
  }

  // What the collective takes on this rank when it is begun and waited for at once, behind a barrier each time. Then
  // this rank computes for as long. The median: a core that was taken away once would lengthen all that follows.
  void time_alone() {
    constexpr std::size_t kFirst = 10;
    constexpr std::size_t kMost = 1000;
    constexpr std::int64_t kLongestNs = 200'000'000;
    const auto median_of = [&](std::size_t count) {
      std::vector<std::int64_t> times(count);
      for (std::int64_t& ns : times) {
        library_barrier();
        const std::int64_t start_ns = now_ns();
        post();
        complete();
        ns = now_ns() - start_ns;
      }
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>(count / 2);
      std::nth_element(times.begin(), middle, times.end());
      return std::max<std::int64_t>(*middle, 1);
    };
    const std::int64_t longest_ns = group().largest_of(median_of(kFirst), progress());
    alone_ns_ = median_of(std::clamp(static_cast<std::size_t>(kLongestNs / longest_ns), kFirst, kMost));
    compute_ns_ = alone_ns_;
  }

  void disconnect() noexcept override {
    begun_.reset();
    call_.reset();
  }

  MpiOptions options_;
  bool persistent_;
  std::int64_t alone_ns_ = 0;
  std::int64_t compute_ns_ = 0;  // 0: nothing is computed
  std::optional<MpiCollectiveCall> call_;
  std::unique_ptr<MpiRequests> begun_;  // nullptr: the call blocks
  const void* source_data_ = nullptr;
  void* target_data_ = nullptr;
};

class MpiTransport final : public Transport {
 public:
  std::string_view name() const override { return "mpi"; }
  bool takes_settings() const override { return true; }
  std::vector<std::string_view> variants() const override { return kMpiVariants.names(); }

  std::string supports(const RankContext& context, const CaseSpec& spec) const override {
    if (context.mpi == nullptr) return "mpi needs ranks that an MPI launcher started; leave --threads out";
    if (std::string reason = why_not_via("MPI", spec.mechanism); !reason.empty()) return reason;
    const std::optional<MpiOptions> options = kMpiVariants.read(spec.mechanism.variant);
    if (!options) return kMpiVariants.why_not(spec.mechanism.variant);
    if (std::string reason = why_not_variant(context, spec, *options); !reason.empty()) return reason;
    for (const MemoryKind kind : {spec.places.source.kind, spec.places.target.kind}) {
      const bool host_memory = kind == MemoryKind::kPinned || kind == MemoryKind::kPageable;
      const std::string_view runtime = context.runtime->name();
      if (host_memory || runtime == "host" || context.mpi->takes_device_pointers(runtime)) continue;
      return context.mpi->path() + " does not say that it takes " + std::string(runtime) +
             " device memory; give --mpi a GPU-aware library, or use pinned memory";
    }
    if (options->variant == MpiVariant::kDatatypes) return why_no_halo_datatypes(spec.traffic, context.size());
    return options->collective(spec.traffic.pattern)
               ? why_not_mpi_collective(*context.mpi, spec.traffic, context.size())
               : context.mpi->why_not_size(block_bytes(spec.traffic, context.size()));
  }

  std::vector<std::unique_ptr<Channel>> connect(const RankContext& context, const CaseSpec& spec,
                                                const Flows& flows) override {
    const MpiOptions options = kMpiVariants.of(spec.mechanism);
    if (options.one_sided()) return connect_window(context, spec, flows, options.variant == MpiVariant::kPut);
    return connect_two_sided(context, spec, flows, fresh_tags(context, progress(context)));
  }

  std::unique_ptr<Operation> collective(const RankContext& context, const CaseSpec& spec) override {
    const MpiOptions options = kMpiVariants.of(spec.mechanism);
    if (options.variant == MpiVariant::kDatatypes) return make_halo_datatypes(*this, context, spec);
    if (!options.collective(spec.traffic.pattern)) return nullptr;
    return std::make_unique<MpiCollective>(*this, context, spec, options);
  }

  Progress progress(const RankContext& context) override {
    return [mpi = context.mpi, communicator = context.communicator] { mpi->progress(communicator); };
  }

 private:
  static std::vector<std::unique_ptr<Channel>> connect_two_sided(const RankContext& context, const CaseSpec& spec,
                                                                 const Flows& flows, int first_tag) {
    std::vector<std::unique_ptr<Channel>> channels(flows.size());
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (!flows[i].ends_at(context.rank())) continue;
      const int tag = first_tag + 2 * flows[i].ordinal;  // of its messages; the next of its answers
      channels[i] = std::make_unique<TwoSidedChannel>(context, spec, flows[i], tag);
    }
    return channels;
  }

  std::vector<std::unique_ptr<Channel>> connect_window(const RankContext& context, const CaseSpec& spec,
                                                       const Flows& flows, bool puts) {
    const Buffer* exposed = nullptr;
    for (const Flow& flow : flows) {
      const Buffer* buffer = puts ? flow.target_buffer : flow.source_buffer;
      if (exposed == nullptr) exposed = buffer;
      if (buffer != nullptr && buffer != exposed) throw CallerError("an MPI window exposes one buffer of a rank");
    }
    const std::vector<FlowFlags> flags = connect_flags(context, flows);
    const auto window = std::make_shared<Window>(*context.mpi, context.communicator, exposed);
    std::vector<std::unique_ptr<Channel>> channels(flows.size());
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const OneSidedChannel::Ends ends(context, spec, flows[i], puts);
      if (!ends.source && !ends.target) continue;
      channels[i] = std::make_unique<WindowChannel>(context, flags[i], ends, flows[i], window, progress(context));
    }
    return channels;
  }
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport() { return std::make_unique<MpiTransport>(); }

}  // namespace linkgauge
