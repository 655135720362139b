// Runs a function with every rank's session, each on its own thread of this process.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "case_maker.h"
#include "mpi/library.h"
#include "run/session.h"

namespace linkgauge {

// What the session of the calling thread is at (a Moment).
inline std::atomic<std::uint64_t>& moment_here() {
  thread_local std::atomic<std::uint64_t> moment{0};
  return moment;
}

// `body` is collective; what a rank throws fails the test. `mpi`: each rank's library, or none. `ccl`: NCCL's file.
inline void with_sessions(const std::shared_ptr<DeviceRuntime>& runtime, int size,
                          const std::function<void(Session&, Group&)>& body,
                          const std::vector<std::shared_ptr<MpiLibrary>>& mpi = {}, const std::string& ccl = "") {
  const auto groups = make_thread_groups(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      SessionOptions options;
      options.runtime = runtime;
      options.group = groups[static_cast<std::size_t>(rank)];
      options.host_clock = {20, 1};
      options.heartbeat.phase = &moment_here();
      options.libraries.folders = library_folders_of_tests();
      options.libraries.ccl = ccl;
      if (!mpi.empty()) options.mpi = mpi[static_cast<std::size_t>(rank)];
      Session session(options);
      try {
        body(session, *options.group);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        options.group->abort_with(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace linkgauge
