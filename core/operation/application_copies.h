// What an application's copies and stand-in kernels go between on one rank, and what carries them: the runtime's copy
// engine, or a kernel that loads and stores.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "device/device_runtime.h"
#include "traffic/program.h"
#include "transport/data_check.h"
#include "transport/transport.h"

namespace linkgauge {

class ApplicationCopies {
 public:
  // Allocates. Throws Unsupported where kernels are asked for and cannot reach the memory.
  ApplicationCopies(const RankContext& context, const CaseSpec& spec, const Program& program);

  // Queues the step's bytes; `way` is a CopyDirection.
  void queue(std::size_t way, const ProgramStep& step, StreamHandle stream) const;
  void fill(DataCheck& data, std::uint64_t seed) const;
  // Adds to `result` the first thing that is wrong, where nothing is yet.
  void check(DataCheck& data, std::uint64_t seed, VerifyResult& result) const;

 private:
  struct Ends {
    Buffer source;
    Buffer target;
    KernelHandle kernel = nullptr;  // nullptr: by the copy engine
    LaunchShape shape;
  };
  void choose_kernels(int blocks);
  Piece piece(std::size_t way, std::size_t offset, std::size_t bytes) const;

  const RankContext* context_;
  const Program* program_;
  std::array<Ends, kCopyDirections> ends_;
};

}  // namespace linkgauge
