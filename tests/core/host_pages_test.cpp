// What the kernel's lists say of a buffer's pages: huge ones, and on which NUMA node.
#include "device/host_pages.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <string>

#include "device/host_memory.h"
#include "device/host_placement.h"

namespace linkgauge {
namespace {

constexpr std::size_t kMib = 1 << 20;

// As fs/proc/task_mmu.c writes them.
const std::string kSmaps =
    "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n"
    "Size:               4096 kB\n"
    "AnonHugePages:      2048 kB\n"
    "ShmemPmdMapped:        0 kB\n"
    "VmFlags: rd wr mr mw me ac hg \n"
    "7f0000400000-7f0000c00000 rw-s 00000000 00:01 5 /memfd:linkgauge (deleted)\n"
    "AnonHugePages:         0 kB\n"
    "ShmemPmdMapped:     8192 kB\n"
    "7fff00000000-7fff00021000 rw-p 00000000 00:00 0 [stack]\n"
    "AnonHugePages:         0 kB\n";

TEST(HostPages, HugePagesOfAMappingAreCounted) {
  EXPECT_EQ(huge_bytes_in(kSmaps, 0x7f0000000000, 4 * kMib), 2 * kMib);
  EXPECT_EQ(huge_bytes_in(kSmaps, 0x7f0000400000, 8 * kMib), 8 * kMib);
  EXPECT_EQ(huge_bytes_in(kSmaps, 0x7f0000000000, 12 * kMib), 10 * kMib);
  EXPECT_EQ(huge_bytes_in(kSmaps, 0x7f0000400000, kMib), kMib);  // the rest is a neighbor's
  EXPECT_EQ(huge_bytes_in(kSmaps, 0x7f0001000000, 4 * kMib), 0);
  EXPECT_EQ(huge_bytes_in("", 0x7f0000000000, kMib), 0);
}

TEST(HostPages, PagesOfANodeAreCounted) {
  const std::string maps =
      "7f0000000000 bind:1 anon=512 dirty=512 active=0 N1=512 kernelpagesize_kB=4\n"
      "7f0000400000 bind:0 file=/memfd:linkgauge\\040(deleted) dirty=4 N0=1 N1=3 kernelpagesize_kB=2048\n"
      "7f0000c00000 default\n";
  EXPECT_EQ(node_bytes_in(maps, 0x7f0000000000, 1, 4096), 2 * kMib);
  EXPECT_EQ(node_bytes_in(maps, 0x7f0000000000, 0, 4096), 0);
  EXPECT_EQ(node_bytes_in(maps, 0x7f0000400000, 1, 4096), 6 * kMib);
  EXPECT_EQ(node_bytes_in(maps, 0x7f0000c00000, 0, 4096), 0);
  EXPECT_EQ(node_bytes_in(maps, 0x7f0000d00000, 0, 4096), -1);
}

TEST(HostPages, WhatRequestsNothingIsInNoAccount) {
  (void)take_host_pages();
  HostMemory memory;
  void* plain = memory.allocate(MemoryKind::kPageable, 4 * kMib, -1, false, false);
  void* small = memory.allocate(MemoryKind::kPageable, kMib, -1, false, true);  // no huge page fits
  EXPECT_EQ(take_host_pages().huge_requested, 0);
  memory.deallocate(small);
  memory.deallocate(plain);
}

TEST(HostPages, TheAccountOfABufferIsTakenOnce) {
  (void)take_host_pages();
  HostMemory memory;
  void* huge = memory.allocate(MemoryKind::kPageable, 64 * kMib, -1, false, true);
  const HostPages pages = take_host_pages();
  EXPECT_GE(pages.huge_requested, 60 * kMib);  // its ends fill no huge page
  EXPECT_LE(pages.huge_requested, 64 * kMib);
  EXPECT_LE(pages.huge_given, pages.huge_requested);
  std::string setting;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), setting);
  const bool never = setting.empty() || setting.find("[never]") != std::string::npos;
  EXPECT_LE(pages.huge_given, never ? 0 : pages.huge_requested);
  EXPECT_EQ(take_host_pages().huge_requested, 0);
  memory.deallocate(huge);
}

}  // namespace
}  // namespace linkgauge
