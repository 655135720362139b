// One rank as a PE of NVSHMEM: the library's state of this process, and the memory that other PEs reach.
//
// All ranks of a launch are PEs, numbered alike, because NVSHMEM begins and gives memory only where all PEs call
// together. Before each case they make room for what its ranks lend; each rank divides its own by itself, since a
// peer's place is told as an offset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/not_copied.h"
#include "device/device_runtime.h"
#include "transport/nvshmem/api.h"
#include "transport/nvshmem/kernels.h"
#include "transport/transport.h"

namespace linkgauge::nvshmem {

// PEs first, first + stride, and so on: what NVSHMEM's teams are made of.
struct PeRange {
  std::int32_t first = 0;
  std::int32_t stride = 1;
  std::int32_t size = 0;  // 0: none
  bool operator==(const PeRange&) const = default;
};
// Of ranks of a launch in the order of a case; of size 0 where they are no such range.
PeRange range_of(const std::vector<int>& ranks);

class Pe : NotCopied {
 public:
  // Where NVSHMEM had begun: collective over the launch's ranks.
  ~Pe();

  // Collective over the launch's ranks: begins NVSHMEM where that has not been done, and sees to it that each rank can
  // take buffers of such sizes as any rank asks for, and that there are the teams that any asks for. `unfit`: why this
  // rank cannot be a PE. Throws RuntimeCallError or MemoryError.
  void meet(const RankContext& launch, const std::vector<std::size_t>& sizes, const PeRange& team,
            const std::string& unfit);
  // Why the case that was met for last cannot be; "": it can.
  const std::string& why_not() const { return why_not_; }

  const Library& library() const { return *library_; }
  const Table& calls() const { return library_->calls(); }
  int number() const { return number_; }
  // Whether PEs take turns on a GPU, where none may wait for another on a stream.
  bool takes_turns() const { return begun_ && calls().nvshmemx_init_status() == kSeveralPesInTurn; }
  // Memory that all PEs reach, on this rank's device. Throws MemoryError where less was met for.
  Buffer take(std::size_t bytes);
  std::size_t offset_of(const void* data) const;
  // How that PE's memory is reached, in words.
  const char* way_to(std::size_t offset, int pe) const;
  // The team of such PEs, this one among them, that was met for; kNoTeam: there is none.
  Team team_of(const PeRange& range) const;
  // Collective over a case's ranks, the first of each node alone at first: what it makes (some seconds, once) others
  // find. Throws Unsupported on all with what is missing.
  void load_kernels(const RankContext& context);
  const Kernels& kernels() const { return *kernels_; }
  // The same of one collective, named by its kernel.
  const CollectiveKernel& load_collective(const RankContext& context, const CollectiveCode& code);
  // How a PE's place is named in calls that also name the PE.
  std::byte* at(std::size_t offset) const { return heap_ + offset; }

 private:
  void begin(const RankContext& launch, UniqueId id);
  void grow(std::size_t bytes);
  void make_teams(const RankContext& launch, const std::vector<PeRange>& wanted);

  const Library* library_ = nullptr;
  DeviceRuntime* runtime_ = nullptr;
  int device_ = -1;
  int number_ = -1;
  bool begun_ = false;
  std::string why_not_;
  std::byte* heap_ = nullptr;
  std::size_t heap_bytes_ = 0;
  std::unique_ptr<Kernels> kernels_;
  std::map<std::string, std::unique_ptr<CollectiveKernel>> collectives_;  // by name
  // The same on all PEs, used last at the end; kNoTeam where this one is not of it.
  std::vector<std::pair<PeRange, Team>> teams_;
  int pes_ = 0;
  std::map<std::size_t, std::size_t> taken_;  // offset to end
};

}  // namespace linkgauge::nvshmem
