#include "memory_kind.h"

#include "words.h"

namespace linkgauge {
namespace {

constexpr Words<MemoryKind, 4> kMemoryKinds{"memory kind",
                                            {{{MemoryKind::kDevice, "device"},
                                              {MemoryKind::kPinned, "pinned"},
                                              {MemoryKind::kPageable, "pageable"},
                                              {MemoryKind::kManaged, "managed"}}}};

constexpr Words<ManagedUse, 8> kManagedUses{"use of managed memory",
                                            {{{ManagedUse::kDefault, "default"},
                                              {ManagedUse::kMigrate, "migrate"},
                                              {ManagedUse::kZeroCopy, "zero_copy"},
                                              {ManagedUse::kPrefetch, "prefetch"},
                                              {ManagedUse::kPreferredDevice, "preferred_device"},
                                              {ManagedUse::kPreferredHost, "preferred_host"},
                                              {ManagedUse::kAccessedBy, "accessed_by"},
                                              {ManagedUse::kReadMostly, "read_mostly"}}}};

}  // namespace

std::string_view to_string(ManagedUse use) { return kManagedUses.name_of(use); }
void from_word(std::string_view word, ManagedUse& value) { value = kManagedUses.from(word); }

std::string_view to_string(MemoryKind kind) { return kMemoryKinds.name_of(kind); }
void from_word(std::string_view word, MemoryKind& value) { value = kMemoryKinds.from(word); }

}  // namespace linkgauge
