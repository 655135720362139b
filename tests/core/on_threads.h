// Runs a function as every rank of a group, each on its own thread, and hands on the first exception of a rank.
#pragma once

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "group/group.h"

namespace linkgauge {

template <typename Body>
void on_threads(int size, const Body& body) {
  const std::vector<std::shared_ptr<Group>> groups = make_thread_groups(size);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      Group& group = *groups[static_cast<std::size_t>(rank)];
      try {
        body(group);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        group.abort_with(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace linkgauge
