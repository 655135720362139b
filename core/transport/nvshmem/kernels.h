// Kernels that put by themselves (kernels/linked/nvshmem.cu), linked with NVSHMEM's device library, on one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/not_copied.h"
#include "device/linked_kernels.h"
#include "transport/nvshmem/api.h"
#include "transport/nvshmem/options.h"
#include "transport/transport.h"

namespace linkgauge::nvshmem {

// Code that calls NVSHMEM, of which NVSHMEM knows, on one device.
class LinkedModule : NotCopied {
 public:
  // Throws Unsupported with what is missing to make it.
  LinkedModule(DeviceRuntime& runtime, int device, const Library& library, const std::string& text);
  ~LinkedModule();
  KernelHandle kernel(const std::string& name) const { return linked_->kernel(name.c_str()); }

 private:
  DeviceRuntime* runtime_;
  int device_;
  const Library* library_;
  std::unique_ptr<LinkedKernels> linked_;
};

class Kernels {
 public:
  // Throws Unsupported with what is missing to make them.
  Kernels(DeviceRuntime& runtime, int device, const Library& library);

  // Where a put goes: places and words as this PE names them, and whose of them is meant.
  struct Put {
    std::byte* target;
    const std::byte* source;
    std::size_t bytes;
    Signal* signal;
    int pe;
  };
  // Queues `messages` alike, each cut into parts_of parts that bring a signal each.
  void put(const Put& put, std::uint64_t messages, Scope scope, int blocks, StreamHandle stream) const;
  static std::uint64_t parts_of(std::size_t bytes, Scope scope, int blocks);
  static LaunchShape shape_of(std::uint64_t units, std::size_t part_bytes, Scope scope, int blocks);

  // Queues rounds first to first + rounds - 1 of a ping-pong: *mine is this PE's word, put.signal the other's.
  // `by.plain`: of the word alone.
  struct Rounds {
    std::uint64_t first;
    std::uint64_t rounds;
    bool starts;
    std::uint64_t spin_limit;
  };
  void pingpong(const Put& put, Signal* mine, const Rounds& rounds, const Options& by, std::uint64_t* gave_up,
                StreamHandle stream) const;

 private:
  DeviceRuntime* runtime_;
  LinkedModule module_;
  KernelHandle put_ = nullptr;
  KernelHandle pingpong_ = nullptr;
};

// One of NVSHMEM's collectives as a kernel of one block (kernels/linked/nvshmem_collective.cu), which is compiled for
// itself: a reduction takes 20 s.
struct CollectiveCode {
  std::string kernel;  // its name; "": NVSHMEM has no such collective
  std::string text;
};
// As NVSHMEM's functions are named; "": it has none for the pattern.
std::string collective_name(Pattern pattern);
CollectiveCode collective_code(Pattern pattern, Datatype datatype, ReduceOp op);

class CollectiveKernel {
 public:
  // Throws Unsupported with what is missing to make it.
  CollectiveKernel(DeviceRuntime& runtime, int device, const Library& library, const CollectiveCode& code);
  // Queues `rounds` of it; `count`: of elements of a block, bytes where nothing is reduced.
  void run(Team team, void* target, const void* source, std::uint64_t count, int root, std::uint64_t rounds,
           StreamHandle stream) const;
  static LaunchShape shape();

 private:
  DeviceRuntime* runtime_;
  LinkedModule module_;
  KernelHandle kernel_ = nullptr;
};

}  // namespace linkgauge::nvshmem
