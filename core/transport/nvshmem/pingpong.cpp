#include "transport/nvshmem/pingpong.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/wire.h"
#include "transport/device_pattern.h"
#include "transport/nvshmem/kernels.h"

namespace linkgauge::nvshmem {
namespace {

constexpr std::size_t kWordBytes = 256;
constexpr std::size_t kMessageBytes = 8;  // the pattern has no size: as small as a flag
// As flag_pingpong's: some ten seconds of looks.
constexpr std::uint64_t kSpinLimit = std::uint64_t{1} << 24;

// Where a rank receives, as its PE and offsets there.
struct Told {
  std::int32_t pe = 0;
  std::int32_t unused = 0;
  std::uint64_t receive = 0;
  std::uint64_t word = 0;
};

// One operation is kRoundsOfLaunch round trips of kMessageBytes and a signal, or of the word alone. Words only ever
// grow, as those of flag_pingpong.
class Pingpong final : public DevicePattern {
 public:
  Pingpong(const RankContext& context, const CaseSpec& spec, const Options& options, std::shared_ptr<Pe> pe)
      : DevicePattern(context, spec), pe_(std::move(pe)), by_(options) {}

  void fill(std::uint64_t seed) override {
    data().fill(send_, piece_of(rank()), false, seed);
    data().poison(receive_, piece_of(1 - rank()), seed);
  }
  void post() override {
    const Kernels::Put put{pe_->at(peer_.receive), send_.at(0), send_.size(),
                           reinterpret_cast<Signal*>(pe_->at(peer_.word)), peer_.pe};
    pe_->kernels().pingpong(put, static_cast<Signal*>(word_.data()),
                            {rounds_ + 1, kRoundsOfLaunch, rank() == 0, kSpinLimit}, by_,
                            static_cast<std::uint64_t*>(gave_up_.data()), stream());
    rounds_ += kRoundsOfLaunch;
  }
  void complete() override {
    DevicePattern::complete();
    const std::uint64_t given_up = *static_cast<const volatile std::uint64_t*>(gave_up_.data());
    if (given_up == 0) return;
    throw Error("flag_pingpong gave up waiting in round trip " + std::to_string(given_up) + " of " +
                std::to_string(rounds_) + ": the other PE's signal did not arrive");
  }
  VerifyResult verify(std::uint64_t seed) override {
    VerifyResult result;
    if (!by_.plain) data().check(receive_, piece_of(1 - rank()), seed, result);
    Signal found = 0;
    runtime().copy_now(&found, -1, word_.data(), device(), sizeof found);
    if (found != rounds_ && result.ok) result.add(sizeof found, 0, rounds_, found, "the word of the last round trip");
    return result;
  }
  int lane() const override { return rank() == 0 ? 0 : -1; }
  std::int64_t steps() const override { return static_cast<std::int64_t>(kRoundsOfLaunch); }

 private:
  static Piece piece_of(int of) { return {0, kMessageBytes, of, 0, false}; }

  void allocate() override {
    send_ = pe_->take(kMessageBytes);
    receive_ = pe_->take(kMessageBytes);
    word_ = pe_->take(kWordBytes);
    gave_up_ = Buffer(runtime(), device(), MemoryKind::kPinned, kWordBytes);
    const std::vector<std::byte> zeros(kWordBytes);
    runtime().copy_now(word_.data(), device(), zeros.data(), -1, zeros.size());
    std::memset(gave_up_.data(), 0, gave_up_.size());
  }
  void connect() override {
    pe_->load_kernels(context());
    const Told mine{pe_->number(), 0, pe_->offset_of(receive_.data()), pe_->offset_of(word_.data())};
    const auto all = context().group->exchange(to_bytes(&mine, 1), {});
    peer_ = from_bytes<Told>(all[static_cast<std::size_t>(1 - rank())]);
    context().choose("ways", pe_->way_to(peer_.receive, peer_.pe));
  }
  void disconnect() noexcept override { group().part({}); }
  void free_buffers() noexcept override {
    send_ = Buffer();
    receive_ = Buffer();
    word_ = Buffer();
    gave_up_ = Buffer();
  }

  std::shared_ptr<Pe> pe_;
  Options by_;
  Buffer send_;
  Buffer receive_;
  Buffer word_;
  Buffer gave_up_;
  Told peer_;
  std::uint64_t rounds_ = 0;
};

}  // namespace

std::vector<std::size_t> pingpong_sizes() { return {kMessageBytes, kMessageBytes, kWordBytes}; }

std::unique_ptr<Operation> make_pingpong(const RankContext& context, const CaseSpec& spec, const Options& options,
                                         std::shared_ptr<Pe> pe) {
  return std::make_unique<Pingpong>(context, spec, options, std::move(pe));
}

}  // namespace linkgauge::nvshmem
