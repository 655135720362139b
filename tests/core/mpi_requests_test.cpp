// What becomes of requests that are under way when their owner goes, by a library that only counts.
#include <gtest/gtest.h>

#include <set>

#include "mpi/abi.h"
#include "mpi/requests.h"

namespace linkgauge {
namespace {

struct Counted {
  int begun = 0;
  std::set<int> canceled;
  std::set<int> freed;
  int waits = 0;
};
Counted counted;

MpiCalls<int> counting_calls() {
  counted = {};
  MpiCalls<int> calls{};
  calls.constants = mpi_constants(MpiAbi::kMpich);
  calls.mpi.isend.function = [](const void*, int, int, int, int, int, int* request) {
    *request = ++counted.begun;
    return 0;
  };
  calls.mpi.irecv.function = [](void*, int, int, int, int, int, int* request) {
    *request = ++counted.begun;
    return 0;
  };
  calls.mpi.cancel.function = [](int* request) {
    counted.canceled.insert(*request);
    return 0;
  };
  calls.mpi.request_free.function = [](int* request) {
    counted.freed.insert(*request);
    return 0;
  };
  calls.mpi.waitall.function = [](int, int*, void*) {
    ++counted.waits;
    return 0;
  };
  return calls;
}

// An error may leave them posted: what a peer sends later would be written into memory that is gone.
TEST(MpiRequests, ReceivesUnderWayAreTakenBack) {
  const MpiCalls<int> calls = counting_calls();
  char byte = 0;
  {
    RequestsOf<int> receives(calls, 4, RequestKind::kReceives);
    receives.irecv(&byte, 1, 0, 7, 0);
    receives.irecv(&byte, 1, 0, 7, 0);
  }
  EXPECT_EQ(counted.canceled, (std::set<int>{1, 2}));
  EXPECT_EQ(counted.waits, 1) << "the memory is the library's until then";
  {
    RequestsOf<int> receives(calls, 4, RequestKind::kReceives);
    receives.irecv(&byte, 1, 0, 7, 0);
    receives.wait_all();
  }
  EXPECT_EQ(counted.canceled.size(), 2U) << "these were complete";
}

// Libraries wait for ever for a send that was to be canceled and that nobody receives.
TEST(MpiRequests, SendsAreLeftAndPersistentOnesFreed) {
  const MpiCalls<int> calls = counting_calls();
  const char byte = 0;
  {
    RequestsOf<int> sends(calls, 1, RequestKind::kOthers);
    sends.isend(&byte, 1, 0, 7, 0);
    RequestsOf<int> persistent(calls, 1, RequestKind::kPersistent);
    persistent.isend(&byte, 1, 0, 7, 0);
  }
  EXPECT_TRUE(counted.canceled.empty());
  EXPECT_EQ(counted.freed, std::set<int>{2});
  EXPECT_EQ(counted.waits, 0);
}

}  // namespace
}  // namespace linkgauge
