// libfabric's functions and objects (libfabric.so.1, API 1.15) over a library opened at run time.
//
// Most of libfabric is tables of functions in the objects that it gives out. As for UCX no header is needed to build:
// what is used is restated here, and tests/core/vendor_headers/ compiles it against rdma/fabric.h. Structures only grow
// at their ends, and those that a newer library might read further are its own (fi_dupinfo) or have room behind them.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/symbols.h"

namespace linkgauge::ofi {

// What is asked for: 1.15 is the oldest that machines with Slingshot have.
inline constexpr std::uint32_t kApiVersion = 1U << 16 | 15U;

inline constexpr std::uint64_t kRma = 1ULL << 2;
inline constexpr std::uint64_t kTagged = 1ULL << 3;
inline constexpr std::uint64_t kRead = 1ULL << 8;
inline constexpr std::uint64_t kWrite = 1ULL << 9;
inline constexpr std::uint64_t kReceive = 1ULL << 10;
inline constexpr std::uint64_t kSend = 1ULL << 11;
inline constexpr std::uint64_t kRemoteRead = 1ULL << 12;
inline constexpr std::uint64_t kRemoteWrite = 1ULL << 13;
inline constexpr std::uint64_t kCompletion = 1ULL << 24;
inline constexpr std::uint64_t kDeliveryComplete = 1ULL << 28;
inline constexpr std::uint64_t kDeviceMemory = 1ULL << 47;  // FI_HMEM
inline constexpr std::uint64_t kContext = 1ULL << 59;
inline constexpr std::uint64_t kContext2 = 1ULL << 52;
inline constexpr std::uint64_t kSendAfterSend = 1ULL << 8;  // FI_ORDER_SAS
inline constexpr std::uint64_t kAnyAddress = ~0ULL;         // FI_ADDR_UNSPEC

// fi_domain_attr::mr_mode: what a program does for a provider that wants it.
inline constexpr int kMrLocal = 1 << 2;  // registers what messages are in, too
inline constexpr int kMrVirtualAddress = 1 << 4;
inline constexpr int kMrAllocated = 1 << 5;
inline constexpr int kMrProviderKey = 1 << 6;
inline constexpr int kMrEndpoint = 1 << 9;  // binds what it registers to an endpoint
inline constexpr int kMrDeviceMemory = 1 << 10;

inline constexpr int kReliableDatagrams = 3;  // FI_EP_RDM
inline constexpr int kThreadDomain = 3;       // FI_THREAD_DOMAIN: one thread at a time
inline constexpr int kManaged = 2;            // FI_RM_ENABLED: a full queue says so
inline constexpr int kEntryContext = 1;       // FI_CQ_FORMAT_CONTEXT
inline constexpr int kEnable = 6;             // FI_ENABLE
inline constexpr int kErrorAvailable = 259;   // FI_EAVAIL

struct Object;  // struct fid
struct ObjectCalls {
  std::size_t size;
  int (*close)(Object*);
  int (*bind)(Object*, Object*, std::uint64_t flags);
  int (*control)(Object*, int command, void* argument);
};
struct Object {
  std::size_t kind;
  void* context;
  const ObjectCalls* calls;
};

struct SendFacts {  // fi_tx_attr
  std::uint64_t caps, mode, op_flags, msg_order, comp_order;
  std::size_t inject_size, size, iov_limit, rma_iov_limit;
};
struct ReceiveFacts {  // fi_rx_attr
  std::uint64_t caps, mode, op_flags, msg_order, comp_order;
  std::size_t total_buffered_recv, size, iov_limit;
};
struct EndpointFacts {  // fi_ep_attr
  int type;
  std::uint32_t protocol, protocol_version;
  std::size_t max_msg_size;
};
struct DomainFacts {  // fi_domain_attr
  Object* domain;
  char* name;
  int threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode;
};
struct FabricFacts {  // fi_fabric_attr
  Object* fabric;
  char* name;
  char* prov_name;
};
struct Info {  // fi_info
  Info* next;
  std::uint64_t caps, mode;
  std::uint32_t addr_format;
  std::size_t src_addrlen, dest_addrlen;
  void* src_addr;
  void* dest_addr;
  Object* handle;
  SendFacts* tx_attr;
  ReceiveFacts* rx_attr;
  EndpointFacts* ep_attr;
  DomainFacts* domain_attr;
  FabricFacts* fabric_attr;
};

struct Fabric;
struct Domain;
struct Addresses;
struct Queue;
struct Endpoint;
struct Registration;

struct FabricCalls {
  std::size_t size;
  int (*domain)(Fabric*, Info*, Domain**, void* context);
};
struct Fabric {
  Object object;
  const FabricCalls* calls;
};

struct AddressesAsked {  // fi_av_attr
  int type = 0;
  int rx_ctx_bits = 0;
  std::size_t count = 0;
  std::size_t ep_per_node = 0;
  const char* name = nullptr;
  void* map_addr = nullptr;
  std::uint64_t flags = 0;
  unsigned char unset[64] = {};
};
struct QueueAsked {  // fi_cq_attr
  std::size_t size = 0;
  std::uint64_t flags = 0;
  int format = 0;
  int wait_obj = 0;
  int signaling_vector = 0;
  int wait_cond = 0;
  void* wait_set = nullptr;
  unsigned char unset[64] = {};
};
struct DomainCalls {
  std::size_t size;
  int (*av_open)(Domain*, const AddressesAsked*, Addresses**, void* context);
  int (*cq_open)(Domain*, const QueueAsked*, Queue**, void* context);
  int (*endpoint)(Domain*, Info*, Endpoint**, void* context);
};

// fi_hmem_iface
inline constexpr int kHostMemory = 0;
inline constexpr int kCudaMemory = 1;
inline constexpr int kRocmMemory = 2;
struct RegistrationAsked {  // fi_mr_attr
  const iovec* mr_iov = nullptr;
  std::size_t iov_count = 0;
  std::uint64_t access = 0;
  std::uint64_t offset = 0;
  std::uint64_t requested_key = 0;
  void* context = nullptr;
  std::size_t auth_key_size = 0;
  std::uint8_t* auth_key = nullptr;
  int iface = kHostMemory;
  std::uint64_t device = 0;
  unsigned char unset[64] = {};
};
struct RegistrationCalls {  // fi_ops_mr
  std::size_t size;
  const void* unused[2];
  int (*regattr)(Object* domain, const RegistrationAsked*, std::uint64_t flags, Registration**);
};
struct Domain {
  Object object;
  const DomainCalls* calls;
  const RegistrationCalls* registration;
};
struct Registration {  // fid_mr
  Object object;
  void* descriptor;
  std::uint64_t key;
};

struct AddressCalls {
  std::size_t size;
  int (*insert)(Addresses*, const void* addresses, std::size_t count, std::uint64_t* places, std::uint64_t flags,
                void* context);
};
struct Addresses {
  Object object;
  const AddressCalls* calls;
};

struct QueueEntry {  // fi_cq_entry
  void* context;
};
struct QueueError {  // fi_cq_err_entry
  void* context = nullptr;
  std::uint64_t flags = 0;
  std::size_t len = 0;
  void* buf = nullptr;
  std::uint64_t data = 0;
  std::uint64_t tag = 0;
  std::size_t olen = 0;
  int err = 0;
  int prov_errno = 0;
  void* err_data = nullptr;
  std::size_t err_data_size = 0;
  unsigned char unread[64] = {};
};
struct QueueCalls {
  std::size_t size;
  ssize_t (*read)(Queue*, void* entries, std::size_t count);
  const void* readfrom;
  ssize_t (*readerr)(Queue*, QueueError*, std::uint64_t flags);
};
struct Queue {
  Object object;
  const QueueCalls* calls;
};

struct ConnectionCalls {  // fi_ops_cm
  std::size_t size;
  const void* setname;
  int (*getname)(Object* endpoint, void* address, std::size_t* bytes);
};
struct MemoryMessage {  // fi_msg_rma
  const iovec* msg_iov;
  void** descriptors;
  std::size_t iov_count;
  std::uint64_t peer;
  const struct RemotePiece* rma_iov;
  std::size_t rma_iov_count;
  void* context;
  std::uint64_t data;
};
struct RemotePiece {  // fi_rma_iov
  std::uint64_t address;
  std::size_t bytes;
  std::uint64_t key;
};
struct MemoryCalls {  // fi_ops_rma
  std::size_t size;
  ssize_t (*read)(Endpoint*, void* data, std::size_t bytes, void* descriptor, std::uint64_t peer, std::uint64_t address,
                  std::uint64_t key, void* context);
  const void* unused[4];
  ssize_t (*writemsg)(Endpoint*, const MemoryMessage*, std::uint64_t flags);
};
struct TaggedCalls {  // fi_ops_tagged
  std::size_t size;
  ssize_t (*recv)(Endpoint*, void* data, std::size_t bytes, void* descriptor, std::uint64_t peer, std::uint64_t tag,
                  std::uint64_t ignore, void* context);
  const void* unused[2];
  ssize_t (*send)(Endpoint*, const void* data, std::size_t bytes, void* descriptor, std::uint64_t peer,
                  std::uint64_t tag, void* context);
};
struct Endpoint {  // fid_ep
  Object object;
  const void* calls;
  const ConnectionCalls* connection;
  const void* messages;
  const MemoryCalls* memory;
  const TaggedCalls* tagged;
};

#define LINKGAUGE_OFI_API(REQUIRED, OPTIONAL)                                                            \
  REQUIRED(fi_version, std::uint32_t())                                                                  \
  REQUIRED(fi_getinfo, int(std::uint32_t, const char*, const char*, std::uint64_t, const Info*, Info**)) \
  REQUIRED(fi_freeinfo, void(Info*))                                                                     \
  REQUIRED(fi_dupinfo, Info*(const Info*))                                                               \
  REQUIRED(fi_fabric, int(FabricFacts*, Fabric**, void*))                                                \
  REQUIRED(fi_strerror, const char*(int))

struct Table {
  LINKGAUGE_SYMBOL_TABLE(LINKGAUGE_OFI_API)
};

// That which the process has already; else libfabric.so.1 in the folders, then by the loader's own search.
class Library : public OneLibrary<Library, Table> {
 public:
  std::string version() const;  // of the API that it has

  // What a failing call of libfabric gave, negative or not, in its words. Throws RuntimeCallError.
  [[noreturn]] void fail(long code, const char* call) const;
  void check(long code, const char* call) const {
    if (code < 0) [[unlikely]] {
      fail(code, call);
    }
  }

  // What a list of providers is given back by.
  struct Freed {
    const Library* library;
    void operator()(Info* info) const { library->calls().fi_freeinfo(info); }
  };
  using Infos = std::unique_ptr<Info, Freed>;
  // libfabric's first provider, in its own order, for tagged messages, reads and writes that say when they are there;
  // for device memory too where `device_memory`. nullptr: there is none.
  Infos provider(bool device_memory) const;

 private:
  friend class OneLibrary<Library, Table>;
  explicit Library(const std::vector<std::string>& folders);
};

}  // namespace linkgauge::ofi
