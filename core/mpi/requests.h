// What the MPI library and its requests share, and these, for either kind of handle: of library.cpp alone.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "mpi/counts.h"
#include "mpi/library.h"
#include "mpi/symbols.h"

namespace linkgauge {

template <typename Handle>
Handle handle_of(std::uint64_t bits) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<Handle>(static_cast<std::uintptr_t>(bits));
  } else {
    return static_cast<Handle>(bits);
  }
}

template <typename Handle>
std::uint64_t bits_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<std::uint32_t>(handle);
  }
}

// What the library and its requests share.
template <typename Handle>
struct MpiCalls {
  MpiSymbols<Handle> mpi;
  MpiConstants constants;
  Handle byte{};
  Handle block{};

  void* status_ignore() const { return reinterpret_cast<void*>(constants.status_ignore); }
  void* statuses_ignore() const { return reinterpret_cast<void*>(constants.statuses_ignore); }
  const void* or_in_place(const void* data) const {
    return data != nullptr ? data : reinterpret_cast<const void*>(constants.in_place);
  }

  template <typename Call, typename... Given>
  void run(const Call& call, Given... given) const {
    check(call(given...), call.name);
  }
  void check(int code, const char* call) const {
    if (code != 0) [[unlikely]] {
      fail(code, call);
    }
  }
  [[noreturn, gnu::noinline]] void fail(int code, const char* call) const {
    std::string text(static_cast<std::size_t>(constants.max_error_string) + 1, '\0');
    int length = 0;
    mpi.error_string(code, text.data(), &length);
    text.resize(static_cast<std::size_t>(length));
    throw RuntimeCallError(call, "MPI error", code, -1, text);
  }

  Handle type_for(std::size_t bytes) const { return bytes <= kMostMpiCount ? byte : block; }
  static int count_for(std::size_t bytes) {
    return static_cast<int>(bytes <= kMostMpiCount ? bytes : bytes / kMpiBlockBytes);
  }
  std::pair<int, Handle> counted(std::size_t bytes) const { return {count_for(bytes), type_for(bytes)}; }
};

template <typename Handle>
class RequestsOf final : public MpiRequests {
 public:
  RequestsOf(const MpiCalls<Handle>& calls, int capacity, RequestKind kind)
      : calls_(calls), places_(static_cast<std::size_t>(capacity)), kind_(kind) {}
  ~RequestsOf() override {
    if (kind_ == RequestKind::kReceives) cancel_receives();
    for (int i = 0; persistent() && i < count_; ++i) {
      (void)calls_.mpi.request_free(&places_[static_cast<std::size_t>(i)]);  // where it fails, the library is going
    }
  }

  void isend(const void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) override {
    calls_.run(calls_.mpi.isend, data, calls_.count_for(bytes), calls_.type_for(bytes), peer, tag,
               handle_of<Handle>(communicator), next());
  }
  void irecv(void* data, std::size_t bytes, int peer, int tag, std::uint64_t communicator) override {
    calls_.run(calls_.mpi.irecv, data, calls_.count_for(bytes), calls_.type_for(bytes), peer, tag,
               handle_of<Handle>(communicator), next());
  }
  void isend_one(const void* data, std::uint64_t type, int peer, int tag, std::uint64_t communicator) override {
    calls_.run(calls_.mpi.isend, data, 1, handle_of<Handle>(type), peer, tag, handle_of<Handle>(communicator), next());
  }
  void irecv_one(void* data, std::uint64_t type, int peer, int tag, std::uint64_t communicator) override {
    calls_.run(calls_.mpi.irecv, data, 1, handle_of<Handle>(type), peer, tag, handle_of<Handle>(communicator), next());
  }
  void wait_all() override {
    if (!under_way()) return;
    calls_.run(calls_.mpi.waitall, count_, places_.data(), calls_.statuses_ignore());
    end();
  }
  bool test_all() override {
    if (!under_way()) return true;
    int done = 0;
    calls_.run(calls_.mpi.testall, count_, places_.data(), &done, calls_.statuses_ignore());
    if (done == 0) return false;
    end();
    return true;
  }
  int count() const override { return count_; }
  int capacity() const override { return static_cast<int>(places_.size()); }
  void start_all() override {
    calls_.run(calls_.mpi.startall, count_, places_.data());
    started_ = true;
  }
  bool persistent() const { return kind_ == RequestKind::kPersistent; }
  Handle* next() {
    if (count_ == capacity()) throw CallerError("no place is left for another MPI request");
    return &places_[static_cast<std::size_t>(count_++)];
  }

 private:
  // MPICH 4.0 to 5.0 waits for ever for a persistent collective that was not started.
  bool under_way() const { return persistent() ? started_ : count_ > 0; }
  void end() {
    started_ = false;
    if (!persistent()) count_ = 0;
  }
  // What a rank that failed has sent would be written into memory that is gone.
  void cancel_receives() noexcept {
    for (int i = 0; i < count_; ++i) {
      if (calls_.mpi.cancel(&places_[static_cast<std::size_t>(i)]) != 0) return;  // the library is failing already
    }
    if (count_ != 0) (void)calls_.mpi.waitall(count_, places_.data(), calls_.statuses_ignore());
  }

  const MpiCalls<Handle>& calls_;
  std::vector<Handle> places_;
  RequestKind kind_;
  bool started_ = false;
  int count_ = 0;
};

}  // namespace linkgauge
